package kafka.server;

import java.net.InetSocketAddress;
import java.util.Collection;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble;
import ottla.judge.Quorum;
import ottla.judge.StandIn;

/** What the harness makes first for each node. Nodes of one cluster get the same `faultHandlerFactory`. */
public class SharedServer {
    private final KafkaConfig config;
    private final MetaPropertiesEnsemble ensemble;
    private final Metrics metrics;
    private final Quorum quorum;

    public SharedServer(
        KafkaConfig config,
        MetaPropertiesEnsemble ensemble,
        Time time,
        Metrics metrics,
        CompletableFuture<Map<Integer, InetSocketAddress>> voters,
        Collection<InetSocketAddress> bootstrapServers,
        FaultHandlerFactory faultHandlerFactory
    ) {
        this.config = config;
        this.ensemble = ensemble;
        this.metrics = metrics;
        this.quorum = Quorum.of(faultHandlerFactory);
    }

    Quorum quorum() {
        return quorum;
    }

    public KafkaConfig brokerConfig() {
        return config;
    }

    public KafkaConfig controllerConfig() {
        return config;
    }

    public MetaPropertiesEnsemble metaPropsEnsemble() {
        return ensemble;
    }

    public Metrics metrics() {
        return metrics;
    }

    public MetadataLoader loader() {
        return StandIn.calls().value("lastAppliedOffset", Long.MAX_VALUE).as(MetadataLoader.class);
    }

    public void startForBroker() {}

    public void stopForBroker() {}

    public void stopForController() {}
}
