package ottla;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.DescribeConfigsRequestData;
import org.apache.kafka.common.message.DescribeConfigsRequestData.DescribeConfigsResource;
import org.apache.kafka.common.message.DescribeLogDirsRequestData;
import org.apache.kafka.common.message.DescribeProducersRequestData;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsPartition;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsTopic;
import org.apache.kafka.common.message.MetadataResponseData;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseBroker;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponsePartition;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.DescribeConfigsRequest;
import org.apache.kafka.common.requests.DescribeConfigsResponse;
import org.apache.kafka.common.requests.DescribeLogDirsRequest;
import org.apache.kafka.common.requests.DescribeLogDirsResponse;
import org.apache.kafka.common.requests.DescribeProducersRequest;
import org.apache.kafka.common.requests.DescribeProducersResponse;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.requests.ListOffsetsRequest;
import org.apache.kafka.common.requests.ListOffsetsResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.server.IntegrationTestUtils;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;

import java.io.File;
import java.io.IOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;

/** What tests read from the objects of a JVM broker, asked of a node over its listener. */
final class Wire {
    private static final int DEBUGGING_REPLICA = -2;
    private static final byte TOPIC_RESOURCE = 2;
    private static final byte SOURCE_TOPIC = 1;
    static final long EARLIEST = -2;
    static final long LATEST = -1;

    private final NodeView node;
    /** What the node last answered: the cache of a JVM broker that was shut down keeps its content. */
    private final Map<String, MetadataResponseData> known = new ConcurrentHashMap<>();

    Wire(NodeView node) {
        this.node = node;
    }

    /** Return brokers, and the named topics, or all topics if {@code names} is null. */
    MetadataResponseData metadata(List<String> names) {
        try {
            if (!node.hasPlaintext()) return metadataByAdmin(names);
            MetadataRequest.Builder request =
                names == null ? MetadataRequest.Builder.allTopics() : new MetadataRequest.Builder(names, false);
            MetadataResponse response = send(request.build((short) 12));
            known.put(String.valueOf(names), response.data());
            return response.data();
        } catch (IllegalStateException | IOException | ExecutionException | InterruptedException unreachable) {
            return known.getOrDefault(String.valueOf(names), new MetadataResponseData());
        }
    }

    Optional<MetadataResponseTopic> topic(String name) {
        return metadata(List.of(name)).topics().stream()
            .filter(topic -> name.equals(topic.name()) && topic.errorCode() == 0).findFirst();
    }

    Optional<MetadataResponsePartition> partition(String name, int index) {
        return topic(name).flatMap(topic ->
            topic.partitions().stream().filter(partition -> partition.partitionIndex() == index).findFirst());
    }

    List<Node> brokers() {
        return metadata(List.of()).brokers().stream()
            .map(broker -> new Node(broker.nodeId(), broker.host(), broker.port(), broker.rack())).toList();
    }

    /** Return an offset of this broker's own log, also if it is no leader. */
    long offset(TopicPartition partition, long timestamp) {
        return offset(ListOffsetsRequest.Builder.forReplica((short) 7, DEBUGGING_REPLICA), partition, timestamp);
    }

    /** Return the high watermark that this broker knows: a follower learns it after the records. */
    long highWatermark(TopicPartition partition) {
        var position = new FetchRequest.PartitionData(
            Uuid.ZERO_UUID, offset(partition, EARLIEST), 0, 1, Optional.empty());
        FetchResponse response = sendUnchecked(
            FetchRequest.Builder.forConsumer((short) 12, 0, 0, Map.of(partition, position)).build((short) 12));
        return response.data().responses().get(0).partitions().get(0).highWatermark();
    }

    long lastStableOffset(TopicPartition partition) {
        return offset(
            ListOffsetsRequest.Builder.forConsumer(false, IsolationLevel.READ_COMMITTED), partition, LATEST);
    }

    private long offset(ListOffsetsRequest.Builder request, TopicPartition partition, long timestamp) {
        ListOffsetsTopic topic = new ListOffsetsTopic().setName(partition.topic()).setPartitions(List.of(
            new ListOffsetsPartition().setPartitionIndex(partition.partition()).setTimestamp(timestamp)));
        ListOffsetsResponse response = sendUnchecked(request.setTargetTimes(List.of(topic)).build((short) 7));
        return response.topics().get(0).partitions().get(0).offset();
    }

