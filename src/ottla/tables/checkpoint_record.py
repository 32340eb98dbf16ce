"""What a checkpoint remembers of the table that was written with it.

A checkpoint belongs to one table: with another one it would go on in the middle of the topic, and a
micro-batch that was written in one way must not be replayed in another. The file ``ottla-table`` of
the checkpoint says how the table was declared, from just before the first rows were written::

    {"format": "delta", "table": "tables/orders", "merges": false, "partition_by": ["day"],
     "has_rows": true}

Checkpoints of earlier versions do not have it; their tables are not checked.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from ottla.tables.files import TableFiles
from ottla.tables.job import TableFormat, TableJob
from ottla.tables.owner import NotOwner, Progress

_NAME: Final = "ottla-table"


class TableRecord(msgspec.Struct, frozen=True):
    """The declaration of a table, as far as a replay depends on it.

    ``has_rows``: a micro-batch with rows was written, so the table exists.
    """

    format: TableFormat
    table: str
    merges: bool
    partition_by: tuple[str, ...] = ()
    has_rows: bool = False

    @classmethod
    def of(cls, job: TableJob, *, has_rows: bool) -> "TableRecord":
        """Return the record of a job."""
        table = job.table
        name = table.name or table.path or ""
        return cls(table.format, name, job.mode.merges, table.partition_by, has_rows)


def keep_record(files: TableFiles, checkpoint: str, job: TableJob, *, has_rows: bool) -> None:
    """Remember a job before it writes rows, and after it."""
    last = _read(files, checkpoint)
    has_rows = has_rows or (last is not None and last.has_rows)
    record = TableRecord.of(job, has_rows=has_rows)
    if record != last:
        files.write(f"{checkpoint}/{_NAME}", msgspec.json.encode(record).decode())


def _read(files: TableFiles, checkpoint: str) -> TableRecord | None:
    text = files.read(f"{checkpoint}/{_NAME}")
    return None if text is None else msgspec.json.decode(text.encode(), type=TableRecord)


def check_record(
    files: TableFiles,
    checkpoint: str,
    job: TableJob,
    progress: Progress,
    exists: Callable[[], bool],
) -> None:
    """Check that a checkpoint was written with the table of a job.

    ``exists`` returns whether the table is there.

    Raises:
        NotOwner: it was written with another one, or in a way that a replay must repeat.
    """
    record = _read(files, checkpoint)
    if record is None:
        return
    now = TableRecord.of(job, has_rows=True)
    if record.format is not now.format:
        raise NotOwner(
            f"checkpoint {checkpoint} has written {record.table} as {record.format.value}: a table "
            f"as {now.format.value} would lack the rows up to here. Set checkpoint to a new "
            "directory and table.path to another place"
        )
    if now.format is TableFormat.PARQUET and record.partition_by != now.partition_by:
        raise NotOwner(
            f"table {now.table} is partitioned by {list(record.partition_by)}, not by "
            f"{list(now.partition_by)}: Spark cannot read files of both. Set table.partition_by "
            "back, or write another table with another checkpoint"
        )
    if progress.has_begun and record.merges is not now.merges:
        before, after = ("upsert or latest", "append") if record.merges else ("append", "upsert")
        raise NotOwner(
            f"micro-batch {progress.batch} was begun in mode {before} and is not finished: in mode "
            f"{after} its rows could be written twice. Run the job once more in the old mode"
        )
    if record.has_rows and not exists():
        raise NotOwner(
            f"table {now.table} does not exist, and checkpoint {checkpoint} has written "
            f"{record.table}: the table would lack the rows up to here. Set table.path or "
            "table.name back, or use a new checkpoint"
        )
