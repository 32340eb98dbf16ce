"""Moves partitions between the log directories of this broker (KIP-113): begin, copy, swap.

    alter     create the future log, durably, and answer the request
    copy      one chunk at a time from the future log's end on; the event loop runs in between
    swap      in one step of the event loop, once both logs end alike: nothing can be appended
              meanwhile, and the next read or write of the partition uses the new log

The future log is the only persistent state of a move. After a crash it is found, truncated to what
it shares with its source, and the move continues. A failed move leaves the partition where it is;
if the source has failed, the future log is kept for the next start.

After a crash during a swap both directories may have the log: `Replicas` uses the newer one.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from posixpath import normpath
from typing import Final

import msgspec

from ottla.protocol.faults import (
    Fault,
    InvalidReplicaAssignment,
    InvalidTopic,
    LogDirNotFound,
    NotLeader,
    ReplicaNotAvailable,
    StorageFailed,
    UnknownTopicOrPartition,
)
from ottla.protocol.types import Offset, TopicPartition
from ottla.replication.event_wait import wait_or_timeout
from ottla.replication.fetching.follower_rules import DivergingEpoch, decide_cut
from ottla.replication.host import Host
from ottla.replication.maintenance.directory_work import DirectoryWork
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.storage.directory.log_dir import LogDirectory
from ottla.storage.directory.log_move_steps import Copy, Cut, Restart, Span, Swap, decide_step
from ottla.storage.directory.partition_names import has_room_for_future
from ottla.storage.log.flushing import by_path
from ottla.storage.log.log import Log

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1 << 20
# A swap syncs what is not synced yet while clients wait, so it must not be much. If producers
# write more than a few syncs can keep up with, the swap is done all the same.
SWAP_BYTES_MAX: Final = 1 << 20
SYNCS_BEFORE_SWAP_MAX: Final = 3
# At most this much is left in the page cache: a crash repeats it, other writers wait for it.
UNSYNCED_BYTES_MAX: Final = 64 << 20
RETRY_MS: Final = 50
RETRY_MS_MAX: Final = 5000


class MoveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one broker.

    ``paths`` are all of ``log.dirs``, including those that could not be opened. ``canonical``
    makes two spellings of one path equal. ``moves_max`` is how many chunks are copied at a time.
    """

    paths: Sequence[str]
    canonical: Callable[[str], str] = normpath
    moves_max: int = 1


# Called within the swap, with the partition and its old directory.
Swapped = Callable[[Partition, LogDirectory], None]


