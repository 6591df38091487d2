import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.ReplicaInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;

/** Moves replicas of broker 1, one after the other: bootstrap, then topic, partition, directory of each. Says what became of it. */
public class MoveReplica {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        try (Admin admin = Admin.create(settings)) {
            for (int at = 1; at < words.length; at += 3) {
                TopicPartitionReplica replica = new TopicPartitionReplica(words[at], Integer.parseInt(words[at + 1]), 1);
                String outcome = "OK";
                try {
                    admin.alterReplicaLogDirs(Map.of(replica, words[at + 2])).all().get();
                } catch (ExecutionException error) {
                    outcome = error.getCause().getClass().getSimpleName();
                }
                System.out.println(words[at] + " " + words[at + 1] + " " + outcome);
            }
            Map<String, String> places = new TreeMap<>();
            boolean moving = true;
            for (int attempt = 0; moving && attempt < 200; attempt++) {
                moving = false;
                places.clear();
                for (Map.Entry<String, LogDirDescription> dir : admin.describeLogDirs(java.util.List.of(1)).allDescriptions().get().get(1).entrySet()) {
                    for (Map.Entry<TopicPartition, ReplicaInfo> entry : dir.getValue().replicaInfos().entrySet()) {
                        moving |= entry.getValue().isFuture();
                        String name = dir.getKey().substring(dir.getKey().lastIndexOf('/') + 1);
                        places.put(entry.getKey().toString(), name + " " + entry.getValue().size() + " " + entry.getValue().offsetLag());
                    }
                }
                if (moving) {
                    Thread.sleep(50);
                }
            }
            places.forEach((partition, place) -> System.out.println(partition + " lies in " + place));
        }
    }
}
