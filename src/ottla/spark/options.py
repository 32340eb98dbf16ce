"""The options of ``format("ottla")``, read into values. Pure.

Names and meanings are those of Spark's own Kafka source and sink. Additions are
``maxBytesPerTrigger``, ``maxBytesPerPartition``, ``prefetchRecords``, ``groupId``, ``isolation``,
``tier``, ``rsm.config.*``, ``delivery`` and starts such as ``-10 minutes``. Options that begin with
``kafka.`` are settings of the client under Kafka's names. Two defaults differ from Spark: records
of aborted transactions are left out (``isolation=read_committed``), and implausible offsets are
requested again after 500 ms, not 10 ms.

Unknown, inapplicable and contradictory options are rejected with an `OptionError` that names them.
"""

import enum
import re
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from ottla.client import setting_names
from ottla.client.blocking.broker_client import ClientSettings
from ottla.formats.record_values import BadValues
from ottla.formats.registry_client import RegistrySettings
from ottla.formats.subjects import Encoding, SubjectStrategy, parse_strategy
from ottla.protocol.own_topics import SINK_MARKERS
from ottla.protocol.types import TopicPartition
from ottla.spark.option_values import OptionError, OptionValues, duration_ms
from ottla.spark.stream_offsets import (
    EARLIEST,
    LATEST,
    Ago,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Boundary,
    Edge,
    Partition,
)
from ottla.tiering.store_settings import S3, S3_OPTIONS, StoreSettings

DEFAULT_CLIENT_ID: Final = "ottla-spark"
DEFAULT_TRIGGER_DELAY_MS: Final = 15 * 60_000  # Spark's maxTriggerDelay
DEFAULT_MARKER_TOPIC: Final = SINK_MARKERS
STORE_PREFIX: Final = "rsm.config."
"""The settings of a bucket have the same names as in a broker's configuration."""
SPARK_PARTITIONS_MAX: Final = 100_000
"""Most tasks of one batch: all of them are planned in the driver's memory."""

DEFAULT_PREFETCH_RECORDS: Final = 1000
"""A stream's batch of at most this many records needs no Python workers (`prefetch`). 1,000 records
of 100 bytes take a third of the time then, and 4,000 half of it."""
PREFETCH_RECORDS_MAX: Final = 100_000

STORE_NAMES: Final = tuple(f"{STORE_PREFIX}{name}" for name in (*S3_OPTIONS, "allow.http"))
SOURCE_NAMES: Final = (
    "subscribe", "subscribePattern", "assign",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger",
    "minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition", "prefetchRecords",
    "failOnDataLoss", "includeHeaders", "isolation", "groupId", "groupIdPrefix",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs",
    "valueFormat", "keyFormat", "valueSubject", "keySubject", "badValues",
    "tier", "tierPath", *STORE_NAMES,
)  # fmt: skip
SINK_NAMES: Final = (
    "topic", "includeHeaders", "delivery", "atomicBatches", "markerTopic", "onReplayMismatch",
    "keepTimestamps", "sinkId",
    "valueFormat", "keyFormat", "valueSchema", "keySchema", "subjectNameStrategy",
)  # fmt: skip
# Options that Spark itself adds to the user's options of a sink.
_SPARK_SINK_NAMES: Final = ("checkpointLocation", "path", "queryName")


class Subscribe(msgspec.Struct, frozen=True):
    """All partitions of these topics."""

    topics: tuple[str, ...]


class Pattern(msgspec.Struct, frozen=True):
    """All partitions of every non-internal topic whose whole name matches."""

    text: str

    def matches(self, topic: str) -> bool:
        """Return whether a topic matches."""
        return re.fullmatch(self.text, topic) is not None


class Assign(msgspec.Struct, frozen=True):
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


Choice: TypeAlias = Subscribe | Pattern | Assign


class Limits(msgspec.Struct, frozen=True):
    """The size limits of one batch of a stream; None: unlimited."""

    rows_max: int | None = None
    rows_min: int | None = None
    delay_ms_max: int = DEFAULT_TRIGGER_DELAY_MS
    bytes_max: int | None = None


