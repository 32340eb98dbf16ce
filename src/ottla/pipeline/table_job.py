"""The declaration of a table that is filled from a topic. Pure.

In YAML, or as the same keys of a dictionary::

    topic: orders
    bootstrap: localhost:9092
    value: {format: json, schema: "id bigint, amount double, at timestamp"}
    table: {path: tables/orders, partition_by: [day]}
    columns: {day: "cast(at as date)"}      # computed columns, SQL over those before them
    required: [id]                          # a row where one is null is a dead letter
    dead_letters: orders-dead               # a topic; without it a bad record fails the job
    checkpoint: tables/_checkpoints/orders  # default: beside the table
    trigger: available-now                  # or an interval: 10 seconds
    source: {startingOffsets: earliest}     # any option of format("ottla")

``value.format`` is ``raw`` (the columns of the source), ``json`` with a schema, or ``avro`` or
``protobuf`` with a ``schema_file``. Unknown keys and invalid combinations are
rejected with a `BadJob` that names them.
"""

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from ottla.client.client_security import is_security_key

BATCH_COLUMN: Final = "ottla_batch"
"""The micro-batch that wrote a row; the last partition column of every table."""
REASON_COLUMN: Final = "ottla_reason"
DEFAULT_COMPACT_FILES: Final = 64


class BadJob(ValueError):
    """An invalid declaration; the message names the place."""


class ValueFormat(enum.Enum):
    """The format of a record's value."""

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class TableFormat(enum.Enum):
    """The format of a table. All but parquet need their jar in the session."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class ValueSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a value is decoded. ``framed``: it begins with the five bytes of a schema registry."""

    format: ValueFormat = ValueFormat.RAW
    schema: str | None = None
    schema_file: str | None = None
    message: str | None = None
    framed: bool = False


class TableSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The target table. ``name`` is its name in a catalog, for Iceberg and Delta."""

    path: str | None = None
    name: str | None = None
    format: TableFormat = TableFormat.PARQUET
    partition_by: tuple[str, ...] = ()
    compact_files: int = DEFAULT_COMPACT_FILES


class TableJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One topic and its table. Relative file names are relative to the working directory."""

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
        """The checkpoint directory of the stream."""
        if self.checkpoint is not None:
            return self.checkpoint
        assert self.table.path is not None, "a job without a path has a checkpoint"
        above, slash, name = self.table.path.rstrip("/").rpartition("/")
        return f"{above}{slash}_checkpoints/{name}"

    @property
    def source_options(self) -> dict[str, str]:
        """The options of the source; by default from the start of the topic."""
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            **self.source,
        }

    @property
    def security_options(self) -> dict[str, str]:
        """The options of the source about security; the dead-letter topic is written with them."""
        return {
            key: value
            for key, value in self.source.items()
            if key.startswith("kafka.") and is_security_key(key.removeprefix("kafka."))
        }

    def __repr__(self) -> str:
        # Passwords may be among the source's options, and errors are printed: names only.
        return f"TableJob({self.topic}, {self.table}, source={sorted(self.source)})"


def parse_job(declared: object) -> TableJob:
    """Read a declaration.

    Raises:
        BadJob: a key is unknown, missing, or contradicts another.
    """
    if not isinstance(declared, Mapping):
        raise BadJob("a declaration must be a mapping with the keys topic and table")
    try:
        job = msgspec.convert(_texts(declared), TableJob, strict=True)
    except msgspec.ValidationError as error:
        raise BadJob(str(error)) from None
    _check_value(job.value)
    _check_table(job)
    return job


def _texts(declared: Mapping[object, object]) -> dict[object, object]:
    """Convert the source's options to strings: YAML parses some as numbers and booleans."""
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
        raise BadJob(f"value.schema does not apply to value.format {name}")
    if not needs_file and (value.schema_file or value.framed):
        raise BadJob(f"value.schema_file and value.framed do not apply to value.format {name}")
    if value.format is not ValueFormat.PROTOBUF and value.message:
        raise BadJob(f"value.message does not apply to value.format {name}")


def _check_table(job: TableJob) -> None:
    table = job.table
    if table.format is TableFormat.ICEBERG and table.name is None:
        raise BadJob("table.format iceberg needs table.name, its name in the catalog")
    if table.format is not TableFormat.ICEBERG and table.path is None:
        raise BadJob("table.path is missing")
    if table.path is None and job.checkpoint is None:
        raise BadJob("checkpoint is missing: there is no table.path to put it beside")
    if table.compact_files < 2:
        raise BadJob("table.compact_files must be at least 2, the number of small files to merge")
    if job.dead_letters == job.topic:
        raise BadJob("dead_letters must be another topic: bad records would be read again for ever")
    reserved = {BATCH_COLUMN, REASON_COLUMN} & {*job.columns, *table.partition_by}
    if reserved:
        raise BadJob(f"column {min(reserved)} is reserved")
    if unknown := sorted({"subscribePattern", "assign", "subscribe"} & job.source.keys()):
        raise BadJob(f"source.{unknown[0]}: not allowed, the job's topic selects what is read")
