import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.common.*;

/**
 * Shares partitions out as Apache Kafka's assignors do. One case a line of its input:
 * assignor;topic=count ...;member,instance or -,topic ...,owned partition as topic:number ... / member ...
 * One line each of its output: member=topic:number ... / member=...
 */
public class Assign {
    public static void main(String[] a) {
        Map<String, ConsumerPartitionAssignor> assignors = Map.of("range", new RangeAssignor(),
            "roundrobin", new RoundRobinAssignor(), "cooperative-sticky", new CooperativeStickyAssignor());
        Scanner in = new Scanner(System.in);
        Node node = new Node(0, "localhost", 1);
        while (in.hasNextLine()) {
            String[] line = in.nextLine().split(";", -1);
            List<PartitionInfo> all = new ArrayList<>();
            for (String topic : words(line[1])) {
                String[] said = topic.split("=");
                for (int n = 0; n < Integer.parseInt(said[1]); n++)
                    all.add(new PartitionInfo(said[0], n, node, new Node[]{node}, new Node[]{node}));
            }
            Cluster cluster = new Cluster("c", List.of(node), all, Set.of(), Set.of());
            Map<String, Subscription> members = new HashMap<>();
            for (String member : line[2].split("/")) {
                String[] said = member.split(",", -1);
                List<TopicPartition> owned = words(said[3]).stream().map(at -> at.split(":"))
                    .map(at -> new TopicPartition(at[0], Integer.parseInt(at[1]))).collect(Collectors.toList());
                Subscription subscription = new Subscription(words(said[2]), null, owned, 1, Optional.empty());
                if (!said[1].equals("-")) subscription.setGroupInstanceId(Optional.of(said[1]));
                members.put(said[0], subscription);
            }
            System.out.println(assignors.get(line[0]).assign(cluster, new GroupSubscription(members)).groupAssignment()
                .entrySet().stream().map(each -> each.getKey() + "=" + each.getValue().partitions().stream()
                    .map(at -> at.topic() + ":" + at.partition()).collect(Collectors.joining(" ")))
                .collect(Collectors.joining("/")));
        }
    }

    static List<String> words(String text) {
        return text.isEmpty() ? List.of() : List.of(text.split(" "));
    }
}
