"""Declarations of tables: defaults, and errors of invalid ones."""

import pytest

from ottla.tables.job import BadJob, TableFormat, ValueFormat, parse_job

DELTA = {"format": "delta", "path": "x"}
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
        ({"columns": {"ottla_op": "1"}}, "ottla_op is reserved"),
        ({"mode": "replace"}, "replace"),
        ({"mode": "latest"}, "mode latest needs table.format delta or iceberg"),
        ({"mode": "upsert", "table": DELTA}, "mode upsert needs key"),
        ({"key": ["id"]}, "key does not apply to mode append"),
        ({"misfits": "dead-letters"}, "needs dead_letters"),
        ({"maintenance": {"every": "often"}}, r"maintenance\.every: 'often'"),
        ({"table": {"path": "x", "warehouse": "y"}}, r"table\.warehouse does not apply"),
        ({"value": {"format": "debezium"}}, r"debezium needs value\.schema"),
    ],
)
def test_invalid_declaration_error_names_the_key(changed, message):
    with pytest.raises(BadJob, match=message):
        parse_job({**WHOLE, **changed})


def test_declaration_must_be_a_mapping():
    with pytest.raises(BadJob, match="must be a mapping"):
        parse_job(["orders"])


def test_key_of_a_table_is_declared_or_that_of_the_record():
    latest = parse_job({**WHOLE, "table": DELTA, "mode": "latest"})
    assert latest.key_columns == ("key",)
    assert latest.deletes_by_tombstone
    named = parse_job({**WHOLE, "table": DELTA, "mode": "upsert", "key": ["id"]})
    assert named.key_columns == ("id",)
    assert not named.deletes_by_tombstone
    computed = parse_job({**WHOLE, "table": DELTA, "mode": "upsert", "key": {"id": "1"}})
    assert computed.key_expressions == {"id": "1"}
    assert computed.deletes_by_tombstone


def test_headers_are_read_for_dead_letters():
    assert "includeHeaders" not in parse_job(WHOLE).source_options
    assert parse_job({**WHOLE, "dead_letters": "dead"}).source_options["includeHeaders"] == "true"
