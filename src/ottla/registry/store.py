"""Follows ``_schemas``, and writes to it where this node leads its only partition.

The leader of the partition is the only writer: no second election. The state holds committed
records alone, on every node:

    leader   reads its own log up to the high watermark
    others   fetch from the leader as a client

A write is one at a time: wait until the log is committed and replayed to its end, decide, append in
the leader epoch of the decision, wait for the commit, replay it, answer. A new leader therefore has
replayed whatever its predecessor has answered before it gives an id, and records that a foreign
registry wrote are never overlooked. A write whose commit cannot be confirmed fails with
`OutcomeUnknown`, and the next one waits until it is known.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from ottla.client.cluster import Cluster, NoBroker, Refused
from ottla.client.connection import ConnectionLost
from ottla.client.consumer import ReaderOptions, open_reader
from ottla.client.fetched import Fetched, read_fetched
from ottla.client.offset_spec import EARLIEST, LATEST
from ottla.client.offsets import list_offsets
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.protocol.faults import (
    BatchTooLargeForSegment,
    Fault,
    FencedLeaderEpoch,
    InvalidRecord,
    NotLeader,
    RecordTooLarge,
    StorageFailed,
    UnknownLeaderEpoch,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_keyed_batch
from ottla.protocol.types import LeaderEpoch, Offset, TopicPartition, Uuid
from ottla.registry.rules import errors
from ottla.registry.rules.decision import Decision
from ottla.registry.rules.records import (
    TOPIC,
    PoisonRecord,
    RegistryRecord,
    SchemaRecord,
    decode_record,
    encode_record,
)
from ottla.registry.rules.state import RegistryState
from ottla.registry.rules.used_ids import with_used_ids
from ottla.replication.leading.appending import ALL
from ottla.replication.partition import Partition
from ottla.replication.partition_reads import Isolation, ReadRequest
from ottla.runtime.ports import Clock

log = logging.getLogger(__name__)

PIECE_BYTES: Final = 256 * 1024
"""Bytes replayed in one turn of the event loop."""
RETRY_S: Final = 0.2
RETRY_S_MAX: Final = 5.0
WRITES_WAITING_MAX: Final = 1_000
POISON_LINES_MAX: Final = 100
"""Skipped records with a line of their own; further ones are counted."""
_PARTITION: Final = TopicPartition(TOPIC, 0)
_LOST: Final = (NotLeader, FencedLeaderEpoch, UnknownLeaderEpoch, StorageFailed)


class NotLeading(Exception):
    """Another node leads the partition, or none. Nothing was written."""


class OutcomeUnknown(Exception):
    """A record was appended and not seen committed: it may be lost or become committed later."""


class StorePorts(msgspec.Struct, frozen=True):
    """What the store needs of the node.

    ``partition`` returns the partition if it is hosted here. ``connect`` returns a client of the
    cluster. ``image`` returns the newest image.
    """

    partition: Callable[[], Partition | None]
    connect: Callable[[], Awaitable[Cluster]]
    image: Callable[[], Image]
    clock: Clock
    timeout_ms: int = 10_000


class SchemaStore:
    """Service and publisher. ``state`` is what is committed, as far as it is known here."""

    name = "schema-registry-store"

    def __init__(self, ports: StorePorts) -> None:
        self._ports = ports
        self.state = RegistryState()
        self.applied = Offset(0)
        """Everything below it is in the state."""
        self.skipped = 0
        """Poison records since the start."""
        self.writes = 0
        self.is_loaded = False
        """Whether the state has reached an end of the topic since the start."""
        self._topic_id: Uuid | None = None
        self._changed = asyncio.Event()
        self._progress = asyncio.Condition()
        self._lock = asyncio.Lock()
        self._waiting = 0

    # -- following -------------------------------------------------------------------

    def leads(self) -> bool:
        """Say whether this node leads the partition."""
        return self._led() is not None

    def _led(self) -> Partition | None:
        partition = self._ports.partition()
        if partition is None or not partition.is_leader or partition.offline is not None:
            return None
        return partition

    def wake(self) -> None:
        """Look again at who leads the partition."""
        self._changed.set()

    def on_image(self, delta: Delta, image: Image) -> None:
        """Look again at who leads the partition; the image is applied to partitions already."""
        if delta.topics:
            self._changed.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Follow the topic until cancelled; wait while it does not exist."""
        ready()
        failures = 0
        while True:
            self._changed.clear()
            partition = self._led()
            try:
                if partition is not None:
                    await self._follow_own(partition)
                elif self._topic_in_image() is None:
                    self._loaded()
                    await self._notify()
                    await self._changed.wait()
                else:
                    await self._follow_leader()
                failures = 0
            except (OSError, Refused, NoBroker, ConnectionLost, Fault) as error:
                log.info("schemas not followed attempt=%d reason=%s", failures + 1, error)
                await self._pause(min(RETRY_S_MAX, RETRY_S * 2 ** min(failures, 10)))
                failures += 1

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def _topic_in_image(self) -> Uuid | None:
        topic = self._ports.image().topics.named(TOPIC)
        return None if topic is None else topic.id

    async def _follow_own(self, partition: Partition) -> None:
        unsubscribe = partition.on_appended(self._changed.set)
        try:
            while self._led() is partition:
                self._changed.clear()
                while self._replay_own(partition):
                    await self._notify()
                    await asyncio.sleep(0)
                self._loaded()
                await self._notify()
                await self._changed.wait()
        finally:
            unsubscribe()

    def _replay_own(self, partition: Partition) -> bool:
        """Replay the next piece of the log of this node; return whether there was any."""
        self._check_topic(partition.topic_id, partition.log.log_end_offset)
        self.applied = max(self.applied, partition.log.log_start_offset)
        if self.applied >= partition.log.high_watermark:
            return False
        request = ReadRequest(self.applied, PIECE_BYTES, isolation=Isolation.HIGH_WATERMARK)
        result = partition.read(request)
        data = result.slice.file.pread(result.slice.length, result.slice.position)
        end = result.high_watermark
        fetched = read_fetched(_PARTITION, self.applied, data, end_offset=end)
        before = self.applied
        self._replay(fetched)
        return self.applied > before

    async def _follow_leader(self) -> None:
        async with await self._ports.connect() as cluster:
            known = await cluster.topic(TOPIC)
            ends = await list_offsets(cluster, {_PARTITION: LATEST})
            starts = await list_offsets(cluster, {_PARTITION: EARLIEST})
            end, start = ends[_PARTITION] or Offset(0), starts[_PARTITION] or Offset(0)
            self._check_topic(known.topic_id, end)
            self.applied = max(self.applied, start)
            options = ReaderOptions(wait_ms_max=500, failures_max=3)
            async with open_reader(cluster, {_PARTITION: self.applied}, options) as reader:
                while self._led() is None and self._topic_in_image() == self._topic_id:
                    if self.applied >= end:
                        self._loaded()
                    await self._notify()
                    for fetched in await reader.poll():
                        self._replay(fetched)

    def _loaded(self) -> None:
        self.is_loaded = True

    async def wait_loaded(self, timeout_s: float) -> bool:
        """Wait until the state has reached an end of the topic; return whether it has."""
        if self.is_loaded:
            return True
        try:
            async with asyncio.timeout(timeout_s), self._progress:
                await self._progress.wait_for(lambda: self.is_loaded)
        except TimeoutError:
            return False
        return True

    def _check_topic(self, topic_id: Uuid | None, end: Offset) -> None:
        """Begin again if the topic was replaced, or if it lost committed records."""
        is_replaced = self._topic_id is not None and topic_id != self._topic_id
        if is_replaced or end < self.applied:
            log.warning("schemas replayed anew applied=%d end=%d", self.applied, end)
            lost, self.state, self.applied = self.state, RegistryState(), Offset(0)
            if not is_replaced:  # an id of a lost record may be in use
                self.state.note_used_in(lost)
        self._topic_id = topic_id

    def _replay(self, fetched: Fetched) -> None:
        """Apply records. Those that were applied already are passed over."""
        try:
            for record in fetched.records():
                if record.offset >= self.applied:
                    self._replay_record(record)
        except InvalidRecord as fault:
            self._skip(fetched.offset, f"the batch cannot be read: {fault}")
        self.applied = max(self.applied, fetched.next_offset)

    def _replay_record(self, record: Record) -> None:
        try:
            decoded = decode_record(record.key, record.value)
            if decoded is not None:
                self.state.replay(_with_time(decoded, record))
        except PoisonRecord as poison:
            if poison.used_id is not None:
                self.state.note_used(*poison.used_id)
            self._skip(record.offset, str(poison))
        except (ValueError, OverflowError) as error:
            self._skip(record.offset, str(error))
        self.applied = Offset(record.offset + 1)

    def _skip(self, offset: Offset, reason: str) -> None:
        self.skipped += 1
        if self.skipped <= POISON_LINES_MAX:
            log.warning("record skipped topic=%s offset=%d reason=%s", TOPIC, offset, reason[:300])

    async def _notify(self) -> None:
        async with self._progress:
            self._progress.notify_all()

    async def wait_applied(self, offset: Offset, timeout_s: float) -> bool:
        """Wait until everything below an offset is in the state; return whether it is."""
        try:
            async with asyncio.timeout(timeout_s), self._progress:
                await self._progress.wait_for(lambda: self.applied >= offset)
        except TimeoutError:
            return False
        return True

    # -- writing ---------------------------------------------------------------------

    async def write(self, decide: Callable[[RegistryState], Decision]) -> Decision:
        """Decide against the newest state, append the records and wait for their commit.

        Raises:
            NotLeading: nothing was written. OutcomeUnknown. Whatever ``decide`` raises.
            Rejection: the record is too large, or the log is not committed in time.
        """
        if self._waiting >= WRITES_WAITING_MAX:
            raise errors.timed_out("Too many writes are waiting")
        self._waiting += 1
        try:
            await self._begin_write()
            try:
                partition = self._led()
                if partition is None:
                    raise NotLeading(TOPIC)
                return await self._write(partition, decide)
            finally:
                self._lock.release()
        finally:
            self._waiting -= 1

    async def _begin_write(self) -> None:
        """Wait for the writes before this one. Raises a Rejection after the time-out of one."""
        try:
            async with asyncio.timeout(self._ports.timeout_ms / 1000):
                await self._lock.acquire()
        except TimeoutError:
            raise errors.timed_out("Earlier writes have not ended in time") from None

    async def _write(
        self, partition: Partition, decide: Callable[[RegistryState], Decision]
    ) -> Decision:
        epoch = partition.leader_epoch
        _check_settings(partition, self._ports.image())
        await self._catch_up(partition)
        # No await from here to the append: the decision is made against the end of the log.
        decision = decide(self.state)
        if not decision.records:
            return decision
        end = self._append(partition, epoch, with_used_ids(self.state, decision.records))
        await self._wait_committed(partition, end)
        with contextlib.suppress(*_LOST):  # committed, and replayed by the next leader's records
            while self.applied < end and self._replay_own(partition):
                pass
        await self._notify()
        self.writes += 1
        return decision

    async def _catch_up(self, partition: Partition) -> None:
        """Replay the log to its end, which has to be committed."""
        try:
            async with asyncio.timeout(self._ports.timeout_ms / 1000):
                while True:
                    if self._led() is not partition:
                        raise NotLeading(TOPIC)
                    if not self._replay_own(partition):
                        end = partition.log.log_end_offset
                        if self.applied >= end:
                            return
                        await self._wait_committed(partition, end)
                    await asyncio.sleep(0)
        except TimeoutError:
            raise errors.timed_out("The log is not committed up to its end") from None
        except (OutcomeUnknown, *_LOST) as error:
            raise NotLeading(str(error)) from error

    def _append(
        self, partition: Partition, epoch: LeaderEpoch, records: Sequence[RegistryRecord]
    ) -> Offset:
        now = self._ports.clock.now()
        pairs = [encode_record(record) for record in records]
        try:
            appended = partition.append(
                build_keyed_batch(pairs, now),
                now=now,
                required_acks=ALL,
                from_client=False,
                expected_epoch=epoch,
            )
        except (RecordTooLarge, BatchTooLargeForSegment) as fault:
            raise errors.too_large() from fault
        except (NotLeader, FencedLeaderEpoch, UnknownLeaderEpoch) as fault:
            raise NotLeading(str(fault)) from fault
        except StorageFailed as fault:
            raise OutcomeUnknown(str(fault)) from fault
        except Fault as fault:  # too few replicas in sync: nothing was written
            raise errors.store_failed(f"Write to the Kafka store failed: {fault}") from fault
        return Offset(appended.last_offset + 1)

    async def _wait_committed(self, partition: Partition, end: Offset) -> None:
        """Wait until everything below ``end`` is committed in this leadership."""
        committed: asyncio.Future[Fault | None] = asyncio.get_running_loop().create_future()

        def done(fault: Fault | None) -> None:
            if not committed.done():
                committed.set_result(fault)

        unsubscribe = partition.when_replicated(end, done)
        try:
            async with asyncio.timeout(self._ports.timeout_ms / 1000):
                fault = await committed
        except TimeoutError:
            raise OutcomeUnknown("not replicated in time") from None
        finally:
            unsubscribe()
        # With fewer replicas than min.insync.replicas it is committed nevertheless.
        is_committed = partition.log.high_watermark >= end and not isinstance(fault, _LOST)
        if fault is not None and not is_committed:
            raise OutcomeUnknown(str(fault)) from fault


def _check_settings(partition: Partition, image: Image) -> None:
    """Raise a Rejection if the topic hides or would lose records, and with them ids in use."""
    topic = image.topics.named(TOPIC)
    if topic is not None and len(topic.partitions) > 1:
        text = f"The topic {TOPIC} must have one partition: the records of others are not read"
        raise errors.store_failed(text)
    config = partition.log.config
    if config.is_deleted or not config.is_compacted:
        text = f"The topic {TOPIC} must have cleanup.policy=compact, or its schemas would be lost"
        raise errors.store_failed(text)


def _with_time(record: RegistryRecord, stored: Record) -> RegistryRecord:
    """Return a record of a version with the time at which it was written."""
    if not isinstance(record, SchemaRecord) or record.value is None:
        return record
    if record.value.ts is not None or stored.timestamp < 0:
        return record
    value = msgspec.structs.replace(record.value, ts=int(stored.timestamp))
    return SchemaRecord(record.subject, record.version, value)
