"""The state topic of a mirror: loaded at the start, then appended to by one process at a time.

Each process writes with a producer epoch of its own, which its transactional id gives it: a leader
rejects older epochs once it has seen a newer one. A process whose append is rejected, or got
another offset than expected, has been replaced by a newer one, and stops.

The sequence numbers of `appender.py` alone would not do here: two processes may append different
records at the same offset, and the second would be taken for a duplicate of the first.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.client.admin import NewTopic, create_topic
from ottla.client.cluster import Cluster, Refused
from ottla.client.consumer import ReaderOptions, open_reader
from ottla.client.offset_spec import EARLIEST, LATEST
from ottla.client.offsets import list_offsets
from ottla.mirror.appender import Appender, ForeignWrite, is_permanent, queue_of
from ottla.mirror.pieces import Piece
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Millis, Offset, TopicPartition

ATTEMPTS_MAX: Final = 30
"""Times that an append is sent again: about half a minute."""
BATCH_BYTES_MAX: Final = 512 << 10
"""Bytes of records in a batch: half of what a broker takes by default."""


class TakenOver(Exception):
    """Another process of the same mirror has started; this one must not write any more."""


class StateLog:
    """The state topic. `load` before `append`."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._partition = TopicPartition(topic, 0)
        self._end = 0
        self._written = 0
        self._appender: Appender | None = None
        self._one_at_a_time = asyncio.Lock()

    async def create(self, replication_factor: int) -> None:
        """Create the topic unless it exists. Raises `Refused`."""
        topic = NewTopic(
            self._partition.topic, 1, replication_factor, {"cleanup.policy": "compact"}
        )
        try:
            await create_topic(self._cluster, topic)
        except Refused as refused:
            if refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        await self._cluster.leader_of(self._partition)

    async def load(self) -> dict[bytes, bytes]:
        """Return the newest value of each key. Raises `Refused` if there is no such topic."""
        await self._cluster.leader_of(self._partition)
        end = await self._end_now()
        start = (await list_offsets(self._cluster, {self._partition: EARLIEST}))[self._partition]
        found: dict[bytes, bytes] = {}
        position = start or 0
        options = ReaderOptions(is_committed_only=False)
        positions = {self._partition: Offset(position)}
        async with open_reader(self._cluster, positions, options) as reader:
            while reader.positions[self._partition] < end:
                for fetched in await reader.poll():
                    for record in fetched.records():
                        if record.key is not None and record.value is not None:
                            found[record.key] = record.value
        self._end = end
        return found

    def write_as(self, producer_id: int, producer_epoch: int) -> None:
        """Set the producer of later appends; it has not written here yet."""
        self._written = 0
        self._appender = Appender(self._cluster, producer_id, producer_epoch)

    async def append(self, values: Mapping[bytes, bytes]) -> None:
        """Append records, in order; as few batches as their size allows.

        Raises:
            TakenOver: another process has appended. Refused: the topic cannot be written.
        """
        async with self._one_at_a_time:
            now = Millis(self._cluster.ports.clock.now())
            for chunk in chunks(values):
                records = [
                    Record(Offset(number), now, key, value)
                    for number, (key, value) in enumerate(chunk)
                ]
                await self._append(build_batch(records), len(records))

    async def _append(self, data: bytearray, count: int) -> None:
        assert self._appender is not None, "write_as is called first"
        for attempt in range(ATTEMPTS_MAX):
            queue = queue_of(self._end - self._written, self._end, [Piece(data, count, (), 0)])
            try:
                await self._appender.append({self._partition: queue})
            except ForeignWrite as error:
                self._written += count
                raise TakenOver(_TAKEN_OVER) from error
            failure = queue.failure
            if failure is None:
                self._end += count
                self._written += count
                return
            if isinstance(failure, Refused) and failure.code in _FENCED:
                raise TakenOver(_TAKEN_OVER)
            if is_permanent(failure) or attempt + 1 == ATTEMPTS_MAX:
                raise failure
            await self._cluster.pause(min(attempt, 10))

    async def check_owner(self) -> None:
        """Raise `TakenOver` if another process has appended to the topic."""
        async with self._one_at_a_time:
            if await self._end_now() > self._end:
                raise TakenOver(_TAKEN_OVER)

    async def _end_now(self) -> int:
        return (await list_offsets(self._cluster, {self._partition: LATEST}))[self._partition] or 0


def chunks(
    values: Mapping[bytes, bytes], bytes_max: int = BATCH_BYTES_MAX
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Divide records, in order, into parts of up to ``bytes_max`` or of one record. Pure."""
    chunk: list[tuple[bytes, bytes]] = []
    size = 0
    for key, value in values.items():
        if chunk and size + len(key) + len(value) > bytes_max:
            yield chunk
            chunk, size = [], 0
        chunk.append((key, value))
        size += len(key) + len(value)
    if chunk:
        yield chunk


_TAKEN_OVER: Final = "another process of this mirror has started; this one stops"
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
