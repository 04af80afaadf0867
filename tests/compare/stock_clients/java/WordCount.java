import java.util.*;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

/**
 * A word count of Kafka Streams, exactly once: each word of "lines" gives a record to "counts" that says how often it was
 * there so far.  Its state is in a changelog, what it groups goes through a topic whose records it deletes.
 * Arguments: bootstrap, folder for its state.
 */
public class WordCount {
    public static void main(String[] a) {
        Properties config = new Properties();
        config.put("bootstrap.servers", a[0]);
        config.put("application.id", "word-count");
        config.put("state.dir", a[1]);
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("commit.interval.ms", 200);
        config.put("repartition.purge.interval.ms", 500);
        config.put("statestore.cache.max.bytes", 0);
        config.put("replication.factor", 1);
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        config.put("auto.offset.reset", "earliest");
        config.put("session.timeout.ms", 6000);
        config.put("heartbeat.interval.ms", 1000);
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream("lines");
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as("counted"))
            .toStream().mapValues(count -> Long.toString(count)).to("counts");
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
