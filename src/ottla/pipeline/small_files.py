"""Merges the small files of a parquet table; a crash neither loses nor duplicates rows.

A table written by a stream has a directory per micro-batch in each of its partitions::

    orders/day=2026-11-16/ottla_batch=7/part-00000-….parquet

If a partition has many of them, they are merged into the newest, in these steps::

    1  all rows into  day=…/_merged.parquet       hidden: readers skip names that begin with _
    2  the plan into  _ottla/compaction.json
    3  the merged file into  day=…/ottla_batch=7/, its source files deleted
    4  the plan deleted

A crash before step 2 changes nothing; after step 2 the next run repeats steps 3 and 4. A reader
that lists the directory during step 3 may see rows twice; use Delta or Iceberg to avoid this.
"""

import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ottla.pipeline.table_job import BATCH_COLUMN

_MERGED: Final = "_merged.parquet"
_PLAN: Final = Path("_ottla") / "compaction.json"
_PREFIX: Final = f"{BATCH_COLUMN}="


class _Merge(msgspec.Struct):
    """Paths are relative to the table."""

    partition: str
    sources: list[str]
    target: str


def compact(table: Path, before: int, files_min: int) -> int:
    """Merge partitions with ``files_min`` files or more of batches below ``before``.

    First finishes a merge that a crash interrupted. Returns the number of files removed.

    Raises:
        OSError, pyarrow.ArrowException: a file cannot be read or written; no row is lost.
    """
    gone = recover(table)
    for partition, batches in _partitions(table):
        old = sorted((each for each in batches if _number(each) < before), key=_number)
        files = [file for each in old for file in sorted(each.glob("*.parquet"))]
        if len(files) >= files_min:
            _prepare(table, partition, files, old[-1])
            gone += recover(table)
    return gone


def recover(table: Path) -> int:
    """Finish an interrupted merge, if any; return the number of files removed."""
    planned = table / _PLAN
    if not planned.exists():
        return 0
    plan = msgspec.json.decode(planned.read_bytes(), type=_Merge)
    merged = table / plan.partition / _MERGED
    target = table / plan.target
    if merged.exists():
        target.mkdir(parents=True, exist_ok=True)
        merged.replace(target / f"merged-{len(plan.sources)}-{_stamp(plan)}.parquet")
    for source in plan.sources:
        (table / source).unlink(missing_ok=True)
    for directory in {(table / source).parent for source in plan.sources}:
        if directory.exists() and not any(directory.glob("*.parquet")):
            shutil.rmtree(directory)
    planned.unlink()
    return len(plan.sources) - 1


def _prepare(table: Path, partition: Path, files: list[Path], target: Path) -> None:
    merged = partition / _MERGED
    rows = pa.concat_tables([_read(file) for file in files], promote_options="default")
    pq.write_table(rows, merged, compression="zstd")
    _sync(merged)
    plan = _Merge(
        str(partition.relative_to(table)),
        [str(file.relative_to(table)) for file in files],
        str(target.relative_to(table)),
    )
    planned = table / _PLAN
    planned.parent.mkdir(exist_ok=True)
    beside = planned.with_suffix(".new")
    beside.write_bytes(msgspec.json.encode(plan))
    _sync(beside)
    beside.replace(planned)


def _read(file: Path) -> pa.Table:
    # A dataset reader would add columns for the parent directories.
    with pq.ParquetFile(file) as opened:
        return opened.read()


def _partitions(table: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Yield every directory with batches, and its batches."""
    found: dict[Path, list[Path]] = {}
    for each in sorted(table.glob(f"**/{_PREFIX}*")):
        if each.is_dir() and each.name.removeprefix(_PREFIX).isdigit():
            found.setdefault(each.parent, []).append(each)
    yield from found.items()


def _number(batch: Path) -> int:
    return int(batch.name.removeprefix(_PREFIX))


def _stamp(plan: _Merge) -> str:
    """Return a name derived from the sources: repeating a merge gives the same file."""
    return f"{zlib.crc32(msgspec.json.encode(plan.sources)):08x}"


def _sync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
