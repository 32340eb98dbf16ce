// Reads a topic as a queue with Java's share consumer: implicitly, then record by record.
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareQueue {
    static final long SILENCE_MS = 90_000; // a busy machine, not a broken broker

    static KafkaShareConsumer<String, String> consumer(String servers, String group, String mode) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("group.id", group);
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        properties.put("share.acknowledgement.mode", mode);
        return new KafkaShareConsumer<>(properties);
    }

    static String name(ConsumerRecord<String, String> record) {
        return record.partition() + "-" + record.offset();
    }

    static void check(Map<TopicIdPartition, Optional<KafkaException>> committed) {
        committed.forEach((place, error) -> error.ifPresent(e -> System.out.println("error " + e)));
    }

    static void implicit(String servers, String topic, int wanted) {
        Set<String> seen = new HashSet<>();
        int more = 0;
        try (KafkaShareConsumer<String, String> consumer = consumer(servers, "implicit", "implicit")) {
            consumer.subscribe(List.of(topic));
            long last = System.currentTimeMillis();
            while (seen.size() < wanted && System.currentTimeMillis() - last < SILENCE_MS) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    if (!seen.add(name(record))) more++;
                    last = System.currentTimeMillis();
                }
            }
            check(consumer.commitSync());
        }
        System.out.println("implicit " + seen.size() + " again " + more);
    }

    static void explicit(String servers, String topic, int wanted) {
        Map<String, Integer> ended = new HashMap<>();
        Map<String, Integer> counts = new HashMap<>();
        try (KafkaShareConsumer<String, String> consumer = consumer(servers, "explicit", "explicit")) {
            consumer.subscribe(List.of(topic));
            long last = System.currentTimeMillis();
            Set<String> renewed = new HashSet<>();
            while (ended.size() < wanted && System.currentTimeMillis() - last < SILENCE_MS) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    AcknowledgeType type = type(record, renewed);
                    consumer.acknowledge(record, type);
                    counts.merge(type.toString().toLowerCase(), 1, Integer::sum);
                    boolean isLast = type == AcknowledgeType.ACCEPT || type == AcknowledgeType.REJECT;
                    if (isLast) ended.merge(name(record), 1, Integer::sum);
                    last = System.currentTimeMillis();
                }
                check(consumer.commitSync());
            }
        }
        long twice = ended.values().stream().filter(each -> each > 1).count();
        System.out.println("explicit " + ended.size() + " twice " + twice
            + " accept " + counts.getOrDefault("accept", 0) + " reject " + counts.getOrDefault("reject", 0)
            + " release " + counts.getOrDefault("release", 0) + " renew " + counts.getOrDefault("renew", 0));
    }

    static AcknowledgeType type(ConsumerRecord<String, String> record, Set<String> renewed) {
        long offset = record.offset();
        if (offset % 7 == 0) return AcknowledgeType.REJECT;
        if (offset % 3 == 0 && record.deliveryCount().orElse((short) 1) == 1) return AcknowledgeType.RELEASE;
        if (offset % 11 == 0 && renewed.add(name(record))) return AcknowledgeType.RENEW;
        return AcknowledgeType.ACCEPT;
    }

    public static void main(String[] arguments) {
        String servers = arguments[0];
        int wanted = Integer.parseInt(arguments[2]);
        implicit(servers, arguments[1], wanted);
        explicit(servers, arguments[1], wanted);
    }
}
