import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Answers one line per line of standard input, in the same order. Fields are in hexadecimal:
 *
 *   name DER              the subject as X500Principal.getName() writes it
 *   map RULES NAME        what ssl.principal.mapping.rules make of a subject
 *   kerberos RULES NAME   what sasl.kerberos.principal.to.local.rules (realm OURS) make of a principal
 *
 * The answer is in hexadecimal UTF-8, or "!" if there is none.
 */
public class Identities {
    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        var out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split(" ", -1);
            String answer;
            try {
                answer = HexFormat.of().formatHex(answer(fields).getBytes(StandardCharsets.UTF_8));
            } catch (Exception refused) {
                answer = "!";
            }
            out.append(answer).append('\n');
        }
        System.out.print(out);
    }

    private static String answer(String[] fields) throws Exception {
        switch (fields[0]) {
            case "name":
                return new X500Principal(HexFormat.of().parseHex(fields[1])).getName();
            case "map":
                return SslPrincipalMapper.fromRules(text(fields[1])).getName(text(fields[2]));
            case "kerberos":
                var rules = Arrays.asList(text(fields[1]).split("\n"));
                return KerberosShortNamer.fromUnparsedRules("OURS", rules)
                        .shortName(KerberosName.parse(text(fields[2])));
            default:
                throw new IllegalArgumentException(fields[0]);
        }
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