class Splitting(msgspec.Struct, frozen=True):
    """How ranges are cut into Spark partitions; None: no requirement."""

    partitions_min: int | None = None
    records_max: int | None = None
    bytes_max: int | None = None


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often, and after which pause, implausible offsets are requested again."""

    retries: int = 3
    wait_ms: int = 500


class Tier(enum.Enum):
    """Whether sealed segments are read from their files instead of from brokers."""

    AUTO = "auto"
    DIRECT = "direct"
    NEVER = "never"


TierPlace: TypeAlias = str | StoreSettings
"""Where sealed segments are: a directory, or a bucket."""


class PartFormat(enum.Enum):
    """How a source reads keys or values: as bytes, or by the schemas of a registry."""

    RAW = "raw"
    REGISTRY = "registry"


class Decoding(msgspec.Struct, frozen=True):
    """Which of key and value are decoded, with the subject of each (None: that of the topic)."""

    registry: RegistrySettings
    parts: dict[str, str | None]
    is_bad_null: bool


class PartEncoding(msgspec.Struct, frozen=True):
    """The format of a column of a sink. ``schema`` None: that of the column's type."""

    encoding: Encoding
    schema: str | None


class SinkEncoding(msgspec.Struct, frozen=True):
    """The columns that a sink encodes with schemas of a registry."""

    registry: RegistrySettings
    strategy: SubjectStrategy
    parts: dict[str, PartEncoding]


class SourceOptions(msgspec.Struct, frozen=True):
    """The options of a reader. Created by `parse`."""

    client: ClientSettings
    choice: Choice
    starting: Boundary
    ending: Boundary
    limits: Limits
    splitting: Splitting
    retry_policy: RetryPolicy
    fail_on_data_loss: bool
    include_headers: bool
    committed: bool
    group: str | None
    tier: Tier
    tier_path: str | None
    tier_places: tuple[TierPlace, ...] = ()
    decoding: Decoding | None = None
    prefetch_records: int = 0

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_stream: bool = False) -> "SourceOptions":
        """Read the options of ``spark.read`` or, ``is_stream``, of ``spark.readStream``.

        Raises:
            OptionError: an option is unknown, invalid, missing, or contradicts another.
        """
        values = OptionValues(options, SOURCE_NAMES)
        properties = values.properties(setting_names.CLIENT | setting_names.CONSUMER)
        tier = values.one_of("tier", Tier, Tier.AUTO)
        tier_path = values.text("tierPath")
        if tier is Tier.DIRECT and tier_path is None:
            raise OptionError(
                "tier=direct needs tierPath: a directory of segments, or s3://bucket/prefix"
            )
        client = _client(properties)
        return cls(
            client=client,
            choice=_choice(values),
            starting=_starting(values, is_stream),
            ending=_ending(values, is_stream),
            limits=_limits(values),
            splitting=_splitting(values),
            retry_policy=_retry_policy(values),
            fail_on_data_loss=values.flag("failOnDataLoss", True),
            include_headers=values.flag("includeHeaders", False),
            committed=_is_committed(values, properties),
            group=values.text("groupId"),
            tier=tier,
            tier_path=tier_path,
            tier_places=_tier_places(values, tier_path),
            decoding=_decoding(values, client),
            prefetch_records=_prefetch_records(values),
        )


