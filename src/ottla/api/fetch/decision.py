"""What to do about one partition of a fetch, decided from its state and without a read. Pure.

    READ    there are records at the requested offset: read them
    WAIT    a read would find no records and nothing else to report: wait for a change
    LOOK    no records are to be seen, but something else may have changed: only a pass can tell,
            by an error, a diverging epoch, remote records or another replica

The first pass of a follower at the end of its log, the wake-ups of a waiting fetch, the choice of
idle partitions and the read of a log's end all ask here. How records are read is not decided here.
"""

import enum
from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.api.fetch.partitions import FetchedPartition
from ottla.metadata.image import Image
from ottla.protocol.types import Millis, Offset
from ottla.replication.partition import Partition
from ottla.replication.partition_reads import Isolation, ReadRequest


class Way(enum.Enum):
    """What to do about a partition."""

    READ = "read"
    WAIT = "wait"
    LOOK = "look"


# Names of the module: CPython 3.11 looks up a member of an enum class in Python code.
READ, WAIT, LOOK = Way.READ, Way.WAIT, Way.LOOK


class LastRead(NamedTuple):
    """How a pass read the only partition of a fetch to its end, and ``want``: to read on from it.

    While `is_current`, no rule of a pass can have another result, except those of the log itself:
    the leader epoch is the same, and a leader does not truncate.
    """

    fetched: FetchedPartition
    partition: Partition
    image: Image
    leader_epoch: int
    want: ReadRequest

    def is_current(self, fetched: FetchedPartition, image: Image) -> bool:
        """Return whether nothing but the log may have changed since."""
        partition = self.partition
        return (
            fetched is self.fetched
            and self.image is image
            and not partition.is_closed
            and partition.leader_epoch == self.leader_epoch
        )

    def has_epochs(self) -> bool:
        """Return whether the fetcher has the newest epochs: its history cannot diverge."""
        requested, partition = self.fetched.requested, self.partition
        return (
            requested.last_fetched_epoch == partition.log.epochs.latest_epoch
            and requested.current_leader_epoch == partition.leader_epoch
        )


class Ground(NamedTuple):
    """What the rows of a session depend on besides the logs: the image, the request, the caller.

    ``ids`` of the ``parts`` of the image are compared first: the parts are large. They are kept
    alive, so that no other object can have the same id.
    """

    ids: tuple[int, ...]
    parts: tuple[object, ...]
    replica_id: int
    replica_epoch: int
    is_read_committed: bool
    version: int
    principal: str
    host: str


def decide(
    fetched: FetchedPartition,
    partition: Partition,
    isolation: Isolation,
    last: LastRead | None,
    image: Image,
) -> Way:
    """Return what to do about a partition; ``last`` is the last read of the fetch, if it had one.

    The end of what may be read can be inside of a batch, which is then not sent. For a consumer
    it stays where it is while followers have not fetched what was appended.
    """
    offset = fetched.requested.offset
    if partition.readable_end(isolation) > offset:
        return READ
    if last is None or not last.is_current(fetched, image) or partition.offline is not None:
        return LOOK
    log = partition.log
    return WAIT if log.log_start_offset <= offset <= log.log_end_offset else LOOK


# -- another replica -----------------------------------------------------------

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
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
    """Return the broker that a consumer in ``rack`` should read ``offset`` from (KIP-392).

    None to stay with the leader. Only a replica that is in sync and has the offset is eligible: a
    lagging one would delay the consumer. Among several in the rack: the largest log end, then the
    latest catch-up, then the highest id.
    """
    if not rack or rack == leader_rack:
        return None
    near = [
        candidate
        for candidate in candidates
        if candidate.rack == rack and candidate.log_start <= offset <= candidate.log_end
    ]
    if not near:
        return None
    best = max(near, key=lambda one: (one.log_end, one.caught_up_at, one.broker_id))
    return best.broker_id
