import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/**
 * Parallel transactional producers, every send awaited before its commit.
 * Arguments: bootstrap, producers, transactions each, topic. Prints one JSON line.
 */
public class Transactions {
    public static void main(String[] a) throws Exception {
        String bootstrap = a[0], topic = a[3];
        int producers = Integer.parseInt(a[1]), each = Integer.parseInt(a[2]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, producers, (short) 1))).all().get();
        } catch (ExecutionException ignored) { }
        AtomicInteger errors = new AtomicInteger();
        long[] latencies = new long[producers * each];
        CountDownLatch ready = new CountDownLatch(producers), go = new CountDownLatch(1), done = new CountDownLatch(producers);
        for (int p = 0; p < producers; p++) {
            final int n = p;
            new Thread(() -> {
                Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "transactional.id", topic + "-" + n,
                    "linger.ms", 0);
                try (KafkaProducer<String, String> producer =
                         new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
                    producer.initTransactions();
                    ready.countDown();
                    go.await();
                    for (int i = 0; i < each; i++) {
                        long start = System.nanoTime();
                        producer.beginTransaction();
                        producer.send(new ProducerRecord<>(topic, n, "k", "value-" + i)).get();
                        producer.commitTransaction();
                        latencies[n * each + i] = System.nanoTime() - start;
                    }
                } catch (Exception e) {
                    errors.incrementAndGet();
                    System.err.println(n + ": " + e);
                    ready.countDown();
                }
                done.countDown();
            }).start();
        }
        ready.await();
        long start = System.nanoTime();
        go.countDown();
        done.await();
        double seconds = (System.nanoTime() - start) / 1e9;
        Arrays.sort(latencies);
        System.out.printf("{\"transactions_per_second\": %.1f, \"p50_ms\": %.2f, \"p99_ms\": %.2f, \"errors\": %d}%n",
            latencies.length / seconds, latencies[latencies.length / 2] / 1e6,
            latencies[(int) (latencies.length * 0.99)] / 1e6, errors.get());
    }
}
