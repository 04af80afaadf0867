import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactional producers of the Java client, each call made on request.
 * A line of input is a producer's name, a call and its arguments; the line of output is "=" and the error, if any.
 */
public class Producers {
    interface Call { void run() throws Exception; }

    static final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    static final Map<String, String[]> names = new HashMap<>();

    public static void main(String[] arguments) throws IOException {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = input.readLine()) != null; ) {
            String[] words = line.split(" ");
            System.out.println("= " + told(() -> make(words[0], words[1], words)));
        }
        System.exit(0);
    }

    static String told(Call call) {
        try {
            call.run();
            return "";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            // A KafkaException wraps what made the transaction fail.
            boolean wraps = error.getClass().getSimpleName().equals("KafkaException") && error.getCause() != null;
            String inner = wraps ? " of " + error.getCause().getClass().getSimpleName() : "";
            return error.getClass().getSimpleName() + inner;
        }
    }

    static void make(String name, String call, String[] words) throws Exception {
        if (call.equals("start")) {
            start(name, Arrays.copyOfRange(words, 2, words.length));
            return;
        }
        var producer = producers.get(name);
        String topic = names.get(name)[2];
        switch (call) {
            case "begin" -> producer.beginTransaction();
            case "send" -> producer.send(new ProducerRecord<>(topic, Integer.parseInt(words[2]), null, words[3])).get();
            case "offsets" -> producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(Long.parseLong(words[2]))),
                new ConsumerGroupMetadata(names.get(name)[3]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "close" -> producer.close(java.time.Duration.ofSeconds(1));
            default -> throw new IllegalArgumentException(call);
        }
    }

    /** bootstrap, transactional id, topic, group, time-out */
    static void start(String name, String[] of) {
        names.put(name, of);
        var producer = new KafkaProducer<>(Map.<String, Object>of(
            "bootstrap.servers", of[0], "transactional.id", of[1], "transaction.timeout.ms", Integer.parseInt(of[4]),
            "max.block.ms", 20000, "delivery.timeout.ms", 20000, "request.timeout.ms", 10000),
            new StringSerializer(), new StringSerializer());
        producers.put(name, producer);
        producer.initTransactions();
    }
}
