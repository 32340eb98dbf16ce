"""Encodes columns of structs as Avro, JSON or Protobuf, with schemas of a registry.

The schema is ``valueSchema``, or made from the column: every field may be null. Tasks register it
with their first row; the registry gives the same id for the same schema.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ottla.formats.registry_writer import RegistryWriter, avro_schema_of, json_schema_of
from ottla.formats.schema_bounds import BadSchema
from ottla.formats.subjects import Encoding
from ottla.spark.options import PartEncoding, SinkEncoding
from ottla.spark.rows import BadRow


def encode_batches(
    batches: Iterable[pa.RecordBatch], encoding: SinkEncoding | None, topic: str | None
) -> Iterator[pa.RecordBatch]:
    """Replace the columns that have a format by their bytes.

    Raises:
        BadRow: a row does not fit its schema. RegistryFailed: the registry does not answer, or
            rejects a schema.
    """
    if encoding is None:
        yield from batches
        return
    writers: dict[tuple[str, str], RegistryWriter] = {}
    for batch in batches:
        made = batch
        for name, part in encoding.parts.items():
            if name in batch.schema.names:
                index = batch.schema.get_field_index(name)
                column = _encoded(batch, name, part, encoding, topic, writers)
                made = made.set_column(index, pa.field(name, pa.binary()), column)
        yield made


def part_writer(
    kind: pa.DataType, name: str, part: PartEncoding, encoding: SinkEncoding, topic: str
) -> RegistryWriter:
    """Return the writer of one column. Raises BadRow if its type cannot be written."""
    record = f"{topic}_{name}"
    try:
        text, descriptors = part.schema, None
        if text is None and part.encoding is Encoding.PROTOBUF:
            from ottla.formats.protobuf_writer import message_of

            declared = message_of(kind, record)
            text, descriptors = declared.text, declared.descriptors
        elif text is None:
            made = avro_schema_of if part.encoding is Encoding.AVRO else json_schema_of
            text = made(kind, record)
        return RegistryWriter(
            encoding.registry, part.encoding, encoding.strategy, name, text, descriptors
        )
    except BadSchema as error:
        raise BadRow(f"column {name!r}: {error}") from error


def _encoded(
    batch: pa.RecordBatch,
    name: str,
    part: PartEncoding,
    encoding: SinkEncoding,
    topic: str | None,
    writers: dict[tuple[str, str], RegistryWriter],
) -> pa.Array:
    column = batch.column(name)
    topics = None if topic is not None else batch.column("topic").to_pylist()
    rows: list[bytes | None] = []
    for index, datum in enumerate(column.to_pylist(maps_as_pydicts="strict")):
        where = topic if topics is None else topics[index]
        if datum is None or where is None:
            rows.append(None)
            continue
        writer = writers.get((where, name))
        if writer is None:
            writer = part_writer(column.type, name, part, encoding, where)
            writers[where, name] = writer
        try:
            rows.append(writer.encode(where, datum))
        except ValueError as error:  # BadSchema, too
            raise BadRow(f"column {name!r}: {error}") from error
    return pa.array(rows, pa.binary())