class Move:
    """The move of one partition to ``target``. Ends by itself, or by `end` from outside."""

    def __init__(
        self, host: Host, partition: Partition, target: LogDirectory, swapped: Swapped
    ) -> None:
        self._host = host
        self._swapped = swapped
        self.partition = partition
        self.target = target
        self.future: Log = target.future_logs[partition.name].log
        self.is_over = False
        self._changed = asyncio.Event()
        # The future log is new or was truncated: its checkpoint is out of date.
        self._owes_checkpoint = True
        self._unsynced_bytes = 0
        self._syncs = 0

    def __str__(self) -> str:
        return f"{self.partition} {self.partition.directory.path} -> {self.target.path}"

    def end(self) -> None:
        """Stop using both logs."""
        self.is_over = True
        self._changed.set()

    # -- progress ----------------------------------------------------------------

    async def run(self, slots: asyncio.Semaphore) -> None:
        """Copy until the partition has moved, or the move has ended.

        Raises:
            StorageFailed: one of the directories is offline now.
        """
        retry_ms = RETRY_MS
        while not self.is_over:
            try:
                async with slots:
                    await self.go_on()
                retry_ms = RETRY_MS
            except StorageFailed:
                raise
            except Fault as fault:
                log.warning("log move delayed move=%s reason=%s", self, fault)
                self._host.suspect(self.partition, self._next_offset)
                await self._pause(retry_ms)
                retry_ms = min(2 * retry_ms, RETRY_MS_MAX)

    async def _pause(self, wait_ms: int) -> None:
        """Wait, unless the move ends meanwhile."""
        self._changed.clear()
        await wait_or_timeout(self._changed, wait_ms)

    async def go_on(self) -> None:
        """Take one step; does nothing when the move has ended."""
        if self.is_over:
            return
        if self._owes_checkpoint:
            self._owes_checkpoint = False
            await self._host.directories.commit(self.target, self.target.checkpoint_writes())
        elif self._unsynced_bytes >= UNSYNCED_BYTES_MAX:
            await self._sync()
        else:
            await self._take_step()

    async def _take_step(self) -> None:
        match decide_step(self._source_span(), _span(self.future)):
            case Restart(offset):
                self._begin_at(offset)
            case Cut(offset):
                self.cut_to(offset)
            case Copy():
                copied = self._copy()
                self._unsynced_bytes += copied
                if self.future.log_end_offset < self.partition.log.log_end_offset:
                    await self._rest(copied)
                else:
                    # Producers that never pause would be ahead again after any wait.
                    await self._finish()
            case Swap():
                await self._finish()

    async def _finish(self) -> None:
        """Swap, unless too much would have to be synced first."""
        if self._unsynced_bytes > SWAP_BYTES_MAX and self._syncs < SYNCS_BEFORE_SWAP_MAX:
            self._syncs += 1
            await self._sync()
        else:
            self._swap()

    async def _rest(self, copied: int) -> None:
        """Let the event loop run, and throttle the disk."""
        await asyncio.sleep(self._host.throttles.moved(copied) / 1000)

    async def _sync(self) -> None:
        plan = self.future.flush_plan()
        self._unsynced_bytes = 0
        await self._host.directories.commit(self.target, by_path(plan, self._host.ports.disk))
        if not self.is_over:
            self.future.flushed(plan)

    # -- the logs --------------------------------------------------------------

    @contextmanager
    def _work_in(self, directory: LogDirectory) -> Iterator[None]:
        """Take the right directory offline when its disk fails."""
        try:
            yield
        except (StorageFailed, OSError) as error:
            reason = error.reason if isinstance(error, StorageFailed) else str(error)
            self._host.storage_failed(directory, reason)
            raise StorageFailed(directory.path, reason) from error

    def _source_span(self) -> Span:
        source = self.partition.log
        start = source.local_log_start_offset
        if not self.future.local_log_start_offset <= start <= self.future.log_end_offset:
            # The log may start inside a batch, and batches are copied whole.
            with self._work_in(self.partition.directory):
                first = source.read(start, 1, upto=source.log_end_offset)
            start = min(start, first.base_offset)
        return Span(start, source.log_end_offset)

    @property
    def _next_offset(self) -> Offset:
        """The first offset of the next chunk."""
        return max(self.future.log_end_offset, self.partition.log.local_log_start_offset)

    def _copy(self) -> int:
        """Append one chunk to the future log; return its bytes."""
        source, future = self.partition.log, self.future
        if future.config is not source.config:
            future.configure(source.config)
        offset = self._next_offset
        with self._work_in(self.partition.directory):
            found = source.read(offset, CHUNK_BYTES, upto=source.log_end_offset)
            data = found.file.pread(found.length, found.position)
        with self._work_in(self.target):
            if data:
                future.append_at(data, now=self._host.clock.now())
            else:
                # Compaction removed everything up to the end.
                future.roll(source.log_end_offset)
        return len(data)

    def cut_to(self, offset: Offset) -> None:
        """Truncate the future log with its source."""
        with self._work_in(self.target):
            self._owes_checkpoint |= self.future.truncate_to(offset)

    def _begin_at(self, offset: Offset) -> None:
        with self._work_in(self.target):
            self.future.truncate_fully_and_start_at(offset)
        self._owes_checkpoint = True
        self._unsynced_bytes = 0

    def align(self) -> None:
        """Truncate the future log to what it shares with its source, by leader epochs.

        Must run before the source is appended to: the source may have lost records in a crash, and
        later have others in their place.
        """
        source, future = self.partition.log, self.future
        while (latest := future.epochs.latest_epoch) is not None:
            epoch, end = source.epochs.end_offset_for(latest, source.log_end_offset)
            if end < 0:
                # The source does not know the epoch: it has lost it with its records.
                newest = source.epochs.latest_epoch
                if newest is None:
                    self._begin_at(source.local_log_start_offset)
                    return
                epoch, end = newest, source.log_end_offset
            cut = decide_cut(future.epochs, future.log_end_offset, DivergingEpoch(epoch, end))
            if cut >= future.log_end_offset and epoch == latest:
                return
            before = future.log_end_offset
            self.cut_to(cut)
            if future.log_end_offset == before and future.epochs.latest_epoch == latest:
                return

    def _swap(self) -> None:
        partition, left = self.partition, self.partition.directory
        with self._work_in(self.target):
            hosted = self.target.promote(partition.name, partition.log)
        hosted.log.remote_end = partition.log.remote_end
        partition.log, partition.directory = hosted.log, self.target
        self.is_over = True
        self._swapped(partition, left)


