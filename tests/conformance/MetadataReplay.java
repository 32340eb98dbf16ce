import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Replays metadata logs with Kafka's own image and writes what they amount to.
 *
 * In, a line each: a record in hex; "apply" where a batch ends; "end" where a log ends.
 * Out: the records of the image after each log, a line each, and "end".
 */
public class MetadataReplay {
    private static final MetadataRecordSerde SERDE = MetadataRecordSerde.INSTANCE;
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        MetadataDelta delta = deltaOf(MetadataImage.EMPTY);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.equals("apply")) {
                delta = deltaOf(delta.apply(MetadataProvenance.EMPTY));
            } else if (line.equals("end")) {
                write(delta.apply(MetadataProvenance.EMPTY));
                delta = deltaOf(MetadataImage.EMPTY);
            } else {
                byte[] bytes = HEX.parseHex(line);
                var readable = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
                delta.replay(SERDE.read(readable, bytes.length).message());
            }
        }
    }

    private static MetadataDelta deltaOf(MetadataImage image) {
        return new MetadataDelta.Builder().setImage(image).build();
    }

    private static void write(MetadataImage image) {
        var writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(image).build());
        for (ApiMessageAndVersion record : writer.records()) {
            var cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(SERDE.recordSize(record, cache));
            SERDE.write(record, cache, new ByteBufferAccessor(buffer));
            System.out.println(HEX.formatHex(buffer.array()));
        }
        System.out.println("end");
    }
}
