"""The replica that a consumer should read from: one in its own rack, if there is one (KIP-392).

Pure. Only a replica that is in sync and has the offset is eligible: a lagging one would delay the
consumer. The leader itself is never returned: None means to stay with it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.protocol.types import Millis, Offset

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The only supported ``replica.selector.class``, by Kafka's name."""


class Candidate(NamedTuple):
    """A follower in the ISR, alive on the consumer's listener."""

    broker_id: int
    rack: str | None
    log_start: Offset
    log_end: Offset
    caught_up_at: Millis


def decide_read_replica(
    rack: str, leader_rack: str | None, offset: Offset, candidates: Iterable[Candidate]
) -> int | None:
    """Return the broker that a consumer in ``rack`` should read ``offset`` from; None to stay.

    Among several in the rack: the largest log end, then the latest catch-up, then the highest id.
    """
    if not rack or rack == leader_rack:
        return None
    near = [
        each
        for each in candidates
        if each.rack == rack and each.log_start <= offset <= each.log_end
    ]
    if not near:
        return None
    best = max(near, key=lambda each: (each.log_end, each.caught_up_at, each.broker_id))
    return best.broker_id
