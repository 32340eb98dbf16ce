import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.serialization.*;

/** Apache Kafka's Java clients with the security settings of each request: one JSON line in, one out. */
public class SecureClient {
    static final ObjectMapper JSON = new ObjectMapper();
    static final long WAIT_MAX_NS = TimeUnit.SECONDS.toNanos(60);

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode reply = JSON.createObjectNode();
            try {
                reply.set("result", JSON.valueToTree(answer(JSON.readTree(line))));
            } catch (Throwable thrown) {
                Throwable cause = thrown;
                while (cause.getCause() != null) cause = cause.getCause();
                reply.put("code", -1).put("text", thrown + " / " + cause);
            }
            out.println(JSON.writeValueAsString(reply));
            out.flush();
        }
    }

    static Object answer(JsonNode ask) throws Exception {
        Map<String, Object> config = new HashMap<>();
        ask.get("config").fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().asText()));
        String topic = ask.path("topic").asText();
        switch (ask.get("op").asText()) {
            case "round_trip":
                create(config, topic);
                send(config, topic);
                return read(config, topic);
            case "login":
                try (Admin admin = Admin.create(config)) {
                    return admin.describeCluster().clusterId().get();
                }
            case "produce_for":
                return produceFor(config, topic, ask.get("seconds").asInt());
            default:
                throw new IllegalArgumentException(ask.toString());
        }
    }

    static void create(Map<String, Object> config, String topic) throws Exception {
        try (Admin admin = Admin.create(config)) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        }
    }

    static void send(Map<String, Object> config, String topic) throws Exception {
        try (Producer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < 3; number++)
                producer.send(new ProducerRecord<>(topic, "value-" + number)).get();
        }
    }

    static List<String> read(Map<String, Object> config, String topic) {
        Map<String, Object> more = new HashMap<>(config);
        more.put("group.id", topic);
        more.put("auto.offset.reset", "earliest");
        List<String> found = new ArrayList<>();
        long deadline = System.nanoTime() + WAIT_MAX_NS;
        try (Consumer<String, String> consumer =
                new KafkaConsumer<>(more, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (found.size() < 3 && System.nanoTime() < deadline)
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200)))
                    found.add(each.value());
            consumer.commitSync();
        }
        return found;
    }

    /** Sends every 50 ms without retries; says how many sends failed, and what the client's metrics counted. */
    static Map<String, Object> produceFor(Map<String, Object> config, String topic, int seconds) throws Exception {
        Map<String, Object> more = new HashMap<>(config);
        more.put("retries", 0);
        more.put("enable.idempotence", false);
        int sent = 0;
        List<String> failures = new ArrayList<>();
        Map<String, Object> results = new TreeMap<>();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(more, new StringSerializer(), new StringSerializer())) {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
            while (System.nanoTime() < end) {
                try {
                    producer.send(new ProducerRecord<>(topic, "steady")).get();
                    sent++;
                } catch (ExecutionException failed) {
                    failures.add(String.valueOf(failed.getCause()));
                }
                Thread.sleep(50);
            }
            for (Metric each : producer.metrics().values()) {
                boolean counts = each.metricName().group().equals("producer-metrics");
                String name = each.metricName().name();
                if (counts && (name.startsWith("successful-reauth") || name.startsWith("failed-reauth")
                        || name.equals("connection-creation-total")))
                    results.put(name, each.metricValue());
            }
        }
        results.put("sent", sent);
        results.put("failures", failures);
        return results;
    }
}
