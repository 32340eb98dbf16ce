"""Declarations of tables: defaults, and errors of invalid ones."""

import pytest

from ottla.pipeline.table_job import BadJob, TableFormat, ValueFormat, parse_job

WHOLE = {"topic": "orders", "table": {"path": "tables/orders"}}


def test_omitted_keys_have_defaults():
    job = parse_job(WHOLE)
    assert job.value.format is ValueFormat.RAW
    assert job.table.format is TableFormat.PARQUET
    assert job.checkpoint_path == "tables/_checkpoints/orders"
    assert job.source_options == {
        "kafka.bootstrap.servers": "localhost:9092",
        "subscribe": "orders",
        "startingOffsets": "earliest",
    }


def test_source_options_are_strings_and_override_defaults():
    source = {"maxOffsetsPerTrigger": 500, "failOnDataLoss": False, "startingOffsets": "latest"}
    job = parse_job({**WHOLE, "source": source})
    assert job.source_options["maxOffsetsPerTrigger"] == "500"
    assert job.source_options["failOnDataLoss"] == "false"
    assert job.source_options["startingOffsets"] == "latest"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"topic": None}, "topic"),
        ({"tabel": {}}, "tabel"),
        ({"table": {"path": "x", "partitions": []}}, "partitions"),
        ({"table": {"path": "x", "format": "orc"}}, "orc"),
        ({"table": {}}, r"table\.path is missing"),
        ({"table": {"format": "iceberg", "path": "x"}}, r"table\.name"),
        ({"table": {"format": "iceberg", "name": "db.t"}}, "checkpoint is missing"),
        ({"table": {"path": "x", "compact_files": 1}}, "compact_files"),
        ({"value": {"format": "json"}}, r"needs value\.schema"),
        ({"value": {"format": "avro"}}, r"avro needs value\.schema_file"),
        ({"value": {"format": "protobuf", "schema_file": "x"}}, r"needs value\.message"),
        ({"value": {"format": "raw", "schema": "a int"}}, "does not apply"),
        ({"value": {"format": "json", "schema": "a int", "framed": True}}, "do not apply"),
        ({"value": {"format": "avro", "schema_file": "x", "message": "M"}}, "does not apply"),
        ({"dead_letters": "orders"}, "read again for ever"),
        ({"columns": {"ottla_batch": "1"}}, "ottla_batch is reserved"),
        ({"source": {"assign": "{}"}}, r"source\.assign"),
    ],
)
def test_invalid_declaration_error_names_the_key(changed, message):
    with pytest.raises(BadJob, match=message):
        parse_job({**WHOLE, **changed})


def test_declaration_must_be_a_mapping():
    with pytest.raises(BadJob, match="must be a mapping"):
        parse_job(["orders"])
