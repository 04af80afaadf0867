import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a group that says which partitions it has whenever that changes, until its input ends.
 * Arguments: bootstrap, group, topic, class names of assignors separated by commas; or "consumer", for the new protocol.
 */
public class GroupMember {
    public static void main(String[] a) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", a[0]);
        config.put("group.id", a[1]);
        if (a[3].equals("consumer")) {
            config.put("group.protocol", a[3]);
        } else {
            config.put("partition.assignment.strategy", a[3]);
            config.put("heartbeat.interval.ms", 200);
            config.put("session.timeout.ms", 10000);
        }
        config.put("auto.offset.reset", "earliest");
        AtomicBoolean over = new AtomicBoolean();
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (Exception ignored) { }
            over.set(true);
        });
        input.setDaemon(true);
        input.start();
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(a[2]));
            Set<TopicPartition> had = Set.of();
            while (!over.get()) {
                consumer.poll(Duration.ofMillis(100));
                Set<TopicPartition> has = new HashSet<>(consumer.assignment());
                if (!has.equals(had)) {
                    System.out.println("owns " + has.stream().map(at -> "" + at.partition()).sorted()
                        .collect(Collectors.joining(",")));
                    System.out.flush();
                    had = has;
                }
            }
        }
    }
}
