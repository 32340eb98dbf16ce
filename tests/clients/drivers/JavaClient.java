import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.*;

/** Apache Kafka's own client: one JSON request per line in, one JSON reply per line out. */
public class JavaClient {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Duration WAIT_MAX = Duration.ofSeconds(30);
    static String bootstrap;
    static Admin admin;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        bootstrap = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode reply = JSON.createObjectNode();
            try {
                reply.set("result", JSON.valueToTree(answer(JSON.readTree(line))));
            } catch (Throwable thrown) {
                Throwable cause = thrown;
                while (cause.getCause() != null) cause = cause.getCause();
                Errors error = Errors.forException(cause);
                if (error != Errors.UNKNOWN_SERVER_ERROR) reply.put("code", error.code());
                reply.put("text", thrown.toString());
            }
            out.println(JSON.writeValueAsString(reply));
            out.flush();
        }
        admin.close();
    }

    static Object answer(JsonNode ask) throws Exception {
        String topic = ask.path("topic").asText();
        TopicPartition at = new TopicPartition(topic, ask.path("partition").asInt());
        switch (ask.get("op").asText()) {
            case "create_topic":
                NewTopic made = new NewTopic(topic, ask.get("partitions").asInt(), (short) 1);
                Map<String, String> config = new HashMap<>();
                ask.get("config").fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().asText()));
                admin.createTopics(List.of(made.configs(config))).all().get();
                return null;
            case "delete_topic":
                admin.deleteTopics(List.of(topic)).all().get();
                return null;
            case "topics":
                return admin.listTopics().names().get();
            case "produce":
                return produce(topic, ask);
            case "consume":
                return consume(at, ask);
            case "consume_in_group":
                return consumeInGroup(topic, ask, Map.of());
            case "consume_in_consumer_group":
                return consumeInGroup(topic, ask, Map.of("group.protocol", "consumer"));
            case "transact":
                return transact(topic, ask);
            case "consume_committed":
                try (Consumer<byte[], byte[]> consumer = consumer(null, Map.of("isolation.level", "read_committed"))) {
                    consumer.assign(List.of(at));
                    consumer.seek(at, 0);
                    return read(consumer, ask.get("count").asInt());
                }
            case "offsets":
                return List.of(listed(at, OffsetSpec.earliest()), listed(at, OffsetSpec.latest()));
            case "offset_at":
                return listed(at, OffsetSpec.forTimestamp(ask.get("timestamp").asLong()));
            case "delete_records":
                RecordsToDelete before = RecordsToDelete.beforeOffset(ask.get("offset").asLong());
                return admin.deleteRecords(Map.of(at, before)).lowWatermarks().get(at).get().lowWatermark();
            case "config":
                Map<String, String> found = new TreeMap<>();
                for (ConfigEntry each : admin.describeConfigs(List.of(resource(topic))).all().get().get(resource(topic)).entries())
                    found.put(each.name(), each.value());
                return found;
            case "set_config":
                ConfigEntry entry = new ConfigEntry(ask.get("key").asText(), ask.get("value").asText());
                AlterConfigOp set = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
                admin.incrementalAlterConfigs(Map.of(resource(topic), List.of(set))).all().get();
                return null;
            default:
                throw new IllegalArgumentException(ask.toString());
        }
    }

    static ConfigResource resource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    static long listed(TopicPartition at, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(at, spec)).partitionResult(at).get().offset();
    }

    static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    static Object produce(String topic, JsonNode ask) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("acks", String.valueOf(ask.get("acks").asInt()));
        config.put("compression.type", ask.get("codec").asText());
        config.put("enable.idempotence", ask.get("idempotent").asBoolean());
        config.put("max.request.size", 10_000_000);
        config.put("linger.ms", 5);
        List<long[]> found = new ArrayList<>();
        try (Producer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode each : ask.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode pair : each.get("headers"))
                    headers.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1))));
                JsonNode time = each.get("timestamp");
                sent.add(producer.send(new ProducerRecord<>(
                    topic, each.get("partition").asInt(), time.isNull() ? null : Long.valueOf(time.asLong()),
                    bytes(each.get("key")), bytes(each.get("value")), headers)));
            }
            producer.flush();
            for (Future<RecordMetadata> each : sent)
                found.add(new long[] {each.get().partition(), each.get().offset()});
        }
        return found;
    }

    static Object transact(String topic, JsonNode ask) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", ask.get("id").asText());
        try (Producer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            for (JsonNode each : ask.get("records"))
                producer.send(new ProducerRecord<>(topic, each.get("partition").asInt(), null, bytes(each.get("value"))));
            producer.flush();
            if (ask.get("commit").asBoolean()) producer.commitTransaction();
            else producer.abortTransaction();
        }
        return null;
    }

    static Consumer<byte[], byte[]> consumer(String group, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(more);
        config.put("bootstrap.servers", bootstrap);
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        config.put("fetch.max.wait.ms", 50);
        if (group != null) config.put("group.id", group);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static Object consume(TopicPartition at, JsonNode ask) {
        try (Consumer<byte[], byte[]> consumer = consumer(null, Map.of())) {
            consumer.assign(List.of(at));
            long offset = ask.path("offset").isNull() ? 0 : ask.get("offset").asLong();
            if (!ask.get("timestamp").isNull())
                offset = consumer.offsetsForTimes(Map.of(at, ask.get("timestamp").asLong())).get(at).offset();
            consumer.seek(at, offset);
            return read(consumer, ask.get("count").asInt());
        }
    }

    static Object consumeInGroup(String topic, JsonNode ask, Map<String, Object> more) {
        try (Consumer<byte[], byte[]> consumer = consumer(ask.get("group").asText(), more)) {
            consumer.subscribe(List.of(topic));
            ArrayNode found = read(consumer, ask.get("count").asInt());
            Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
            for (JsonNode row : found)
                next.put(new TopicPartition(topic, row.get("partition").asInt()),
                    new OffsetAndMetadata(row.get("offset").asLong() + 1));
            consumer.commitSync(next);
            return found;
        }
    }

    static ArrayNode read(Consumer<byte[], byte[]> consumer, int count) {
        ArrayNode found = JSON.createArrayNode();
        long deadline = System.nanoTime() + WAIT_MAX.toNanos();
        while (found.size() < count) {
            if (System.nanoTime() > deadline)
                throw new IllegalStateException(found.size() + " of " + count + " records came");
            for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofSeconds(1))) {
                if (found.size() == count) break;
                ObjectNode row = found.addObject();
                row.put("key", text(each.key())).put("value", text(each.value()));
                row.put("timestamp", each.timestamp()).put("partition", each.partition()).put("offset", each.offset());
                ArrayNode headers = row.putArray("headers");
                for (Header header : each.headers())
                    headers.addArray().add(header.key()).add(text(header.value()));
            }
        }
        return found;
    }
}
