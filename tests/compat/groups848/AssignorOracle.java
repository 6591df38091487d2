import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** What Kafka's own assignors say: one group as JSON on each line of the input, its assignment on each line of the output. */
public class AssignorOracle {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(json.writeValueAsString(assign(json.readTree(line))));
        }
    }

    static Uuid topicId(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    static Map<String, Map<String, Set<Integer>>> assign(JsonNode group) {
        Map<Uuid, Integer> counts = new HashMap<>();
        group.get("topics").fields().forEachRemaining(topic -> counts.put(topicId(topic.getKey()), topic.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new TreeMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        group.get("members").fields().forEachRemaining(entry -> {
            JsonNode member = entry.getValue();
            Set<Uuid> subscribed = new TreeSet<>();
            member.get("topics").forEach(topic -> subscribed.add(topicId(topic.asText())));
            Map<Uuid, Set<Integer>> assigned = new TreeMap<>();
            member.get("assigned").fields().forEachRemaining(topic -> {
                Set<Integer> partitions = new TreeSet<>();
                topic.getValue().forEach(partition -> {
                    partitions.add(partition.asInt());
                    owners.computeIfAbsent(topicId(topic.getKey()), any -> new HashMap<>()).put(partition.asInt(), entry.getKey());
                });
                assigned.put(topicId(topic.getKey()), partitions);
            });
            members.put(entry.getKey(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.ofNullable(member.get("instance").textValue()), subscribed, new Assignment(assigned)));
        });
        ConsumerGroupPartitionAssignor assignor =
            group.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        SubscriptionType type =
            group.get("homogeneous").asBoolean() ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
        Map<String, Map<String, Set<Integer>>> result = new TreeMap<>();
        assignor.assign(new GroupSpecImpl(members, type, owners), describer).members().forEach((name, assignment) -> {
            Map<String, Set<Integer>> topics = new LinkedHashMap<>();
            assignment.partitions().forEach((topic, partitions) ->
                topics.put(Long.toString(topic.getLeastSignificantBits()), new TreeSet<>(partitions)));
            result.put(name, topics);
        });
        return result;
    }
}
