"""A topic that becomes a table, as it is declared. Pure.

In YAML, or as the same keys of a dictionary::

    topic: orders
    bootstrap: localhost:9092
    value: {format: json, schema: "id bigint, amount double, at timestamp"}
    table: {path: tables/orders, partition_by: [day]}
    columns: {day: "cast(at as date)"}      # more columns, as SQL of those before them
    required: [id]                          # a row without one goes to the dead letters
    dead_letters: orders-dead               # a topic; without it a bad record stops the job
    checkpoint: tables/_checkpoints/orders  # beside the table unless said otherwise
    trigger: available-now                  # or an interval: 10 seconds
    source: {startingOffsets: earliest}     # any option of format("ottla")

``value.format`` is ``raw`` (columns as the source has them), ``json`` with a schema, or ``avro`` or
``protobuf`` with a ``schema_file``. Nothing is guessed: a key that is not known, or a combination
without meaning, is a `BadJob` that names it.
"""

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

BATCH_COLUMN: Final = "ottla_batch"
"""Which micro-batch wrote a row: the last partition column of every table."""
REASON_COLUMN: Final = "ottla_reason"
DEFAULT_COMPACT_FILES: Final = 64


class BadJob(ValueError):
    """A declaration that makes no sense, and where."""


class ValueFormat(enum.Enum):
    """What the bytes of a record's value are."""

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class TableFormat(enum.Enum):
    """What a table is kept in. All but parquet need their jar on the session."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class ValueSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a value is read. ``framed``: five bytes of a schema registry stand before it."""

    format: ValueFormat = ValueFormat.RAW
    schema: str | None = None
    schema_file: str | None = None
    message: str | None = None
    framed: bool = False


class TableSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the rows go. ``name`` is of a catalog's table, for Iceberg and Delta."""

    path: str | None = None
    name: str | None = None
    format: TableFormat = TableFormat.PARQUET
    partition_by: tuple[str, ...] = ()
    compact_files: int = DEFAULT_COMPACT_FILES


class TableJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One topic and its table. Every file name is as declared, relative to whoever runs it."""

    topic: str
    table: TableSpec
    bootstrap: str = "localhost:9092"
    value: ValueSpec = msgspec.field(default_factory=ValueSpec)
    columns: dict[str, str] = msgspec.field(default_factory=dict)
    required: tuple[str, ...] = ()
    dead_letters: str | None = None
    checkpoint: str | None = None
    trigger: str = "available-now"
    source: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def checkpoint_path(self) -> str:
        """Where the stream keeps its offsets."""
        if self.checkpoint is not None:
            return self.checkpoint
        assert self.table.path is not None, "a job without a path has a checkpoint"
        above, slash, name = self.table.path.rstrip("/").rpartition("/")
        return f"{above}{slash}_checkpoints/{name}"

    @property
    def source_options(self) -> dict[str, str]:
        """The options of the source, from the beginning of the topic unless said otherwise."""
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            **self.source,
        }


def parse_job(declared: object) -> TableJob:
    """Read a declaration.

    Raises:
        BadJob: a key is not known, missing, or contradicts another.
    """
    if not isinstance(declared, Mapping):
        raise BadJob("a table is declared by keys and values, topic and table among them")
    try:
        job = msgspec.convert(_texts(declared), TableJob, strict=True)
    except msgspec.ValidationError as error:
        raise BadJob(str(error)) from None
    _check_value(job.value)
    _check_table(job)
    return job


def _texts(declared: Mapping[object, object]) -> dict[object, object]:
    """Write the source's options as texts: YAML makes numbers and flags of some."""
    source = declared.get("source")
    if not isinstance(source, Mapping):
        return dict(declared)
    options = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in source.items()
    }
    return {**declared, "source": options}


def _check_value(value: ValueSpec) -> None:
    name = value.format.value
    needs_file = value.format in (ValueFormat.AVRO, ValueFormat.PROTOBUF)
    if value.format is ValueFormat.JSON and not value.schema:
        raise BadJob("value.format json needs value.schema, e.g. 'id bigint, amount double'")
    if needs_file and not value.schema_file:
        raise BadJob(f"value.format {name} needs value.schema_file")
    if value.format is ValueFormat.PROTOBUF and not value.message:
        raise BadJob("value.format protobuf needs value.message, the name of the message")
    if value.format is not ValueFormat.JSON and value.schema:
        raise BadJob(f"value.schema means nothing for value.format {name}")
    if not needs_file and (value.schema_file or value.framed):
        raise BadJob(f"value.schema_file and value.framed mean nothing for value.format {name}")
    if value.format is not ValueFormat.PROTOBUF and value.message:
        raise BadJob(f"value.message means nothing for value.format {name}")


def _check_table(job: TableJob) -> None:
    table = job.table
    if table.format is TableFormat.ICEBERG and table.name is None:
        raise BadJob("table.format iceberg needs table.name, as the catalog has it")
    if table.format is not TableFormat.ICEBERG and table.path is None:
        raise BadJob("table.path is missing")
    if table.path is None and job.checkpoint is None:
        raise BadJob("checkpoint is missing: there is no table.path to put it beside")
    if table.compact_files < 2:
        raise BadJob("table.compact_files must be 2 or more: the small files that become one")
    if job.dead_letters == job.topic:
        raise BadJob("dead_letters is the topic itself: bad records would come back for ever")
    reserved = {BATCH_COLUMN, REASON_COLUMN} & {*job.columns, *table.partition_by}
    if reserved:
        raise BadJob(f"column {min(reserved)} is kept for the table itself")
    if unknown := sorted({"subscribePattern", "assign", "subscribe"} & job.source.keys()):
        raise BadJob(f"source.{unknown[0]}: the job's topic says what is read")
