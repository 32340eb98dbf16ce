package ottla;

import org.apache.kafka.common.security.auth.KafkaPrincipalBuilder;
import org.apache.kafka.common.security.auth.PlaintextAuthenticationContext;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Locale;

/**
 * The principal builders of Kafka's tests are classes of the JVM, and some change while a test runs.
 *
 * A node asks this class for the principal of each connection of a listener without a login
 * (node_starter.py). The principals of certificates come from {@code ssl.principal.mapping.rules}.
 */
final class Principals {
    /** The listener that this harness uses beside the test's; its principal is a super user. */
    static final String LISTENER = "OTTLA";
    private static final String PRINCIPAL = "User:ottla-harness";
    private static final String BUILDER = "principal.builder.class";
    private static ServerSocket server;

    private Principals() {
    }

    /** Let the harness read and change everything. */
    static void admitHarness(NodeProcess node) {
        node.principals.put(LISTENER, PRINCIPAL);
        boolean hasAuthorizer = !node.settings.getOrDefault("authorizer.class.name", "").isEmpty();
        if (hasAuthorizer) node.settings.merge("super.users", PRINCIPAL, (users, harness) -> users + ";" + harness);
    }

    /** Replace the builders that can be replaced; a node refuses to start with any other one. */
    static void replaceBuilders(NodeProcess node) throws IOException {
        for (String key : node.settings.keySet().stream().filter(key -> key.endsWith(BUILDER)).toList()) {
            String builder = node.settings.get(key);
            String rules = rulesOf(builder);
            if (rules == null) {
                node.principals.put(listenerOf(key), builder + "@" + port());
            } else {
                node.settings.put(key.replace(BUILDER, "ssl.principal.mapping.rules"), rules);
            }
            node.settings.remove(key);
        }
    }

    private static String rulesOf(String builder) {
        if (builder.endsWith("SslEndToEndAuthorizationTest$TestPrincipalBuilder")) {
            return "RULE:^O=A server,CN=.*$/server/,RULE:^O=A .*,CN=super-user$/server/,DEFAULT";
        }
        if (builder.endsWith("SslAdminIntegrationTest$TestPrincipalBuilder")) {
            return "RULE:^O=A server,CN=.*$/server/,RULE:^O=A .*,CN=super-user$/server/,"
                + "RULE:^O=A .*,CN=(client)$/$1/,RULE:^.*$/ANONYMOUS/";
        }
        return null;
    }

    /** Return {@code CLIENT} for {@code listener.name.client.principal.builder.class}. */
    private static String listenerOf(String key) {
        String[] words = key.split("\\.");
        return words[0].equals("listener") ? words[2].toUpperCase(Locale.ROOT) : "*";
    }

    private static synchronized int port() throws IOException {
        if (server == null) {
            server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
            Thread thread = new Thread(Principals::serve, "principals");
            thread.setDaemon(true);
            thread.start();
        }
        return server.getLocalPort();
    }

    /** Answer each connection: a class and a listener on one line, the principal on the other. */
    private static void serve() {
        while (true) {
            try (Socket node = server.accept()) {
                String[] words = new String(node.getInputStream().readAllBytes()).trim().split(" ");
                node.getOutputStream().write(build(words[0], words[1]).getBytes());
            } catch (IOException | ReflectiveOperationException | RuntimeException error) {
                System.err.println("no principal: " + error);
            }
        }
    }

    private static String build(String builder, String listener) throws ReflectiveOperationException {
        KafkaPrincipalBuilder instance =
            (KafkaPrincipalBuilder) Class.forName(builder).getDeclaredConstructor().newInstance();
        return instance.build(
            new PlaintextAuthenticationContext(InetAddress.getLoopbackAddress(), listener)).toString();
    }
}
