"""One pass over the partitions of a Fetch: authorization and reads within the byte limits.

Partitions are read in order. The first batch of the first partition that has any is returned whole,
however large (KIP-74); the rest stays within ``max_bytes`` and ``partition_max_bytes``. Partitions
at the end may therefore get nothing; their session reads them first next time.

An error is the result of its partition alone. Errors found without reading a log (unknown topic,
not authorized) do not end the wait of the request; errors of a log do, and so do a diverging epoch
or a preferred replica, since waiting would not change them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ottla.api.fetch.decision import (
    READ,
    WAIT,
    Candidate,
    Ground,
    LastRead,
    Way,
    decide,
    decide_read_replica,
)
from ottla.api.fetch.partitions import FetchedPartition
from ottla.api.fetch.reply import INLINE_BYTES_MAX, Row
from ottla.api.fetch.request import FetchBody, FetchPartition
from ottla.api.fetch.sessions import PartitionRow
from ottla.api.partitions.current_leaders import (
    CurrentLeader,
    NodeEndpoint,
    current_leader,
    endpoint_of,
)
from ottla.api.surface.replies import ITEMS_PER_STEP, Steps
from ottla.api.surface.routes import Caller
from ottla.metadata.image import Image
from ottla.metadata.registrations import BrokerRegistration
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    Fault,
    InconsistentTopicId,
    NotLeader,
    OffsetMovedToTieredStorage,
)
from ottla.protocol.types import NO_EPOCH, Offset
from ottla.replication.fetching.throttles import Throttles
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import Partition
from ottla.replication.partition_reads import CONSUMER, DEBUGGER, Isolation, ReadRequest, ReadResult
from ottla.storage.log.transaction_index import AbortedTxn

if TYPE_CHECKING:
    from ottla.api.fetch.remote import RemoteFetch, RemoteReader

# The first versions that have these fields or errors.
ANY_REPLICA_SINCE: Final = 11
STORAGE_ERROR_SINCE: Final = 6
LEADER_SINCE: Final = 16

_TELL_LEADER: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def everybody(caller: Caller, topic: str) -> bool:
    """Allow every read: there is no authorizer."""
    return True


def anybody(caller: Caller) -> bool:
    """Allow every caller to fetch as a replica: there is no authorizer."""
    return True


class NegativeBytes(Fault):
    """A negative limit with records to read. The error code is the one that Kafka returns."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class ReadSources(msgspec.Struct, frozen=True):
    """Dependencies of reads. ``is_rack_aware``: consumers are sent to their rack."""

    partitions: Partitions
    image: Callable[[], Image]
    is_rack_aware: bool = False
    may_read: Callable[[Caller, str], bool] = everybody
    may_replicate: Callable[[Caller], bool] = anybody
    throttles: Throttles | None = None
    remote: "RemoteReader | None" = None
    """Reads remote storage; None for a broker without."""


class Pass(msgspec.Struct):
    """The result of one pass.

    ``watched`` are the partitions that may have more later; ``is_due`` means that waiting cannot
    improve some result. ``remote`` are those whose records are in remote storage. The first pass of
    a request also records the progress of a follower.
    """

    is_first: bool = False

    results: list[PartitionRow] = msgspec.field(default_factory=list)
    watched: list[tuple[FetchedPartition, Partition]] = msgspec.field(default_factory=list)
    size: int = 0
    is_due: bool = False
    remote: "list[RemoteFetch]" = msgspec.field(default_factory=list)


class Limit(NamedTuple):
    """What is left for a partition; ``minimum_one``: its first batch is sent whole all the same."""

    bytes_max: int
    minimum_one: bool


def _row_of(fetched: FetchedPartition, found: ReadResult) -> Row:
    return Row(
        fetched.requested.partition,
        0,
        found.high_watermark,
        found.last_stable_offset,
        found.log_start_offset,
        found.slice,
        found.aborted,
        diverging=found.diverging,
    )


