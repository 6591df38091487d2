package kafka.server;

import java.util.ArrayList;
import kafka.server.metadata.KRaftMetadataCache;
import org.apache.kafka.admin.BrokerMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponsePartition;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.message.UpdateMetadataRequestData.UpdateMetadataPartitionState;
import org.apache.kafka.common.network.ListenerName;
import java.util.List;
import java.util.Optional;
import ottla.judge.StandIn;
import ottla.judge.View;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** In place of Kafka's broker of a KRaft cluster. */
public class BrokerServer extends OttlaBroker {
    private final SharedServer sharedServer;

    public BrokerServer(SharedServer sharedServer) {
        super(sharedServer.brokerConfig(), sharedServer.quorum());
        this.sharedServer = sharedServer;
    }

    public SharedServer sharedServer() {
        return sharedServer;
    }

    @Override
    public KRaftMetadataCache metadataCache() {
        return metadata(view).as(KRaftMetadataCache.class);
    }

    static StandIn.Calls metadata(View view) {
        return StandIn.calls()
            .on("getPartitionInfo", names -> Option.apply(state(view.partition((String) names[0], (Integer) names[1]), names)))
            .on("numPartitions", names -> {
                MetadataResponseTopic topic = view.topic((String) names[0]);
                return topic == null ? Option.empty() : Option.apply((Object) topic.partitions().size());
            })
            .on("getTopicId", names -> {
                MetadataResponseTopic topic = view.topic((String) names[0]);
                return topic == null ? Uuid.ZERO_UUID : topic.topicId();
            })
            .on("contains", names -> names[0] instanceof TopicPartition partition
                ? view.partition(partition.topic(), partition.partition()) != null
                : view.topic((String) names[0]) != null)
            .on("getAllTopics", none -> CollectionConverters.asScala(view.topicIds().keySet()).toSet())
            .on("topicNamesToIds", none -> view.topicIds())
            .on("hasAliveBroker", names -> view.isAlive((Integer) names[0]))
            .on("getAliveBrokers", none -> CollectionConverters.asScala(new ArrayList<>(view.metadata(List.of()).brokers().stream()
                .map(node -> new BrokerMetadata(node.id(), Optional.ofNullable(node.rack()))).toList())))
            .on("getAliveBrokerNode", names -> Option.apply(view.node((Integer) names[0], (ListenerName) names[1])))
            .on("getPartitionLeaderEndpoint", names -> {
                MetadataResponsePartition found = view.partition((String) names[0], (Integer) names[1]);
                return found == null ? Option.empty() : Option.apply(view.node(found.leaderId(), (ListenerName) names[2]));
            })
            .on("getControllerId", none -> Option.apply(new KRaftCachedControllerId(view.metadata(List.of()).data().controllerId())));
    }

    private static UpdateMetadataPartitionState state(MetadataResponsePartition told, Object[] names) {
        if (told == null) return null;
        return new UpdateMetadataPartitionState()
            .setTopicName((String) names[0])
            .setPartitionIndex(told.partitionIndex())
            .setLeader(told.leaderId())
            .setLeaderEpoch(told.leaderEpoch())
            .setReplicas(told.replicaNodes())
            .setIsr(told.isrNodes())
            .setOfflineReplicas(told.offlineReplicas());
    }
}
