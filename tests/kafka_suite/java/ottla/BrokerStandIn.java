package ottla;

import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.server.BrokerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;
import kafka.server.metadata.KRaftMetadataCache;

import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponsePartition;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import java.util.stream.Collectors;

/** A BrokerServer whose ports, state, metadata and logs are those of a process of Ottla. */
public final class BrokerStandIn {
    private static final long PUBLISHED_MS = 200;

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
        SocketServer sockets = StandIn.of(SocketServer.class, Map.of("boundPort", this::port));
        KafkaApis apis = StandIn.of(KafkaApis.class, Map.of(
            "isConsumerGroupProtocolEnabled", none -> true, "brokerId", none -> id,
            "clusterId", none -> node.clusterId(), "metadataCache", none -> cache));
        GroupCoordinator groups = groupCoordinator();
        MetadataLoader loader = StandIn.of(MetadataLoader.class, Map.of("lastAppliedOffset", none -> caughtUp()));
        SharedServer shared = StandIn.of(SharedServer.class, Map.of("loader", none -> loader));
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
            Map.entry("authorizerPlugin", none -> scala.Option.empty()),
            Map.entry("brokerState", none -> node.isAlive() ? BrokerState.RUNNING : BrokerState.NOT_RUNNING),
            Map.entry("isShutdown", none -> !node.isAlive()),
            Map.entry("startup", none -> run(node::start)),
            Map.entry("shutdown", none -> run(node::stop)),
            Map.entry("awaitShutdown", none -> null)));
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
            Map.entry("topicConfig", call -> wire.topicSettings((String) call[0])),
            Map.entry("hasAliveBroker", call -> broker((Integer) call[0]).isPresent()),
            Map.entry("getAliveBrokerNodes", none -> wire.brokers()),
            Map.entry("getBrokerNodes", none -> wire.brokers()),
            Map.entry("getAliveBrokerNode", call -> broker((Integer) call[0])),
            Map.entry("getRandomAliveBrokerId", none -> wire.brokers().stream().map(Node::id).findAny()),
            Map.entry("getLeaderAndIsr", call -> partition(call).map(partition -> new LeaderAndIsr(
                partition.leaderId(), partition.leaderEpoch(), partition.isrNodes(), LeaderRecoveryState.RECOVERED, 0))),
            Map.entry("getPartitionLeaderEndpoint", call -> partition(call)
                .flatMap(partition -> broker(partition.leaderId())))));
    }

    private LogManager logManager() {
        return StandIn.of(LogManager.class, Map.of(
            "getLog$default$2", none -> false,
            "getLog", call -> ownLog((TopicPartition) call[0]),
            "liveLogDirs", none -> scala.collection.immutable.Nil$.MODULE$));
    }

    private ReplicaManager replicaManager(KRaftMetadataCache cache, LogManager logs) {
        return StandIn.of(ReplicaManager.class, Map.of(
            "logManager", none -> logs, "config", none -> config, "metadataCache", none -> cache,
            "localLog", call -> ownLog((TopicPartition) call[0]),
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
            "getLeaderEpoch", none -> partition.leaderEpoch(),
            "leaderReplicaIdOpt", none -> scala.Option.apply(partition.leaderId()),
            "leaderLogIfLocal", none -> isLeader ? scala.Option.apply(log(name)) : scala.Option.empty())));
    }

    private UnifiedLog log(TopicPartition partition) {
        ProducerStateManager producers = StandIn.of(ProducerStateManager.class,
            Map.of("activeProducers", none -> wire.producers(partition)));
        return StandIn.of(UnifiedLog.class, Map.of(
            "topicPartition", none -> partition,
            "dir", none -> wire.directory(partition),
            "parentDir", none -> wire.directory(partition).getParent(),
            "logStartOffset", none -> wire.offset(partition, Wire.EARLIEST),
            "logEndOffset", none -> wire.offset(partition, Wire.LATEST),
            "highWatermark", none -> wire.offset(partition, Wire.LATEST),
            "lastStableOffset", none -> wire.lastStableOffset(partition),
            "producerStateManager", none -> producers));
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