class Reading:
    """The reads of one request."""

    __slots__ = (
        "_allow_follower",
        "_caller",
        "_fetch",
        "_image",
        "_isolation",
        "_sources",
        "last",
    )

    def __init__(self, sources: ReadSources, caller: Caller, fetch: FetchBody) -> None:
        self._sources = sources
        self._caller = caller
        self._fetch = fetch
        self._image = sources.image()
        self.last: LastRead | None = None  # the next request of a session may start from it
        is_debugger = fetch.replica_id == DEBUGGER
        self._allow_follower = is_debugger or (
            not fetch.is_from_follower and fetch.version >= ANY_REPLICA_SINCE
        )
        if fetch.is_from_follower or is_debugger:
            self._isolation = Isolation.LOG_END
        elif fetch.is_read_committed:
            self._isolation = Isolation.LAST_STABLE
        else:
            self._isolation = Isolation.HIGH_WATERMARK

    def read(self, fetched: Iterable[FetchedPartition], bytes_max: int, *, is_first: bool) -> Pass:
        """Read all partitions; the first pass also records the progress of a follower."""
        return self._read_more(Pass(is_first=is_first), fetched, bytes_max)

    def read_steps(self, fetched: Sequence[FetchedPartition], bytes_max: int) -> Steps[Pass]:
        """Make the first pass over many partitions, and yield often."""
        done = Pass(is_first=True)
        for start in range(0, len(fetched), ITEMS_PER_STEP):
            part = fetched[start : start + ITEMS_PER_STEP]
            self._read_more(done, part, max(0, bytes_max - done.size))
            yield
        return done

    def _read_more(self, done: Pass, fetched: Iterable[FetchedPartition], bytes_max: int) -> Pass:
        """Add the rows of partitions to a pass."""
        self._image = self._sources.image()
        refused = self._refusal_of_all()
        minimum_one = not done.size
        for each in fetched:
            place = refused or self._place(each)
            if isinstance(place, ErrorCode):
                done.results.append((each, Row(each.requested.partition, place, aborted=())))
                continue
            limit = Limit(min(each.requested.bytes_max, bytes_max), minimum_one)
            row = self._read_one(each, place, done, limit)
            done.results.append((each, row))
            size = row.size
            if done.remote and done.remote[-1].fetched is each:
                size = done.remote[-1].bytes_max  # what it may take of the limit
            if size:
                minimum_one = False
                done.size += size
                bytes_max = max(0, bytes_max - size)
        return done

    # -- errors found without reading a log ---------------------------------------

    def _refusal_of_all(self) -> ErrorCode | None:
        """Return the error of a caller that may not fetch as a replica (CVE-2018-1288)."""
        if self._fetch.is_from_follower and not self._sources.may_replicate(self._caller):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return None

    def _place(self, fetched: FetchedPartition) -> Partition | ErrorCode | None:
        """Return the partition if it is hosted here, None if it is elsewhere, or its error."""
        name = fetched.name
        if name is None:
            name = fetched.name = self._name_of(fetched)
            if name is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._fetch.is_from_follower and not self._sources.may_read(self._caller, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partition = self._sources.partitions.get(name, fetched.requested.partition)
        if partition is None:
            topic = self._image.topics.named(name)
            if topic is None or fetched.requested.partition not in topic.partitions:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return partition

    def _name_of(self, fetched: FetchedPartition) -> str | None:
        if isinstance(fetched.topic, str):
            return fetched.topic
        topic = self._image.topics.by_id.get(fetched.topic)
        return None if topic is None else topic.name

    # -- reading -----------------------------------------------------------------

    def _read_one(
        self,
        fetched: FetchedPartition,
        place: Partition | None,
        done: Pass,
        limit: Limit,
    ) -> Row:
        requested = fetched.requested
        try:
            partition = self._checked(fetched, place)
            if self._sources.is_rack_aware:
                row = self._sent_elsewhere(fetched, partition)
                if row is not None:
                    done.is_due = True
                    return row
            bytes_max, minimum_one = limit
            found = self._look(fetched, partition, bytes_max, minimum_one or bytes_max < 0)
            if bytes_max < 0 and found.slice.length:
                raise NegativeBytes(f"{partition}: fetch of {bytes_max} bytes")
            if done.is_first and self._fetch.is_from_follower and found.diverging is None:
                self._record(fetched, partition, found.log_end_offset)
            if self._sources.throttles is not None and self._fetch.is_from_follower:
                # Followers request at least one byte: what was found is sent.
                self._sources.throttles.sent(partition, found.slice.length)
        except OffsetMovedToTieredStorage as fault:
            done.is_due = True
            return self._moved_to_remote(fetched, place, done, limit, fault)
        except Fault as fault:
            done.is_due = True
            return Row(requested.partition, self._code(fault))
        done.is_due |= found.diverging is not None
        done.watched.append((fetched, partition))
        return _row_of(fetched, found)

    def _moved_to_remote(
        self,
        fetched: FetchedPartition,
        partition: Partition | None,
        done: Pass,
        limit: Limit,
        fault: Fault,
    ) -> Row:
        """Return the row of an offset below the local log start; its records are read later.

        A follower gets the error: it continues from the local log start.
        """
        assert partition is not None
        requested, remote, log = fetched.requested, self._sources.remote, partition.log
        offsets = (log.high_watermark, log.last_stable_offset, log.log_start_offset)
        if self._fetch.is_from_follower:
            return Row(requested.partition, fault.code, *offsets)
        if remote is None:
            return Row(requested.partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        from ottla.api.fetch.remote import RemoteFetch  # only with a tier

        if limit.bytes_max > 0 or limit.minimum_one:
            done.remote.append(RemoteFetch(fetched, partition, max(limit.bytes_max, 1)))
        aborted: list[AbortedTxn] | None = [] if self.is_read_committed else None
        return Row(requested.partition, 0, *offsets, aborted=aborted)

    def _record(self, fetched: FetchedPartition, partition: Partition, leader_end: Offset) -> None:
        """Record the progress of a follower. Raises a `Fault` if it may not replicate."""
        requested, fetch = fetched.requested, self._fetch
        partition.follower_fetched(
            fetch.replica_id,
            requested.offset,
            log_start=requested.log_start_offset,
            leader_end=leader_end,
            broker_epoch=fetch.replica_epoch,
        )

    # -- decisions ---------------------------------------------------------------

    def decide(self, fetched: FetchedPartition, partition: Partition) -> Way:
        """Return what to do about a partition, without a read."""
        return decide(fetched, partition, self._isolation, self.last, self._sources.image())

    def may_rest(self, fetched: FetchedPartition, partition: Partition, row: Row) -> bool:
        """Return whether another read is useless until the partition changes.

        A partition whose follower is not in sync is read each time, since the read may add it to
        the ISR; so is every partition for which a consumer might be sent to another replica. A
        follower's own fetch may have advanced the high watermark past the one in its row, which
        then has to be sent.
        """
        log = partition.log
        has_moved = row.high_watermark != log.high_watermark
        has_moved |= row.log_start_offset != log.log_start_offset
        if has_moved or fetched.is_news(row):
            return False
        if self._fetch.is_from_follower:
            is_settled = self._fetch.replica_id in partition.isr and partition.proposal is None
        else:
            is_settled = not self._sources.is_rack_aware
        return is_settled and self.decide(fetched, partition) is not READ

    def ground(self) -> Ground:
        """Return what rows depend on besides the logs."""
        image, fetch, caller = self._sources.image(), self._fetch, self._caller
        parts = (image.features, image.cluster, image.topics, image.configs, image.acls)
        return Ground(
            tuple(map(id, parts)),
            parts,
            fetch.replica_id,
            fetch.replica_epoch,
            fetch.is_read_committed,
            fetch.version,
            caller.principal,
            caller.peer.host,
        )

    def look_again(self, fetched: FetchedPartition, partition: Partition) -> ReadResult:
        """Read one partition again.

        Raises:
            Fault: it cannot be read, or is not hosted here any more.
        """
        if self._place(fetched) is not partition:
            raise NotLeader(f"{partition}: not hosted here any more")
        return self._look(fetched, partition, fetched.requested.bytes_max, True)

    def _look(
        self, fetched: FetchedPartition, partition: Partition, bytes_max: int, minimum_one: bool
    ) -> ReadResult:
        requested, fetch = fetched.requested, self._fetch
        throttles = self._sources.throttles if fetch.is_from_follower else None
        if throttles is not None and throttles.holds_back_follower(partition, fetch.replica_id):
            bytes_max, minimum_one = 0, False
        return partition.read(self._want(requested, bytes_max, minimum_one))

    def _want(self, requested: FetchPartition, bytes_max: int, minimum_one: bool) -> ReadRequest:
        return ReadRequest(
            requested.offset,
            bytes_max,
            minimum_one,
            self._isolation,
            # Kafka treats every negative epoch in a fetch as none.
            max(requested.current_leader_epoch, NO_EPOCH),
            max(requested.last_fetched_epoch, NO_EPOCH),
            self._fetch.replica_id if self._fetch.replica_id >= 0 else CONSUMER,
            self._allow_follower,
        )

    # -- the end of one log --------------------------------------------------------

    def prepare_end(self, fetched: FetchedPartition, partition: Partition, bytes_max: int) -> None:
        """Prepare `read_end` for a partition that the first pass has read to its end."""
        limit = min(fetched.requested.bytes_max, bytes_max)
        if limit < 0 or self._sources.is_rack_aware:
            return
        want = self._want(fetched.requested, limit, minimum_one=True)
        self.last = LastRead(fetched, partition, self._image, partition.leader_epoch, want)

    def record_end(self, fetched: FetchedPartition, last: LastRead) -> Row | None:
        """Record the fetch of a follower that has the whole log; return the row of a pass.

        ``last`` is that of the session's previous request. None, and nothing is recorded, if a pass
        has anything to read, to check or to report.
        """
        self.last, partition = last, last.partition
        is_at_end = self.decide(fetched, partition) is WAIT and last.has_epochs()
        if not is_at_end or self._is_limited() or self._refusal_of_all() is not None:
            return None
        log = partition.log
        row = Row(
            fetched.requested.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
        )
        try:
            self._record(fetched, partition, fetched.requested.offset)
        except Fault:
            return None  # a pass gets it again, and puts it into its row
        return row

    def read_end(self, fetched: FetchedPartition) -> Row | None:
        """Return what a pass over this partition alone would; None if only a pass can tell."""
        last = self.last
        if last is None or not last.is_current(fetched, self._sources.image()):
            return None
        if self._is_limited():
            return None
        row = self._recent(last)
        if row is not None:
            return row
        try:
            row = _row_of(fetched, last.partition.read(last.want))
        except OffsetMovedToTieredStorage:
            return None
        except Fault as fault:
            return Row(fetched.requested.partition, self._code(fault))
        row.load_records()
        return row

    def _recent(self, last: LastRead) -> Row | None:
        """Return the row of few records among the newest; None if there is anything else to say."""
        partition, want, fetch = last.partition, last.want, self._fetch
        if not partition.is_leader or partition.offline is not None:
            return None
        if fetch.is_from_follower and fetch.replica_id not in partition.followers:
            return None
        log = partition.log
        if self.is_read_committed and log.has_recent_aborts:
            return None
        upto = partition.readable_end(self._isolation)
        data = log.read_recent(want.offset, upto, min(want.bytes_max, INLINE_BYTES_MAX))
        if data is None:
            return None
        return Row(
            last.fetched.requested.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            aborted=() if self.is_read_committed else None,
            data=data,
        )

    def _is_limited(self) -> bool:
        """Return whether the request is of a follower, and followers may be held back."""
        throttles = self._sources.throttles if self._fetch.is_from_follower else None
        return throttles is not None and throttles.leader.is_limited

    @property
    def is_read_committed(self) -> bool:
        """Whether rows list aborted transactions."""
        return self._isolation is Isolation.LAST_STABLE

    def _checked(self, fetched: FetchedPartition, partition: Partition | None) -> Partition:
        if partition is None:
            raise NotLeader(f"{fetched.name}-{fetched.requested.partition} is not hosted here")
        if partition.topic_id != fetched.topic and not isinstance(fetched.topic, str):
            raise InconsistentTopicId(f"{partition}: belongs to a topic created later")
        return partition

    def _code(self, fault: Fault) -> ErrorCode:
        if (
            fault.code is ErrorCode.KAFKA_STORAGE_ERROR
            and self._fetch.version < STORAGE_ERROR_SINCE
        ):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # old clients retry it
        return fault.code

    # -- other replicas ----------------------------------------------------------

    def _sent_elsewhere(self, fetched: FetchedPartition, partition: Partition) -> Row | None:
        """Return a row with a replica in the consumer's rack instead of records (KIP-392)."""
        if not (self._allow_follower and partition.is_leader):
            return None
        leader = self._broker(partition.leader_id)
        chosen = decide_read_replica(
            self._fetch.rack_id,
            None if leader is None else leader.rack,
            fetched.requested.offset,
            self._candidates(partition),
        )
        if chosen is None:
            return None
        partition.check_leader_epoch(max(fetched.requested.current_leader_epoch, NO_EPOCH))
        log = partition.log
        return Row(
            fetched.requested.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            aborted=[] if self.is_read_committed else None,
            preferred_replica=chosen,
        )

    def _candidates(self, partition: Partition) -> Iterable[Candidate]:
        for broker_id, progress in partition.followers.items():
            broker = self._broker(broker_id)
            if broker is not None and broker_id in partition.isr:
                yield Candidate(
                    broker_id,
                    broker.rack,
                    progress.log_start,
                    progress.log_end,
                    progress.caught_up_at,
                )

    def _broker(self, broker_id: int) -> BrokerRegistration | None:
        """Return a live broker that has the caller's listener."""
        broker = self._image.cluster.brokers.get(broker_id)
        if broker is None or broker.fenced or self._caller.listener not in broker.listeners:
            return None
        return broker

    def name_leaders(self, results: Iterable[PartitionRow]) -> list[NodeEndpoint]:
        """Add the leader to rows of partitions led elsewhere (KIP-951); return the endpoints.

        Followers get no endpoints, as in Kafka: they have them from the metadata.
        """
        if self._fetch.version < LEADER_SINCE:
            return []
        nodes: dict[int, NodeEndpoint] = {}
        for fetched, row in results:
            if row.error not in _TELL_LEADER or fetched.name is None:
                continue
            row.leader = self._leader(fetched.name, row.index)
            if self._fetch.is_from_follower:
                continue
            node = endpoint_of(self._image, row.leader.leader_id, self._caller.listener)
            if node is not None:
                nodes[node.node_id] = node
        return list(nodes.values())

    def _leader(self, topic: str, index: int) -> CurrentLeader:
        partition = self._sources.partitions.get(topic, index)
        if partition is not None:
            return CurrentLeader(partition.leader_id, partition.leader_epoch)
        return current_leader(self._image, topic, index)
