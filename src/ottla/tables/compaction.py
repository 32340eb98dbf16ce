"""Merges the small files of a parquet table; a crash neither loses nor duplicates rows.

If a partition has many small files of micro-batches that are never replayed, they are merged::

    1  their rows into  day=…/_merged/part-….parquet   hidden: readers skip names that begin with _
    2  the plan into  _ottla/compaction.json
    3  the merged file into the newest of their directories, day=…/ottla_batch=7/; they are deleted
    4  _merged and the plan deleted

A crash before step 2 changes nothing; after step 2 the next run repeats steps 3 and 4. A reader
that lists the directory during step 3 may see rows twice; use Delta or Iceberg to avoid this.

A merge takes files of one level: those of a stream have level 0, and files that were merged from
level n have level n + 1. So a row is not written again with each merge, but as often as the number
of files has digits in base ``files_min``. Files from `SMALL_BYTES` on are not merged, and a merge
takes at most `MERGE_BYTES_MAX`: it lasts seconds, however large the table is. Spark reads and
writes the rows: another library would write other types (timestamps that Spark cannot read).
"""

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ottla.tables.files import BATCH_PREFIX, HIDDEN, BatchDirectories, TableFiles

SMALL_BYTES: Final = 32 << 20
"""Files of this size or more stay as they are."""
MERGE_BYTES_MAX: Final = 256 << 20
"""A merge takes no further file when it has so many bytes."""
_MERGED: Final = "_merged"
_PLAN: Final = f"{HIDDEN}/compaction.json"
_LEVEL: Final = re.compile(r"level(\d+)-")
_OLD_MERGED: Final = "merged-"  # the name of merged files before they had levels

MergeRows = Callable[[Sequence[str], str], None]
"""Write the rows of files as one file into a directory, which is replaced."""


class DataFile(msgspec.Struct, frozen=True):
    """A file of a table; its path is relative to the table."""

    path: str
    size: int

    @property
    def level(self) -> int:
        """How often its rows were merged."""
        name = self.path.rpartition("/")[2]
        if found := _LEVEL.match(name):
            return int(found[1])
        return int(name.startswith(_OLD_MERGED))


class _Merge(msgspec.Struct):
    """Paths are relative to the table; ``partition`` ends with a slash."""

    partition: str
    sources: list[str]
    target: str
    merged: str = ""  # empty: of a version that merged local files itself, into _merged.parquet
    name: str = ""  # empty: of a version whose merged files had no level


def choose(files: Sequence[DataFile], files_min: int) -> list[DataFile]:
    """Return the files of a partition to be merged next, at least two; none if there is no need."""
    levels: dict[int, list[DataFile]] = {}
    for file in files:
        if file.size < SMALL_BYTES:
            levels.setdefault(file.level, []).append(file)
    for _, theirs in sorted(levels.items()):
        if len(theirs) >= files_min:
            chosen, size = theirs[:2], theirs[0].size + theirs[1].size
            for file in theirs[2:]:
                size += file.size
                if size > MERGE_BYTES_MAX:
                    break
                chosen.append(file)
            return chosen
    return []


class Compaction:
    """The merges of one table."""

    def __init__(self, files: TableFiles, table: str, merge_rows: MergeRows) -> None:
        self._files = files
        self._directories = BatchDirectories(files, table)
        self._at = self._directories.at
        self._merge_rows = merge_rows

    def compact(self, before: int, files_min: int) -> int:
        """Merge partitions with ``files_min`` small files or more of batches below ``before``.

        First finishes a merge that a crash interrupted. Returns the number of files removed.
        """
        gone = self.recover()
        for partition, numbers in list(self._directories.partitions()):
            old = [each for each in numbers if each < before]
            while chosen := choose(self._files_of(partition, old), files_min):
                self._prepare(partition, chosen)
                gone += self.recover()
        return gone

    def recover(self) -> int:
        """Finish an interrupted merge, if any; return the number of files removed."""
        kept = self._files.read(self._at(_PLAN))
        if kept is None:
            return 0
        plan = msgspec.json.decode(kept.encode(), type=_Merge)
        name = plan.name or f"{_OLD_MERGED}{len(plan.sources)}-{_stamp(plan.sources)}.parquet"
        merged = self._at(plan.merged or f"{plan.partition}/{_MERGED}.parquet")
        target = self._at(f"{plan.target}/{name}")
        if self._files.exists(merged):
            self._files.make_directory(self._at(plan.target))
            self._files.rename(merged, target)
        assert self._files.exists(target), f"{target} is missing; {_PLAN} names its source files"
        for source in plan.sources:
            self._files.delete(self._at(source))
        for directory in sorted({source.rpartition("/")[0] for source in plan.sources}):
            if directory != plan.target and not self._parquet_files(directory):
                self._files.delete(self._at(directory))
        self._files.delete(self._at(f"{plan.partition}{_MERGED}"))
        self._files.delete(self._at(_PLAN))
        return len(plan.sources) - 1

    def _prepare(self, partition: str, chosen: list[DataFile]) -> None:
        merged = f"{partition}{_MERGED}"
        sources = [each.path for each in chosen]
        self._merge_rows([self._at(each) for each in sources], self._at(merged))
        (part,) = self._parquet_files(merged)
        self._files.sync(self._at(part.path))
        name = f"level{chosen[0].level + 1}-{len(sources)}-{_stamp(sources)}.parquet"
        plan = _Merge(partition, sources, sources[-1].rpartition("/")[0], part.path, name)
        self._files.make_directory(self._at(HIDDEN))
        self._files.write(self._at(_PLAN), msgspec.json.encode(plan).decode())

    def _files_of(self, partition: str, numbers: Sequence[int]) -> list[DataFile]:
        return [
            file
            for number in numbers
            for file in self._parquet_files(f"{partition}{BATCH_PREFIX}{number}")
        ]

    def _parquet_files(self, directory: str) -> list[DataFile]:
        return [
            DataFile(f"{directory}/{name}", size)
            for name, _, size in self._files.children(self._at(directory))
            if name.endswith(".parquet")
        ]


def _stamp(sources: list[str]) -> str:
    """Return a name derived from the sources: repeating a merge gives the same file."""
    return f"{zlib.crc32(msgspec.json.encode(sources)):08x}"
