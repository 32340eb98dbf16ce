import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Reads messages with Kafka's own code and writes them again.
 *
 * In, a line each: api key, "request" or "response", version, the body in hex ("-" if empty).
 * Out, a line each: the body as Kafka writes it, "unknown" for a version that this Kafka lacks,
 * or "failed" with the reason.
 */
public class MessageEcho {
    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(echo(line.split(" ")));
        }
    }

    private static String echo(String[] words) {
        ApiMessageType type;
        try {
            type = ApiMessageType.fromApiKey(Short.parseShort(words[0]));
        } catch (UnsupportedVersionException error) {
            return "unknown";
        }
        short version = Short.parseShort(words[2]);
        if (version < type.lowestSupportedVersion() || version > type.highestSupportedVersion(true)) {
            return "unknown";
        }
        ApiMessage message = words[1].equals("request") ? type.newRequest() : type.newResponse();
        byte[] body = words[3].equals("-") ? new byte[0] : HexFormat.of().parseHex(words[3]);
        try {
            var readable = new ByteBufferAccessor(ByteBuffer.wrap(body));
            message.read(readable, version);
            if (readable.remaining() > 0) {
                return "failed: " + readable.remaining() + " bytes left";
            }
            ByteBuffer again = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] bytes = new byte[again.remaining()];
            again.get(bytes);
            return bytes.length == 0 ? "-" : HexFormat.of().formatHex(bytes);
        } catch (RuntimeException failure) {
            return "failed: " + failure;
        }
    }
}
