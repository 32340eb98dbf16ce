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
    mode: append                            # or upsert, latest
    key: {id: "cast(cast(key as string) as bigint)"}  # what identifies a row, for upsert and latest
    misfits: stop                           # or dead-letters: see `schema_change`
    maintenance: {every: 1 hour, expire: 7 days}      # see `maintenance`

    value: {format: avro, registry: {url: "http://localhost:8081"}}  # instead of a schema
    record_key: {format: avro, registry: {url: "http://localhost:8081"}}
    key: {id: record_key.id}                # a field of the decoded key

``value.format`` is ``raw`` (the columns of the source), ``json`` or ``debezium`` with a schema, or
``avro`` or ``protobuf`` with a ``schema_file``; all but ``raw`` also with a ``registry``.
``record_key`` decodes keys into a struct of that name, for the SQL of ``key`` and ``columns``.

Mode ``upsert`` keeps one row per key: a record inserts or replaces the row of its key, a tombstone
(a null value) deletes it. ``key`` maps columns to SQL over the record; a list instead names columns
of the value, which a tombstone does not have. Mode ``latest`` is the same for a compacted topic:
its default key is the key of the record. Unknown keys and invalid combinations are
rejected with a `BadJob` that names them.
"""

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from ottla.client.client_security import is_security_key
from ottla.formats.registry_client import PREFIX, BadRegistrySettings, RegistrySettings
from ottla.formats.sql_names import BadName, table_parts
from ottla.spark.option_values import duration_ms

BATCH_COLUMN: Final = "ottla_batch"
"""The micro-batch that wrote a row; the last partition column of every table."""
REASON_COLUMN: Final = "ottla_reason"
CHANGE_COLUMN: Final = "ottla_change"
"""What a record does to its row; see `Change`. Only inside a micro-batch."""
OP_COLUMN: Final = "ottla_op"
"""The operation of a Debezium event; a column of tables in mode append."""
HEADERS_COLUMN: Final = "ottla_headers"
KEY_COLUMN: Final = "record_key"
"""The decoded key of a record, a struct. Only inside a micro-batch."""
RESERVED_COLUMNS: Final = frozenset(
    {BATCH_COLUMN, REASON_COLUMN, CHANGE_COLUMN, OP_COLUMN, HEADERS_COLUMN, KEY_COLUMN}
)
RECORD_KEY: Final = "key"
DEFAULT_COMPACT_FILES: Final = 64


class BadJob(ValueError):
    """An invalid declaration; the message names the place."""


class ValueFormat(enum.Enum):
    """The format of a record's value."""

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    DEBEZIUM = "debezium"


class TableMode(enum.Enum):
    """What a record does to the table."""

    APPEND = "append"
    UPSERT = "upsert"
    LATEST = "latest"

    @property
    def merges(self) -> bool:
        """Whether the table has one row per key."""
        return self is not TableMode.APPEND


class Change(enum.Enum):
    """What a record does to the row of its key."""

    UPSERT = "upsert"
    DELETE = "delete"
    NONE = "none"


class Misfits(enum.Enum):
    """What to do with values that do not fit the columns of an existing table."""

    STOP = "stop"
    DEAD_LETTERS = "dead-letters"


class TableFormat(enum.Enum):
    """The format of a table. All but parquet need their jar in the session."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class ValueSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a value is decoded. ``framed``: it begins with the id or guid of a schema registry."""

    format: ValueFormat = ValueFormat.RAW
    schema: str | None = None
    schema_file: str | None = None
    message: str | None = None
    framed: bool = False
    registry: dict[str, str] | None = None
    """Settings of a schema registry, without their prefix: ``{url: ...}``. Instead of a file.

    ``{}``: the registry that the brokers of the job publish.
    """
    subject: str | None = None
    """The subject of the reader's schema; default: ``<topic>-value``."""

    def __repr__(self) -> str:
        # Passwords may be among the settings, and errors are printed.
        return f"ValueSpec({self.format.value}, {self.schema_file or self.subject})"


class TableSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The target table. ``name`` is its name in a catalog, for Iceberg and Delta.

    ``warehouse`` is the directory of an Iceberg catalog without a server; the catalog is the first
    part of ``name``.
    """

    path: str | None = None
    name: str | None = None
    warehouse: str | None = None
    format: TableFormat = TableFormat.PARQUET
    partition_by: tuple[str, ...] = ()
    compact_files: int = DEFAULT_COMPACT_FILES


class MaintenanceSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When to compact small files, and how long to keep snapshots and unused files."""

    every: str = "1 hour"
    compact: bool = True
    expire: str | None = "7 days"
    vacuum: str | None = "7 days"


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
    mode: TableMode = TableMode.APPEND
    key: dict[str, str] | tuple[str, ...] = ()
    record_key: ValueSpec | None = None
    misfits: Misfits = Misfits.STOP
    maintenance: MaintenanceSpec | None = None

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that identify a row; empty in mode append."""
        if not self.mode.merges:
            return ()
        return tuple(self.key) or (RECORD_KEY,)

    @property
    def key_expressions(self) -> dict[str, str]:
        """The key columns that are computed from the record, with their SQL."""
        return dict(self.key) if isinstance(self.key, dict) else {}

    @property
    def deletes_by_tombstone(self) -> bool:
        """Whether the key of a record without a value is known."""
        return self.mode.merges and (not self.key or bool(self.key_expressions))

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
            **({"includeHeaders": "true"} if self._needs_headers else {}),
            **self.source,
        }

    @property
    def _needs_headers(self) -> bool:
        """Whether headers are read: dead letters keep them, and they may name schemas."""
        specs = (self.value, self.record_key)
        return self.dead_letters is not None or any(
            spec is not None and (spec.registry is not None or spec.framed) for spec in specs
        )

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
    _check_record_key(job.record_key)
    _check_table(job)
    _check_mode(job)
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
    if value.registry is not None:
        _check_registry(value)
        return
    if value.subject:
        raise BadJob("value.subject needs value.registry")
    needs_file = value.format in (ValueFormat.AVRO, ValueFormat.PROTOBUF)
    needs_schema = value.format in (ValueFormat.JSON, ValueFormat.DEBEZIUM)
    if needs_schema and not value.schema:
        raise BadJob(f"value.format {name} needs value.schema, e.g. 'id bigint, amount double'")
    if needs_file and not value.schema_file:
        raise BadJob(f"value.format {name} needs value.schema_file or value.registry")
    if value.format is ValueFormat.PROTOBUF and not value.message:
        raise BadJob("value.format protobuf needs value.message, the name of the message")
    if not needs_schema and value.schema:
        raise BadJob(f"value.schema does not apply to value.format {name}")
    if not needs_file and (value.schema_file or value.framed):
        raise BadJob(f"value.schema_file and value.framed do not apply to value.format {name}")
    if value.format is not ValueFormat.PROTOBUF and value.message:
        raise BadJob(f"value.message does not apply to value.format {name}")


def _check_registry(value: ValueSpec) -> None:
    if value.format is ValueFormat.RAW:
        raise BadJob(f"value.registry does not apply to value.format {value.format.value}")
    if value.schema or value.schema_file or value.message or value.framed:
        raise BadJob(
            "value.registry has the schemas: schema, schema_file, message and framed do not apply"
        )
    registry_of(value)


def _check_record_key(key: ValueSpec | None) -> None:
    if key is None:
        return
    if key.format not in (ValueFormat.AVRO, ValueFormat.PROTOBUF, ValueFormat.JSON):
        raise BadJob(f"record_key.format must be avro, protobuf or json, not {key.format.value}")
    if key.registry is None:
        raise BadJob("record_key needs registry: decode other keys by the SQL of key")
    try:
        _check_registry(key)
    except BadJob as error:
        raise BadJob(str(error).replace("value.", "record_key.")) from None


def registry_of(value: ValueSpec) -> RegistrySettings | None:
    """Return the settings of the registry; None: that of the cluster. Raises BadJob."""
    try:
        given = {f"{PREFIX}{key}": each for key, each in (value.registry or {}).items()}
        return RegistrySettings.parse(given)
    except BadRegistrySettings as error:
        raise BadJob(f"value.registry: {error}") from error


def _check_table(job: TableJob) -> None:
    table = job.table
    if table.format is TableFormat.ICEBERG and table.name is None:
        raise BadJob("table.format iceberg needs table.name, its name in the catalog")
    if table.format is not TableFormat.ICEBERG and table.path is None:
        raise BadJob("table.path is missing")
    if table.name is not None:
        try:
            table_parts(table.name)
        except BadName as error:
            raise BadJob(f"table.name: {error}") from None
    if table.path is None and job.checkpoint is None:
        raise BadJob("checkpoint is missing: there is no table.path to put it beside")
    if table.compact_files < 2:
        raise BadJob("table.compact_files must be at least 2, the number of small files to merge")
    if job.dead_letters == job.topic:
        raise BadJob("dead_letters must be another topic: bad records would be read again for ever")
    if table.warehouse is not None and table.format is not TableFormat.ICEBERG:
        raise BadJob(f"table.warehouse does not apply to table.format {table.format.value}")
    reserved = RESERVED_COLUMNS & {*job.columns, *table.partition_by, *job.key}
    if reserved:
        raise BadJob(f"column {min(reserved)} is reserved")
    if unknown := sorted({"subscribePattern", "assign", "subscribe"} & job.source.keys()):
        raise BadJob(f"source.{unknown[0]}: not allowed, the job's topic selects what is read")


def _check_mode(job: TableJob) -> None:
    mode, format = job.mode.value, job.table.format
    if job.mode.merges and format is TableFormat.PARQUET:
        raise BadJob(
            f"mode {mode} needs table.format delta or iceberg: rows of parquet files cannot be "
            "replaced"
        )
    if job.mode is TableMode.UPSERT and not job.key:
        raise BadJob("mode upsert needs key, such as {id: 'cast(cast(key as string) as bigint)'}")
    if not job.mode.merges and job.key:
        raise BadJob("key does not apply to mode append")
    if job.misfits is Misfits.DEAD_LETTERS and job.dead_letters is None:
        raise BadJob("misfits: dead-letters needs dead_letters, the topic to write them to")
    if job.maintenance is not None:
        for name in ("every", "expire", "vacuum"):
            text = getattr(job.maintenance, name)
            if text is not None and duration_ms(text, bare=False) is None:
                raise BadJob(f"maintenance.{name}: {text!r} is not a duration such as '1 hour'")
