package kafka.server;

import java.util.List;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponsePartition;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import ottla.judge.StandIn;

/** In place of Kafka's broker. */
public class BrokerServer extends OttlaBroker {
    private final SharedServer sharedServer;

    public BrokerServer(SharedServer sharedServer) {
        super(sharedServer.brokerConfig(), sharedServer.quorum());
        this.sharedServer = sharedServer;
    }

    @Override
    public void startup() {
        sharedServer.releasePorts();
        super.startup();
    }

    public SharedServer sharedServer() {
        return sharedServer;
    }

    @Override
    public KRaftMetadataCache metadataCache() {
        return StandIn.calls()
            .on("getLeaderAndIsr", names -> {
                MetadataResponsePartition told = view.partition((String) names[0], (Integer) names[1]);
                return told == null ? Optional.empty() : Optional.of(new LeaderAndIsr(
                    told.leaderId(), told.leaderEpoch(), told.isrNodes(), LeaderRecoveryState.RECOVERED, 0));
            })
            .on("numPartitions", names -> Optional.ofNullable(view.topic((String) names[0])).map(topic -> topic.partitions().size()))
            .on("getTopicId", names -> Optional.ofNullable(view.topic((String) names[0]))
                .map(MetadataResponseTopic::topicId).orElse(Uuid.ZERO_UUID))
            .on("contains", names -> names[0] instanceof TopicPartition partition
                ? view.partition(partition.topic(), partition.partition()) != null
                : view.topic((String) names[0]) != null)
            .on("getAllTopics", none -> view.topicIds().keySet())
            .on("topicNamesToIds", none -> view.topicIds())
            .on("topicIdsToNames", none -> {
                TreeMap<Uuid, String> found = new TreeMap<>();
                view.topicIds().forEach((name, id) -> found.put(id, name));
                return found;
            })
            .on("hasAliveBroker", names -> view.isAlive((Integer) names[0]))
            .on("getAliveBrokerNode", names -> Optional.ofNullable(view.node((Integer) names[0], (ListenerName) names[1])))
            .on("getAliveBrokerNodes", names -> view.metadata(List.of()).brokers().stream()
                .map(node -> view.node(node.id(), (ListenerName) names[0])).toList())
            .on("getPartitionLeaderEndpoint", names -> Optional.ofNullable(view.partition((String) names[0], (Integer) names[1]))
                .map(found -> view.node(found.leaderId(), (ListenerName) names[2])))
            .on("topicConfig", names -> view.topicConfig((String) names[0]))
            .as(KRaftMetadataCache.class);
    }
}
