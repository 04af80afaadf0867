import java.nio.file.*;
import java.util.*;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.*;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.*;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A running count of Apache Flink, exactly once: each record of one topic gives a record to another one, keyed by the line,
 * that says how often it was there so far.  It goes on from the newest checkpoint in its folder.
 * Arguments: bootstrap, folder of the checkpoints, the two topics, TransactionNamingStrategy.
 */
public class FlinkCount {
    public static void main(String[] a) throws Exception {
        Path checkpoints = Path.of(a[1]);
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "1s");
        settings.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("execution.checkpointing.tolerable-failed-checkpoints", "1000");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        settings.setString("restart-strategy.fixed-delay.delay", "500ms");
        settings.setString("taskmanager.memory.network.min", "16m");
        settings.setString("taskmanager.memory.network.max", "16m");
        settings.setString("taskmanager.memory.managed.size", "16m");
        Optional<Path> newest = newest(checkpoints);
        newest.ifPresent(path -> settings.setString("execution.state-recovery.path", path.toUri().toString()));
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(a[0]).setTopics(a[2]).setGroupId("flink-count")
            .setStartingOffsets(OffsetsInitializer.earliest()).setProperty("isolation.level", "read_committed")
            .setValueOnlyDeserializer(new SimpleStringSchema()).build();
        KafkaSink<Tuple2<String, Long>> sink = KafkaSink.<Tuple2<String, Long>>builder()
            .setBootstrapServers(a[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(a[3])
            .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(a[4]))
            .setProperty("transaction.timeout.ms", "600000")
            .setRecordSerializer(KafkaRecordSerializationSchema.<Tuple2<String, Long>>builder()
                .setTopic(a[3])
                .setKeySerializationSchema(new Field(0))
                .setValueSerializationSchema(new Field(1))
                .build())
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "lines").uid("lines")
            .map(line -> Tuple2.of(line, 1L)).returns(Types.TUPLE(Types.STRING, Types.LONG)).uid("ones")
            .keyBy(one -> one.f0).sum(1).uid("sum")
            .sinkTo(sink).uid("counts");
        environment.execute("count");
    }

    /** One of the two as text. */
    public record Field(int number) implements SerializationSchema<Tuple2<String, Long>> {
        @Override
        public byte[] serialize(Tuple2<String, Long> counted) {
            return counted.getField(number).toString().getBytes();
        }
    }

    /** The checkpoint that was completed last, if there is one. */
    private static Optional<Path> newest(Path checkpoints) throws Exception {
        if (!Files.isDirectory(checkpoints)) return Optional.empty();
        try (Stream<Path> paths = Files.walk(checkpoints)) {
            return paths.filter(path -> path.endsWith("_metadata"))
                .max(Comparator.comparing(path -> path.toFile().lastModified())).map(Path::getParent);
        }
    }
}
