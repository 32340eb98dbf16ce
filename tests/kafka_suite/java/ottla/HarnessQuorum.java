package ottla;

import kafka.server.ControllerServer;
import kafka.server.KRaftQuorumImplementation;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.QuorumTestHarness;
import kafka.utils.TestInfoUtils;

import net.bytebuddy.implementation.bind.annotation.Argument;
import net.bytebuddy.implementation.bind.annotation.RuntimeType;
import net.bytebuddy.implementation.bind.annotation.This;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.metadata.storage.Formatter;
import org.junit.jupiter.api.TestInfo;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CopyOnWriteArrayList;

/** The quorum of QuorumTestHarness: one controller process, and the brokers that join it. */
public final class HarnessQuorum {
    private static final long START_MS = 120_000;
    private static final long REGISTERED_MS = 60_000;
    private static final String PLAIN_PROTOCOLS =
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL";

    public final QuorumTestHarness harness;
    public final String clusterId = Uuid.randomUuid().toString();
    public final ControllerServer controller;
    private final NodeProcess controllerNode;
    private final int controllerPort = NodeProcess.freePort();
    private final List<BrokerNode> brokers = new CopyOnWriteArrayList<>();
    private final Path base = Files.createTempDirectory("quorum");

    /** Called instead of QuorumTestHarness.newKRaftQuorum; PatchHarness puts it there. */
    @RuntimeType
    public static Object create(@This Object harness, @Argument(0) TestInfo test, @Argument(1) Properties extra)
            throws Exception {
        return new KRaftQuorumImplementation(new HarnessQuorum((QuorumTestHarness) harness, test, extra));
    }

    private HarnessQuorum(QuorumTestHarness harness, TestInfo test, Properties extra) throws Exception {
        this.harness = harness;
        Properties settings = new Properties();
        settings.putAll((Properties) harness.kraftControllerConfigs(test).head());
        settings.putAll(extra);
        int id = Integer.parseInt(settings.getProperty("node.id", "1000"));
        String directory = Files.createDirectories(base.resolve("metadata")).toString();
        settings.putAll(Map.of(
            "node.id", "" + id,
            "process.roles", "controller",
            "listeners", "CONTROLLER://localhost:" + controllerPort,
            "listener.security.protocol.map", "CONTROLLER:" + harness.controllerListenerSecurityProtocol(),
            "controller.listener.names", "CONTROLLER",
            "controller.quorum.voters", id + "@localhost:" + controllerPort,
            "log.segment.delete.delay.ms", "1000",
            "metadata.log.dir", directory,
            "log.dirs", directory));
        controllerNode = new NodeProcess(id, base);
        settings.forEach((key, value) -> controllerNode.settings.put((String) key, Settings.text(value)));
        Principals.replaceBuilders(controllerNode);
        Principals.admitHarness(controllerNode);
        Logins.addFromJaas(controllerNode.settings);
        Stores.convert(controllerNode.settings);
        controllerNode.format(features(harness, test));
        controllerNode.start();
        controllerNode.awaitStarted(START_MS);
        controller = ControllerStandIn.of(
            new KafkaConfig(settings, false), new ControllerNode(), this::liveBroker);
    }

    private List<String> features(QuorumTestHarness harness, TestInfo test) {
        List<String> arguments = new ArrayList<>(List.of("--cluster-id", clusterId));
        Map<String, Integer> levels = Map.of(
            "metadata.version", (int) harness.metadataVersion().featureLevel(),
            "transaction.version", TestInfoUtils.isTransactionV2Enabled(test) ? 2 : 1,
            "group.version", 1, "share.version", 1, "streams.version", 1, "eligible.leader.replicas.version", 1);
        levels.forEach((name, level) -> arguments.addAll(List.of("--feature", name + "=" + level)));
        Formatter formatter = StandIn.of(Formatter.class, Map.of("setScramArguments", call -> {
            ((List<?>) call[0]).forEach(user -> arguments.addAll(List.of("--add-scram", (String) user)));
            return null;
        }));
        harness.addFormatterSettings(formatter);
        return arguments;
    }

