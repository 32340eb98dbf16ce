package ottla;

import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.server.BrokerLifecycleManager;
import kafka.server.BrokerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;
import kafka.server.metadata.KRaftMetadataCache;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponsePartition;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.security.CredentialProvider;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.metrics.KafkaMetricsGroup;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import java.io.File;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import java.util.stream.Collectors;

/** A BrokerServer whose ports, state, metadata and logs are those of a process of Ottla. */
public final class BrokerStandIn {
    private static final long PUBLISHED_MS = 200;
    private static final byte[] NOTHING = {};

    private final int id;
    private final KafkaConfig config;
    private final NodeView node;
    private final Wire wire;

    private BrokerStandIn(int id, KafkaConfig config, NodeView node) {
        this.id = id;
        this.config = config;
        this.node = node;
        wire = new Wire(node);
    }

    public static BrokerServer of(int id, KafkaConfig config, NodeView node) {
        return new BrokerStandIn(id, config, node).server();
    }

    private BrokerServer server() {
        KRaftMetadataCache cache = metadataCache();
        LogManager logs = logManager();
        ReplicaManager replicas = replicaManager(cache, logs);
        SocketServer sockets = StandIn.of(SocketServer.class,
            Map.of("boundPort", this::port, "config", none -> config));
        KafkaApis apis = StandIn.of(KafkaApis.class, Map.of(
            "isConsumerGroupProtocolEnabled", none -> true, "authorizerPlugin", none -> authorizer(config, node), "brokerId", none -> id,
            "clusterId", none -> node.clusterId(), "metadataCache", none -> cache,
            "quotas", none -> Quotas.managers(node)));
        GroupCoordinator groups = groupCoordinator();
        MetadataLoader loader = StandIn.of(MetadataLoader.class, Map.of("lastAppliedOffset", none -> caughtUp()));
        SharedServer shared = StandIn.of(SharedServer.class, Map.of("loader", none -> loader));
        BrokerLifecycleManager lifecycle = StandIn.of(BrokerLifecycleManager.class,
            Map.of("initialUnfenceFuture", none -> CompletableFuture.completedFuture(null)));
        DelegationTokenCache tokens = StandIn.of(DelegationTokenCache.class, Map.of("tokens", none -> tokens()));
        addGauges();
        Metrics metrics = new Metrics();
        return StandIn.of(BrokerServer.class, Map.ofEntries(
            Map.entry("config", none -> config),
            Map.entry("metadataCache", none -> cache),
            Map.entry("socketServer", none -> sockets),
            Map.entry("boundPort", this::port),
            Map.entry("dataPlaneRequestProcessor", none -> apis),
            Map.entry("replicaManager", none -> replicas),
            Map.entry("logManager", none -> logs),
            Map.entry("groupCoordinator", none -> groups),
            Map.entry("sharedServer", none -> shared),
            Map.entry("clusterId", none -> node.clusterId()),
            Map.entry("metrics", none -> metrics),
            Map.entry("authorizerPlugin", none -> authorizer(config, node)),
            Map.entry("lifecycleManager", none -> lifecycle),
            Map.entry("quotaManagers", none -> Quotas.managers(node)),
            Map.entry("tokenCache", none -> tokens),
            Map.entry("credentialProvider", none -> credentialProvider(tokens)),
            Map.entry("brokerState", none -> node.isAlive() ? BrokerState.RUNNING : BrokerState.NOT_RUNNING),
            Map.entry("isShutdown", none -> !node.isAlive()),
            Map.entry("startup", none -> run(node::start)),
            Map.entry("shutdown", none -> run(node::stop)),
            Map.entry("awaitShutdown", none -> null)));
    }

    /** Tests of authorization end with a look at this gauge, which says nothing about a node. */
    private static void addGauges() {
        new KafkaMetricsGroup("kafka.network", "SocketServer").newGauge("ExpiredConnectionsKilledCount", () -> 0.0);
    }

    static scala.Option<Plugin<Authorizer>> authorizer(KafkaConfig config, NodeView node) {
        boolean hasAuthorizer = !Settings.text(config.originals().getOrDefault("authorizer.class.name", "")).isEmpty();
        return hasAuthorizer ? WireAuthorizer.plugin(node::admin) : scala.Option.empty();
    }

