// Works off a topic with Java's share consumer until a line arrives: rejects a third of the records,
// releases a third as often as it is delivered, accepts the rest, and prints what was confirmed.
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class DeadLetters {
    static final AcknowledgeType[] TYPES =
        {AcknowledgeType.REJECT, AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT};

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        properties.put("share.acknowledgement.mode", "explicit");
        properties.put("max.poll.records", "5");
        TreeSet<Long> accepted = new TreeSet<>();
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.subscribe(List.of(arguments[2]));
            while (System.in.available() == 0) {
                List<Long> asked = new ArrayList<>();
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(300))) {
                    AcknowledgeType type = TYPES[(int) (record.offset() % 3)];
                    consumer.acknowledge(record, type);
                    if (type == AcknowledgeType.ACCEPT) asked.add(record.offset());
                }
                Map<TopicIdPartition, Optional<KafkaException>> done = consumer.commitSync();
                if (done.values().stream().noneMatch(Optional::isPresent)) accepted.addAll(asked);
            }
        }
        for (long offset : accepted) System.out.println(offset);
    }
}
