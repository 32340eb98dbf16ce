package org.apache.kafka.common.test;

import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.Feature;

import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;

import ottla.BrokerStandIn;
import ottla.ControllerStandIn;
import ottla.NodeProcess;
import ottla.NodeView;
import ottla.Settings;
import ottla.Stores;

/** Has the name and methods of Kafka's test kit; its nodes are processes of Ottla. */
public class KafkaClusterTestKit implements AutoCloseable {
    private static final long START_MS = 120_000;
    private static final long READY_MS = 60_000;
    private static final String LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "
        + "username=\"plain-admin\" password=\"plain-admin-secret\"";
    private static final String USERS =
        " user_plain-admin=\"plain-admin-secret\" user_plain-user1=\"plain-user1-secret\"";

    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, Object> settings = new HashMap<>();
        private boolean isStandalone;
        private Map<Integer, Uuid> voters;
        private boolean deletesOnClose = true;

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            settings.put(key, value);
            return this;
        }

        public Builder setStandalone(boolean standalone) {
            isStandalone = standalone;
            return this;
        }

        public Builder setInitialVoterSet(Map<Integer, Uuid> initialVoters) {
            voters = initialVoters;
            return this;
        }

        public Builder setDeleteOnClose(boolean deleteOnClose) {
            deletesOnClose = deleteOnClose;
            return this;
        }

        public KafkaClusterTestKit build() throws Exception {
            return new KafkaClusterTestKit(this);
        }
    }

    public class ClientPropertiesBuilder {
        private final Properties properties;
        private boolean usesControllers;

        public ClientPropertiesBuilder() {
            this(new Properties());
        }

        public ClientPropertiesBuilder(Properties properties) {
            this.properties = properties;
        }

        public ClientPropertiesBuilder setUsingBootstrapControllers(boolean usingBootstrapControllers) {
            usesControllers = usingBootstrapControllers;
            return this;
        }

        public Properties build() {
            properties.remove(usesControllers ? "bootstrap.servers" : "bootstrap.controllers");
            properties.setProperty(usesControllers ? "bootstrap.controllers" : "bootstrap.servers",
                usesControllers ? bootstrapControllers() : bootstrapServers());
            return properties;
        }
    }

    private final TestKitNodes nodes;
    private final boolean isStandalone;
    private final Map<Integer, Uuid> voters;
    private final boolean deletesOnClose;
    private final boolean usesSasl;
    private final Map<Integer, NodeProcess> processes = new TreeMap<>();
    private final Map<Integer, Integer> brokerPorts = new TreeMap<>();
    private final Map<Integer, Integer> controllerPorts = new TreeMap<>();
    private final Map<Integer, BrokerServer> brokers = new HashMap<>();
    private final Map<Integer, ControllerServer> controllers = new HashMap<>();
    private final MockFaultHandler fatal = new MockFaultHandler("fatalFaultHandler");
    private final MockFaultHandler nonFatal = new MockFaultHandler("nonFatalFaultHandler");
    private boolean isFormatted;

    private KafkaClusterTestKit(Builder builder) throws Exception {
        nodes = builder.nodes;
        isStandalone = builder.isStandalone;
        voters = builder.voters;
        deletesOnClose = builder.deletesOnClose;
        usesSasl = nodes.brokerListenerProtocol() == SecurityProtocol.SASL_PLAINTEXT;
        Set<Integer> ids = new TreeSet<>(nodes.controllerNodes().keySet());
        ids.addAll(nodes.brokerNodes().keySet());
        for (int id : ids) {
            processes.put(id, new NodeProcess(id, Path.of(nodes.baseDirectory())));
            if (nodes.brokerNodes().containsKey(id)) brokerPorts.put(id, NodeProcess.freePort());
            if (nodes.controllerNodes().containsKey(id)) controllerPorts.put(id, NodeProcess.freePort());
        }
        for (int id : ids) {
            configure(id, builder.settings);
            addStandIns(id);
        }
    }

    private void configure(int id, Map<String, Object> common) throws IOException {
        TestKitNode broker = nodes.brokerNodes().get(id);
        TestKitNode controller = nodes.controllerNodes().get(id);
        Map<String, String> settings = processes.get(id).settings;
        common.forEach((key, value) -> settings.put(key, Settings.text(value)));
        if (usesSasl) addLogins(settings);
        List<String> roles = new ArrayList<>();
        List<String> listeners = new ArrayList<>();
        if (broker != null) {
            roles.add("broker");
            listeners.add(brokerListener() + "://localhost:" + brokerPorts.get(id));
            settings.putAll(broker.propertyOverrides());
        }
        if (controller != null) {
            roles.add("controller");
            listeners.add(controllerListener() + "://localhost:" + controllerPorts.get(id));
            if (broker == null) settings.putAll(controller.propertyOverrides());
        }
        settings.put("process.roles", String.join(",", roles));
        settings.put("node.id", "" + id);
        settings.merge("listeners", String.join(",", listeners), (chosen, usual) -> openPorts(chosen, id));
        settings.putIfAbsent("listener.security.protocol.map", brokerListener() + ":" + nodes.brokerListenerProtocol()
            + "," + controllerListener() + ":" + nodes.controllerListenerProtocol());
        settings.putIfAbsent("inter.broker.listener.name", brokerListener());
        settings.putIfAbsent("log.cleaner.dedupe.buffer.size", "2097152"); // as Kafka's kit does
        settings.putIfAbsent("controller.listener.names", controllerListener());
        boolean isDynamic = isStandalone || voters != null;
        settings.put(isDynamic ? "controller.quorum.bootstrap.servers" : "controller.quorum.voters",
            quorum(isDynamic ? "" : "%d@"));
        settings.put("log.dirs",
            broker != null ? String.join(",", broker.logDataDirectories()) : controller.metadataDirectory());
        settings.put("metadata.log.dir",
            controller != null ? controller.metadataDirectory() : broker.metadataDirectory());
        replacePersister(settings);
        Stores.convert(settings);
    }

    /** Return listeners that a test chose, with the ports of this kit, or free ones, in place of port 0. */
    private String openPorts(String listeners, int id) {
        List<String> opened = new ArrayList<>();
        for (String listener : listeners.split(",")) {
            int colon = listener.lastIndexOf(':');
            String name = listener.substring(0, listener.indexOf(':'));
            Map<Integer, Integer> ports = name.equals(controllerListener()) ? controllerPorts
                : name.equals(brokerListener()) ? brokerPorts : Map.of();
            int port = Integer.parseInt(listener.substring(colon + 1));
            if (port == 0) port = ports.containsKey(id) ? ports.get(id) : NodeProcess.freePort();
            else if (ports.containsKey(id)) ports.put(id, port);
            opened.add(listener.substring(0, colon + 1) + port);
        }
        return String.join(",", opened);
    }

    /** A persister is a class of the JVM; a node keeps the state of share groups in its topic. */
    private static void replacePersister(Map<String, String> settings) {
        String persister = settings.getOrDefault("group.share.persister.class.name", "DefaultStatePersister");
        if (persister.endsWith("DefaultStatePersister")) return;
        settings.putIfAbsent("share.coordinator.state.topic.replication.factor", "1");
        settings.putIfAbsent("share.coordinator.state.topic.min.isr", "1");
        settings.putIfAbsent("share.coordinator.state.topic.num.partitions", "1");
    }

    private void addLogins(Map<String, String> settings) {
        settings.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
        settings.putIfAbsent("sasl.mechanism.inter.broker.protocol", "PLAIN");
        settings.putIfAbsent("sasl.mechanism.controller.protocol", "PLAIN");
        settings.putIfAbsent("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
        settings.putIfAbsent("allow.everyone.if.no.acl.found", "false");
        settings.putIfAbsent("super.users", "User:plain-admin");
        for (String listener : List.of(brokerListener(), controllerListener())) {
            settings.put("listener.name." + listener.toLowerCase(Locale.ROOT) + ".plain.sasl.jaas.config",
                LOGIN + USERS + ";");
        }
    }

    private String quorum(String idFormat) {
        return controllerPorts.entrySet().stream()
            .map(entry -> String.format(idFormat, entry.getKey()) + "localhost:" + entry.getValue())
            .collect(Collectors.joining(","));
    }

    private void addStandIns(int id) {
        Map<String, Object> settings = new HashMap<>(processes.get(id).settings);
        settings.keySet().removeIf(key -> key.endsWith("sasl.jaas.config"));
        KafkaConfig config = new KafkaConfig(settings, false);
        NodeView node = new KitNode(id);
        if (brokerPorts.containsKey(id)) brokers.put(id, BrokerStandIn.of(id, config, node));
        if (controllerPorts.containsKey(id)) controllers.put(id, ControllerStandIn.of(config, node, this::liveBroker));
    }

    private NodeView liveBroker() {
        return new KitNode(brokerPorts.keySet().stream().filter(id -> processes.get(id).isAlive()).findFirst().orElseThrow());
    }

    private final class KitNode implements NodeView {
        private final int id;

        KitNode(int id) {
            this.id = id;
        }

        @Override
        public void start() {
            try {
                processes.get(id).start();
                processes.get(id).awaitStarted(START_MS);
                waitForReadyBrokers();
            } catch (IOException | InterruptedException | ExecutionException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public int port(ListenerName listener) {
            boolean isController = listener.equals(nodes.controllerListenerName());
            Integer port = (isController ? controllerPorts : brokerPorts).get(id);
            return port != null ? port : controllerPorts.getOrDefault(id, -1);
        }

        @Override public boolean isAlive() { return processes.get(id).isAlive(); }
        @Override public void stop() { processes.get(id).stop(); }
        @Override public boolean hasPlaintext() { return nodes.brokerListenerProtocol() == SecurityProtocol.PLAINTEXT; }
        @Override public int plaintextPort() { return brokerPorts.get(id); }
        @Override public Admin admin() { return KafkaClusterTestKit.this.admin(); }
        @Override public String clusterId() { return nodes.clusterId(); }
    }

    private Admin admin() {
        Properties properties = clientProperties();
        if (usesSasl) {
            properties.put("security.protocol", "SASL_PLAINTEXT");
            properties.put("sasl.mechanism", "PLAIN");
            properties.put("sasl.jaas.config", LOGIN + ";");
        }
        return Admin.create(properties);
    }

    public void format() throws Exception {
        if (isFormatted) return;
        isFormatted = true;
        List<String> features = features();
        for (NodeProcess process : processes.values()) {
            List<String> arguments = new ArrayList<>(List.of("--cluster-id", nodes.clusterId()));
            arguments.addAll(features);
            arguments.addAll(voterArguments(process.id));
            process.format(arguments);
        }
    }

    /** Return the levels of the bootstrap records; if these name more than one feature, others are off. */
    private List<String> features() {
        Map<String, Short> levels = new TreeMap<>();
        for (ApiMessageAndVersion record : nodes.bootstrapMetadata().records()) {
            if (record.message() instanceof FeatureLevelRecord feature) levels.put(feature.name(), feature.featureLevel());
        }
        if (levels.size() > 1) {
            for (Feature feature : Feature.PRODUCTION_FEATURES) {
                if (!feature.featureName().equals("kraft.version")) levels.putIfAbsent(feature.featureName(), (short) 0);
            }
        }
        return levels.entrySet().stream()
            .flatMap(entry -> List.of("--feature", entry.getKey() + "=" + entry.getValue()).stream()).toList();
    }

    private List<String> voterArguments(int id) {
        if (!isStandalone && voters == null) return List.of();
        if (isStandalone && controllerPorts.containsKey(id) && id == nodes.controllerNodes().firstKey()) {
            return List.of("--standalone");
        }
        if (voters != null && controllerPorts.containsKey(id) && voters.containsKey(id)) {
            String initial = voters.entrySet().stream()
                .map(voter -> voter.getKey() + "@localhost:" + controllerPorts.get(voter.getKey()) + ":" + voter.getValue())
                .collect(Collectors.joining(","));
            return List.of("--initial-controllers", initial);
        }
        return List.of("--no-initial-controllers");
    }

    public void startup() throws ExecutionException, InterruptedException {
        try {
            for (NodeProcess process : processes.values()) process.start();
            for (NodeProcess process : processes.values()) process.awaitStarted(START_MS);
            waitForReadyBrokers();
        } catch (IOException error) {
            processes.values().forEach(NodeProcess::kill);
            throw new ExecutionException(error);
        }
    }

    public void waitForReadyBrokers() throws ExecutionException, InterruptedException {
        long alive = brokerPorts.keySet().stream().filter(id -> processes.get(id).isAlive()).count();
        if (alive == 0) return;
        long deadline = System.currentTimeMillis() + READY_MS;
        try (Admin admin = admin()) {
            while (true) {
                try {
                    if (admin.describeCluster().nodes().get(20, TimeUnit.SECONDS).size() >= alive) return;
                } catch (TimeoutException | ExecutionException error) {
                    if (System.currentTimeMillis() > deadline) throw new ExecutionException(error);
                }
                if (System.currentTimeMillis() > deadline) {
                    throw new ExecutionException(new IllegalStateException("fewer than " + alive + " brokers are listed"));
                }
                Thread.sleep(50);
            }
        }
    }

    public ClientPropertiesBuilder newClientPropertiesBuilder(Properties properties) {
        return new ClientPropertiesBuilder(properties);
    }

    public ClientPropertiesBuilder newClientPropertiesBuilder() {
        return new ClientPropertiesBuilder();
    }

    public Properties clientProperties() {
        return new ClientPropertiesBuilder().build();
    }

    public String bootstrapServers() {
        return addresses(brokerPorts);
    }

    public String bootstrapControllers() {
        return addresses(controllerPorts);
    }

    private static String addresses(Map<Integer, Integer> ports) {
        return ports.values().stream().map(port -> "localhost:" + port).collect(Collectors.joining(","));
    }

    public Map<Integer, ControllerServer> controllers() {
        return controllers;
    }

    public Map<Integer, BrokerServer> brokers() {
        return brokers;
    }

    public Controller waitForActiveController() throws InterruptedException {
        return controllers.values().iterator().next().controller();
    }

    public Map<Integer, KafkaRaftManager<ApiMessageAndVersion>> raftManagers() {
        return controllers.entrySet().stream()
            .collect(Collectors.toMap(Map.Entry::getKey, entry -> entry.getValue().raftManager()));
    }

    public TestKitNodes nodes() {
        return nodes;
    }

    public MockFaultHandler fatalFaultHandler() {
        return fatal;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return nonFatal;
    }

    private String brokerListener() {
        return nodes.brokerListenerName().value();
    }

    private String controllerListener() {
        return nodes.controllerListenerName().value();
    }

    @Override
    public void close() throws Exception {
        processes.values().parallelStream().forEach(NodeProcess::kill);
        if (deletesOnClose) Utils.delete(new File(nodes.baseDirectory()));
    }
}
