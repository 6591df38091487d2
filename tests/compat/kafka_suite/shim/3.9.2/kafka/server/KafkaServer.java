package kafka.server;

import kafka.server.metadata.ZkMetadataCache;
import org.apache.kafka.common.utils.Time;
import ottla.judge.Quorum;
import scala.Option;

/** In place of Kafka's broker of a ZooKeeper cluster. The harness runs ZooKeeper itself. */
public class KafkaServer extends OttlaBroker {
    public KafkaServer(KafkaConfig config, Time time, Option<String> threadNamePrefix, boolean enableForwarding) {
        super(config, Quorum.at((String) config.originals().get("zookeeper.connect")));
    }

    @Override
    public MetadataCache metadataCache() {
        return BrokerServer.metadata(view).as(ZkMetadataCache.class);
    }
}
