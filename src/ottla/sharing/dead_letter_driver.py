"""Writes the dead records of share partitions to their dead-letter topic, then archives them.

A record stays in the window until its letter is durable. A failed write is retried after a pause;
the window never fills up with waiting records, and one that is given up is reported.

No letter is there twice. It is written only once it is durable that the record waits for it, so
that every later leader knows of it and searches the topic first. A leader that takes over waits for
`SETTLE_MS` before it searches: a write of its predecessor may still be on the way.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, NotLeader, OffsetMovedToTieredStorage
from ottla.protocol.records.reader import Record
from ottla.protocol.types import Millis, Offset
from ottla.sharing.acquisition import DeadRecords
from ottla.sharing.dead_letters import dead_letters
from ottla.sharing.loaded_partition_driver import LoadedPartition
from ottla.sharing.ports import DeadLetterConfig, Origin, ShareDependencies, ShareKey
from ottla.sharing.share_partition import DeadRecordsRead, SharePartition

log = logging.getLogger(__name__)

DEAD_BYTES_MAX: Final = 1 << 20
DEAD_RUNS_MAX: Final = 256
"""How many bytes of dead records one window writes at a time."""

DEAD_BACKOFF_MS: Final = 1000
DEAD_BACKOFF_MS_MAX: Final = 30_000
"""The pause after a failed write of dead letters, which doubles with each failure."""

SETTLE_MS: Final = 10_000
"""How long a write of the leader before may be on the way. A broker that leaves a request unread
for longer than its session (``broker.session.timeout.ms``, 9 s) no longer leads the topic."""

# A write that failed so may have been made all the same.
_UNCERTAIN: Final = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class DeadLetterDriver:
    """Writes the dead letters of all windows of this broker.

    ``present`` returns the window of a key that is in use, ``persist`` stores what has changed.
    """

    def __init__(
        self,
        parts: ShareDependencies,
        present: Callable[[ShareKey], LoadedPartition | None],
        persist: Callable[[LoadedPartition], Awaitable[ErrorCode]],
    ) -> None:
        self._parts = parts
        self._present = present
        self._persist = persist

    def loaded(self, cell: LoadedPartition) -> None:
        """Prepare a window that was loaded: the leader before may have written its letters."""
        if cell.window.acquisition.dead():
            _doubt(cell)
            cell.dead_retry_at = Millis(self._parts.clock.monotonic() + SETTLE_MS)

    async def write(self, cells: Iterable[LoadedPartition]) -> None:
        """Write dead records to their topic, a piece of every window.

        A window that fails is retried later; it does not keep the others from being written.
        """
        now = self._parts.clock.monotonic()
        dead = [
            cell for cell in cells if cell.dead_retry_at <= now and cell.window.acquisition.dead()
        ]
        writes = map(self._write_window, dead)
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        errors = [
            (cell, error)
            for cell, error in zip(dead, outcomes, strict=True)
            if isinstance(error, Exception)
        ]
        for cell, _ in errors:
            _doubt(cell)
            self._pause_dead(cell)
        if errors:
            cell, error = errors[0]
            partition = cell.window.partition
            log.error(
                "dead letters not written windows=%d first=%s",
                len(errors),
                partition,
                exc_info=error,
            )

    async def _write_window(self, cell: LoadedPartition) -> None:
        """Write a piece of the dead records, and archive it once it is durable."""
        await self._persist(cell)
        window = cell.window
        dead = window.acquisition.dead(is_durable=True)[:DEAD_RUNS_MAX]
        if not dead or self._present(window.key) is not cell:
            return  # dropped in the meantime, or not durable yet
        terms = self._parts.terms_of(window.key.group_id).dead_letters
        until = dead[-1].last
        if terms is not None:
            cell.is_writing_letters = True
            try:
                until, code = await self._write_piece(cell, dead, terms)
            except (Fault, OSError) as error:
                _doubt(cell)
                code = ErrorCode.KAFKA_STORAGE_ERROR
                if isinstance(error, Fault):
                    code = error.code
                else:
                    log.warning("dead records not read partition=%s: %s", window.partition, error)
            finally:
                cell.is_writing_letters = False
            if code is not ErrorCode.NONE:
                if code in _UNCERTAIN:
                    _doubt(cell)
                await self._postpone(cell, dead, terms.topic)
                return
        cell.dead_failures, cell.dead_retry_at = 0, Millis(0)
        cell.may_have_letters = until < cell.unsure_until
        await self._archive_dead(cell, dead, until)

    async def _write_piece(
        self, cell: LoadedPartition, dead: Sequence[DeadRecords], terms: DeadLetterConfig
    ) -> tuple[Offset, ErrorCode]:
        """Write what one read returns; return up to where, and the error code."""
        origin, now = _origin(cell.window), self._parts.clock.now()
        read = await self._read_dead(cell.window, dead)
        letters = dead_letters(origin, read.records, dead, terms, now)
        without_copies = replace(terms, copies_record=False)
        bare = dead_letters(origin, read.records, dead, without_copies, now)
        return read.until, await self._write_letters(cell, terms.topic, letters, bare)

    async def _write_letters(
        self, cell: LoadedPartition, topic: str, letters: list[Record], bare: list[Record]
    ) -> ErrorCode:
        """Write letters in order, in batches that the topic accepts.

        A batch that is too large is halved. A single letter that is too large is written without
        its key and value, as in ``bare``.
        """
        may_exist = cell.may_have_letters
        pieces = [(letters, bare)] if letters else []
        while pieces:
            letters, bare = pieces.pop()
            batch = [letter._replace(offset=Offset(n)) for n, letter in enumerate(letters)]
            code = await self._parts.dead_letters.write(
                topic, _origin(cell.window), batch, may_exist=may_exist
            )
            if code is ErrorCode.NONE:
                _doubt(cell)  # until all of them are written and archived
            elif code not in _TOO_LARGE or letters is bare:
                return code
            elif len(letters) == 1:
                pieces.append((bare, bare))
            else:
                half = len(letters) // 2
                pieces += [(letters[half:], bare[half:]), (letters[:half], bare[:half])]
        return ErrorCode.NONE

    async def _archive_dead(
        self, cell: LoadedPartition, dead: Sequence[DeadRecords], until: Offset
    ) -> None:
        """Archive the records of ``dead`` up to ``until``, and no others.

        A record between two of them may have been rejected while they were written: it waits for
        its own dead letter.
        """
        if self._present(cell.window.key) is not cell:
            return
        for run in dead:
            if run.first <= until:
                last = Offset(min(run.last, until))
                cell.window.acquisition.archive_dead(run.first, last)
        await self._persist(cell)

    def note_deleted(self, cell: LoadedPartition, terms: DeadLetterConfig | None) -> None:
        """Report dead records that were deleted from the log before their letters were written.

        The fetch that follows drops them from the window, like all offsets below the log start.
        Letters that are being written are reported if the write fails.
        """
        acquisition, log_start = cell.window.acquisition, cell.window.partition.log.log_start_offset
        is_moving = log_start > acquisition.start
        if terms is not None and is_moving and not cell.is_writing_letters:
            self._lose_below(cell, acquisition.dead(), log_start, terms.topic)

    def _lose_below(
        self, cell: LoadedPartition, dead: Sequence[DeadRecords], start: Offset, topic: str
    ) -> list[DeadRecords]:
        """Report dead records below ``start`` as lost; return the others."""
        below = [run for run in dead if run.first < start]
        if below:
            last = Offset(min(below[-1].last, start - 1))
            count = sum(min(run.last, last) - run.first + 1 for run in below)
            offsets = (below[0].first, last)
            self._parts.dead_letters.lost(_origin(cell.window), topic, offsets, count)
        return [run._replace(first=max(run.first, start)) for run in dead if run.last >= start]

    def _pause_dead(self, cell: LoadedPartition) -> None:
        """Set when to try again, after a pause that doubles with each failure."""
        pause = min(DEAD_BACKOFF_MS << min(cell.dead_failures, 10), DEAD_BACKOFF_MS_MAX)
        cell.dead_failures += 1
        cell.dead_retry_at = Millis(self._parts.clock.monotonic() + pause)

    async def _postpone(
        self, cell: LoadedPartition, dead: Sequence[DeadRecords], topic: str
    ) -> None:
        """Try again later. The records wait in the window, which they must not fill.

        Once they take up half of it, the oldest are archived without a dead letter: they stay in
        their own log, and an error names their offsets.
        """
        self._pause_dead(cell)
        # A fetch may have moved the start of the window during the write.
        dead = self._lose_below(cell, dead, cell.window.acquisition.start, topic)
        waiting = sum(run.last - run.first + 1 for run in cell.window.acquisition.dead())
        excess = waiting - self._parts.limits.in_flight_max // 2
        if excess <= 0 or not dead:
            return
        first = dead[0].first
        last, dropped = first, 0
        for run in dead:
            taken = min(excess - dropped, run.last - run.first + 1)
            last, dropped = Offset(run.first + taken - 1), dropped + taken
            if dropped == excess:
                break
        self._parts.dead_letters.lost(_origin(cell.window), topic, (first, last), dropped)
        await self._archive_dead(cell, dead, last)

    async def _read_dead(
        self, window: SharePartition, dead: Sequence[DeadRecords]
    ) -> DeadRecordsRead:
        """Read dead records, from remote storage if they are only there."""
        remote, partition, first = self._parts.remote, window.partition, dead[0].first
        try:
            return window.read_dead(dead, DEAD_BYTES_MAX)
        except OffsetMovedToTieredStorage:
            if remote is None:
                raise
        found = await remote.fetch(partition, first, DEAD_BYTES_MAX, is_committed=False)
        if not found.data and first < partition.log.log_end_offset:
            raise NotLeader(f"{partition}: remote storage has no records at offset {first} yet")
        return window.dead_in(found.data, dead)


def _doubt(cell: LoadedPartition) -> None:
    dead = cell.window.acquisition.dead()
    cell.doubt_letters(dead[-1].last if dead else Offset(-1))


def _origin(window: SharePartition) -> Origin:
    return Origin(window.key.group_id, window.partition.topic, window.partition.index)
