"""Settings of small mixed clusters, by the number of brokers."""


def replicated(replicas: int) -> dict[str, str]:
    """Return the settings of a cluster with this many replicas of everything."""
    factor, least = str(replicas), str(max(1, replicas - 1))
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": least,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": least,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": least,
    }


ONE = replicated(1)
TWO = replicated(2)
