import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.TopicPartitionReplica;

/**
 * Moves replicas of broker 1, one after the other: bootstrap, then topic, partition, directory of each. Says what became of it, and,
 * when all that was granted is done, where each replica lies.
 */
public class MoveReplica {
    private static final long WITHIN_MS = 120_000;

    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        try (Admin admin = Admin.create(settings)) {
            Map<String, String> granted = new HashMap<>();
            for (int at = 1; at < words.length; at += 3) {
                TopicPartitionReplica replica = new TopicPartitionReplica(words[at], Integer.parseInt(words[at + 1]), 1);
                String outcome = "OK";
                try {
                    admin.alterReplicaLogDirs(Map.of(replica, words[at + 2])).all().get();
                    granted.put(words[at] + "-" + words[at + 1], words[at + 2]);
                } catch (ExecutionException error) {
                    outcome = error.getCause().getClass().getSimpleName();
                }
                System.out.println(words[at] + " " + words[at + 1] + " " + outcome);
            }
            Map<String, List<String>> places = places(admin);
            long deadline = System.nanoTime() + WITHIN_MS * 1_000_000;
            while (!settled(granted, places) && System.nanoTime() < deadline) {
                Thread.sleep(50);
                places = places(admin);
            }
            places.forEach((partition, found) -> System.out.println(partition + " lies in " + String.join(" and ", found)));
        }
    }

    /** Of each partition, in which directories it lies, with size and lag, and whether it is yet to come there. */
    private static Map<String, List<String>> places(Admin admin) throws Exception {
        Map<String, List<String>> places = new TreeMap<>();
        admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).forEach((dir, description) ->
            description.replicaInfos().forEach((partition, replica) ->
                places.computeIfAbsent(partition.toString(), key -> new ArrayList<>()).add(
                    dir + " " + replica.size() + " " + replica.offsetLag() + (replica.isFuture() ? " future" : ""))));
        return places;
    }

    /**
     * Every granted replica lies where it was wished, and nowhere else. That none is yet to come is not enough: while Apache Kafka
     * exchanges the two, the copy has its last name already, and the old one is listed beside it, or instead of it.
     */
    private static boolean settled(Map<String, String> granted, Map<String, List<String>> places) {
        return granted.entrySet().stream().allMatch(wish -> {
            List<String> found = places.getOrDefault(wish.getKey(), List.of());
            return found.size() == 1 && found.get(0).startsWith(wish.getValue() + " ") && !found.get(0).endsWith(" future");
        });
    }
}
