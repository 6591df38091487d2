package kafka.server;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.util.Collection;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble;
import org.apache.kafka.server.ServerSocketFactory;
import ottla.judge.Quorum;
import ottla.judge.StandIn;

/** What the harness makes first for each node. Nodes of one cluster get the same `faultHandlerFactory`. */
public class SharedServer {
    private final KafkaConfig config;
    private final MetaPropertiesEnsemble ensemble;
    private final Metrics metrics;
    private final Quorum quorum;
    private final ServerSocketFactory socketFactory;

    public SharedServer(
        KafkaConfig config,
        MetaPropertiesEnsemble ensemble,
        Time time,
        Metrics metrics,
        CompletableFuture<Map<Integer, InetSocketAddress>> voters,
        Collection<InetSocketAddress> bootstrapServers,
        FaultHandlerFactory faultHandlerFactory,
        ServerSocketFactory socketFactory
    ) {
        this.config = config;
        this.ensemble = ensemble;
        this.metrics = metrics;
        this.quorum = Quorum.of(faultHandlerFactory);
        this.socketFactory = socketFactory;
    }

    /** Free the ports that the harness holds for this node: another process binds them. */
    void releasePorts() {
        Object listeners = config.originals().getOrDefault("listeners", "");
        for (String listener : String.valueOf(listeners).split(",")) {
            int slashes = listener.indexOf("://");
            int port = Integer.parseInt(listener.substring(listener.lastIndexOf(':') + 1));
            if (port == 0) continue;
            try {
                socketFactory.openServerSocket(listener.substring(0, slashes), new InetSocketAddress("localhost", port), -1, 50).close();
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
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
