"""The statement that merges a micro-batch into a table with one row per key. Pure.

The rows of a micro-batch contain each key at most once (`tables` keeps its newest record), with
the column ``ottla_change``. Replaying the last micro-batch leads to the same table: each key gets
the same row again.
"""

from collections.abc import Sequence

from ottla.pipeline.table_job import CHANGE_COLUMN, Change


def quoted(name: str) -> str:
    """Return a column's name for SQL."""
    return "`" + name.replace("`", "``") + "`"


def quoted_table(name: str) -> str:
    """Return the name of a table in a catalog for SQL; its parts may already be quoted."""
    return name if "`" in name else ".".join(quoted(part) for part in name.split("."))


def merge_statement(
    target: str, changes: str, keys: Sequence[str], columns: Sequence[str], table: Sequence[str]
) -> str:
    """Return the MERGE of the rows ``changes`` into the table ``target``, both quoted.

    ``columns`` are those of the rows, ``table`` those of the table: a column that only the table
    has keeps its value in a row that is replaced, and is null in a new row.
    """
    assert keys, "a merge needs a key"
    mine = {each.lower() for each in table}
    written = [each for each in columns if each.lower() in mine]
    matches = " AND ".join(f"t.{quoted(each)} = s.{quoted(each)}" for each in keys)
    changed = [each for each in written if each not in keys]
    is_delete = f"s.{quoted(CHANGE_COLUMN)} = '{Change.DELETE.value}'"
    lines = [
        f"MERGE INTO {target} t",
        f"USING {changes} s",
        f"ON {matches}",
        f"WHEN MATCHED AND {is_delete} THEN DELETE",
    ]
    if changed:
        pairs = ", ".join(f"t.{quoted(each)} = s.{quoted(each)}" for each in changed)
        lines.append(f"WHEN MATCHED THEN UPDATE SET {pairs}")
    names = ", ".join(quoted(each) for each in written)
    values = ", ".join(f"s.{quoted(each)}" for each in written)
    inserts = f"THEN INSERT ({names}) VALUES ({values})"  # noqa: S608 - names are quoted
    lines.append(f"WHEN NOT MATCHED AND NOT {is_delete} {inserts}")
    return "\n".join(lines)