    public KafkaBroker createBroker(KafkaConfig config) {
        try {
            BrokerNode broker = new BrokerNode(config);
            brokers.add(broker);
            return BrokerStandIn.of(config.brokerId(), config, broker);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    public void shutdown() {
        brokers.forEach(broker -> broker.process.kill());
        controllerNode.kill();
        try {
            Utils.delete(base.toFile());
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private NodeView liveBroker() {
        return brokers.stream().filter(BrokerNode::isAlive).findFirst().orElseThrow();
    }

    private final class ControllerNode implements NodeView {
        @Override public boolean isAlive() { return controllerNode.isAlive(); }
        @Override public void start() { startNode(controllerNode); }
        @Override public void stop() { controllerNode.stop(); }
        @Override public int port(ListenerName listener) { return controllerPort; }
        @Override public boolean hasPlaintext() { return false; }
        @Override public int plaintextPort() { throw new UnsupportedOperationException(StandIn.MARK); }
        @Override public Admin admin() { return liveBroker().admin(); }
        @Override public String clusterId() { return clusterId; }
    }

    private final class BrokerNode implements NodeView {
        private final NodeProcess process;
        private final Map<String, Integer> ports = new LinkedHashMap<>();
        private final int harnessPort = NodeProcess.freePort();
        private boolean isFormatted;

        BrokerNode(KafkaConfig config) throws IOException {
            process = new NodeProcess(config.brokerId(), base);
            Map<String, String> settings = process.settings;
            config.originals().forEach((key, value) -> {
                if (value != null) settings.put(key, Settings.text(value));
            });
            settings.put("controller.quorum.voters", controllerNode.id + "@localhost:" + controllerPort);
            String protocols = settings.getOrDefault("listener.security.protocol.map", PLAIN_PROTOCOLS);
            if (!protocols.contains("CONTROLLER:")) {
                protocols += ",CONTROLLER:" + harness.controllerListenerSecurityProtocol();
            }
            settings.put("listener.security.protocol.map", protocols);
            settings.put("listeners", openPorts(settings.getOrDefault("listeners", "PLAINTEXT://localhost:0")));
            if (settings.getOrDefault("advertised.listeners", "").endsWith(":0")) {
                settings.put("advertised.listeners", settings.get("listeners"));
            }
            settings.remove("log.dir");
            settings.put("log.dirs", String.join(",", config.logDirs()));
            settings.put("metadata.log.dir", config.metadataLogDir());
            Principals.replaceBuilders(process);
            Logins.addFromJaas(settings);
            Stores.convert(settings);
            addHarnessListener();
        }

        /** The harness asks by a listener of its own: the test's may need a login, or deny what it asks. */
        private void addHarnessListener() {
            String listener = "," + Principals.LISTENER + "://localhost:" + harnessPort;
            process.settings.merge("listener.security.protocol.map", "," + Principals.LISTENER + ":PLAINTEXT", String::concat);
            process.settings.merge("listeners", listener, String::concat);
            process.settings.computeIfPresent("advertised.listeners", (key, advertised) -> advertised + listener);
            Principals.admitHarness(process);
        }

        /** Return the listeners with a free port in place of each port 0. */
        private String openPorts(String listeners) {
            List<String> opened = new ArrayList<>();
            for (String listener : listeners.split(",")) {
                int colon = listener.lastIndexOf(':');
                int port = Integer.parseInt(listener.substring(colon + 1));
                port = port == 0 ? NodeProcess.freePort() : port;
                ports.put(listener.substring(0, listener.indexOf(':')), port);
                opened.add(listener.substring(0, colon + 1) + port);
            }
            return String.join(",", opened);
        }

        @Override
        public void start() {
            try {
                if (!isFormatted) {
                    for (String directory : process.settings.get("log.dirs").split(",")) {
                        Files.createDirectories(Path.of(directory));
                    }
                    process.format(List.of("--cluster-id", clusterId));
                    isFormatted = true;
                }
                startNode(process);
                awaitRegistered();
            } catch (IOException | InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }

        private void awaitRegistered() throws InterruptedException {
            Wire wire = new Wire(this);
            long deadline = System.currentTimeMillis() + REGISTERED_MS;
            while (wire.brokers().stream().noneMatch(broker -> broker.id() == process.id)) {
                if (System.currentTimeMillis() > deadline) throw new IllegalStateException("not registered: " + process.id);
                Thread.sleep(30);
            }
        }

        @Override public boolean isAlive() { return process.isAlive(); }
        @Override public void stop() { process.stop(); }
        @Override public int port(ListenerName listener) {
            return ports.getOrDefault(listener.value(), ports.values().iterator().next());
        }
        @Override public boolean hasPlaintext() { return true; }
        @Override public int plaintextPort() { return harnessPort; }
        @Override public Admin admin() { return Admin.create(Map.of("bootstrap.servers", "localhost:" + harnessPort)); }
        @Override public String clusterId() { return clusterId; }
    }

    private static void startNode(NodeProcess process) {
        try {
            process.start();
            process.awaitStarted(START_MS);
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
