package ottla.judge;

import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.common.metadata.UserScramCredentialRecord;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;

/** Writes what a KRaft cluster is formatted with, SCRAM credentials, into ZooKeeper before the first broker starts. */
final class Seed {
    private Seed() {}

    static Map<String, String> configs(List<ApiMessageAndVersion> records) {
        Map<String, String> byUser = new TreeMap<>();
        Base64.Encoder base64 = Base64.getEncoder();
        for (ApiMessageAndVersion each : records) {
            if (each.message() instanceof UserScramCredentialRecord record) {
                String mechanism = ScramMechanism.fromType(record.mechanism()).mechanismName();
                String credential = "salt=" + base64.encodeToString(record.salt())
                    + ",stored_key=" + base64.encodeToString(record.storedKey())
                    + ",server_key=" + base64.encodeToString(record.serverKey()) + ",iterations=" + record.iterations();
                byUser.merge(record.name(), "\"" + mechanism + "\":\"" + credential + "\"", (old, more) -> old + "," + more);
            }
        }
        return byUser;
    }

    static void write(String connect, Map<String, String> configs) {
        int slash = connect.indexOf('/');
        String chroot = connect.substring(slash);
        CountDownLatch connected = new CountDownLatch(1);
        try (ZooKeeper client = new ZooKeeper(connect.substring(0, slash), 10_000, event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) connected.countDown();
        })) {
            connected.await();
            for (String path : List.of("", "/config", "/config/users")) create(client, chroot + path, "");
            configs.forEach((user, config) ->
                create(client, chroot + "/config/users/" + user, "{\"version\":1,\"config\":{" + config + "}}"));
        } catch (Exception failure) {
            throw new IllegalStateException("ZooKeeper could not be prepared", failure);
        }
    }

    private static void create(ZooKeeper client, String path, String data) {
        try {
            client.create(path, data.getBytes(StandardCharsets.UTF_8), ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        } catch (KeeperException.NodeExistsException exists) {
            // Another broker of this cluster was first.
        } catch (KeeperException | InterruptedException failure) {
            throw new IllegalStateException(failure);
        }
    }
}