def _span(of: Log) -> Span:
    return Span(of.local_log_start_offset, of.log_end_offset)


class LogDirMoves:
    """Service: carries out the moves. Ready once those of an earlier run have been resumed."""

    name = "log-dir-moves"

    def __init__(self, host: Host, replicas: Replicas, settings: MoveSettings) -> None:
        self._host = host
        self._replicas = replicas
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.moves_max)
        self._starting: list[Move] = []
        self._changed = asyncio.Event()
        self.moves: dict[TopicPartition, Move] = {}
        host.log_events.on_truncated(self._was_cut)
        host.log_events.on_deleted(self._is_gone)
        host.directories.on_failure(self._has_failed)

    # -- requests ----------------------------------------------------------------

    def alter(self, name: TopicPartition, path: str) -> None:
        """Start moving a partition to a directory; returns once the move has begun.

        Cancels a move to another directory that is in progress, also when the partition is already
        in the requested directory and nothing else is to be done.

        Raises:
            LogDirNotFound: no such directory. InvalidTopic: the name is too long.
            UnknownTopicOrPartition, ReplicaNotAvailable: the partition does not exist or is not
                here; if it is created here later, it will be in that directory.
            StorageFailed: one of the directories is offline.
            InvalidReplicaAssignment: the directory is cordoned (KIP-1066).
        """
        if not has_room_for_future(name):  # checked first, as in Kafka
            raise InvalidTopic(f"{name.topic[:300]}: the name is too long to be moved")
        target = self._directory(path)
        try:
            partition = self._host.partitions.find(*name)
        except UnknownTopicOrPartition:
            self._host.directories.prefer_directory(name, target)
            raise
        except NotLeader as fault:
            self._host.directories.prefer_directory(name, target)
            raise ReplicaNotAvailable(str(fault)) from fault
        under_way = self.moves.get(name)
        if under_way is not None:
            if under_way.target is target:
                return
            self._cancel(under_way)
        if partition.directory is target:
            return
        with self._failing(target):
            target.create_future(name, partition.topic_id, partition.log.config)
        self._begin(Move(self._host, partition, target, self._swapped))

    def _directory(self, path: str) -> LogDirectory:
        """Return the directory with this path."""
        canonical = self._settings.canonical
        # A client may send any text; the file system rejects paths with a NUL.
        wanted = None if "\0" in path else canonical(path)
        known = next((each for each in self._settings.paths if canonical(each) == wanted), None)
        if known is None:
            raise LogDirNotFound(f"{path!r} is not one of log.dirs")
        found = next((each for each in self._host.directories.all if each.path == known), None)
        if found is None:
            raise StorageFailed(known, "offline since the start")
        found.check_online()
        if found.is_cordoned:
            raise InvalidReplicaAssignment(f"{known} is cordoned; see cordoned.log.dirs")
        return found

    @contextmanager
    def _failing(self, directory: LogDirectory) -> Iterator[None]:
        """Take a directory whose disk failed offline; one that only rejected stays online."""
        try:
            yield
        except StorageFailed:
            if directory.failure is not None:
                self._host.storage_failed(directory, directory.failure)
            raise

    def _begin(self, move: Move) -> None:
        log.info("log move started move=%s", move)
        self.moves[move.partition.name] = move
        self._starting.append(move)
        self._changed.set()

    def _cancel(self, move: Move) -> None:
        """End a move and delete its future log."""
        move.end()
        self._forget(move)
        log.info("log move cancelled move=%s", move)
        self._delete_future(move.target, move.partition.name)

    def _forget(self, move: Move) -> None:
        if self.moves.get(move.partition.name) is move:
            del self.moves[move.partition.name]

    def _delete_future(self, directory: LogDirectory, name: TopicPartition) -> None:
        if name in directory.future_logs and not directory.is_failed:
            with DirectoryWork(self._host, directory):
                delay_ms = directory.future_logs[name].log.config.file_delete_delay_ms
                self._replicas.schedule_removal(directory, directory.delete_future(name), delay_ms)

    # -- events of logs ----------------------------------------------------------

    def _was_cut(self, partition: Partition) -> None:
        """Truncate the future log with its source: the same offsets will be other records."""
        move = self.moves.get(partition.name)
        if move is not None and not move.is_over:
            with DirectoryWork(self._host, move.target):
                move.cut_to(min(partition.log.log_end_offset, move.future.log_end_offset))

    def _is_gone(self, partition: Partition) -> None:
        move = self.moves.get(partition.name)
        if move is not None and move.partition is partition:
            self._cancel(move)

    def _has_failed(self, directory: LogDirectory) -> None:
        """End the moves from and to a directory; the logs in the other directory stay."""
        for move in list(self.moves.values()):
            if move.target is directory or move.partition.directory is directory:
                log.warning("log move ended, a directory failed move=%s", move)
                move.end()
                self._forget(move)
        for name in list(directory.future_logs):
            directory.discard_future(name)

    # -- the service -----------------------------------------------------------

    async def run(self, ready: Callable[[], None]) -> None:
        """Resume the moves of an earlier run, then work until cancelled."""
        self.resume()
        ready()
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                starting, self._starting = self._starting, []
                for move in starting:
                    tasks.create_task(self.carry_out(move), name=f"log move {move.partition}")
                await self._changed.wait()

    def resume(self) -> None:
        """Resume the move of every future log, or delete the log."""
        for directory in self._host.directories.online:
            for name in list(directory.future_logs):
                move = self.moves.get(name)
                if move is None or move.target is not directory:
                    with DirectoryWork(self._host, directory):
                        self._resume_one(directory, name)

    def _resume_one(self, directory: LogDirectory, name: TopicPartition) -> None:
        try:
            partition = self._host.partitions.find(*name)
        except StorageFailed:
            return  # its log is in an offline directory, and may be found again
        except (UnknownTopicOrPartition, NotLeader):
            partition = None
        topic_id = directory.future_logs[name].topic_id
        is_over = (
            partition is None
            or topic_id not in (None, partition.topic_id)
            or partition.directory is directory
            or name in self.moves
        )
        if partition is None or is_over:
            log.warning("orphaned future log removed partition=%s path=%s", name, directory.path)
            self._delete_future(directory, name)
            return
        move = Move(self._host, partition, directory, self._swapped)
        move.align()
        self._begin(move)

    async def carry_out(self, move: Move) -> None:
        """Run one move until it ends."""
        try:
            await move.run(self._slots)
        except StorageFailed as fault:
            log.warning("log move failed move=%s reason=%s", move, fault)
        finally:
            move.end()
            self._forget(move)

    def _swapped(self, partition: Partition, left: LogDirectory) -> None:
        """Delete the log from the old directory, and report the new one."""
        log.info("log moved partition=%s from=%s to=%s", partition, left.path,
                 partition.directory.path)  # fmt: skip
        self.moves.pop(partition.name, None)
        self._host.log_events.moved(partition, left)
        with DirectoryWork(self._host, left):
            delay_ms = partition.log.config.file_delete_delay_ms
            self._replicas.schedule_removal(left, left.delete_log(partition.name), delay_ms)
        self._host.log_events.placed(partition)
        partition.wake_readers()
