"""Decides how the keys and values of each topic of a query are read.

A format is declared for one topic, or for all; otherwise (``auto``) some of the newest records are
sampled: values that name a schema of the registry (`formats.wire_format`) are read by that schema;
objects of JSON are read as JSON, other UTF-8 as text, anything else as bytes. The registry is the
declared one, or that of the cluster; the brokers are asked for it when a sample needs it.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import duckdb
import msgspec
import pyarrow as pa

from ottla.client.offset_spec import Range
from ottla.formats.record_values import (
    BadFormatOption,
    BadValues,
    Format,
    PartOptions,
    Values,
    file_values,
    framed_column,
    libraries_for,
)
from ottla.formats.registry_client import (
    RegistryFailed,
    RegistrySettings,
    UnknownSchema,
    registry_for,
)
from ottla.formats.schema_bounds import BadSchema
from ottla.formats.wire_format import is_framed
from ottla.sql.scan import TopicTable
from ottla.sql.value_columns import DecodedColumns, Part, sampled_fields

SAMPLE_RECORDS: Final = 1000
_SAMPLE_PARTITIONS: Final = 8


class TopicSpec(msgspec.Struct, frozen=True):
    """How one topic is read."""

    key: Part
    value: Part
    decoders: tuple[DecodedColumns, ...]


class TopicFormats(msgspec.Struct, frozen=True):
    """The declared formats by topic; None: all other topics."""

    keys: Mapping[str | None, PartOptions]
    values: Mapping[str | None, PartOptions]
    bad: BadValues = BadValues.FAIL
    registry: RegistrySettings | None = None
    """The registry that the user gave."""
    cluster: RegistrySettings | None = None
    """Otherwise: the one that the brokers publish."""

    def of(
        self,
        topic: str,
        table: TopicTable,
        db: duckdb.DuckDBPyConnection,
        note: Callable[[str], None],
    ) -> TopicSpec:
        """Return how a topic is read; sample ``table`` where that is not declared.

        Raises:
            BadFormatOption: a schema is missing or cannot be used. RegistryFailed: the registry
                does not answer.
        """
        decoders: list[DecodedColumns] = []
        parts = {}
        for name, declared in (("key", self.keys), ("value", self.values)):
            options = declared.get(topic) or declared.get(None) or PartOptions()
            values = self._values(topic, name, options, table, note)
            if values is None:
                parts[name] = _sampled(name, options, topic, table, db, note)
                continue
            decoder = DecodedColumns(name, values, self.bad)
            fields = tuple((each, "") for each in decoder.columns.names)
            parts[name] = Part(name, Format.RAW, fields)
            decoders.append(decoder)
        return TopicSpec(parts["key"], parts["value"], tuple(decoders))

    def _values(
        self,
        topic: str,
        name: str,
        options: PartOptions,
        table: TopicTable,
        note: Callable[[str], None],
    ) -> Values | None:
        """Return the decoder of Avro, Protobuf or a registry's schema; None: DuckDB decodes."""
        has_schema = options.schema is not None or options.schema_file is not None
        is_plain = options.format in (Format.RAW, Format.TEXT)
        is_declared = options.format in (Format.AVRO, Format.PROTOBUF)
        registry = self.registry or self.cluster
        if registry is None or has_schema or is_plain:
            return file_values(topic, name, options, read_file) if is_declared else None
        sample = list(itertools.islice(_framed_records(table, name), SAMPLE_RECORDS))
        framed = [each for each in sample if is_framed(each)]
        if not is_declared and (not framed or len(framed) < len(sample)):
            return None
        with libraries_for(f"{topic}: {name}s"):
            from ottla.formats.registry_values import subject_values
        try:
            found = subject_values(registry, f"{topic}-{name}", next(iter(framed), None))
        except (UnknownSchema, BadSchema) as error:
            raise BadFormatOption(f"{topic}: {name}s: {error}") from error
        except RegistryFailed as error:
            if self.registry is not None or is_declared:
                raise
            note(f"{topic}: {name}s look like those of a schema registry, but {error}")
            return None
        urls = ", ".join(registry_for(registry).urls)
        note(f"{topic}: {name}s have schemas of {urls}; columns are those of the newest")
        return found


