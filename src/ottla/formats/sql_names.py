"""Names and texts in SQL, one function per dialect: no name may change a statement's structure.

    Spark    `name`, a backtick doubled      'text', backslash and quote after a backslash
    DuckDB   "name", a quote doubled         'text', a quote doubled

Every statement that is built from names of topics, tables, columns or options uses these. DuckDB
reads a statement up to its first NUL, so that such names and texts are refused.
"""

import re
from typing import Final

_NOT_NAME: Final = re.compile(r"[^A-Za-z0-9_]")
# A part in backticks, or one without them and without dots.
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)", re.DOTALL)


class BadName(ValueError):
    """A name that cannot stand in SQL."""


def spark_name(name: str) -> str:
    """Return an identifier for Spark: one part of a name, or a column."""
    return "`" + name.replace("`", "``") + "`"


def spark_text(text: str) -> str:
    """Return a string for Spark."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def table_name(topic: str) -> str:
    """Return the name of a topic's table: dots and dashes are not allowed in all catalogs."""
    return _NOT_NAME.sub("_", topic)


def table_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a table's name, ``catalog.schema.table``; each may be in backticks.

    Raises:
        BadName: a part is empty, or a backtick stands alone.
    """
    parts: list[str] = []
    at = 0
    while True:
        found = _PART.match(name, at)
        if found is None:
            break
        parts.append(found[2] if found[1] is None else found[1].replace("``", "`"))
        at = found.end()
        if at == len(name):
            return tuple(parts)
        if name[at] != ".":
            break
        at += 1
    raise BadName(
        f"{name[:200]!r} is no name of a table: its parts are separated by dots; a part with a dot "
        "is in backticks, and a backtick in it is doubled"
    )


def spark_table(name: str) -> str:
    """Return a table's name for Spark, each part in backticks. Raises `BadName`."""
    return ".".join(map(spark_name, table_parts(name)))


def duckdb_name(name: str) -> str:
    """Return an identifier for DuckDB. Raises `BadName` if there is none."""
    return '"' + _without_nul(name).replace('"', '""') + '"'


def duckdb_text(text: str) -> str:
    """Return a string for DuckDB. Raises `BadName` if there is none."""
    return "'" + _without_nul(text).replace("'", "''") + "'"


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise BadName(f"{text[:200]!r} has a NUL, which DuckDB does not read")
    return text
