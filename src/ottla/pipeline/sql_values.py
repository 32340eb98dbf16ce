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
does not fit its format fails the query, or (``Bad.NULL``) its columns are null.
"""

import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from ottla.pipeline.sql_json import converted
from ottla.pipeline.sql_scan import SOURCE_COLUMNS
from ottla.protocol.types import TopicPartition

VIEW_COLUMNS: Final = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
)  # fmt: skip
_TAKEN: Final = frozenset(each.lower() for each in SOURCE_COLUMNS)
SAMPLED_FIELDS_MAX: Final = 2000
"""Columns that are made of sampled records; other fields are in ``value``."""
_BLANKS: Final = "' ' || chr(9) || chr(10) || chr(13)"
_INTEGERS: Final = frozenset({"UBIGINT", "BIGINT", "HUGEINT", "UHUGEINT"})


class Format(enum.StrEnum):
    """How a key or a value is read."""

    AUTO = "auto"
    RAW = "raw"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Bad(enum.StrEnum):
    """What happens with a key or value that does not fit its format."""

    FAIL = "fail"
    NULL = "null"


class Values(Protocol):
    """Decodes the values of one schema."""

    @property
    def columns(self) -> pa.Schema:
        """The fields."""
        ...

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return the fields of a value. Raises ValueError."""
        ...


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


def quoted(name: str) -> str:
    """Return an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a string of SQL."""
    return "'" + text.replace("'", "''") + "'"


def view_of(table: str, topic: str, key: Part, value: Part, bad: Bad) -> str:
    """Return the query of the view that shows a topic's table."""
    inner, shown = ["*"], []
    for part in (key, value):
        if part.format is Format.JSON and part.fields:
            inner.append(f"{_parsed(part, topic, bad)} AS {quoted(_hidden(part))}")
    parts = {part.name: part for part in (key, value) if part.format in (Format.TEXT, Format.JSON)}
    for name in VIEW_COLUMNS:
        text = f"{_text(parts[name], topic, bad)} AS " if name in parts else ""
        shown.append(f"{text}{quoted(name)}")
    for part in (key, value):
        shown += _fields(part, topic, bad)
    return f"SELECT {', '.join(shown)} FROM (SELECT {', '.join(inner)} FROM {quoted(table)})"  # noqa: S608


def _fields(part: Part, topic: str, bad: Bad) -> list[str]:
    if part.format is not Format.JSON:
        return [quoted(each) for each, _ in part.fields]
    parsed = quoted(_hidden(part))
    return [
        f"{_field(f'{parsed}.{quoted(field)}', part, (field, kind), topic, bad)} AS "
        f"{quoted(column_of(part.name, field))}"
        for field, kind in part.fields
    ]


def _field(raw: str, part: Part, field: tuple[str, str], topic: str, bad: Bad) -> str:
    """Return an expression for a field of JSON; one that does not fit fails, or is null."""
    name, kind = field
    value = converted(raw, kind)
    if bad is Bad.NULL:
        return value
    missing = "NULL"
    if name in part.required:
        is_there = f"{quoted(part.name)} IS NOT NULL"
        why = _error(part, topic, literal(f"field {name} is null, but declared not null"))
        missing = f"CASE WHEN {is_there} THEN {why} END"
    shown, hint = f"substr({raw}::VARCHAR, 1, 80)", f", not {_named(kind)}"
    if part.is_sampled:
        hint += " as in the sampled records; declare its type with --schema"
    why = f"{literal(f'field {name} is ')} || {shown} || {literal(hint)}"
    return (
        f"CASE WHEN {raw} IS NULL THEN {missing} "
        f"ELSE coalesce({value}, {_error(part, topic, why)}) END"
    )


def _named(kind: str) -> str:
    return "an integer" if kind == "BIGINT" else kind.lower()


def _hidden(part: Part) -> str:
    return f"ottla {part.name} fields"


