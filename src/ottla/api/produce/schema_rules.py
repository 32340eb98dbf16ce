"""Which records a topic with schema validation accepts. Pure.

A key or value names its schema by an id or a guid (`formats.wire_format`). It is accepted if the
registry has that schema in the subject that the topic's strategy names:

    TopicNameStrategy         <topic>-key or <topic>-value
    RecordNameStrategy        the full name of the record
    TopicRecordNameStrategy   <topic>-<full name of the record>

Nulls are accepted. With ``ottla.schema.validation=payload`` the payload must be decodable, too.

`scan_batch` lists the schemas that a batch names, `SchemaScan.judge` decides about its records by
what the registry has of them. Both read bytes of clients and may take long: a worker runs them for
large batches. The registry itself is asked in between, by `schema_checks.py`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.config.generated import TopicConfig
from ottla.formats.wire_format import HEADERS, BadFrame, SchemaRef, split_frame
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.reader import read_headers, unpack_region
from ottla.protocol.records.walker import Spans, walk_spans

if TYPE_CHECKING:
    from ottla.schemas.contract import SchemaType  # a node without a registry does not load it

UNPACKED_BYTES_MAX: Final = 64 << 20
"""As `record_validation`, which has checked the batch before."""
REASON_CHARACTERS_MAX: Final = 300
KEY: Final = "key"
VALUE: Final = "value"
_TOPIC: Final = "TopicNameStrategy"
_RECORD: Final = "RecordNameStrategy"


class SchemaRules(NamedTuple):
    """The schema validation of a topic. A strategy is the name of Confluent's class.

    ``key`` and ``value`` are None where these are not validated. ``dead_letters`` is the name of
    a topic, or empty for the default one; None: batches with invalid records are rejected.
    """

    key: str | None
    value: str | None
    decodes_payload: bool = False
    dead_letters: str | None = None

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """The validated parts of a record with their strategies."""
        pairs = ((KEY, self.key), (VALUE, self.value))
        return tuple((part, strategy) for part, strategy in pairs if strategy is not None)

    @property
    def needs_schemas(self) -> bool:
        """Whether the texts of schemas are parsed."""
        return self.decodes_payload or any(strategy != _TOPIC for _, strategy in self.parts)


def schema_rules_of(config: TopicConfig) -> SchemaRules | None:
    """Return the schema validation of a topic; None if there is none."""
    if not (config.confluent_key_schema_validation or config.confluent_value_schema_validation):
        return None
    key = _strategy(config.confluent_key_subject_name_strategy)
    value = _strategy(config.confluent_value_subject_name_strategy)
    is_rejecting = config.ottla_schema_validation_mode == "reject"
    return SchemaRules(
        key if config.confluent_key_schema_validation else None,
        value if config.confluent_value_schema_validation else None,
        config.ottla_schema_validation == "payload",
        None if is_rejecting else config.ottla_schema_validation_dead_letters,
    )


def _strategy(name: str) -> str:
    return name.rpartition(".")[2]


# -- what the registry has ---------------------------------------------------


class SchemaSource(NamedTuple):
    """The text of a schema, and those that it refers to, by name and in dependency order."""

    schema_type: "SchemaType"
    text: str
    references: tuple[tuple[str, str], ...] = ()


class StoredSchema(NamedTuple):
    """A schema of the registry: the subjects that have it, not deleted, and its source.

    Names of subjects are without their context. ``source`` is None if a reference is missing.
    """

    subjects: frozenset[str]
    source: SchemaSource | None = None


class DecodedSchema(NamedTuple):
    """A parsed schema. ``name`` returns the full name of the record of a payload that begins at a
    position, ``check`` raises ValueError if the payload is not of the schema.
    """

    name: Callable[[bytes, int], str | None]
    check: Callable[[bytes, int], None]


ParseSchema: TypeAlias = Callable[[SchemaSource], DecodedSchema]
"""Parses a schema, or returns what it has parsed before. Raises ValueError."""


# -- the records of a batch --------------------------------------------------


class BadRecord(NamedTuple):
    """A record that is not accepted; ``batch_index`` counts from 0."""

    batch_index: int
    reason: str


class _Part(NamedTuple):
    """A key or value of a record, and what names its schema."""

    batch_index: int
    name: str
    strategy: str
    ref: SchemaRef
    header: bytes
    start: int
    """Where the schema's name ends, in the header followed by the data."""


