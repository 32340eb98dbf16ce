import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import org.apache.kafka.tools.ConsumerPerformance;
import org.apache.kafka.tools.ProducerPerformance;

/**
 * Runs Apache Kafka's performance tools in one JVM, so that the client's code is compiled once.
 *
 * A line of standard input is a command: "produce" or "consume" and the arguments of the tool,
 * separated by spaces. After the output of the tool follows a line "done:". A tool that fails ends the
 * process.
 */
public class JavaLoad {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            String[] rest = Arrays.copyOfRange(words, 1, words.length);
            if (words[0].equals("produce")) {
                ProducerPerformance.main(rest);
            } else {
                ConsumerPerformance.main(rest);
            }
            System.out.println("done:");
            System.out.flush();
        }
    }
}