def _text(part: Part, topic: str, bad: Bad) -> str:
    """Return an expression for the text of a key or value."""
    column = quoted(part.name)
    if part.skipped:
        column = f"{column}[{part.skipped + 1}:]"
    if bad is Bad.NULL:
        return f"try(decode({column}))"
    return (
        f"CASE WHEN {quoted(part.name)} IS NULL THEN NULL ELSE coalesce(try(decode({column})), "
        f"{_error(part, topic, literal(f'the {part.name} is not UTF-8'))}) END"
    )


def _parsed(part: Part, topic: str, bad: Bad) -> str:
    """Return an expression for the fields of a JSON object, as a struct of their JSON texts."""
    structure = {field: "JSON" for field, _ in part.fields}
    text = _text(part, topic, Bad.NULL)  # try() cannot contain error()
    parsed = f"try(json_transform({text}, {literal(json.dumps(structure))}))"
    if bad is Bad.NULL:
        return parsed
    is_object = (
        f"CASE WHEN starts_with({text}, '{{') THEN true "
        f"ELSE starts_with(ltrim({text}, {_BLANKS}), '{{') END"
    )
    other, bad_text = f"the {part.name} is JSON, but not an object", f"the {part.name} is not JSON"
    why = f"CASE WHEN json_valid({text}) THEN {literal(other)} ELSE {literal(bad_text)} END"
    return (
        f"CASE WHEN {quoted(part.name)} IS NULL THEN NULL ELSE "
        f"coalesce(CASE WHEN {is_object} THEN {parsed} END, {_error(part, topic, why)}) END"
    )


def _error(part: Part, topic: str, reason: str) -> str:
    """Return an expression that fails and names the record. ``reason`` is an expression."""
    return (
        f"error({literal(topic)} || '-' || \"partition\" || ' at offset ' || \"offset\" || ': ' || "
        f"{reason})"
    )


def sampled_fields(structure: str) -> tuple[tuple[str, str], ...] | None:
    """Return the fields of JSON's ``json_group_structure``; None if the values are no objects.

    Of names that differ in their case only, the first is a column; the others are in ``value``.
    """
    found = json.loads(structure)
    if not isinstance(found, Mapping) or not found:
        return None
    fields: dict[str, tuple[str, str]] = {}
    for name, kind in found.items():
        # DuckDB's names differ by more than their case, and are not empty.
        if name and len(fields) < SAMPLED_FIELDS_MAX:
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

    def __init__(self, source: str, values: Values, bad: Bad) -> None:
        self.source = source
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
        rows: list[dict[str, Any] | None] = []
        reasons: list[str | None] = []
        for index, value in enumerate(batch.column(self.source).to_pylist()):
            row, reason = None, None
            if value is not None:
                try:
                    row = self._values.decode(value)
                except ValueError as error:
                    reason = self._reject(batch, at, index, str(error))
            rows.append(row)
            reasons.append(reason)
        arrays = [
            self._array(name, batch, at, rows, reasons) for name in self._fields if name in names
        ]
        if f"{self.source}_error" in names:
            arrays.append(pa.array(reasons, pa.string()))
        return arrays

    def _array(
        self,
        name: str,
        batch: pa.RecordBatch,
        at: TopicPartition,
        rows: list[dict[str, Any] | None],
        reasons: list[str | None],
    ) -> pa.Array:
        field = self._fields[name]
        found = [None if row is None else row.get(field.name) for row in rows]
        try:
            return pa.array(found, field.type)
        except (ValueError, TypeError, OverflowError, pa.ArrowException):
            pass  # a value fits its schema but not its column: find it
        for index, each in enumerate(found):
            try:
                pa.scalar(each, field.type)
            except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
                reasons[index] = self._reject(batch, at, index, f"field {field.name}: {error}")
                found[index] = None
        return pa.array(found, field.type)

    def _reject(self, batch: pa.RecordBatch, at: TopicPartition, index: int, reason: str) -> str:
        if self._bad is Bad.FAIL:
            offset = batch.column("offset")[index].as_py()
            raise ValueError(f"{at} at offset {offset}: the {self.source} is {_said(reason)}")
        return reason


def _said(reason: str) -> str:
    return reason if reason.startswith("not ") else f"bad: {reason}"