def read_file(name: str) -> bytes:
    """Return the content of a file."""
    return Path(name).read_bytes()


# -- formats that DuckDB reads --------------------------------------------------


def _sampled(
    name: str,
    options: PartOptions,
    topic: str,
    table: TopicTable,
    db: duckdb.DuckDBPyConnection,
    note: Callable[[str], None],
) -> Part:
    if options.schema is not None:
        if options.format not in (Format.JSON, Format.AUTO):
            raise BadFormatOption(f"--schema does not apply to {options.format}")
        return declared_part(name, options.schema)
    if options.format in (Format.RAW, Format.TEXT):
        return Part(name, options.format)
    sample = list(itertools.islice(_records(table, name), SAMPLE_RECORDS))
    is_forced = options.format is Format.JSON
    # Keys are single words or numbers as a rule: their fields are shown on request only.
    fields = None
    if is_forced:
        fields = _fields_of([each for each in sample if _is_json(each)], db)
    elif name == "value":
        fields = _fields_of(sample, db)
    if fields is not None:
        if not is_forced:
            note(
                f"{topic}: {name}s are JSON; {len(fields)} columns from {len(sample)} records"
                " (--schema declares them)"
            )
        return Part(name, Format.JSON, fields, is_sampled=True)
    if is_forced:
        return Part(name, Format.JSON)
    return Part(name, Format.TEXT if all(map(_is_text, sample)) else Format.RAW)


def _records(table: TopicTable, name: str) -> Iterator[bytes]:
    """Yield some of the newest keys or values, from several partitions."""
    for batch in table.sample(_newest(table), [name]):
        for each in batch.column(name).to_pylist():
            if each is not None:
                yield each


def _framed_records(table: TopicTable, name: str) -> Iterator[bytes]:
    """Yield the same, each after the header of its record that names a schema."""
    for batch in table.sample(_newest(table), [name, "headers"]):
        for each in framed_column(name, batch.column(name), batch.column("headers")):
            if each is not None:
                yield each


def _newest(table: TopicTable) -> list[Range]:
    whole = [each for each in table.ranges if each.size][:_SAMPLE_PARTITIONS]
    share = -(-SAMPLE_RECORDS // max(len(whole), 1))
    return [
        msgspec.structs.replace(each, start=max(each.start, each.end - share)) for each in whole
    ]


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_json(value: bytes) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


def _fields_of(
    sample: list[bytes], db: duckdb.DuckDBPyConnection
) -> tuple[tuple[str, str], ...] | None:
    """Return the fields of sampled JSON objects; None if some are not objects of JSON."""
    if not sample or not all(map(_is_text, sample)):
        return None
    if not all(each.lstrip()[:1] == b"{" for each in sample):
        return None
    rows = pa.table({"v": pa.array([each.decode() for each in sample], pa.string())})
    db.register("ottla sample", rows)
    try:
        found = db.execute('SELECT json_group_structure(v::JSON) FROM "ottla sample"').fetchall()
    except duckdb.Error:
        return None
    finally:
        db.unregister("ottla sample")
    return sampled_fields(found[0][0])


def declared_part(name: str, schema: str) -> Part:
    """Return keys or values in JSON with columns such as ``id bigint not null, amount double``.

    Raises:
        BadFormatOption: it is no list of columns.
    """
    with duckdb.connect(":memory:") as scratch:
        try:
            scratch.execute(f"CREATE TABLE declared ({schema})")
        except duckdb.Error as error:
            raise BadFormatOption(f"--schema {schema!r}: {error}") from error
        columns = scratch.execute("DESCRIBE declared").fetchall()
    required = frozenset(each[0] for each in columns if each[2] == "NO")
    fields = tuple((each[0], each[1]) for each in columns)
    return Part(name, Format.JSON, fields, required=required)
