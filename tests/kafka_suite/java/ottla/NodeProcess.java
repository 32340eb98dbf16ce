package ottla;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.Writer;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;

/**
 * A node of Ottla: its settings, its process and its log file.
 *
 * All processes are forked from one warm interpreter (node_starter.py), because a test starts and
 * stops nodes far more often than a user does.
 */
public final class NodeProcess {
    private static final int PORT_FIRST = Integer.getInteger("ottla.port.first", 24000);
    private static final int PORT_LAST = PORT_FIRST + Integer.getInteger("ottla.port.count", 800);
    private static final long STOP_MS = 30_000;
    private static final long KILL_MS = 10_000;
    // Not the first port: nodes of the class before may still be ending.
    private static final AtomicInteger NEXT_PORT =
        new AtomicInteger(PORT_FIRST + (int) (ProcessHandle.current().pid() * 53 % (PORT_LAST - PORT_FIRST)));
    private static final AtomicInteger STARTED = new AtomicInteger();

    private static Process starter;
    private static BufferedReader replies;
    private static Writer orders;

    public final int id;
    public final Map<String, String> settings = new TreeMap<>();
    /** The principals of listeners without a login, by name; others are anonymous. */
    public final Map<String, String> principals = new TreeMap<>();
    private final Path directory;
    private final Path log;
    private volatile ProcessHandle process;
    private volatile long logLengthAtStart;

    public NodeProcess(int id, Path base) throws IOException {
        this.id = id;
        directory = Files.createDirectories(base.resolve("ottla-" + id));
        Path logs = Files.createDirectories(Path.of(System.getProperty("ottla.logs")));
        String name = ProcessHandle.current().pid() + "-" + STARTED.incrementAndGet() + "-" + id + ".log";
        log = logs.resolve(name);
    }

    /** Return a port of this machine that nothing listens on. */
    public static synchronized int freePort() {
        for (int attempt = PORT_FIRST; attempt < PORT_LAST; attempt++) {
            int port = NEXT_PORT.getAndIncrement();
            if (port >= PORT_LAST) {
                NEXT_PORT.set(PORT_FIRST);
                continue;
            }
            try (ServerSocket socket = new ServerSocket()) {
                socket.setReuseAddress(true);
                socket.bind(new InetSocketAddress("127.0.0.1", port));
                return port;
            } catch (IOException inUse) {
                // The next one may be free.
            }
        }
        throw new IllegalStateException("no free port from " + PORT_FIRST + " to " + PORT_LAST);
    }

    /** Format the directories; directories that are formatted already stay as they are. */
    public void format(List<String> arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of("format", "--config", writeSettings(), "--ignore-formatted"));
        command.addAll(arguments);
        String exitCode = order(true, command);
        if (!"0".equals(exitCode)) {
            throw new IOException("format of node " + id + " ended with " + exitCode + ": " + end(Files.readString(log)));
        }
    }

    /** Start the process, unless it runs. */
    public synchronized void start() throws IOException {
        if (isAlive()) return;
        logLengthAtStart = Files.exists(log) ? Files.size(log) : 0;
        long pid = Long.parseLong(order(false, List.of("server", writeSettings())));
        process = ProcessHandle.of(pid).orElseThrow(() -> new IOException("node " + id + " ended at once"));
    }

    /** Wait until the node has said that it started. */
    public void awaitStarted(long timeoutMs) throws IOException, InterruptedException {
        long deadline = System.currentTimeMillis() + timeoutMs;
        while (System.currentTimeMillis() < deadline) {
            String said = Files.readString(log).substring((int) logLengthAtStart);
            if (said.contains("started node " + id)) return;
            if (!isAlive()) throw new IOException("node " + id + " ended: " + end(said));
            Thread.sleep(30);
        }
        throw new IOException("node " + id + " did not start within " + timeoutMs + " ms");
    }

    public boolean isAlive() {
        ProcessHandle running = process;
        if (running == null || !running.isAlive()) return false;
        try {
            String state = Files.readString(Path.of("/proc/" + running.pid() + "/stat"));
            return state.charAt(state.lastIndexOf(')') + 2) != 'Z';
        } catch (IOException ended) {
            return false;
        }
    }

    /** Stop in order, as an operator does; kill what does not stop in time. */
    public synchronized void stop() {
        ProcessHandle running = process;
        if (running == null) return;
        running.destroy();
        if (!hasEndedWithin(STOP_MS)) kill();
        process = null;
    }

    public synchronized void kill() {
        ProcessHandle running = process;
        if (running == null) return;
        running.destroyForcibly();
        hasEndedWithin(KILL_MS);
        process = null;
    }

    private boolean hasEndedWithin(long timeoutMs) {
        long deadline = System.currentTimeMillis() + timeoutMs;
        while (isAlive()) {
            if (System.currentTimeMillis() > deadline) return false;
            try {
                Thread.sleep(20);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                return false;
            }
        }
        return true;
    }

    private String writeSettings() throws IOException {
        String text = settings.entrySet().stream()
            .map(entry -> entry.getKey() + "=" + entry.getValue().replace("\\", "\\\\").replace("\n", "\\n") + "\n")
            .collect(Collectors.joining());
        Path file = directory.resolve("server.properties");
        Files.writeString(file, text);
        return file.toString();
    }

    /** Send the starter one command line; return the pid of its process, or its exit code. */
    private String order(boolean wait, List<String> arguments) throws IOException {
        String list = arguments.stream().map(NodeProcess::quote).collect(Collectors.joining(", "));
        String names = principals.entrySet().stream()
            .map(entry -> quote(entry.getKey()) + ": " + quote(entry.getValue())).collect(Collectors.joining(", "));
        return order("{\"log\": " + quote(log.toString()) + ", \"wait\": " + wait + ", \"principals\": {" + names
            + "}, \"arguments\": [" + list + "]}");
    }

    private static synchronized String order(String line) throws IOException {
        if (starter == null || !starter.isAlive()) {
            starter = new ProcessBuilder(System.getProperty("ottla.python"), System.getProperty("ottla.starter"))
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            replies = starter.inputReader();
            orders = starter.outputWriter();
        }
        orders.write(line + "\n");
        orders.flush();
        return replies.readLine();
    }

    private static String quote(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    private static String end(String text) {
        return text.substring(Math.max(0, text.length() - 1500));
    }
}
