package kafka.server;

import java.util.HashMap;
import java.util.Map;
import java.util.Collection;
import java.util.concurrent.CompletableFuture;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.metadata.KafkaConfigSchema;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.ReplicatedLog;
import org.apache.kafka.server.authorizer.Authorizer;
import ottla.judge.Quorum;
import ottla.judge.StandIn;
import ottla.judge.View;
import scala.Option;

/** In place of Kafka's KRaft controller, which Ottla does not have: one of its brokers is the controller. */
public class ControllerServer {
    private final SharedServer sharedServer;
    private final Quorum quorum;

    public ControllerServer(SharedServer sharedServer, KafkaConfigSchema schema, BootstrapMetadata bootstrapMetadata) {
        this.sharedServer = sharedServer;
        this.quorum = sharedServer.quorum();
        quorum.begin(bootstrapMetadata.records());
    }

    public void startup() {}

    public void shutdown() {}

    public void awaitShutdown() {}

    public CompletableFuture<Integer> socketServerFirstBoundPortFuture() {
        return CompletableFuture.completedFuture(1);
    }

    public SharedServer sharedServer() {
        return sharedServer;
    }

    public KafkaConfig config() {
        return sharedServer.controllerConfig();
    }

    public Metrics metrics() {
        return sharedServer.metrics();
    }

    public String clusterId() {
        return view().clusterId();
    }

    private View view() {
        return new View(quorum.any());
    }

    public Option<Authorizer> authorizer() {
        return Option.apply(view().authorizer());
    }

    /** Requests for a controller go to the broker that is it. */
    public SocketServer socketServer() {
        return StandIn.calls().on("boundPort", names -> quorum.controller().clientPort()).as(SocketServer.class);
    }

    public KafkaRaftManager<?> raftManager() {
        ReplicatedLog log = StandIn.calls().on("endOffset", none -> {
            View.settle(quorum);
            return new LogOffsetMetadata(1);
        }).as(ReplicatedLog.class);
        return StandIn.calls().value("replicatedLog", log).as(KafkaRaftManager.class);
    }

    public QuotaFactory.QuotaManagers quotaManagers() {
        return view().quotaManagers();
    }

    public Controller controller() {
        return StandIn.calls()
            .value("isActive", true)
            .on("waitForReadyBrokers", names -> CompletableFuture.completedFuture(null))
            .on("incrementalAlterConfigs", names -> CompletableFuture.completedFuture(view().alterConfigs((Map<?, ?>) names[1])))
            .on("findAllTopicIds", names -> CompletableFuture.completedFuture(view().topicIds()))
            .on("findTopicIds", names -> {
                Map<String, Uuid> known = view().topicIds();
                Map<String, ResultOrError<Uuid>> found = new HashMap<>();
                for (Object name : (Collection<?>) names[1]) {
                    Uuid id = known.get(name);
                    found.put((String) name, id == null
                        ? new ResultOrError<>(Errors.UNKNOWN_TOPIC_OR_PARTITION, "unknown topic") : ResultOrError.of(id));
                }
                return CompletableFuture.completedFuture(found);
            })
            .as(Controller.class);
    }
}