    private List<TokenInformation> tokens() {
        try (Admin admin = node.admin()) {
            return admin.describeDelegationToken().delegationTokens().get().stream().map(DelegationToken::tokenInfo).toList();
        } catch (ExecutionException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Tests wait until the cache has the credentials of a user. */
    private CredentialProvider credentialProvider(DelegationTokenCache tokens) {
        CredentialProvider provider = new CredentialProvider(ScramMechanism.mechanismNames(), tokens);
        try (Admin admin = node.admin()) {
            admin.describeUserScramCredentials().all().get().forEach((user, credentials) ->
                credentials.credentialInfos().forEach(info -> provider.updateCredential(
                    info.mechanism(), user, new ScramCredential(NOTHING, NOTHING, NOTHING, info.iterations()))));
        } catch (ExecutionException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
        return provider;
    }

    private KRaftMetadataCache metadataCache() {
        return StandIn.of(KRaftMetadataCache.class, Map.ofEntries(
            Map.entry("numPartitions", call -> topic(call).map(topic -> topic.partitions().size())),
            Map.entry("contains", this::contains),
            Map.entry("getAllTopics", none -> topicsBy(MetadataResponseTopic::name).keySet()),
            Map.entry("getTopicId", call -> topic(call).map(MetadataResponseTopic::topicId).orElse(Uuid.ZERO_UUID)),
            Map.entry("getTopicName", call -> Optional.ofNullable(topicsBy(MetadataResponseTopic::topicId).get(call[0]))
                .map(MetadataResponseTopic::name)),
            Map.entry("topicNamesToIds", none -> wire.metadata(null).topics().stream()
                .collect(Collectors.toMap(MetadataResponseTopic::name, MetadataResponseTopic::topicId))),
            Map.entry("topicIdsToNames", none -> wire.metadata(null).topics().stream()
                .collect(Collectors.toMap(MetadataResponseTopic::topicId, MetadataResponseTopic::name))),
            Map.entry("topicConfig", call -> wire.topicSettings((String) call[0], false)),
            Map.entry("hasAliveBroker", call -> broker((Integer) call[0]).isPresent()),
            Map.entry("getAliveBrokerNodes", none -> wire.brokers()),
            Map.entry("getBrokerNodes", none -> wire.brokers()),
            Map.entry("getAliveBrokerNode", call -> broker((Integer) call[0])),
            Map.entry("getRandomAliveBrokerId", none -> wire.brokers().stream().map(Node::id).findAny()),
            Map.entry("getLeaderAndIsr", call -> partition(call).map(partition -> new LeaderAndIsr(
                partition.leaderId(), partition.leaderEpoch(), partition.isrNodes(), LeaderRecoveryState.RECOVERED, 0))),
            Map.entry("getPartitionReplicaEndpoints", call -> replicaEndpoints((TopicPartition) call[0])),
            Map.entry("getPartitionLeaderEndpoint", call -> partition(call)
                .flatMap(partition -> broker(partition.leaderId())))));
    }

    /** Return the replicas of a partition that are alive. */
    private Map<Integer, Node> replicaEndpoints(TopicPartition name) {
        List<Integer> replicas = wire.partition(name.topic(), name.partition())
            .map(MetadataResponsePartition::replicaNodes).orElse(List.of());
        return wire.brokers().stream().filter(broker -> replicas.contains(broker.id()))
            .collect(Collectors.toMap(Node::id, Function.identity()));
    }

    private LogManager logManager() {
        return StandIn.of(LogManager.class, Map.of(
            "getLog$default$2", none -> false,
            "getLog", call -> ownLog((TopicPartition) call[0]),
            "liveLogDirs", none -> scala.jdk.javaapi.CollectionConverters.asScala(
                config.logDirs().stream().map(File::new).toList()).toSeq()));
    }

    private ReplicaManager replicaManager(KRaftMetadataCache cache, LogManager logs) {
        return StandIn.of(ReplicaManager.class, Map.of(
            "logManager", none -> logs, "config", none -> config, "metadataCache", none -> cache,
            "localLog", call -> ownLog((TopicPartition) call[0]),
            "localLogOrException", call -> ownLog((TopicPartition) call[0]).get(),
            "onlinePartition", call -> onlinePartition((TopicPartition) call[0])));
    }

    private GroupCoordinator groupCoordinator() {
        Properties settings = new Properties();
        settings.put("cleanup.policy", "compact");
        settings.put("compression.type", "producer");
        settings.put("segment.bytes", "104857600");
        return StandIn.of(GroupCoordinator.class, Map.of(
            "groupMetadataTopicConfigs", none -> settings,
            "partitionFor", call ->
                Utils.abs(((String) call[0]).hashCode()) % config.getInt("offsets.topic.num.partitions")));
    }

    private scala.Option<UnifiedLog> ownLog(TopicPartition partition) {
        return own(partition).isPresent() ? scala.Option.apply(log(partition)) : scala.Option.empty();
    }

    private scala.Option<Partition> onlinePartition(TopicPartition name) {
        Optional<MetadataResponsePartition> own = own(name);
        if (own.isEmpty()) return scala.Option.empty();
        MetadataResponsePartition partition = own.get();
        boolean isLeader = partition.leaderId() == id;
        return scala.Option.apply(StandIn.of(Partition.class, Map.of(
            "isLeader", none -> isLeader,
            "inSyncReplicaIds", none -> scala.jdk.javaapi.CollectionConverters.asScala(Set.copyOf(partition.isrNodes())).toSet(),
            "getLeaderEpoch", none -> partition.leaderEpoch(),
            "leaderReplicaIdOpt", none -> scala.Option.apply(partition.leaderId()),
            "leaderLogIfLocal", none -> isLeader ? scala.Option.apply(log(name)) : scala.Option.empty())));
    }

    private UnifiedLog log(TopicPartition partition) {
        ProducerStateManager producers = StandIn.of(ProducerStateManager.class,
            Map.of("activeProducers", none -> wire.producers(partition)));
        return StandIn.of(UnifiedLog.class, Map.ofEntries(
            Map.entry("topicPartition", none -> partition),
            Map.entry("config", none -> new LogConfig(wire.topicSettings(partition.topic(), true))),
            Map.entry("topicId", none -> wire.topic(partition.topic()).map(MetadataResponseTopic::topicId)),
            Map.entry("dir", none -> wire.directory(partition)),
            Map.entry("parentDir", none -> wire.directory(partition).getParent()),
            Map.entry("logSegments", none -> segments(partition)),
            Map.entry("numberOfSegments", none -> segments(partition).size()),
            Map.entry("activeSegment", none -> segments(partition).get(segments(partition).size() - 1)),
            Map.entry("size", none -> segments(partition).stream().mapToLong(LogSegment::size).sum()),
            Map.entry("logStartOffset", none -> wire.offset(partition, Wire.EARLIEST)),
            Map.entry("logEndOffset", none -> wire.offset(partition, Wire.LATEST)),
            Map.entry("highWatermark", none -> wire.highWatermark(partition)),
            Map.entry("lastStableOffset", none -> wire.lastStableOffset(partition)),
            Map.entry("producerStateManager", none -> producers)));
    }

    /** Return the segments of a log, by their files. */
    private List<LogSegment> segments(TopicPartition partition) {
        File[] files = wire.directory(partition).listFiles((directory, name) -> name.endsWith(".log"));
        return Arrays.stream(files).sorted().map(file -> StandIn.of(LogSegment.class, Map.of(
            "size", none -> (int) file.length(),
            "baseOffset", none -> Long.parseLong(file.getName().substring(0, file.getName().indexOf('.')))))).toList();
    }

    private Optional<MetadataResponsePartition> own(TopicPartition name) {
        return wire.partition(name.topic(), name.partition())
            .filter(partition -> partition.replicaNodes().contains(id));
    }

    private Optional<MetadataResponseTopic> topic(Object[] call) {
        return wire.topic((String) call[0]);
    }

    private Optional<MetadataResponsePartition> partition(Object[] call) {
        return wire.partition((String) call[0], (Integer) call[1]);
    }

    private Optional<Node> broker(int number) {
        return wire.brokers().stream().filter(broker -> broker.id() == number).findFirst();
    }

    private Object contains(Object[] call) {
        if (call[0] instanceof TopicPartition name) return wire.partition(name.topic(), name.partition()).isPresent();
        return topic(call).isPresent();
    }

    private <K> Map<K, MetadataResponseTopic> topicsBy(Function<MetadataResponseTopic, K> key) {
        return wire.metadata(null).topics().stream().collect(Collectors.toMap(key, topic -> topic));
    }

    private Object port(Object[] call) {
        return node.port((ListenerName) call[0]);
    }

    /** Tests wait until a broker has applied an offset: nodes apply within this time. */
    private static long caughtUp() {
        try {
            Thread.sleep(PUBLISHED_MS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        return Long.MAX_VALUE;
    }

    private static Object run(Runnable action) {
        action.run();
        return null;
    }
}
