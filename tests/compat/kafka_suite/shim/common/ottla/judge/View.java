package ottla.judge;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import kafka.network.SocketServer;
import kafka.server.QuotaFactory;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialsDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsPartition;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsTopic;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponsePartition;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.common.requests.ListOffsetsRequest;
import org.apache.kafka.common.requests.ListOffsetsResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.authenticator.CredentialCache;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.security.CredentialProvider;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Authorizer;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** What a broker process says about itself, as the objects of the JVM that tests look at. */
public final class View {
    private static final int DEBUGGING_CONSUMER = -2;
    private static final long LATEST = -1;
    private static final long EARLIEST = -2;

    private final Ottla broker;

    public View(Ottla broker) {
        this.broker = broker;
    }

    public MetadataResponse metadata(List<String> topics) {
        try {
            MetadataRequest.Builder request =
                topics == null ? MetadataRequest.Builder.allTopics() : new MetadataRequest.Builder(topics, false);
            return (MetadataResponse) broker.ask(request.build((short) 12));
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    /** Null if this broker does not know the topic. */
    public MetadataResponseTopic topic(String name) {
        MetadataResponseTopic found = metadata(List.of(name)).data().topics().find(name);
        return found == null || found.errorCode() == Errors.UNKNOWN_TOPIC_OR_PARTITION.code() ? null : found;
    }

    public MetadataResponsePartition partition(String topic, int partition) {
        MetadataResponseTopic found = topic(topic);
        if (found == null) return null;
        return found.partitions().stream().filter(each -> each.partitionIndex() == partition).findFirst().orElse(null);
    }

    public Map<String, Uuid> topicIds() {
        Map<String, Uuid> found = new TreeMap<>();
        metadata(null).data().topics().forEach(topic -> found.put(topic.name(), topic.topicId()));
        return found;
    }

    public boolean isAlive(int id) {
        return metadata(List.of()).brokers().stream().anyMatch(node -> node.id() == id);
    }

    /** The settings of a topic that differ from their defaults. */
    public Properties topicConfig(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Properties found = new Properties();
        try (Admin admin = broker.admin()) {
            admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().stream()
                .filter(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
                .forEach(entry -> found.put(entry.name(), entry.value()));
        }
        return found;
    }

    /** Values that were altered while the broker runs, without secret ones. */
    public Map<String, String> alteredConfigs(int brokerId) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(brokerId));
        Map<String, String> found = new HashMap<>();
        try (Admin admin = broker.admin()) {
            admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().stream()
                .filter(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG
                    || entry.source() == ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
                .filter(entry -> entry.value() != null)
                .forEach(entry -> found.put(entry.name(), entry.value()));
        } catch (Exception error) {
            throw new IllegalStateException("cannot read the configs of broker " + brokerId, error);
        }
        return found;
    }

    /** The changes of Controller.incrementalAlterConfigs: the operation and the value by setting, by resource. */
    @SuppressWarnings("unchecked")
    public Map<ConfigResource, ApiError> alterConfigs(Map<?, ?> changes) throws Exception {
        Map<ConfigResource, Collection<AlterConfigOp>> asked = new HashMap<>();
        Map<ConfigResource, ApiError> results = new HashMap<>();
        ((Map<ConfigResource, Map<String, Map.Entry<AlterConfigOp.OpType, String>>>) changes).forEach((resource, entries) -> {
            List<AlterConfigOp> operations = new ArrayList<>();
            entries.forEach((name, change) ->
                operations.add(new AlterConfigOp(new ConfigEntry(name, change.getValue()), change.getKey())));
            asked.put(resource, operations);
            results.put(resource, ApiError.NONE);
        });
        try (Admin admin = broker.admin()) {
            admin.incrementalAlterConfigs(asked).all().get();
        }
        return results;
    }

    /** The address of a broker at one of its listeners. */
    public Node node(int id, ListenerName listener) {
        return broker.quorum().brokers.stream().filter(each -> each.id == id && each.isRunning())
            .map(each -> new Node(id, "localhost", each.port(listener.value()))).findFirst().orElse(null);
    }

    public SocketServer socketServer() {
        return StandIn.calls()
            .on("boundPort", arguments -> broker.port(((ListenerName) arguments[0]).value()))
            .as(SocketServer.class);
    }

    // Logs

    private File directory(TopicPartition partition, boolean isFuture) {
        for (File each : broker.logDirs()) {
            File[] found = each.listFiles((parent, name) -> isFuture
                ? name.startsWith(partition + ".") && name.endsWith("-future")
                : name.equals(partition.toString()));
            if (found != null && found.length > 0) return found[0];
        }
        return null;
    }

    private long offset(TopicPartition partition, long timestamp) {
        ListOffsetsTopic topic = new ListOffsetsTopic().setName(partition.topic()).setPartitions(List.of(
            new ListOffsetsPartition().setPartitionIndex(partition.partition()).setTimestamp(timestamp)));
        try {
            ListOffsetsResponse told = (ListOffsetsResponse) broker.ask(
                ListOffsetsRequest.Builder.forReplica((short) 7, DEBUGGING_CONSUMER).setTargetTimes(List.of(topic)).build((short) 7));
            var answer = told.topics().get(0).partitions().get(0);
            Errors error = Errors.forCode(answer.errorCode());
            // The directory exists before the broker knows whether it leads the partition.
            if (error == Errors.UNKNOWN_TOPIC_OR_PARTITION || error == Errors.NOT_LEADER_OR_FOLLOWER) return -1;
            error.maybeThrow();
            return answer.offset();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    /** A log, if its directory exists. */
    public Option<Object> log(TopicPartition partition, boolean isFuture) {
        File directory = directory(partition, isFuture);
        if (directory == null) return Option.empty();
        Class<Object> type = StandIn.oneOf("kafka.log.UnifiedLog", "org.apache.kafka.storage.internals.log.UnifiedLog");
        return Option.apply(StandIn.calls()
            .on("logStartOffset", none -> offset(partition, EARLIEST))
            .on("localLogStartOffset", none -> offset(partition, EARLIEST))
            .on("logEndOffset", none -> offset(partition, LATEST))
            .on("highWatermark", none -> offset(partition, LATEST))
            .value("dir", directory)
            .value("parentDir", directory.getParent())
            .value("topicPartition", partition)
            .as(type));
    }

    public kafka.log.LogManager logManager() {
        return StandIn.calls()
            .on("getLog", arguments -> log((TopicPartition) arguments[0], (Boolean) arguments[1]))
            .on("liveLogDirs", none -> CollectionConverters.asScala(broker.logDirs()).toSeq())
            .on("isLogDirOnline", arguments -> true)
            .as(kafka.log.LogManager.class);
    }

    public kafka.server.ReplicaManager replicaManager() {
        return StandIn.calls()
            .on("localLog", arguments -> log((TopicPartition) arguments[0], false))
            .on("getLog", arguments -> log((TopicPartition) arguments[0], false))
            .on("localLogOrException", arguments -> log((TopicPartition) arguments[0], false).get())
            .on("logManager", none -> logManager())
            .on("onlinePartition", arguments -> onlinePartition((TopicPartition) arguments[0]))
            .as(kafka.server.ReplicaManager.class);
    }

    private Option<kafka.cluster.Partition> onlinePartition(TopicPartition partition) {
        if (directory(partition, false) == null) return Option.empty();
        return Option.apply(StandIn.calls()
            .on("leaderLogIfLocal", none -> leads(partition) ? log(partition, false) : Option.empty())
            .on("isLeader", none -> leads(partition))
            .on("log", none -> log(partition, false))
            .on("localLogOrException", none -> log(partition, false).get())
            .on("leaderReplicaIdOpt", none -> {
                MetadataResponsePartition told = partition(partition.topic(), partition.partition());
                return told == null || told.leaderId() < 0 ? Option.empty() : Option.apply((Object) told.leaderId());
            })
            .on("getLeaderEpoch", none -> partition(partition.topic(), partition.partition()).leaderEpoch())
            .on("inSyncReplicaIds", none -> CollectionConverters.asScala(
                new ArrayList<Object>(partition(partition.topic(), partition.partition()).isrNodes())).toSet())
            .as(kafka.cluster.Partition.class));
    }

    private boolean leads(TopicPartition partition) {
        MetadataResponsePartition told = partition(partition.topic(), partition.partition());
        return told != null && told.leaderId() == broker.id;
    }

    // Security

    /** The broker's ACLs. Changes go through the admin API; every broker has them when they are acknowledged. */
    public Authorizer authorizer() {
        return StandIn.calls()
            .on("createAcls", arguments -> {
                List<CompletionStage<AclCreateResult>> results = new ArrayList<>();
                @SuppressWarnings("unchecked") List<AclBinding> bindings = (List<AclBinding>) arguments[1];
                try (Admin admin = broker.quorum().any().admin()) {
                    var futures = admin.createAcls(bindings).values();
                    for (AclBinding each : bindings) {
                        ApiException failure = failureOf(futures.get(each));
                        results.add(CompletableFuture.completedFuture(
                            failure == null ? AclCreateResult.SUCCESS : new AclCreateResult(failure)));
                    }
                }
                return results;
            })
            .on("deleteAcls", arguments -> {
                List<CompletionStage<AclDeleteResult>> results = new ArrayList<>();
                @SuppressWarnings("unchecked") List<AclBindingFilter> filters = (List<AclBindingFilter>) arguments[1];
                try (Admin admin = broker.quorum().any().admin()) {
                    var futures = admin.deleteAcls(filters).values();
                    for (AclBindingFilter each : filters) {
                        ApiException failure = failureOf(futures.get(each));
                        results.add(CompletableFuture.completedFuture(
                            failure == null ? new AclDeleteResult(List.of()) : new AclDeleteResult(failure)));
                    }
                }
                return results;
            })
            .on("acls", arguments -> {
                try (Admin admin = broker.admin()) {
                    return admin.describeAcls((AclBindingFilter) arguments[0]).values().get();
                }
            })
            .on("aclCount", arguments -> {
                try (Admin admin = broker.admin()) {
                    return admin.describeAcls(AclBindingFilter.ANY).values().get().size();
                }
            })
            .on("close", none -> null)
            .as(Authorizer.class);
    }

    private static ApiException failureOf(org.apache.kafka.common.KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            return null;
        } catch (java.util.concurrent.ExecutionException failure) {
            return failure.getCause() instanceof ApiException known ? known : new ApiException(failure.getCause());
        }
    }

    public DelegationTokenCache tokenCache() {
        return StandIn.calls()
            .on("tokens", none -> tokens())
            .on("token", arguments -> tokens().stream()
                .filter(token -> token.tokenId().equals(arguments[0])).findFirst().orElse(null))
            .as(DelegationTokenCache.class);
    }

    private List<TokenInformation> tokens() throws Exception {
        try (Admin admin = broker.admin()) {
            return admin.describeDelegationToken().delegationTokens().get().stream().map(DelegationToken::tokenInfo).toList();
        }
    }

    public CredentialProvider credentialProvider() {
        CredentialCache cache = StandIn.calls()
            .on("cache", names -> StandIn.calls()
                .on("get", users -> credential((String) names[0], (String) users[0]))
                .as(CredentialCache.Cache.class))
            .as(CredentialCache.class);
        CredentialProvider provider = new CredentialProvider(List.of(), tokenCache());
        try {
            Field field = CredentialProvider.class.getField("credentialCache");
            field.setAccessible(true);
            field.set(provider, cache);
        } catch (ReflectiveOperationException impossible) {
            throw new IllegalStateException(impossible);
        }
        return provider;
    }

    private ScramCredential credential(String mechanism, String user) throws Exception {
        try (Admin admin = broker.admin()) {
            UserScramCredentialsDescription told = admin.describeUserScramCredentials(List.of(user)).description(user).get();
            ScramMechanism wanted = ScramMechanism.fromMechanismName(mechanism);
            return told.credentialInfos().stream().filter(info -> info.mechanism() == wanted)
                .map(info -> new ScramCredential(new byte[0], new byte[0], new byte[0], info.iterations()))
                .findFirst().orElse(null);
        } catch (java.util.concurrent.ExecutionException unknown) {
            return null;
        }
    }

    // Quotas

    public QuotaFactory.QuotaManagers quotaManagers() {
        Class<Object> manager = StandIn.oneOf("kafka.server.ClientQuotaManager", "org.apache.kafka.server.quota.ClientQuotaManager");
        Class<Object> controller = StandIn.oneOf(
            "kafka.server.ControllerMutationQuotaManager", "org.apache.kafka.server.quota.ControllerMutationQuotaManager");
        return StandIn.calls()
            .value("produce", quotas("producer_byte_rate").as(manager))
            .value("fetch", quotas("consumer_byte_rate").as(manager))
            .value("request", quotas("request_percentage").as(kafka.server.ClientRequestQuotaManager.class))
            .value("controllerMutation", quotas("controller_mutation_rate").as(controller))
            .as(QuotaFactory.QuotaManagers.class);
    }

    private StandIn.Calls quotas(String key) {
        Sensor sensor = StandIn.calls().as(Sensor.class);
        Class<Object> sensors = StandIn.oneOf("kafka.server.ClientSensors", "org.apache.kafka.server.quota.ClientSensors");
        return StandIn.calls()
            .on("quota", names -> {
                String user = names[0] instanceof KafkaPrincipal principal ? principal.getName() : (String) names[0];
                return Quota.upperBound(quota(key, user, (String) names[1]));
            })
            .value("exemptSensor", sensor)
            .on("getOrCreateQuotaSensors", none -> StandIn.calls()
                .value("throttleTimeSensor", sensor).value("quotaSensor", sensor).as(sensors));
    }

    /** The quota that the broker describes for a client, of the first of Kafka's eight kinds of entity that has one. */
    private double quota(String key, String user, String clientId) throws Exception {
        Map<ClientQuotaEntity, Map<String, Double>> all;
        try (Admin admin = broker.admin()) {
            all = admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get();
        }
        String none = "-";
        String[][] kinds = {
            {user, clientId}, {user, null}, {user, none}, {null, clientId}, {null, null}, {null, none}, {none, clientId}, {none, null}};
        for (String[] kind : kinds) {
            Map<String, String> entity = new HashMap<>();
            if (!none.equals(kind[0])) entity.put(ClientQuotaEntity.USER, kind[0]);
            if (!none.equals(kind[1])) entity.put(ClientQuotaEntity.CLIENT_ID, kind[1]);
            Double found = all.getOrDefault(new ClientQuotaEntity(entity), Map.of()).get(key);
            if (found != null) return found;
        }
        return Long.MAX_VALUE;
    }

    // The cluster

    public String clusterId() {
        return Objects.requireNonNull(metadata(List.of()).clusterId());
    }

    /** Wait until all brokers that run have the same metadata. */
    public static void settle(Quorum quorum) {
        long deadline = System.nanoTime() + 15_000_000_000L;
        while (true) {
            long different = quorum.brokers.stream().filter(Ottla::isRunning).map(each -> {
                StringBuilder said = new StringBuilder();
                new View(each).metadata(null).data().topics().stream()
                    .sorted(java.util.Comparator.comparing(MetadataResponseTopic::name))
                    .forEach(topic -> said.append(topic.name()).append(topic.topicId()).append(topic.partitions().stream()
                        .sorted(java.util.Comparator.comparing(MetadataResponsePartition::partitionIndex)).toList()));
                return said.toString();
            }).distinct().count();
            if (different <= 1 || System.nanoTime() > deadline) return;
            try {
                Thread.sleep(50);
            } catch (InterruptedException stop) {
                Thread.currentThread().interrupt();
                return;
            }
        }
    }
}
