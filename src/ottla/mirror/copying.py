"""Copies records from the source to the target until it is cancelled.

One round: fetch, make batches, write the offset map if it has new gaps, append. A partition whose
append failed is read again from where the target ends; see `appender.py`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from ottla.client.cluster import Cluster, NoBroker, Refused
from ottla.client.connection import ConnectionLost
from ottla.client.consumer import Reader, ReaderOptions
from ottla.client.fetched import Fetched
from ottla.client.offset_spec import EARLIEST, LATEST
from ottla.client.offsets import list_offsets
from ottla.mirror.appender import Appender, AppendQueue, is_permanent, queue_of
from ottla.mirror.offset_map import OffsetMap, extend, recover, source_end, target_end
from ottla.mirror.pieces import Piece, make_pieces
from ottla.mirror.records_of_state import Link, encode, partition_key
from ottla.mirror.state_log import StateLog
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.types import Offset, TopicPartition

FETCH_BYTES_MAX: Final = 16 << 20
PARTITION_BYTES_MAX: Final = 4 << 20
RESYNCS_MAX: Final = 60
"""Consecutive failed rounds of a partition before the copy gives up: about a minute."""
READER: Final = ReaderOptions(
    is_committed_only=True, bytes_max=FETCH_BYTES_MAX, partition_bytes_max=PARTITION_BYTES_MAX
)
_LOST: Final = (NoBroker, ConnectionLost, RequestTimedOut)


class Copied(msgspec.Struct):
    """How much was copied by this process."""

    records: int = 0
    bytes: int = 0


class _Planned(msgspec.Struct, frozen=True):
    """The batches of one partition in a round, and the map once they are appended."""

    pieces: Sequence[Piece]
    runs: OffsetMap
    has_gap: bool


class _Read(msgspec.Struct, frozen=True):
    """How far a partition of the source was read, and where the target ended then."""

    position: int
    end: int


class Copier:
    """Copies linked partitions. `links` has the map of each; only the copier changes them."""

    def __init__(
        self, source: Cluster, target: Cluster, appender: Appender, state: StateLog
    ) -> None:
        self.links: dict[TopicPartition, Link] = {}
        self.copied = Copied()
        self.problems: dict[str, str] = {}
        self._source = source
        self._target = target
        self._appender = appender
        self._state = state
        self._failures: dict[TopicPartition, int] = {}
        self._reader = Reader(source, {}, READER)
        self._has_partitions = asyncio.Event()
        self._read: dict[TopicPartition, _Read] = {}

    def add(self, partition: TopicPartition, link: Link, position: int) -> None:
        """Copy a partition, too, from a source offset on."""
        self.links[partition] = link
        self._reader.add(partition, Offset(position))
        self._has_partitions.set()

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """How far each partition of the source was read and copied."""
        return {at: each.position for at, each in self._read.items()}

    async def run(self) -> None:
        """Copy until cancelled.

        Raises:
            ForeignWrite: something else writes to the target. TakenOver: another process copies.
        """
        async with self._reader.running():
            while True:
                await self._has_partitions.wait()
                await self._copy(await self._fetch())
                self._read = {  # now everything that was read is in the target
                    at: _Read(position, target_end(self.links[at].runs))
                    for at, position in self._reader.positions.items()
                }

    async def _fetch(self) -> list[Fetched]:
        try:
            return await self._reader.poll()
        except Refused as refused:
            await self._recover_source(refused)
        except _LOST:
            await self._source.pause(10)
        # Results that were not returned are fetched again.
        for partition, link in self.links.items():
            if partition in self._reader.positions:
                self._reader.seek(partition, Offset(source_end(link.runs)))
        return []

    async def _recover_source(self, refused: Refused) -> None:
        """Go on behind records that retention deleted; stop reading what cannot be read."""
        partition = next((each for each in self.links if str(each) == refused.subject), None)
        if partition is None:
            raise refused
        if refused.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            earliest = (await list_offsets(self._source, {partition: EARLIEST}))[partition] or 0
            link = self.links[partition]
            if source_end(link.runs) < earliest:
                lost = f"offsets {source_end(link.runs)} to {earliest - 1} were deleted by the"
                self.problems[str(partition)] = f"{lost} source's retention before they were copied"
                self.links[partition] = replace(link, runs=extend(link.runs, (), earliest))
                await self._store([partition])
                return
        self.problems[str(partition)] = f"not copied any more: {refused}"
        self._reader.drop(partition)

    # -- one round -------------------------------------------------------------

    async def _copy(self, found: Sequence[Fetched]) -> None:
        planned = {
            each.partition: plan
            for each in found
            if each.partition in self.links
            and (plan := self._plan(self.links[each.partition], each)) is not None
        }
        if not planned:
            return
        gaps = {at: each.runs for at, each in planned.items() if each.has_gap}
        if gaps:
            await self._state.append(
                {
                    partition_key(at): encode(replace(self.links[at], runs=runs))
                    for at, runs in gaps.items()
                }
            )
        queues = {at: self._queue(at, each) for at, each in planned.items()}
        await self._appender.append(queues)
        await self._finish(planned, queues)

    def _plan(self, link: Link, fetched: Fetched) -> _Planned | None:
        pieces = make_pieces(fetched)
        runs = link.runs
        for piece in pieces:
            runs = extend(runs, piece.ranges, piece.following)
        if not pieces:
            return None
        return _Planned(pieces, runs, runs[-1].source != link.runs[-1].source)

    def _queue(self, at: TopicPartition, planned: _Planned) -> AppendQueue:
        runs = self.links[at].runs
        return queue_of(runs[0].target, target_end(runs), planned.pieces)

    async def _finish(
        self,
        planned: Mapping[TopicPartition, _Planned],
        queues: Mapping[TopicPartition, AppendQueue],
    ) -> None:
        failed: dict[TopicPartition, tuple[OffsetMap, Exception]] = {}
        for at, each in planned.items():
            failure = queues[at].failure
            if failure is not None and is_permanent(failure):
                self.problems[str(at)] = f"not copied any more: {failure}"
                self._reader.drop(at)
                continue
            if failure is not None:
                failed[at] = (each.runs, failure)
                continue
            self.links[at] = replace(self.links[at], runs=each.runs)
            self._failures.pop(at, None)
            self.copied.records += sum(piece.count for piece in each.pieces)
            self.copied.bytes += sum(len(piece.data) for piece in each.pieces)
        while failed:
            failed = await self._resync(failed)

    async def _resync(
        self, failed: Mapping[TopicPartition, tuple[OffsetMap, Exception]]
    ) -> dict[TopicPartition, tuple[OffsetMap, Exception]]:
        """Read failed partitions again from where the target ends; return those still failing."""
        attempt = 0
        for at, (_, error) in failed.items():
            attempt = self._failures[at] = self._failures.get(at, 0) + 1
            if attempt > RESYNCS_MAX:
                raise error
        await self._target.pause(min(attempt, 10))
        try:
            ends = await list_offsets(self._target, dict.fromkeys(failed, LATEST))
        except (Refused, *_LOST) as error:
            return {at: (runs, error) for at, (runs, _) in failed.items()}
        for at, end in ends.items():
            runs = recover(failed[at][0], end or 0)
            self.links[at] = replace(self.links[at], runs=runs)
            self._reader.seek(at, Offset(source_end(runs)))
        return {}

    # -- progress ----------------------------------------------------------------

    async def store_positions(self) -> None:
        """Write how far partitions were read that the end of the target does not give."""
        behind = []
        for at, read in self._read.items():
            link = self.links[at]
            is_derivable = source_end(link.runs) == read.position
            if not is_derivable and (link.position, link.position_end) != (read.position, read.end):
                self.links[at] = replace(link, position=read.position, position_end=read.end)
                behind.append(at)
        await self._store(behind)

    async def _store(self, partitions: Sequence[TopicPartition]) -> None:
        if partitions:
            await self._state.append(
                {partition_key(each): encode(self.links[each]) for each in partitions}
            )
