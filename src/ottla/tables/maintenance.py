"""The maintenance of tables: which statements run, and when. Pure.

Delta: ``OPTIMIZE`` merges small files, ``VACUUM`` deletes files that no version in its retention
uses. Iceberg: ``rewrite_data_files``, ``expire_snapshots`` and ``remove_orphan_files``. Parquet
tables are compacted by `compaction`.

Maintenance of an Iceberg table runs before a micro-batch is written, never after: the snapshot of
the newest micro-batch proves that it was written, and must exist until its checkpoint is committed.
"""

from datetime import UTC, datetime
from typing import Final

from ottla.formats.sql_names import spark_name, spark_text, table_parts
from ottla.spark.option_values import duration_ms
from ottla.tables.job import MaintenanceSpec, TableFormat

HOUR_MS: Final = 3_600_000
ORPHANS_MS_MIN: Final = 24 * HOUR_MS
"""Iceberg rejects a shorter age of orphan files: they may belong to a running write."""


def is_due(spec: MaintenanceSpec | None, last_ms: int | None, now_ms: int) -> bool:
    """Return whether the table is to be maintained now; ``last_ms``: when it was, if ever."""
    if spec is None:
        return False
    return last_ms is None or now_ms - last_ms >= milliseconds(spec.every)


def statements(
    spec: MaintenanceSpec, format: TableFormat, table: str, files_min: int, now_ms: int
) -> list[str]:
    """Return the statements for a table; its name is quoted."""
    if format is TableFormat.DELTA:
        found = [f"OPTIMIZE {table}"] if spec.compact else []
        if spec.vacuum is not None:
            found.append(f"VACUUM {table} RETAIN {_hours(spec.vacuum)} HOURS")
        return found
    if format is TableFormat.PARQUET:
        return []
    catalog, *rest = table_parts(table)
    # Iceberg parses the text of the argument as the name of a table.
    system = f"{spark_name(catalog)}.system"
    name = spark_text(".".join(map(spark_name, rest)))
    found = []
    if spec.compact:
        options = f"map('min-input-files', '{files_min}')"
        found.append(f"CALL {system}.rewrite_data_files(table => {name}, options => {options})")
    if spec.expire is not None:
        before = _timestamp(now_ms - milliseconds(spec.expire))
        found.append(
            f"CALL {system}.expire_snapshots(table => {name}, older_than => {before}, "
            "retain_last => 1)"
        )
    if spec.vacuum is not None:
        before = _timestamp(now_ms - max(milliseconds(spec.vacuum), ORPHANS_MS_MIN))
        found.append(f"CALL {system}.remove_orphan_files(table => {name}, older_than => {before})")
    return found


def milliseconds(text: str) -> int:
    """Return a duration that was already checked."""
    found = duration_ms(text, bare=False)
    assert found is not None, f"{text!r} was checked before"
    return found


def _hours(text: str) -> int:
    return -(-milliseconds(text) // HOUR_MS)


def _timestamp(ms: int) -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return f"TIMESTAMP '{at:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z'"
