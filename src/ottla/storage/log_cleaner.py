"""The compacted logs of one directory: which is cleaned next, and how far each has got.

How far is in ``cleaner-offset-checkpoint``. The file is a memory, not a promise: lost or wrong,
logs are cleaned again from their start, which changes nothing that was clean.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from ottla.protocol.faults import Fault, StorageFailed
from ottla.protocol.types import Millis, Offset, TopicPartition
from ottla.runtime.ports import Disk, Random
from ottla.storage.checkpoints import CLEANER, CorruptCheckpoint, read_offsets, write_offsets
from ottla.storage.cleaner import CleaningRound, CleanResult, Memory, OffsetMapTooSmall, dirty_part
from ottla.storage.compaction import Candidate, Dirty, choose_filthiest
from ottla.storage.log import Log
from ottla.storage.offset_map import SECRET_BYTES


class CleanerSettings(NamedTuple):
    """``log.cleaner.dedupe.buffer.size`` and ``log.cleaner.io.buffer.load.factor``."""

    dedupe_buffer_bytes: int = 134_217_728
    load_factor: float = 0.9


class LogToClean(msgspec.Struct, frozen=True):
    """A log to clean, and what of it."""

    partition: TopicPartition
    log: Log
    dirty: Dirty


class LogCleaner:
    """Of one directory. One round at a time: `choose`, then iterate `run`."""

    def __init__(
        self, disk: Disk, directory: str, random: Random, settings: CleanerSettings
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._random = random
        self._settings = settings
        self._checkpoint: dict[TopicPartition, Offset] = {}
        self.uncleanable: dict[
            TopicPartition, str
        ] = {}  # and why; until the next start, other settings, or a repair

    @property
    def settings(self) -> CleanerSettings:
        """What the next log is cleaned with."""
        return self._settings

    def configure(self, settings: CleanerSettings) -> None:
        """Clean with other settings from the next log on; more memory may do for any log."""
        if settings != self._settings:
            self._settings = settings
            self.uncleanable.clear()

    @property
    def checkpoint(self) -> Mapping[TopicPartition, Offset]:
        """The first dirty offset of each log that was ever cleaned."""
        return self._checkpoint

    def load(self) -> bool:
        """Read the checkpoint; False when it was garbled, and all logs count as dirty.

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
        """Choose the log that needs cleaning most; None when none does.

        Raises:
            StorageFailed: the disk failed.
        """
        choices: dict[str, LogToClean] = {}
        candidates: list[Candidate] = []
        for partition, log in logs.items():
            if not log.config.is_compacted or log.is_failed or partition in self.uncleanable:
                continue
            dirty = self._dirty_part(partition, log, now)
            choices[str(partition)] = LogToClean(partition, log, dirty)
            candidates.append(
                Candidate(str(partition), dirty, log.config.min_cleanable_dirty_ratio)
            )
        chosen = choose_filthiest(candidates)
        return None if chosen is None else choices[chosen.name]

    def _dirty_part(self, partition: TopicPartition, log: Log, now: Millis) -> Dirty:
        try:
            return dirty_part(log, self._checkpoint.get(partition), now)
        except OSError as error:
            raise StorageFailed(log.directory, str(error)) from error

    def run(self, choice: LogToClean, now: Millis, stamp: Millis | None = None) -> Iterator[int]:
        """Clean a chosen log, yielding the bytes moved; then write the checkpoint.

        A log that is damaged, or too much for the memory there is, is not chosen again.

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
        try:
            yield from cleaning.run()
        except StorageFailed:
            raise
        except (Fault, OffsetMapTooSmall) as error:
            self.uncleanable[choice.partition] = str(error)
            raise
        self._note(choice.partition, cleaning.result)

    def _note(self, partition: TopicPartition, result: CleanResult) -> None:
        self._checkpoint[partition] = result.end_offset
        self._write()

    def truncated(self, partition: TopicPartition, offset: Offset) -> None:
        """Learn that a log was cut: what comes behind ``offset`` is dirty.

        Call it before anything is appended, lest new records pass for clean.
        """
        if self._checkpoint.get(partition, Offset(0)) > offset:
            self._checkpoint[partition] = offset
            self._write()

    def adopt(self, partition: TopicPartition, offset: Offset | None) -> None:
        """Learn that a log has come here, and up to where it is clean; None if it never was."""
        self.forget(partition)
        if offset is not None:
            self._checkpoint[partition] = offset
            self._write()

    def repaired(self, partition: TopicPartition) -> None:
        """Learn that a log has no known damage any more: it may be cleaned again."""
        self.uncleanable.pop(partition, None)

    def forget(self, partition: TopicPartition) -> None:
        """Learn that a log is no longer here."""
        self.uncleanable.pop(partition, None)
        if self._checkpoint.pop(partition, None) is not None:
            self._write()

    def _write(self) -> None:
        try:
            write_offsets(self._disk, f"{self._directory}/{CLEANER}", self._checkpoint)
        except OSError as error:
            raise StorageFailed(self._directory, str(error)) from error
