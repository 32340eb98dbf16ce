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

from ottla.api.current_leaders import CurrentLeader, NodeEndpoint, current_leader, endpoint_of
from ottla.api.fetch_partitions import FetchedPartition
from ottla.api.fetch_reply import INLINE_BYTES_MAX, Row
from ottla.api.fetch_request import FetchBody, FetchPartition
from ottla.api.fetch_sessions import PartitionRow
from ottla.api.read_replica import Candidate, decide_read_replica
from ottla.api.replies import ITEMS_PER_STEP, Steps
from ottla.api.routes import Caller
from ottla.metadata.image import Image
from ottla.metadata.registrations import BrokerRegistration
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    Fault,
    InconsistentTopicId,
    NotLeader,
    OffsetMovedToTieredStorage,
)
from ottla.protocol.types import NO_EPOCH
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import Partition
from ottla.replication.partition_reads import CONSUMER, DEBUGGER, Isolation, ReadRequest, ReadResult
from ottla.replication.throttles import Throttles

if TYPE_CHECKING:
    from ottla.api.remote_fetch import RemoteFetch, RemoteReader

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
    improve some result. ``remote`` are those whose records are in remote storage.
    """

    results: list[PartitionRow] = msgspec.field(default_factory=list)
    watched: list[tuple[FetchedPartition, Partition]] = msgspec.field(default_factory=list)
    size: int = 0
    is_due: bool = False
    remote: "list[RemoteFetch]" = msgspec.field(default_factory=list)


class TailRead(NamedTuple):
    """The read of the only partition of a waiting fetch, as a pass would make it.

    Valid while image and leader epoch are the same: then no rule of a pass can have another result
    than when the wait began, except those of the partition itself.
    """

    fetched: FetchedPartition
    partition: Partition
    image: Image
    leader_epoch: int
    want: ReadRequest


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
        "_tail",
    )

    def __init__(self, sources: ReadSources, caller: Caller, fetch: FetchBody) -> None:
        self._sources = sources
        self._caller = caller
        self._fetch = fetch
        self._image = sources.image()
        self._tail: TailRead | None = None
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
        return self._read_more(Pass(), fetched, bytes_max, is_first)

    def read_steps(self, fetched: Sequence[FetchedPartition], bytes_max: int) -> Steps[Pass]:
        """Make the first pass over many partitions, and yield often."""
        done = Pass()
        for start in range(0, len(fetched), ITEMS_PER_STEP):
            part = fetched[start : start + ITEMS_PER_STEP]
            self._read_more(done, part, max(0, bytes_max - done.size), True)
            yield
        return done

    def _read_more(
        self, done: Pass, fetched: Iterable[FetchedPartition], bytes_max: int, is_first: bool
    ) -> Pass:
        """Add the rows of partitions to a pass."""
        self._image = self._sources.image()
        refused = self._refusal_of_all()
        minimum_one = not done.size
        for each in fetched:
            place = refused or self._place(each)
            if isinstance(place, ErrorCode):
                done.results.append((each, Row(each.requested.partition, place, aborted=())))
                continue
            row = self._read_one(each, place, done, (bytes_max, minimum_one, is_first))
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
        terms: tuple[int, bool, bool],
    ) -> Row:
        requested = fetched.requested
        bytes_max, minimum_one, is_first = terms
        try:
            partition = self._checked(fetched, place)
            if self._sources.is_rack_aware:
                row = self._sent_elsewhere(fetched, partition)
                if row is not None:
                    done.is_due = True
                    return row
            limit = min(requested.bytes_max, bytes_max)
            found = self._look(fetched, partition, limit, minimum_one or limit < 0)
            if limit < 0 and found.slice.length:
                raise NegativeBytes(f"{partition}: fetch of {limit} bytes")
            if is_first and self._fetch.is_from_follower and found.diverging is None:
                partition.follower_fetched(
                    self._fetch.replica_id,
                    requested.offset,
                    log_start=requested.log_start_offset,
                    leader_end=found.log_end_offset,
                    broker_epoch=self._fetch.replica_epoch,
                )
            if self._sources.throttles is not None and self._fetch.is_from_follower:
                # Followers request at least one byte: what was found is sent.
                self._sources.throttles.sent(partition, found.slice.length)
        except OffsetMovedToTieredStorage as fault:
            done.is_due = True
            return self._moved_to_remote(fetched, place, done, (bytes_max, minimum_one), fault)
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
        terms: tuple[int, bool],
        fault: Fault,
    ) -> Row:
        """Return the row of an offset below the local log start; its records are read later.

        A follower gets the error: it continues from the local log start.
        """
        assert partition is not None
        requested, remote, log = fetched.requested, self._sources.remote, partition.log
        bytes_max, minimum_one = terms
        offsets = (log.high_watermark, log.last_stable_offset, log.log_start_offset)
        if self._fetch.is_from_follower:
            return Row(requested.partition, fault.code, *offsets)
        if remote is None:
            return Row(requested.partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        from ottla.api.remote_fetch import RemoteFetch  # only with a tier

        limit = min(requested.bytes_max, bytes_max)
        if limit > 0 or minimum_one:
            done.remote.append(RemoteFetch(fetched, partition, max(limit, 1)))
        is_committed = self._isolation is Isolation.LAST_STABLE
        return Row(requested.partition, 0, *offsets, aborted=[] if is_committed else None)

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
        return is_settled and partition.readable_end(self._isolation) <= fetched.requested.offset

    def ground(self) -> tuple[object, ...]:
        """Return what rows depend on besides the logs: the image and the caller's request.

        Compared by identity first: parts of the image are large, and are kept alive, so that no
        other object can have the same id.
        """
        image, fetch = self._sources.image(), self._fetch
        known = (image.features, image.cluster, image.topics, image.configs, image.acls)
        asks = (fetch.replica_id, fetch.replica_epoch, fetch.is_read_committed, fetch.version)
        caller = (self._caller.principal, self._caller.peer.host)
        return (*map(id, known), known, *asks, *caller)

    def is_readable(self, fetched: FetchedPartition, partition: Partition) -> bool:
        """Return whether there seem to be records at the requested offset, without a read.

        The end of what may be read can be inside of a batch, which is then not sent.
        """
        return partition.readable_end(self._isolation) > fetched.requested.offset

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

    def prepare_tail(self, fetched: FetchedPartition, partition: Partition, bytes_max: int) -> None:
        """Prepare `read_tail` for a partition that the first pass has read to its end."""
        limit = min(fetched.requested.bytes_max, bytes_max)
        if limit < 0 or self._sources.is_rack_aware:
            return
        self._tail = TailRead(
            *(fetched, partition, self._image, partition.leader_epoch),
            self._want(fetched.requested, limit, minimum_one=True),
        )

    @property
    def tail(self) -> TailRead | None:
        """What `prepare_tail` has prepared; the next request of a session may start from it."""
        return self._tail

    def record_at_end(self, fetched: FetchedPartition, last: TailRead) -> Row | None:
        """Record the fetch of a follower that has the whole log; return the row of a pass.

        ``last`` is the tail of the session's previous request. None, and nothing is recorded, if
        a pass has anything to read, to check or to report.
        """
        self._tail, fetch = last, self._fetch
        tail = self._valid_tail(fetched)
        if tail is None or self._refusal_of_all() is not None:
            return None
        partition, requested, throttles = tail.partition, fetched.requested, self._sources.throttles
        log = partition.log
        if (
            requested.offset != log.log_end_offset
            or requested.last_fetched_epoch != log.epochs.latest_epoch
            or requested.current_leader_epoch != partition.leader_epoch
            or partition.offline is not None
            or (throttles is not None and throttles.leader.is_limited)
        ):
            return None
        row = Row(
            requested.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
        )
        try:
            partition.follower_fetched(
                fetch.replica_id,
                requested.offset,
                log_start=requested.log_start_offset,
                leader_end=requested.offset,
                broker_epoch=fetch.replica_epoch,
            )
        except Fault:
            return None  # a pass gets it again, and puts it into its row
        return row

    def _valid_tail(self, fetched: FetchedPartition) -> TailRead | None:
        tail = self._tail
        if tail is None or fetched is not tail.fetched or tail.image is not self._sources.image():
            return None
        partition = tail.partition
        if partition.is_closed or partition.leader_epoch != tail.leader_epoch:
            return None
        return tail

    def is_at_end(self, fetched: FetchedPartition) -> bool:
        """Return whether a read would find as little as when the wait began; False if unknown.

        So it is for a consumer while followers have not fetched what was appended.
        """
        tail = self._valid_tail(fetched)
        if tail is None or tail.partition.offline is not None:
            return False
        log, offset = tail.partition.log, fetched.requested.offset
        is_in_range = log.log_start_offset <= offset <= log.log_end_offset
        return is_in_range and tail.partition.readable_end(self._isolation) <= offset

    @property
    def is_read_committed(self) -> bool:
        """Whether rows list aborted transactions."""
        return self._isolation is Isolation.LAST_STABLE

    def read_recent(self, fetched: FetchedPartition) -> tuple[Partition, bytes] | None:
        """Return the records that `read_tail` finds, if they are few and among the newest.

        None if there is anything else to say than records and offsets.
        """
        tail, fetch = self._valid_tail(fetched), self._fetch
        if tail is None:
            return None
        partition, want = tail.partition, tail.want
        if not partition.is_leader or partition.offline is not None:
            return None
        log = partition.log
        upto = log.high_watermark
        if fetch.is_from_follower:
            throttles = self._sources.throttles
            is_limited = throttles is not None and throttles.leader.is_limited
            if is_limited or fetch.replica_id not in partition.followers:
                return None
        if self._isolation is Isolation.LOG_END:
            upto = log.log_end_offset
        elif self._isolation is Isolation.LAST_STABLE:
            upto = log.last_stable_offset
            if log.has_recent_aborts:
                return None
        # The history of the reader cannot diverge later than when the wait began: the leader epoch
        # is the same, and a leader does not truncate.
        data = log.read_recent(want.offset, upto, min(want.bytes_max, INLINE_BYTES_MAX))
        return None if data is None else (partition, data)

    def read_tail(self, fetched: FetchedPartition) -> Row | None:
        """Return what a pass over this partition alone would; None if only a pass can tell."""
        tail = self._valid_tail(fetched)
        if tail is None:
            return None
        partition = tail.partition
        throttles = self._sources.throttles
        if throttles is not None and throttles.leader.is_limited and self._fetch.is_from_follower:
            return None
        try:
            found = partition.read(tail.want)
        except OffsetMovedToTieredStorage:
            return None
        except Fault as fault:
            return Row(fetched.requested.partition, self._code(fault))
        return _row_of(fetched, found)

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
            aborted=[] if self._isolation is Isolation.LAST_STABLE else None,
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
