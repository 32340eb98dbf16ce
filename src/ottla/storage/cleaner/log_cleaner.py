"""Chooses which compacted log of a directory to clean next, and tracks how far each is clean.

The first dirty offset of each log is in ``cleaner-offset-checkpoint``. The file is only an
optimization: when it is lost or wrong, logs are cleaned again from their start, which changes
nothing that was clean.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from ottla.protocol.faults import Fault, StorageFailed
from ottla.protocol.types import Millis, Offset, TopicPartition
from ottla.runtime.ports import Disk, Random
from ottla.storage.cleaner.compaction import Candidate, Dirty, choose_filthiest
from ottla.storage.cleaner.compactor import (
    CleaningRound,
    CleanResult,
    Memory,
    OffsetMapTooSmall,
    dirty_part,
)
from ottla.storage.cleaner.offset_map import SECRET_BYTES
from ottla.storage.directory.checkpoints import (
    CLEANER,
    CorruptCheckpoint,
    read_offsets,
    write_offsets,
)
from ottla.storage.log.flushing import PathSync
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig


class CleanerSettings(NamedTuple):
    """``log.cleaner.dedupe.buffer.size`` and ``log.cleaner.io.buffer.load.factor``."""

    dedupe_buffer_bytes: int = 134_217_728
    load_factor: float = 0.9


class LogToClean(msgspec.Struct, frozen=True):
    """A log to clean, and its dirty part.

    ``backlog``: the dirty bytes of all logs that are worth cleaning, this one included.
    """

    partition: TopicPartition
    log: Log
    dirty: Dirty
    backlog: int


class LogCleaner:
    """The cleaner of one directory. One round at a time: `choose`, then iterate `run`."""

    def __init__(
        self, disk: Disk, directory: str, random: Random, settings: CleanerSettings
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._random = random
        self._settings = settings
        self._checkpoint: dict[TopicPartition, Offset] = {}
        # The reason why a log is skipped, until a restart, other settings, or a repair.
        self.uncleanable: dict[TopicPartition, str] = {}
        self._tried: dict[TopicPartition, LogConfig] = {}  # the settings of these logs then
        self._cleaning: CleaningRound | None = None

    @property
    def settings(self) -> CleanerSettings:
        """The settings for the next log."""
        return self._settings

    def configure(self, settings: CleanerSettings) -> None:
        """Change the settings from the next log on; more memory may suffice for any log."""
        if settings != self._settings:
            self._settings = settings
            self.uncleanable.clear()

    @property
    def checkpoint(self) -> Mapping[TopicPartition, Offset]:
        """The first dirty offset of each log that was ever cleaned."""
        return self._checkpoint

    def load(self) -> bool:
        """Read the checkpoint; False when it is corrupt, and all logs count as dirty.

        Raises:
            StorageFailed: it cannot be read.
        """
        try:
            self._checkpoint = read_offsets(self._disk, f"{self._directory}/{CLEANER}")
        except CorruptCheckpoint:
            self._checkpoint = {}
            return False
        except OSError as error:
            raise StorageFailed(self._directory, str(error)) from error
        return True

    def choose(self, logs: Mapping[TopicPartition, Log], now: Millis) -> LogToClean | None:
        """Choose the log that needs cleaning most; None when none needs it.

        Raises:
            StorageFailed: the disk failed.
        """
        choices: dict[str, tuple[TopicPartition, Log]] = {}
        candidates: list[Candidate] = []
        for partition, log in logs.items():
            if not log.config.is_compacted or log.is_failed or self._is_skipped(partition, log):
                continue
            dirty = self._dirty_part(partition, log, now)
            choices[str(partition)] = partition, log
            candidates.append(
                Candidate(str(partition), dirty, log.config.min_cleanable_dirty_ratio)
            )
        chosen = choose_filthiest(candidates)
        if chosen is None:
            return None
        worth = (each.dirty for each in candidates if each.dirty.is_worth_cleaning(each.ratio_min))
        backlog = sum(dirty.cleanable_bytes for dirty in worth)
        return LogToClean(*choices[chosen.name], chosen.dirty, backlog)

    def _is_skipped(self, partition: TopicPartition, log: Log) -> bool:
        """Say whether a log is uncleanable; with other settings of its topic it is tried again."""
        if partition in self.uncleanable and self._tried.get(partition) != log.config:
            del self.uncleanable[partition]
        return partition in self.uncleanable

    def _dirty_part(self, partition: TopicPartition, log: Log, now: Millis) -> Dirty:
        try:
            return dirty_part(log, self._checkpoint.get(partition), now)
        except OSError as error:
            raise StorageFailed(log.directory, str(error)) from error

    @property
    def unsynced(self) -> tuple[PathSync, ...]:
        """The files that the next step of the current round will sync."""
        return () if self._cleaning is None else self._cleaning.unsynced

    def run(self, choice: LogToClean, now: Millis, stamp: Millis | None = None) -> Iterator[int]:
        """Clean a chosen log, yielding the bytes processed; then write the checkpoint.

        A log that is damaged, or needs more memory than allowed, is not chosen again.

        Raises:
            CleaningAborted: the log changed meanwhile; choose again. StorageFailed: the disk
                failed. Other faults, OffsetMapTooSmall: the log has become uncleanable.
        """
        memory = Memory(
            self._settings.dedupe_buffer_bytes,
            self._random.bytes(SECRET_BYTES),
            self._settings.load_factor,
        )
        cleaning = CleaningRound(self._disk, choice.log, choice.dirty, memory, now, stamp)
        self._cleaning = cleaning
        try:
            yield from cleaning.run()
        except StorageFailed:
            raise
        except (Fault, OffsetMapTooSmall) as error:
            self.uncleanable[choice.partition] = str(error)
            self._tried[choice.partition] = choice.log.config
            raise
        finally:
            self._cleaning = None
        self._note(choice.partition, cleaning.result)

    def _note(self, partition: TopicPartition, result: CleanResult) -> None:
        self._checkpoint[partition] = result.end_offset
        self._write()

    def truncated(self, partition: TopicPartition, offset: Offset) -> None:
        """Mark a truncated log dirty from ``offset`` on.

        Call it before anything is appended, otherwise new records would count as clean.
        """
        if self._checkpoint.get(partition, Offset(0)) > offset:
            self._checkpoint[partition] = offset
            self._write()

    def adopt(self, partition: TopicPartition, offset: Offset | None) -> None:
        """Add a log that was moved here; ``offset`` is the end of its clean part, None if never."""
        self.forget(partition)
        if offset is not None:
            self._checkpoint[partition] = offset
            self._write()

    def repaired(self, partition: TopicPartition) -> None:
        """Allow a log to be cleaned again: it has no known damage any more."""
        self.uncleanable.pop(partition, None)

    def forget(self, partition: TopicPartition) -> None:
        """Drop a log that is no longer in this directory."""
        self.uncleanable.pop(partition, None)
        self._tried.pop(partition, None)
        if self._checkpoint.pop(partition, None) is not None:
            self._write()

    def _write(self) -> None:
        try:
            write_offsets(self._disk, f"{self._directory}/{CLEANER}", self._checkpoint)
        except OSError as error:
            raise StorageFailed(self._directory, str(error)) from error
