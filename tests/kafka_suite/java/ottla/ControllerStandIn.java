package ottla;

import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;
import kafka.server.SharedServer;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.ReplicatedLog;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/** A ControllerServer whose port and state are those of a process of Ottla. */
public final class ControllerStandIn {
    private ControllerStandIn() {
    }

    /** {@code broker} is a live broker, which knows the topics. */
    public static ControllerServer of(KafkaConfig config, NodeView node, Supplier<NodeView> broker) {
        SocketServer sockets = StandIn.of(SocketServer.class,
            Map.of("boundPort", call -> node.port((ListenerName) call[0]), "config", none -> config));
        // Brokers that "have applied the end of the log" are asked for it: see BrokerStandIn.caughtUp.
        LogOffsetMetadata end = new LogOffsetMetadata(0);
        ReplicatedLog log = StandIn.of(ReplicatedLog.class, Map.of("endOffset", none -> end));
        KafkaRaftManager<?> raft = StandIn.of(KafkaRaftManager.class, Map.of("replicatedLog", none -> log));
        SharedServer shared = StandIn.of(SharedServer.class,
            Map.of("raftManager", none -> raft, "controllerConfig", none -> config));
        Controller controller = StandIn.of(Controller.class, Map.of(
            "isActive", none -> true,
            "findAllTopicIds", none -> CompletableFuture.completedFuture(topicIds(new Wire(broker.get()))),
            "findTopicIds", call -> CompletableFuture.completedFuture(
                topicIds(new Wire(broker.get()), (Collection<?>) call[1]))));
        return StandIn.of(ControllerServer.class, Map.ofEntries(
            Map.entry("config", none -> config),
            Map.entry("socketServer", none -> sockets),
            Map.entry("raftManager", none -> raft),
            Map.entry("sharedServer", none -> shared),
            Map.entry("quotaManagers", none -> Quotas.managers(node)),
            Map.entry("controller", none -> controller),
            Map.entry("clusterId", none -> node.clusterId()),
            Map.entry("authorizerPlugin", none -> BrokerStandIn.authorizer(config, node)),
            Map.entry("startup", none -> run(node::start)),
            Map.entry("shutdown", none -> run(node::stop)),
            Map.entry("awaitShutdown", none -> null)));
    }

    private static Map<String, Uuid> topicIds(Wire wire) {
        return wire.metadata(null).topics().stream()
            .collect(Collectors.toMap(MetadataResponseTopic::name, MetadataResponseTopic::topicId));
    }

    private static Map<String, ResultOrError<Uuid>> topicIds(Wire wire, Collection<?> names) {
        Map<String, ResultOrError<Uuid>> ids = new HashMap<>();
        for (Object name : names) {
            ids.put((String) name, wire.topic((String) name)
                .map(topic -> new ResultOrError<>(topic.topicId()))
                .orElseGet(() -> new ResultOrError<>(new ApiError(Errors.UNKNOWN_TOPIC_OR_PARTITION))));
        }
        return ids;
    }

    private static Object run(Runnable action) {
        action.run();
        return null;
    }
}