class Delivery(enum.Enum):
    """What a sink guarantees when a task or the driver fails."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class ReplayMismatch(enum.Enum):
    """What a replayed task does if it was committed with another number of rows.

    The replay has other rows if the micro-batch is cut into other tasks now, or if the query is
    not deterministic.
    """

    FAIL = "fail"
    SKIP = "skip"
    SKIP_FEWER = "skip-fewer"
    """As ``skip`` if the replay has fewer rows; more rows would be lost, so they are an error."""


class SinkOptions(msgspec.Struct, frozen=True):
    """The options of a writer. ``topic`` None: the column ``topic`` of each row names it."""

    client: ClientSettings
    topic: str | None
    include_headers: bool
    delivery: Delivery
    atomic_batches: bool
    marker_topic: str
    sink_id: str | None
    on_replay_mismatch: ReplayMismatch = ReplayMismatch.FAIL
    keep_timestamps: bool = False
    encoding: SinkEncoding | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SinkOptions":
        """Read the options of ``df.write`` or ``df.writeStream``.

        Raises:
            OptionError: an option is unknown, invalid, missing, or contradicts another.
        """
        values = OptionValues(options, SINK_NAMES, _SPARK_SINK_NAMES)
        client = _client(values.properties(setting_names.CLIENT | setting_names.PRODUCER))
        encoding = _encoding(values, client)
        delivery = values.one_of("delivery", Delivery, Delivery.AT_LEAST_ONCE)
        atomic = values.flag("atomicBatches", False)
        if atomic and delivery is not Delivery.EXACTLY_ONCE:
            raise OptionError("atomicBatches needs delivery=exactly-once")
        if atomic and values.flag("keepTimestamps", False):
            raise OptionError("keepTimestamps cannot be combined with atomicBatches")
        return cls(
            client=client,
            topic=values.text("topic"),
            include_headers=values.flag("includeHeaders", True),
            delivery=delivery,
            atomic_batches=atomic,
            marker_topic=values.text("markerTopic") or DEFAULT_MARKER_TOPIC,
            sink_id=values.text("sinkId"),
            encoding=encoding,
            on_replay_mismatch=values.one_of(
                "onReplayMismatch", ReplayMismatch, ReplayMismatch.FAIL
            ),
            keep_timestamps=values.flag("keepTimestamps", False),
        )


def is_decoding(options: Mapping[str, str]) -> bool:
    """Return whether keys or values are read by the schemas of a registry."""
    return any(key.lower() in ("valueformat", "keyformat") for key in options)


def include_headers(options: Mapping[str, str]) -> bool:
    """Return whether the schema has headers, for batch reads and streams alike.

    Raises:
        OptionError: an option is unknown, or includeHeaders is neither true nor false.
    """
    return OptionValues(options, SOURCE_NAMES).flag("includeHeaders", False)


# -- parsing of options ------------------------------------------------------


def _decoding(values: OptionValues, client: ClientSettings) -> Decoding | None:
    registry, parts = values.registry(), {}
    for part in ("key", "value"):
        if values.one_of(f"{part}Format", PartFormat, PartFormat.RAW) is PartFormat.REGISTRY:
            parts[part] = values.text(f"{part}Subject")
        elif values.has(f"{part}Subject"):
            raise OptionError(f"{part}Subject needs {part}Format=registry")
    bad = values.one_of("badValues", BadValues, BadValues.FAIL)
    if not parts:
        return None
    return Decoding(registry or RegistrySettings.of_cluster(client), parts, bad is BadValues.NULL)


def _encoding(values: OptionValues, client: ClientSettings) -> SinkEncoding | None:
    registry, parts = values.registry(), {}
    for part in ("key", "value"):
        name = (values.text(f"{part}Format") or "raw").lower()
        if name == "raw":
            continue
        if name not in (each.value for each in Encoding):
            raise OptionError(
                f"option '{part}Format' must be raw, avro, json or protobuf, not {name!r}"
            )
        parts[part] = PartEncoding(Encoding(name), values.text(f"{part}Schema"))
    try:
        strategy = parse_strategy(values.text("subjectNameStrategy") or "topic")
    except ValueError as error:
        raise OptionError(f"option 'subjectNameStrategy': {error}") from error
    if not parts:
        return None
    return SinkEncoding(registry or RegistrySettings.of_cluster(client), strategy, parts)


def _client(properties: dict[str, str]) -> ClientSettings:
    servers = properties.pop("bootstrap.servers", "")
    bootstrap = tuple(each.strip() for each in servers.split(",") if each.strip())
    if not bootstrap:
        raise OptionError(
            "option 'kafka.bootstrap.servers' is missing; set it to e.g. 'localhost:9092'"
        )
    return ClientSettings(
        bootstrap, properties.pop("client.id", "") or DEFAULT_CLIENT_ID, properties
    )


def _choice(values: OptionValues) -> Choice:
    kinds = [name for name in ("subscribe", "subscribePattern", "assign") if values.has(name)]
    if len(kinds) != 1:
        problem = f"not {' and '.join(kinds)} together" if kinds else "and none is set"
        raise OptionError(f"set exactly one of subscribe, subscribePattern and assign, {problem}")
    text = values.text(kinds[0]) or ""
    if kinds[0] == "subscribe":
        topics = dict.fromkeys(each.strip() for each in text.split(",") if each.strip())
        if not topics:
            raise OptionError(f"option 'subscribe' names no topic: {text!r}")
        return Subscribe(tuple(topics))
    if kinds[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(
                f"option 'subscribePattern' is not a regular expression: {error}"
            ) from error
        return Pattern(text)
    return Assign(_assigned(text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    try:
        wanted = msgspec.json.decode(text, type=dict[str, list[Partition]])
    except (msgspec.DecodeError, UnicodeError) as error:
        example = '{"topicA": [0, 1]}'
        raise OptionError(
            f"option 'assign' must be like {example}, not {text!r} ({error})"
        ) from error
    found = {TopicPartition(topic, each) for topic, theirs in wanted.items() for each in theirs}
    if not found:
        raise OptionError(f"option 'assign' names no partition: {text!r}")
    return tuple(sorted(found))


def _starting(values: OptionValues, is_stream: bool) -> Boundary:
    default = Edge.LATEST if is_stream else Edge.EARLIEST
    boundary = _boundary(values, "starting", default)
    if is_stream:
        return boundary
    refused = "a batch cannot start at the latest offset: nothing would be read"
    if boundary is Edge.LATEST:
        raise OptionError(f"option 'startingOffsets': {refused}")
    if isinstance(boundary, AtOffsets) and LATEST in boundary.offsets.values():
        raise OptionError(f"option 'startingOffsets' has a -1: {refused}")
    return boundary


def _ending(values: OptionValues, is_stream: bool) -> Boundary:
    if is_stream:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if values.has(name):
                raise OptionError(
                    f"option {name!r} applies to batch reads only; a stream has no end"
                )
    boundary = _boundary(values, "ending", Edge.LATEST)
    refused = "a batch cannot end at the earliest offset: nothing would be read"
    if boundary is Edge.EARLIEST:
        raise OptionError(f"option 'endingOffsets': {refused}")
    if isinstance(boundary, AtOffsets) and EARLIEST in boundary.offsets.values():
        raise OptionError(f"option 'endingOffsets' has a -2: {refused}")
    return boundary


def _boundary(values: OptionValues, side: str, default: Edge) -> Boundary:
    """Read one of three forms. One time for all overrides times per partition; both override
    offsets."""
    latest_if_none = side == "ending" or _no_match_is_latest(values)
    name = f"{side}Timestamp"
    if (text := values.text(name)) is not None:
        if text.startswith("-"):
            return _ago(name, text)
        return AtTimestamp(values.whole(name, 0) or 0, latest_if_none)
    name = f"{side}OffsetsByTimestamp"
    if values.has(name):
        times = values.by_partition(name, 'like {"topicA": {"0": 1700000000000}}')
        if min(times.values()) < 0:
            raise OptionError(f"option {name!r} has a timestamp before 1970")
        return AtTimestamps(times, latest_if_none)
    name = f"{side}Offsets"
    text = values.text(name)
    return default if text is None else _offsets(values, name, text)


def _offsets(values: OptionValues, name: str, text: str) -> Boundary:
    if text.lower() in ("earliest", "latest"):
        return Edge(text.lower())
    if text.startswith("-"):
        return _ago(name, text)
    example = 'earliest, latest, a time such as "-10 minutes", or like {"topicA": {"0": 23}}'
    offsets = values.by_partition(name, example)
    if min(offsets.values()) < EARLIEST:
        raise OptionError(f"option {name!r} has an offset below -2")
    return AtOffsets(offsets)


def _ago(name: str, text: str) -> Ago:
    ms = duration_ms(text[1:], bare=False)
    if ms is None:
        raise OptionError(
            f"option {name!r} must be a time such as '-10 minutes' or '-36 hours', not {text!r}"
        )
    return Ago(ms)


def _no_match_is_latest(values: OptionValues) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    value = values.text(name) or "error"
    if value.lower() not in ("error", "latest"):
        raise OptionError(f"option {name!r} must be error or latest, not {value!r}")
    return value.lower() == "latest"


def _tier_places(values: OptionValues, tier_path: str | None) -> tuple[TierPlace, ...]:
    texts = [each.strip() for each in (tier_path or "").split(",") if each.strip()]
    places = tuple(_bucket(values, each) if "://" in each else each for each in texts)
    unused = [name for name in STORE_NAMES if values.has(name)]
    if unused and not any(isinstance(each, StoreSettings) for each in places):
        raise OptionError(f"option {unused[0]!r} needs tierPath=s3://bucket/prefix")
    return places


def _bucket(values: OptionValues, text: str) -> StoreSettings:
    scheme, _, rest = text.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise OptionError(
            f"option 'tierPath' must be a directory or like s3://bucket/prefix, not {text!r}"
        )
    names = {option: f"{STORE_PREFIX}{name}" for name, option in S3_OPTIONS.items()}
    given = {option: values.text(name) for option, name in names.items()}
    if (given["access_key_id"] is None) != (given["secret_access_key"] is None):
        first, second = names["access_key_id"], names["secret_access_key"]
        raise OptionError(f"options {first!r} and {second!r} must be set together")
    options = {option: value for option, value in given.items() if value is not None}
    allow_http = values.flag(f"{STORE_PREFIX}allow.http", False)
    return StoreSettings(S3, bucket, prefix.strip("/"), options, allow_http)


def _limits(values: OptionValues) -> Limits:
    limits = Limits(
        rows_max=values.whole("maxOffsetsPerTrigger", 1),
        rows_min=values.whole("minOffsetsPerTrigger", 1),
        delay_ms_max=values.duration("maxTriggerDelay", DEFAULT_TRIGGER_DELAY_MS),
        bytes_max=values.whole("maxBytesPerTrigger", 1),
    )
    if (limits.rows_min or 0) > (limits.rows_max or 2**63):
        raise OptionError(
            f"option 'minOffsetsPerTrigger' ({limits.rows_min}) is greater than "
            f"'maxOffsetsPerTrigger' ({limits.rows_max})"
        )
    return limits


def _splitting(values: OptionValues) -> Splitting:
    return Splitting(
        partitions_min=values.whole("minPartitions", 1, SPARK_PARTITIONS_MAX),
        records_max=values.whole("maxRecordsPerPartition", 1),
        bytes_max=values.whole("maxBytesPerPartition", 1),
    )


def _prefetch_records(values: OptionValues) -> int:
    given = values.whole("prefetchRecords", 0, PREFETCH_RECORDS_MAX)
    return DEFAULT_PREFETCH_RECORDS if given is None else given


def _retry_policy(values: OptionValues) -> RetryPolicy:
    usual = RetryPolicy()
    retries = values.whole("fetchOffset.numRetries", 0, 100)
    wait_ms = values.whole("fetchOffset.retryIntervalMs", 0, 60_000)
    return RetryPolicy(
        usual.retries if retries is None else retries, usual.wait_ms if wait_ms is None else wait_ms
    )


def _is_committed(values: OptionValues, properties: Mapping[str, str]) -> bool:
    ours, kafkas = values.text("isolation"), properties.get("isolation.level")
    for name, value in (("isolation", ours), ("kafka.isolation.level", kafkas)):
        if value not in (None, "read_committed", "read_uncommitted"):
            raise OptionError(
                f"option {name!r} must be read_committed or read_uncommitted, not {value!r}"
            )
    if ours is not None and kafkas is not None and ours != kafkas:
        raise OptionError(f"isolation={ours} contradicts kafka.isolation.level={kafkas}")
    return (ours or kafkas or "read_committed") == "read_committed"
