import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/**
 * One transactional producer until the standard input ends; every transaction that fails is aborted, or else the
 * producer is built anew. Arguments: bootstrap, topic, partitions, records of each transaction, transactional id.
 * Prints a line for each transaction: committed, aborted or unknown, its name, and why it failed.
 */
public class ChangingLevels {
    static volatile boolean stopped = false;
    static int number = 0;

    public static void main(String[] a) throws Exception {
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException ended) { }
            stopped = true;
        });
        watch.setDaemon(true);
        watch.start();
        while (!stopped) {
            Map<String, Object> config = Map.of("bootstrap.servers", a[0], "transactional.id", a[4], "linger.ms", 0);
            KafkaProducer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
            try {
                producer.initTransactions();
                while (!stopped && transaction(producer, a[1], Integer.parseInt(a[2]), Integer.parseInt(a[3]), a[4])) { }
            } finally {
                producer.close(java.time.Duration.ofSeconds(5));
            }
        }
    }

    /** False if the producer is of no use any more. */
    static boolean transaction(KafkaProducer<String, String> producer, String topic, int partitions, int records, String id) {
        String tag = id + "-" + number;
        boolean commit = number++ % 3 != 0;
        try {
            producer.beginTransaction();
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int n = 0; n < records; n++)
                sent.add(producer.send(new ProducerRecord<>(topic, n % partitions, null, tag + "/" + n)));
            for (Future<RecordMetadata> one : sent)
                one.get(30, TimeUnit.SECONDS);
            if (commit) producer.commitTransaction(); else producer.abortTransaction();
            System.out.println((commit ? "committed " : "aborted ") + tag);
            return true;
        } catch (Exception failed) {
            try {
                producer.abortTransaction();
                System.out.println("aborted " + tag + " " + failed);
                return true;
            } catch (KafkaException fatal) {
                System.out.println("unknown " + tag + " " + failed + " " + fatal);
                return false;
            }
        }
    }
}
