import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Scanner;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;

/** Reads values of __remote_log_metadata in hex; prints what Kafka writes for each, and where. */
public class RemoteLogRecords {
    public static void main(String[] arguments) {
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        RemoteLogMetadataTopicPartitioner partitioner = new RemoteLogMetadataTopicPartitioner(50);
        List<String> lines = new ArrayList<>();
        Scanner scanner = new Scanner(System.in);
        while (scanner.hasNextLine()) {
            RemoteLogMetadata read = serde.deserialize(HexFormat.of().parseHex(scanner.nextLine()));
            TopicIdPartition at = read.topicIdPartition();
            lines.add(HexFormat.of().formatHex(serde.serialize(read)) + " "
                + partitioner.metadataPartition(at));
        }
        System.out.println(String.join("\n", lines));
    }
}
