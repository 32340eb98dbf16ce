package kafka.server;

import org.apache.kafka.common.utils.Time;

import ottla.HarnessQuorum;

/** Has the name and methods that QuorumTestHarness expects; passes all of them on. */
public class KRaftQuorumImplementation implements QuorumImplementation {
    private final HarnessQuorum quorum;

    public KRaftQuorumImplementation(HarnessQuorum quorum) {
        this.quorum = quorum;
    }

    public ControllerServer controllerServer() {
        return quorum.controller;
    }

    public String clusterId() {
        return quorum.clusterId;
    }

    public kafka.utils.Logging log() {
        return quorum.harness;
    }

    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, scala.Option<String> threadNamePrefix) {
        KafkaBroker broker = quorum.createBroker(config);
        if (startup) broker.startup();
        return broker;
    }

    public void shutdown() {
        quorum.shutdown();
    }

    public Time createBroker$default$2() {
        return Time.SYSTEM;
    }

    public boolean createBroker$default$3() {
        return true;
    }

    public scala.Option<String> createBroker$default$4() {
        return scala.Option.empty();
    }
}