class SchemaScan:
    """The schemas that the records of a batch name."""

    def __init__(
        self, region: bytes, spans: Spans, parts: list[_Part], bad: list[BadRecord]
    ) -> None:
        self._region = region
        self._spans = spans
        self._parts = parts
        self._bad = bad

    @property
    def refs(self) -> list[SchemaRef]:
        """What the registry has to be asked for."""
        return list(dict.fromkeys(part.ref for part in self._parts))

    @property
    def records(self) -> int:
        """The number of records."""
        return self._spans.count

    def judge(
        self,
        topic: str,
        rules: SchemaRules,
        stored: Mapping[SchemaRef, StoredSchema],
        parse: ParseSchema,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> list[BadRecord]:
        """Return the records that are not accepted, each once and in order.

        ``stored`` has the schemas of `refs` that exist. If ``may_go_on`` returns False, no further
        record is accepted.
        """
        bad = {record.batch_index: record for record in reversed(self._bad)}
        checked: dict[tuple[str, SchemaRef], str | None] = {}
        for part in self._parts:
            if part.batch_index in bad:
                continue
            if not may_go_on():
                bad[part.batch_index] = BadRecord(
                    part.batch_index, "the batch takes too long to validate"
                )
                continue
            key = (part.name, part.ref)
            if part.strategy == _TOPIC and key not in checked:
                checked[key] = _subject_error(part, stored, f"{topic}-{part.name}")
            reason = checked.get(key) or self._part_error(part, topic, rules, stored, parse)
            if reason is not None:
                bad[part.batch_index] = BadRecord(part.batch_index, f"the {part.name}: {reason}")
        return [bad[index] for index in sorted(bad)]

    def _part_error(
        self,
        part: _Part,
        topic: str,
        rules: SchemaRules,
        stored: Mapping[SchemaRef, StoredSchema],
        parse: ParseSchema,
    ) -> str | None:
        """Return why a key or value is not accepted, for what depends on its payload or schema."""
        if part.strategy == _TOPIC and not rules.decodes_payload:
            return None
        schema = stored.get(part.ref)
        if schema is None:
            return _unknown(part.ref)
        if schema.source is None:
            return f"{_label(part.ref)} refers to a schema that does not exist"
        try:
            parsed = parse(schema.source)
            data = part.header + self._data(part)
            reason = None
            if part.strategy != _TOPIC:
                reason = _subject_error(
                    part, stored, _subject(part, topic, parsed.name(data, part.start))
                )
            if reason is None and rules.decodes_payload:
                parsed.check(data, part.start)
        except ValueError as error:
            return f"not valid by {_label(part.ref)}: {str(error)[:REASON_CHARACTERS_MAX]}"
        return reason

    def _data(self, part: _Part) -> bytes:
        spans, index = self._spans, part.batch_index
        starts, lengths = (
            (spans.key_starts, spans.key_lengths)
            if part.name == KEY
            else (spans.value_starts, spans.value_lengths)
        )
        return self._region[starts[index] : starts[index] + lengths[index]]


def scan_batch(
    batch: memoryview | bytearray, rules: SchemaRules, bytes_max: int = UNPACKED_BYTES_MAX
) -> SchemaScan:
    """Read which schemas the records of a valid batch name.

    Raises:
        UnpacksToMore: the records take more than ``bytes_max``.
    """
    header = read_header(batch)
    region = bytes(unpack_region(batch, 0, header, bytes_max=bytes_max))
    spans = walk_spans(region, header.records_count)
    parts: list[_Part] = []
    bad: list[BadRecord] = []
    for name, strategy in rules.parts:
        for part in _scan(region, spans, name, strategy):
            (bad if isinstance(part, BadRecord) else parts).append(part)  # type: ignore[arg-type]
    return SchemaScan(region, spans, parts, bad)


def _scan(region: bytes, spans: Spans, name: str, strategy: str) -> Iterator[_Part | BadRecord]:
    starts, lengths = (
        (spans.key_starts, spans.key_lengths)
        if name == KEY
        else (spans.value_starts, spans.value_lengths)
    )
    wanted = HEADERS[name]
    for index in range(spans.count):
        length = lengths[index]
        if length < 0:
            continue
        header = b""
        if spans.header_counts[index]:
            pairs = read_headers(region, spans.header_starts[index], spans.header_counts[index])
            header = next((value for key, value in pairs if key == wanted and value), b"")
        first = starts[index]
        frame = header or region[first : first + min(length, _FRAME_BYTES_MAX)]
        try:
            ref, start = split_frame(frame)
        except BadFrame:
            yield BadRecord(index, f"the {name} does not name a schema of the registry")
            continue
        yield _Part(index, name, strategy, ref, header, start)


_FRAME_BYTES_MAX: Final = 17


def _subject_error(
    part: _Part, stored: Mapping[SchemaRef, StoredSchema], subject: str
) -> str | None:
    schema = stored.get(part.ref)
    if schema is None:
        return _unknown(part.ref)
    if subject not in schema.subjects:
        return f"{_label(part.ref)} is not a schema of subject {subject[:REASON_CHARACTERS_MAX]}"
    return None


def _subject(part: _Part, topic: str, name: str | None) -> str:
    """Return the subject of a record by its name. Raises ValueError without one."""
    if name is None:
        raise ValueError(f"it has no record name, which {part.strategy} needs")
    return name if part.strategy == _RECORD else f"{topic}-{name}"


def _label(ref: SchemaRef) -> str:
    return f"schema id {ref}" if isinstance(ref, int) else f"schema guid {ref}"


def _unknown(ref: SchemaRef) -> str:
    return f"{_label(ref)} is unknown to the registry"
