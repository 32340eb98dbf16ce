"""Merges the small files of a parquet table in any file system that Spark knows.

The steps are those of `small_files`, with Spark as the reader and writer, and a file system that
may not be able to rename a file over another::

    1  all rows into  day=…/_merged/part-….parquet    hidden: readers skip names that begin with _
    2  the plan into  _ottla/compaction.json
    3  the merged file into  day=…/ottla_batch=7/, its source files deleted
    4  _merged and the plan deleted

A crash before step 2 changes nothing; after step 2 the next run repeats steps 3 and 4.
"""

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.pipeline.spark_files import SparkFiles
from ottla.pipeline.table_job import BATCH_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MERGED: Final = "_merged"
_PLAN: Final = "_ottla/compaction.json"
_PREFIX: Final = f"{BATCH_COLUMN}="
_DEPTH_MAX: Final = 16


class _Merge(msgspec.Struct):
    """Paths are relative to the table."""

    partition: str
    merged: str
    sources: list[str]
    target: str


class SparkCompaction:
    """The merges of one table."""

    def __init__(self, spark: "SparkSession", table: str) -> None:
        self._spark = spark
        self._table = table.rstrip("/")
        self._files = SparkFiles(spark)

    def compact(self, before: int, files_min: int) -> int:
        """Merge partitions with ``files_min`` files or more of batches below ``before``.

        Returns the number of files removed.
        """
        gone = self.recover()
        for partition, batches in self._partitions("", 0):
            old = sorted(each for each in batches if each < before)
            files = [file for each in old for file in self._files_of(f"{partition}{_PREFIX}{each}")]
            if len(files) >= files_min:
                self._prepare(partition, files, f"{partition}{_PREFIX}{old[-1]}")
                gone += self.recover()
        return gone

    def recover(self) -> int:
        """Finish an interrupted merge, if any; return the number of files removed."""
        kept = self._files.read(self._at(_PLAN))
        if kept is None:
            return 0
        plan = msgspec.json.decode(kept.encode(), type=_Merge)
        name = f"merged-{len(plan.sources)}-{_stamp(plan)}.parquet"
        merged, target = self._at(plan.merged), self._at(f"{plan.target}/{name}")
        if self._files.exists(merged):
            self._files.make_directory(self._at(plan.target))
            self._files.rename(merged, target)
        assert self._files.exists(target), f"{target} is missing; {_PLAN} names its source files"
        for source in plan.sources:
            self._files.delete(self._at(source))
        for directory in sorted({source.rpartition("/")[0] for source in plan.sources}):
            if directory != plan.target and not self._files_of(directory):
                self._files.delete(self._at(directory))
        self._files.delete(self._at(f"{plan.partition}{_MERGED}"))
        self._files.delete(self._at(_PLAN))
        return len(plan.sources) - 1

    def _prepare(self, partition: str, files: list[str], target: str) -> None:
        merged = f"{partition}{_MERGED}"
        rows = self._spark.read.option("mergeSchema", "true").parquet(*map(self._at, files))
        rows.coalesce(1).write.mode("overwrite").parquet(self._at(merged))
        (part,) = self._files_of(merged)
        plan = _Merge(partition, part, files, target)
        self._files.make_directory(self._at("_ottla"))
        self._files.write(self._at(_PLAN), msgspec.json.encode(plan).decode())

    def _partitions(self, above: str, depth: int) -> Iterator[tuple[str, list[int]]]:
        """Yield the path of every directory with batches, with a slash, and its batches."""
        batches = []
        for name, is_directory in sorted(self._files.children(self._at(above))):
            if not is_directory or name.startswith(("_", ".")):
                continue
            if name.startswith(_PREFIX):
                number = name.removeprefix(_PREFIX)
                batches += [int(number)] if number.isdigit() else []
            elif depth < _DEPTH_MAX:
                yield from self._partitions(f"{above}{name}/", depth + 1)
        if batches:
            yield above, batches

    def _files_of(self, directory: str) -> list[str]:
        children = self._files.children(self._at(directory))
        names = sorted(name for name, _ in children if name.endswith(".parquet"))
        return [f"{directory}/{name}" for name in names]

    def _at(self, relative: str) -> str:
        return f"{self._table}/{relative}".rstrip("/")


def _stamp(plan: _Merge) -> str:
    """Return a name derived from the sources: repeating a merge gives the same file."""
    return f"{zlib.crc32(msgspec.json.encode(plan.sources)):08x}"
