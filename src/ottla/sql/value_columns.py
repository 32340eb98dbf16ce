"""The columns of keys and values in SQL: as bytes or text, and as the fields of their format.

==========  ================================  ==================================================
format      ``key`` or ``value``              further columns
==========  ================================  ==================================================
raw         BLOB
text        VARCHAR (UTF-8)
json        VARCHAR                           the fields of the objects, declared or sampled
avro        BLOB                              the fields of the record
protobuf    BLOB                              the fields of the message
==========  ================================  ==================================================

Fields of keys are named ``key_<field>``; fields of values keep their name, unless a column of the
source has it: then they are named ``value_<field>``. Text and JSON are decoded by DuckDB, in the
view that `view_of` returns; Avro and Protobuf by `DecodedColumns`, in the scan. A key or value that
does not fit its format fails the query, or (``BadValues.NULL``) its columns are null.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from ottla.formats.record_values import (
    BadValues,
    Format,
    Values,
    as_column,
    decode_all,
    framed_column,
)
from ottla.formats.sql_names import duckdb_name, duckdb_text
from ottla.protocol.types import TopicPartition
from ottla.sql.json_fields import converted
from ottla.sql.scan import SOURCE_COLUMNS

VIEW_COLUMNS: Final = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
)  # fmt: skip
_TAKEN: Final = frozenset(each.lower() for each in SOURCE_COLUMNS)
SAMPLED_FIELDS_MAX: Final = 2000
"""Columns that are made of sampled records; other fields are in ``value``."""
_BLANKS: Final = "' ' || chr(9) || chr(10) || chr(13)"
_INTEGERS: Final = frozenset({"UBIGINT", "BIGINT", "HUGEINT", "UHUGEINT"})


class Part(msgspec.Struct, frozen=True):
    """The format of the key or of the value of one topic.

    ``fields`` are the fields of JSON objects with their types in DuckDB, or those that the scan has
    decoded already. ``is_sampled``: their types are a guess from some records.
    """

    name: str
    format: Format
    fields: tuple[tuple[str, str], ...] = ()
    is_sampled: bool = False
    required: frozenset[str] = frozenset()
    """The fields that are declared NOT NULL."""
    skipped: int = 0
    """Bytes before the text: the id of a schema."""

    def with_fields(self, used: frozenset[str] | None) -> "Part":
        """Return the part with the fields whose columns, in lower case, are in ``used``."""
        if used is None or self.format is not Format.JSON:
            return self
        kept = [each for each in self.fields if column_of(self.name, each[0]).lower() in used]
        return msgspec.structs.replace(self, fields=tuple(kept))


def column_of(part: str, field: str) -> str:
    """Return the name of a field's column."""
    if part == "key" or field.lower() in _TAKEN or field.lower() == f"{part}_error":
        return f"{part}_{field}"
    return field


# -- formats that DuckDB reads: a view ----------------------------------------------


def view_of(table: str, topic: str, key: Part, value: Part, bad: BadValues) -> str:
    """Return the query of the view that shows a topic's table."""
    inner, shown = ["*"], []
    for part in (key, value):
        if part.format is Format.JSON and part.fields:
            inner.append(f"{_parsed(part, topic, bad)} AS {duckdb_name(_hidden(part))}")
    parts = {part.name: part for part in (key, value) if part.format in (Format.TEXT, Format.JSON)}
    for name in VIEW_COLUMNS:
        text = f"{_text(parts[name], topic, bad)} AS " if name in parts else ""
        shown.append(f"{text}{duckdb_name(name)}")
    for part in (key, value):
        shown += _fields(part, topic, bad)
    return f"SELECT {', '.join(shown)} FROM (SELECT {', '.join(inner)} FROM {duckdb_name(table)})"  # noqa: S608


def _fields(part: Part, topic: str, bad: BadValues) -> list[str]:
    if part.format is not Format.JSON:
        return [duckdb_name(each) for each, _ in part.fields]
    parsed = duckdb_name(_hidden(part))
    return [
        f"{_field(f'{parsed}.{duckdb_name(field)}', part, (field, kind), topic, bad)} AS "
        f"{duckdb_name(column_of(part.name, field))}"
        for field, kind in part.fields
    ]


def _field(raw: str, part: Part, field: tuple[str, str], topic: str, bad: BadValues) -> str:
    """Return an expression for a field of JSON; one that does not fit fails, or is null."""
    name, kind = field
    value = converted(raw, kind)
    if bad is BadValues.NULL:
        return value
    missing = "NULL"
    if name in part.required:
        is_there = f"{duckdb_name(part.name)} IS NOT NULL"
        why = _error(part, topic, duckdb_text(f"field {name} is null, but declared not null"))
        missing = f"CASE WHEN {is_there} THEN {why} END"
    shown, hint = f"substr({raw}::VARCHAR, 1, 80)", f", not {_named(kind)}"
    if part.is_sampled:
        hint += " as in the sampled records; declare its type with --schema"
    why = f"{duckdb_text(f'field {name} is ')} || {shown} || {duckdb_text(hint)}"
    return (
        f"CASE WHEN {raw} IS NULL THEN {missing} "
        f"ELSE coalesce({value}, {_error(part, topic, why)}) END"
    )


def _named(kind: str) -> str:
    return "an integer" if kind == "BIGINT" else kind.lower()


