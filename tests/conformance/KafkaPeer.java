import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients, as a peer: "write ADDRESS TOPIC" fills a topic with every kind of batch,
 * "read ADDRESS TOPIC ISOLATION" prints each record as "offset|key|value".
 */
public class KafkaPeer {
    // Long enough that a topic of 1 MiB segments rolls.
    private static final String PADDING = " and nothing more".repeat(40);

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "write" -> write(arguments[1], arguments[2]);
            case "read" -> read(arguments[1], arguments[2], arguments[3]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void write(String address, String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            NewTopic wanted = new NewTopic(topic, 1, (short) 1).configs(Map.of("segment.bytes", "1048576",
                "index.interval.bytes", "512"));
            admin.createTopics(List.of(wanted)).all().get();
        }
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (KafkaProducer<byte[], byte[]> producer = producer(address, Map.of("compression.type", codec))) {
                for (int i = 0; i < 2000; i++) {
                    producer.send(record(topic, codec + "-" + i));
                    if (i % 50 == 0) producer.flush();
                }
            }
        }
        Map<String, Object> transactional = Map.of("transactional.id", "peer", "compression.type", "lz4");
        try (KafkaProducer<byte[], byte[]> producer = producer(address, transactional)) {
            producer.initTransactions();
            for (int round = 0; round < 6; round++) {
                producer.beginTransaction();
                String word = round % 2 == 0 ? "committed" : "aborted";
                for (int i = 0; i < 20; i++) producer.send(record(topic, word + "-" + round + "-" + i)).get();
                if (round % 2 == 0) producer.commitTransaction(); else producer.abortTransaction();
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, String text) {
        ProducerRecord<byte[], byte[]> made = new ProducerRecord<>(topic, 0, bytes(text), bytes("value of " + text + PADDING));
        made.headers().add("peer", bytes("kafka")).add("empty", null);
        return made;
    }

    private static KafkaProducer<byte[], byte[]> producer(String address, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", address);
        settings.put("linger.ms", "50");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static void read(String address, String topic, String isolation) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("isolation.level", isolation);
        settings.put("check.crcs", "true");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            consumer.seekToBeginning(List.of(partition));
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(each.offset() + "|" + text(each.key()) + "|" + text(each.value()));
                }
            }
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "" : new String(bytes, StandardCharsets.UTF_8);
    }
}