    Map<Long, ProducerStateEntry> producers(TopicPartition partition) {
        var topic = new DescribeProducersRequestData.TopicRequest().setName(partition.topic())
            .setPartitionIndexes(List.of(partition.partition()));
        DescribeProducersResponse response = sendUnchecked(new DescribeProducersRequest.Builder(
            new DescribeProducersRequestData().setTopics(List.of(topic))).build((short) 0));
        Map<Long, ProducerStateEntry> entries = new HashMap<>();
        for (var producer : response.data().topics().get(0).partitions().get(0).activeProducers()) {
            long start = producer.currentTxnStartOffset();
            entries.put(producer.producerId(), new ProducerStateEntry(
                producer.producerId(), (short) producer.producerEpoch(), producer.coordinatorEpoch(),
                producer.lastTimestamp(), start < 0 ? OptionalLong.empty() : OptionalLong.of(start), Optional.empty()));
        }
        return entries;
    }

    File directory(TopicPartition partition) {
        DescribeLogDirsResponse response = sendUnchecked(new DescribeLogDirsRequest.Builder(
            new DescribeLogDirsRequestData().setTopics(null)).build((short) 4));
        for (var directory : response.data().results()) {
            for (var topic : directory.topics()) {
                boolean isHere = topic.name().equals(partition.topic()) && topic.partitions().stream()
                    .anyMatch(log -> log.partitionIndex() == partition.partition() && !log.isFutureKey());
                if (isHere) return new File(directory.logDir(), partition.toString());
            }
        }
        throw new IllegalStateException("no directory has " + partition);
    }

    /** Return the settings that the topic itself has, or all that are in effect. */
    Properties topicSettings(String name, boolean isAll) {
        var resource = new DescribeConfigsResource().setResourceType(TOPIC_RESOURCE).setResourceName(name)
            .setConfigurationKeys(null);
        DescribeConfigsResponse response = sendUnchecked(new DescribeConfigsRequest.Builder(
            new DescribeConfigsRequestData().setResources(List.of(resource))).build((short) 4));
        Properties settings = new Properties();
        response.data().results().get(0).configs().stream()
            .filter(config -> (isAll || config.configSource() == SOURCE_TOPIC) && config.value() != null)
            .forEach(config -> settings.put(config.name(), config.value()));
        return settings;
    }

    private MetadataResponseData metadataByAdmin(List<String> names) throws ExecutionException, InterruptedException {
        MetadataResponseData data = new MetadataResponseData();
        try (Admin admin = node.admin()) {
            for (Node broker : admin.describeCluster().nodes().get()) {
                data.brokers().add(new MetadataResponseBroker().setNodeId(broker.id()).setHost(broker.host())
                    .setPort(broker.port()).setRack(broker.rack()));
            }
            Collection<String> all =
                names != null ? names : admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
            for (String name : all) {
                try {
                    data.topics().add(topicOf(admin.describeTopics(List.of(name)).allTopicNames().get().get(name)));
                } catch (ExecutionException unknownTopic) {
                    // It is not part of the answer.
                }
            }
        }
        return data;
    }

    private static MetadataResponseTopic topicOf(TopicDescription description) {
        MetadataResponseTopic topic =
            new MetadataResponseTopic().setName(description.name()).setTopicId(description.topicId());
        description.partitions().forEach(partition -> topic.partitions().add(new MetadataResponsePartition()
            .setPartitionIndex(partition.partition())
            .setLeaderId(partition.leader() == null ? -1 : partition.leader().id())
            .setReplicaNodes(partition.replicas().stream().map(Node::id).toList())
            .setIsrNodes(partition.isr().stream().map(Node::id).toList())));
        return topic;
    }

    private <T extends AbstractResponse> T sendUnchecked(AbstractRequest request) {
        try {
            return send(request);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private <T extends AbstractResponse> T send(AbstractRequest request) throws IOException {
        return IntegrationTestUtils.connectAndReceive(request, node.plaintextPort());
    }
}
