"""Schemas that record headers name, in the decoders of Spark's source and of tables."""

import io
import json
from collections.abc import Iterator

import fastavro
import pyarrow as pa
import pytest
from registry_server import RegistryServer, run_registry

from ottla.formats.arrow_batches import TYPES
from ottla.formats.registry_client import RegistrySettings
from ottla.formats.registry_values import subject_values
from ottla.formats.wire_format import framed, guid_frame
from ottla.protocol.types import TopicPartition
from ottla.spark.options import Decoding
from ottla.spark.source_decoding import SourceDecoder
from ottla.tables.job import HEADERS_COLUMN
from ottla.tables.value_decoding import decode_batch, decode_keys

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
AT = TopicPartition("orders", 0)


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with run_registry() as server:
        yield server


def avro(schema: object, datum: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return out.getvalue()


def batch_of(number: int, key: int) -> pa.RecordBatch:
    """Three records: schemas in headers, ids before key and value, and a null value."""
    guid = [guid_frame(f"00000000-0000-0000-0000-{each:012x}") for each in (number, key)]
    named = [
        {"key": "own", "value": b"1"},
        {"key": "__key_schema_id", "value": guid[1]},
        {"key": "__value_schema_id", "value": guid[0]},
    ]
    columns = {
        "key": pa.array([avro("long", 7), framed(key, avro("long", 8)), None], pa.binary()),
        "value": pa.array(
            [avro(ORDER, {"id": 1}), framed(number, avro(ORDER, {"id": 2})), None], pa.binary()
        ),
        "offset": pa.array([0, 1, 2], pa.int64()),
        "headers": pa.array([named, None, named], TYPES["headers"]),
    }
    return pa.RecordBatch.from_pydict(columns)


def test_source_of_spark_reads_ids_and_headers(registry: RegistryServer) -> None:
    number = registry.add("orders-value", json.dumps(ORDER))
    key = registry.add("orders-key", '"long"')
    settings = RegistrySettings((registry.url,))
    decoder = SourceDecoder(Decoding(settings, {"key": None, "value": None}, False))
    assert decoder.columns(("value",)) == ("value", "offset", "headers")
    schema = pa.schema([("key", pa.int64()), ("value", pa.struct([("id", pa.int64())]))])
    rows = decoder.decode(batch_of(number, key), AT, schema).to_pydict()
    assert rows == {"key": [7, 8, None], "value": [{"id": 1}, {"id": 2}, None]}


@pytest.mark.parametrize("name", ["headers", HEADERS_COLUMN])
def test_tables_read_ids_and_headers(registry: RegistryServer, name: str) -> None:
    number = registry.add("orders-value", json.dumps(ORDER))
    key = registry.add("orders-key", '"long"')
    settings = RegistrySettings((registry.url,))
    batch = batch_of(number, key)
    batch = batch.rename_columns([*batch.schema.names[:-1], name])
    rows = decode_batch(batch, subject_values(settings, "orders-value")).to_pydict()
    assert rows["id"] == [1, 2, None]
    assert rows["ottla_reason"] == [None, None, "the value is null"]
    keys = decode_keys(batch, subject_values(settings, "orders-key")).to_pydict()
    assert [each and each["value"] for each in keys["record_key"]] == [7, 8, None]
