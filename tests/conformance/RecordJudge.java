import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Says of each line of stdin what Kafka makes of the records of a Produce request.
 * A line: version, topic codec, is compacted, timestamp type, before ms, after ms, now, hex.
 * The answer: "OK codec maxTimestamp timestampType offset:timestamp,.." or "ERROR indexes,..".
 */
public class RecordJudge {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine())
            System.out.println(judge(line.split(" ", -1)));
    }

    private static String judge(String[] field) {
        byte[] bytes = HexFormat.of().parseHex(field[7]);
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        StringBuilder said = new StringBuilder();
        try {
            ProduceRequest.validateRecords(Short.parseShort(field[0]), records);
            MutableRecordBatch batch = records.batches().iterator().next();
            if (batch.baseOffset() != 0)
                throw new InvalidRecordException("base offset");
            batch.ensureValid();
            MutableRecordBatch kept = validated(batch, bytes, field).batches().iterator().next();
            said.append("OK ").append(kept.compressionType().name).append(' ');
            said.append(kept.maxTimestamp()).append(' ').append(kept.timestampType().name).append(' ');
            for (Record each : kept)
                said.append(each.offset()).append(':').append(each.timestamp()).append(',');
        } catch (RecordValidationException error) {
            said.append(Errors.forException(error.invalidException()).name()).append(' ');
            error.recordErrors().forEach(each -> said.append(each.batchIndex).append(','));
        } catch (Throwable error) {
            said.append(Errors.forException(error).name()).append(' ');
        }
        return said.toString();
    }

    private static MemoryRecords validated(MutableRecordBatch batch, byte[] bytes, String[] field) {
        CompressionType source = batch.compressionType();
        Compression target = switch (field[1]) {
            case "producer" -> Compression.of(source).build();
            case "uncompressed" -> Compression.NONE;
            default -> Compression.of(field[1]).build();
        };
        ByteBuffer whole = ByteBuffer.wrap(bytes, 0, batch.sizeInBytes());
        LogValidator validator = new LogValidator(
            MemoryRecords.readableRecords(whole), new TopicPartition("t", 0),
            clockAt(Long.parseLong(field[6])), source, target, Boolean.parseBoolean(field[2]),
            (byte) 2, TimestampType.forName(field[3]), Long.parseLong(field[4]),
            Long.parseLong(field[5]), 0, AppendOrigin.CLIENT);
        return validator.validateMessagesAndAssignOffsets(
            PrimitiveRef.ofLong(0), new NoMetrics(), BufferSupplier.NO_CACHING).validatedRecords();
    }

    private static Time clockAt(long now) {
        return (Time) Proxy.newProxyInstance(
            RecordJudge.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, arguments) -> method.getName().equals("milliseconds")
                ? (Object) now : method.invoke(Time.SYSTEM, arguments));
    }

    private static class NoMetrics implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() { }
        public void recordInvalidOffset() { }
        public void recordInvalidSequence() { }
        public void recordInvalidChecksums() { }
        public void recordNoKeyCompactedTopic() { }
    }
}
