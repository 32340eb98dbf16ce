"""Whether a broker may be restarted without making partitions unavailable. Pure."""

from ottla.metadata.image import Image


def is_settled(image: Image, broker_id: int) -> bool:
    """Return whether a broker is unfenced, all its replicas are in sync, and none of them is the
    only one of several that is.

    Partitions without a leader do not count: waiting for them does not help.
    """
    if not image.cluster.is_active(broker_id):
        return False
    return all(
        broker_id in partition.isr and (len(partition.replicas) == 1 or len(partition.isr) > 1)
        for _, partition in image.topics.replicas_on(broker_id)
        if partition.has_leader()
    )