def _hidden(part: Part) -> str:
    return f"ottla {part.name} fields"


def _text(part: Part, topic: str, bad: BadValues) -> str:
    """Return an expression for the text of a key or value."""
    column = duckdb_name(part.name)
    if part.skipped:
        column = f"{column}[{part.skipped + 1}:]"
    if bad is BadValues.NULL:
        return f"try(decode({column}))"
    name = duckdb_name(part.name)
    return (
        f"CASE WHEN {name} IS NULL THEN NULL ELSE coalesce(try(decode({column})), "
        f"{_error(part, topic, duckdb_text(f'the {part.name} is not UTF-8'))}) END"
    )


def _parsed(part: Part, topic: str, bad: BadValues) -> str:
    """Return an expression for the fields of a JSON object, as a struct of their JSON texts."""
    structure = {field: "JSON" for field, _ in part.fields}
    text = _text(part, topic, BadValues.NULL)  # try() cannot contain error()
    parsed = f"try(json_transform({text}, {duckdb_text(json.dumps(structure))}))"
    if bad is BadValues.NULL:
        return parsed
    is_object = (
        f"CASE WHEN starts_with({text}, '{{') THEN true "
        f"ELSE starts_with(ltrim({text}, {_BLANKS}), '{{') END"
    )
    other, bad_text = f"the {part.name} is JSON, but not an object", f"the {part.name} is not JSON"
    why = f"CASE WHEN json_valid({text}) THEN {duckdb_text(other)} ELSE {duckdb_text(bad_text)} END"
    return (
        f"CASE WHEN {duckdb_name(part.name)} IS NULL THEN NULL ELSE "
        f"coalesce(CASE WHEN {is_object} THEN {parsed} END, {_error(part, topic, why)}) END"
    )


def _error(part: Part, topic: str, reason: str) -> str:
    """Return an expression that fails and names the record. ``reason`` is an expression."""
    at = f"{duckdb_text(topic)} || '-' || \"partition\" || ' at offset ' || \"offset\""
    return f"error({at} || ': ' || {reason})"


def sampled_fields(structure: str) -> tuple[tuple[str, str], ...] | None:
    """Return the fields of JSON's ``json_group_structure``; None if the values are no objects.

    Of names that differ in their case only, the first is a column; the others are in ``value``.
    """
    found = json.loads(structure)
    if not isinstance(found, Mapping) or not found:
        return None
    fields: dict[str, tuple[str, str]] = {}
    for name, kind in found.items():
        # DuckDB's names differ by more than their case, are not empty and have no NUL.
        if name and "\0" not in name and len(fields) < SAMPLED_FIELDS_MAX:
            fields.setdefault(name.lower(), (name, _sampled_type(kind)))
    return tuple(fields.values()) or None


def _sampled_type(kind: object) -> str:
    if isinstance(kind, str):
        if kind in _INTEGERS:
            return "BIGINT"
        return "VARCHAR" if kind == "NULL" else kind
    return json.dumps(_nested_type(kind))


def _nested_type(kind: object) -> object:
    if isinstance(kind, str):
        return _sampled_type(kind)
    if isinstance(kind, Mapping):
        return {name: _nested_type(each) for name, each in kind.items()}
    assert isinstance(kind, Sequence)
    return [_nested_type(each) for each in kind]


# -- formats that are read here: columns of the scan ------------------------------------


class DecodedColumns:
    """The columns that `Values` of keys or values give, and ``<source>_error``."""

    def __init__(self, source: str, values: Values, bad: BadValues) -> None:
        self.source = source
        self.needs = {source, "offset", *(("headers",) if values.is_framed else ())}
        """The columns of the source that are read."""
        self._values = values
        self._bad = bad
        self._fields = {column_of(source, each.name): each for each in values.columns}
        fields = [pa.field(name, each.type) for name, each in self._fields.items()]
        self.columns = pa.schema([*fields, pa.field(f"{source}_error", pa.string())])

    def decode(self, batch: pa.RecordBatch, at: TopicPartition, names: set[str]) -> list[pa.Array]:
        """Return some of the columns.

        Raises:
            ValueError: a value is bad, and the query is to fail; names the record.
        """
        headers = batch.column("headers") if self._values.is_framed else None
        data = framed_column(self.source, batch.column(self.source), headers)
        rows, reasons = decode_all(data, self._values.decode)
        self._reject(batch, at, reasons)
        arrays = []
        for name, field in self._fields.items():
            if name in names:
                data = [None if row is None else row.get(field.name) for row in rows]
                arrays.append(as_column(data, field.type, reasons, f"field {field.name}: "))
                self._reject(batch, at, reasons)
        if f"{self.source}_error" in names:
            arrays.append(pa.array(reasons, pa.string()))
        return arrays

    def _reject(
        self, batch: pa.RecordBatch, at: TopicPartition, reasons: Sequence[str | None]
    ) -> None:
        if self._bad is not BadValues.FAIL:
            return
        for index, reason in enumerate(reasons):
            if reason is not None:
                offset = batch.column("offset")[index].as_py()
                raise ValueError(f"{at} at offset {offset}: the {self.source} is {_said(reason)}")


def _said(reason: str) -> str:
    return reason if reason.startswith("not ") else f"bad: {reason}"
