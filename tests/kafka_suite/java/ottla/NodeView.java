package ottla;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.network.ListenerName;

/** A node as the stand-ins for Kafka's server objects see it. */
public interface NodeView {
    boolean isAlive();

    void start();

    void stop();

    int port(ListenerName listener);

    boolean hasPlaintext();

    int plaintextPort();

    /** Return a client with all rights; used where no listener is plaintext. */
    Admin admin();

    String clusterId();
}
