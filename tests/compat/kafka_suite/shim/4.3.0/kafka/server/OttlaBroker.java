package kafka.server;

import com.typesafe.scalalogging.Logger;
import java.time.Duration;
import java.util.Map;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.security.CredentialProvider;
import org.apache.kafka.server.BrokerLifecycleManager;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.common.NodeToControllerChannelManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogManager;
import org.apache.kafka.server.metrics.KafkaMetricsGroup;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;
import org.apache.kafka.server.metrics.LinuxIoMetricsCollector;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import ottla.judge.Ottla;
import ottla.judge.Quorum;
import ottla.judge.StandIn;
import ottla.judge.Throttle;
import ottla.judge.View;
import scala.Option;

/** A broker of the harness, behind which a process of Ottla runs. */
abstract class OttlaBroker implements KafkaBroker {
    private final KafkaConfig config;
    private final Metrics metrics = Throttle.metrics();
    final Ottla process;
    final View view;

    OttlaBroker(KafkaConfig config, Quorum quorum) {
        this.process = new Ottla(quorum, config.brokerId(), config.originals());
        this.view = new View(process);
        this.config = new LiveConfig(config.originals());
    }

    /** The settings that the broker started with, and what was altered since. */
    private final class LiveConfig extends KafkaConfig {
        LiveConfig(Map<String, Object> started) {
            super(started);
        }

        @Override
        public Map<String, Object> originals() {
            Map<String, Object> found = super.originals();
            if (config != null && process.isRunning()) {
                found.putAll(view.alteredConfigs(brokerId()));
            }
            return found;
        }
    }

    @Override
    public void startup() {
        process.start();
    }

    @Override
    public void shutdown(Duration timeout) {
        process.stop(timeout);
    }

    @Override
    public void awaitShutdown() {}

    @Override
    public boolean isShutdown() {
        return !process.isRunning();
    }

    @Override
    public int boundPort(ListenerName listener) {
        return process.port(listener.value());
    }

    @Override
    public BrokerState brokerState() {
        return process.isRunning() ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
    }

    @Override
    public String clusterId() {
        return view.clusterId();
    }

    @Override
    public KafkaConfig config() {
        return config;
    }

    @Override
    public SocketServer socketServer() {
        return view.socketServer();
    }

    @Override
    public LogManager logManager() {
        return view.logManager();
    }

    @Override
    public ReplicaManager replicaManager() {
        return view.replicaManager();
    }

    @Override
    public Option<Plugin<Authorizer>> authorizerPlugin() {
        return Option.apply(Plugin.wrapInstance(view.authorizer(), null, "authorizer.class.name"));
    }

    @Override
    public KafkaApis dataPlaneRequestProcessor() {
        return StandIn.calls()
            .on("metadataCache", none -> metadataCache())
            .on("authorizerPlugin", none -> authorizerPlugin())
            .on("clusterId", none -> clusterId())
            .on("quotas", none -> quotaManagers())
            .value("brokerId", config.brokerId())
            .as(KafkaApis.class);
    }

    @Override
    public GroupCoordinator groupCoordinator() {
        return StandIn.calls().on("groupMetadataTopicConfigs", none -> {
            java.util.Properties found = new java.util.Properties();
            found.put("cleanup.policy", "compact");
            return found;
        }).as(GroupCoordinator.class);
    }

    @Override
    public CredentialProvider credentialProvider() {
        return view.credentialProvider();
    }

    @Override
    public DelegationTokenCache tokenCache() {
        return view.tokenCache();
    }

    @Override
    public Metrics metrics() {
        return metrics;
    }

    // Out of reach

    @Override
    public KafkaRequestHandlerPool dataPlaneRequestHandlerPool() {
        throw StandIn.unreachable("KafkaRequestHandlerPool");
    }

    @Override
    public Scheduler kafkaScheduler() {
        throw StandIn.unreachable("KafkaScheduler");
    }

    @Override
    public KafkaYammerMetrics kafkaYammerMetrics() {
        throw StandIn.unreachable("KafkaYammerMetrics");
    }

    @Override
    public Option<RemoteLogManager> remoteLogManagerOpt() {
        throw StandIn.unreachable("RemoteLogManager");
    }

    @Override
    public QuotaFactory.QuotaManagers quotaManagers() {
        return view.quotaManagers();
    }

    @Override
    public BrokerTopicStats brokerTopicStats() {
        throw StandIn.unreachable("BrokerTopicStats");
    }

    @Override
    public LogDirFailureChannel logDirFailureChannel() {
        throw StandIn.unreachable("LogDirFailureChannel");
    }

    @Override
    public BrokerLifecycleManager lifecycleManager() {
        throw StandIn.unreachable("BrokerLifecycleManager");
    }

    @Override
    public NodeToControllerChannelManager clientToControllerChannelManager() {
        throw StandIn.unreachable("NodeToControllerChannelManager");
    }

    // What Scala asks of a class with this trait

    private String logIdent = "";

    @Override
    public Logger logger() {
        return KafkaBroker.super.logger();
    }

    @Override
    public String logIdent() {
        return logIdent;
    }

    @Override
    public void logIdent_$eq(String text) {
        logIdent = text;
    }

    @Override
    public int NumFetchSessionCacheShards() {
        return 8;
    }

    @Override
    public KafkaMetricsGroup kafka$server$KafkaBroker$$metricsGroup() {
        return null;
    }

    @Override
    public LinuxIoMetricsCollector kafka$server$KafkaBroker$$linuxIoMetricsCollector() {
        return null;
    }

    @Override
    public void kafka$server$KafkaBroker$_setter_$NumFetchSessionCacheShards_$eq(int shards) {}

    @Override
    public void kafka$server$KafkaBroker$_setter_$kafka$server$KafkaBroker$$metricsGroup_$eq(KafkaMetricsGroup group) {}

    @Override
    public void kafka$server$KafkaBroker$_setter_$kafka$server$KafkaBroker$$linuxIoMetricsCollector_$eq(LinuxIoMetricsCollector io) {}
}
