"""The options of ``format("ottla")``, read into values. Pure.

Names and meanings are those of Spark's own Kafka source and sink. New are ``maxBytesPerTrigger``,
``maxBytesPerPartition``, ``groupId``, ``isolation``, ``tier``, ``delivery`` and starts such as
``-10 minutes``. What is behind ``kafka.`` goes to the client as Kafka names it. Two defaults are
not Spark's: records of aborted transactions are left out (``isolation=read_committed``), and
offsets that look wrong are asked for again after half a second, not 10 ms.

Nothing is guessed: an option that is not known, has no meaning where it stands, or contradicts
another, is an `OptionError` that names it.
"""

import enum
import re
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from ottla.pipeline import kafka_names
from ottla.pipeline.offsets import (
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
from ottla.pipeline.option_values import Given, OptionError, duration_ms
from ottla.protocol.types import TopicPartition

DEFAULT_CLIENT_ID: Final = "ottla-spark"
DEFAULT_TRIGGER_DELAY_MS: Final = 15 * 60_000  # Spark's maxTriggerDelay
DEFAULT_MARKER_TOPIC: Final = "__ottla_sink_markers"
SPARK_PARTITIONS_MAX: Final = 100_000
"""More tasks than this in one batch is a slip, and would be planned in the driver's memory."""

SOURCE_NAMES: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "isolation",
    "groupId",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "tier",
    "tierPath",
)
SINK_NAMES: Final = (
    "topic",
    "includeHeaders",
    "delivery",
    "atomicBatches",
    "markerTopic",
    "onReplayMismatch",
    "sinkId",
)
# What Spark itself hands to a sink along with the user's options.
_SPARK_SINK_NAMES: Final = ("checkpointLocation", "path", "queryName")


class ClientSettings(msgspec.Struct, frozen=True):
    """Whom to connect to and how. ``properties`` are Kafka's, without ``kafka.`` before them."""

    bootstrap: tuple[str, ...]
    client_id: str
    properties: dict[str, str]

    def __repr__(self) -> str:
        # Passwords are among the properties, and errors are printed: names only.
        return f"ClientSettings({','.join(self.bootstrap)}, {sorted(self.properties)})"


class Subscribe(msgspec.Struct, frozen=True):
    """All partitions of these topics."""

    topics: tuple[str, ...]


class Pattern(msgspec.Struct, frozen=True):
    """All partitions of every topic whose whole name matches, internal ones left out."""

    text: str

    def matches(self, topic: str) -> bool:
        """Say whether a topic is meant."""
        return re.fullmatch(self.text, topic) is not None


class Assign(msgspec.Struct, frozen=True):
    """These partitions and no other."""

    partitions: tuple[TopicPartition, ...]


Choice: TypeAlias = Subscribe | Pattern | Assign


class Limits(msgspec.Struct, frozen=True):
    """How much one batch of a stream takes; None where there is no bound."""

    rows_max: int | None = None
    rows_min: int | None = None
    delay_ms_max: int = DEFAULT_TRIGGER_DELAY_MS
    bytes_max: int | None = None


class Splitting(msgspec.Struct, frozen=True):
    """Into how many Spark partitions a range is cut; None where nothing is asked."""

    partitions_min: int | None = None
    records_max: int | None = None
    bytes_max: int | None = None


class Patience(msgspec.Struct, frozen=True):
    """How often, and how long apart, offsets are asked for again that look wrong."""

    retries: int = 3
    wait_ms: int = 500


class Tier(enum.Enum):
    """Whether old segments are read from where they are kept, past the brokers."""

    AUTO = "auto"
    DIRECT = "direct"
    NEVER = "never"


class SourceOptions(msgspec.Struct, frozen=True):
    """What a reader was asked for. Made by `parse`."""

    client: ClientSettings
    choice: Choice
    starting: Boundary
    ending: Boundary
    limits: Limits
    splitting: Splitting
    patience: Patience
    fail_on_data_loss: bool
    include_headers: bool
    committed: bool
    group: str | None
    tier: Tier
    tier_path: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_stream: bool = False) -> "SourceOptions":
        """Read the options of ``spark.read`` or, ``is_stream``, of ``spark.readStream``.

        Raises:
            OptionError: one is not known, wrong, missing, or contradicts another.
        """
        given = Given(options, SOURCE_NAMES)
        properties = given.properties(kafka_names.CLIENT | kafka_names.CONSUMER)
        tier = given.one_of("tier", Tier, Tier.AUTO)
        tier_path = given.text("tierPath")
        if tier is Tier.DIRECT and tier_path is None:
            raise OptionError("tier=direct needs tierPath: the directory that holds the segments")
        return cls(
            client=_client(properties),
            choice=_choice(given),
            starting=_starting(given, is_stream),
            ending=_ending(given, is_stream),
            limits=_limits(given),
            splitting=_splitting(given),
            patience=_patience(given),
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            include_headers=given.flag("includeHeaders", False),
            committed=_is_committed(given, properties),
            group=given.text("groupId"),
            tier=tier,
            tier_path=tier_path,
        )


class Delivery(enum.Enum):
    """What a sink promises when a task or the driver dies."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class ReplayMismatch(enum.Enum):
    """What a task does when it was committed before with another number of rows.

    Its replay was given other rows: either the micro-batch is cut into other tasks now, or the
    query is not deterministic.
    """

    FAIL = "fail"
    SKIP = "skip"


class SinkOptions(msgspec.Struct, frozen=True):
    """What a writer was asked for. ``topic`` None: each row names its own in a column."""

    client: ClientSettings
    topic: str | None
    include_headers: bool
    delivery: Delivery
    atomic_batches: bool
    marker_topic: str
    sink_id: str | None
    on_replay_mismatch: ReplayMismatch = ReplayMismatch.FAIL

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SinkOptions":
        """Read the options of ``df.write`` or ``df.writeStream``.

        Raises:
            OptionError: one is not known, wrong, missing, or contradicts another.
        """
        given = Given(options, SINK_NAMES, _SPARK_SINK_NAMES)
        delivery = given.one_of("delivery", Delivery, Delivery.AT_LEAST_ONCE)
        atomic = given.flag("atomicBatches", False)
        if atomic and delivery is not Delivery.EXACTLY_ONCE:
            raise OptionError("atomicBatches needs delivery=exactly-once")
        return cls(
            client=_client(given.properties(kafka_names.CLIENT | kafka_names.PRODUCER)),
            topic=given.text("topic"),
            include_headers=given.flag("includeHeaders", True),
            delivery=delivery,
            atomic_batches=atomic,
            marker_topic=given.text("markerTopic") or DEFAULT_MARKER_TOPIC,
            sink_id=given.text("sinkId"),
            on_replay_mismatch=given.one_of(
                "onReplayMismatch", ReplayMismatch, ReplayMismatch.FAIL
            ),
        )


def include_headers(options: Mapping[str, str]) -> bool:
    """Say whether the schema has headers, before it is known whether to read or to stream.

    Raises:
        OptionError: an option is not known, or includeHeaders is neither true nor false.
    """
    return Given(options, SOURCE_NAMES).flag("includeHeaders", False)


# -- what the options mean ---------------------------------------------------


def _client(properties: dict[str, str]) -> ClientSettings:
    servers = properties.pop("bootstrap.servers", "")
    bootstrap = tuple(each.strip() for each in servers.split(",") if each.strip())
    if not bootstrap:
        raise OptionError("option 'kafka.bootstrap.servers' is missing, e.g. 'localhost:9092'")
    return ClientSettings(
        bootstrap, properties.pop("client.id", "") or DEFAULT_CLIENT_ID, properties
    )


def _choice(given: Given) -> Choice:
    kinds = [name for name in ("subscribe", "subscribePattern", "assign") if given.has(name)]
    if len(kinds) != 1:
        said = f"not {' and '.join(kinds)} together" if kinds else "and none is given"
        raise OptionError(
            f"one of subscribe, subscribePattern and assign says what to read, {said}"
        )
    text = given.text(kinds[0]) or ""
    if kinds[0] == "subscribe":
        topics = dict.fromkeys(each.strip() for each in text.split(",") if each.strip())
        if not topics:
            raise OptionError(f"option 'subscribe' names no topic: {text!r}")
        return Subscribe(tuple(topics))
    if kinds[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"option 'subscribePattern' is no pattern: {error}") from error
        return Pattern(text)
    return Assign(_assigned(text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    try:
        wanted = msgspec.json.decode(text, type=dict[str, list[Partition]])
    except (msgspec.DecodeError, UnicodeError) as error:
        example = '{"topicA": [0, 1]}'
        raise OptionError(f"option 'assign' is like {example}, not {text!r} ({error})") from error
    found = {TopicPartition(topic, each) for topic, theirs in wanted.items() for each in theirs}
    if not found:
        raise OptionError(f"option 'assign' names no partition: {text!r}")
    return tuple(sorted(found))


def _starting(given: Given, is_stream: bool) -> Boundary:
    default = Edge.LATEST if is_stream else Edge.EARLIEST
    boundary = _boundary(given, "starting", default)
    if is_stream:
        return boundary
    refused = "a batch cannot start at the latest offset: nothing would be read"
    if boundary is Edge.LATEST:
        raise OptionError(f"option 'startingOffsets': {refused}")
    if isinstance(boundary, AtOffsets) and LATEST in boundary.offsets.values():
        raise OptionError(f"option 'startingOffsets' has a -1: {refused}")
    return boundary


def _ending(given: Given, is_stream: bool) -> Boundary:
    if is_stream:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if given.has(name):
                raise OptionError(f"option {name!r} is for batches; a stream has no end")
    boundary = _boundary(given, "ending", Edge.LATEST)
    refused = "a batch cannot end at the earliest offset: nothing would be read"
    if boundary is Edge.EARLIEST:
        raise OptionError(f"option 'endingOffsets': {refused}")
    if isinstance(boundary, AtOffsets) and EARLIEST in boundary.offsets.values():
        raise OptionError(f"option 'endingOffsets' has a -2: {refused}")
    return boundary


def _boundary(given: Given, side: str, default: Edge) -> Boundary:
    """Read one of three forms. A time for all wins over times for each, both win over offsets."""
    latest_if_none = side == "ending" or _no_match_is_latest(given)
    name = f"{side}Timestamp"
    if (text := given.text(name)) is not None:
        if text.startswith("-"):
            return _ago(name, text)
        return AtTimestamp(given.whole(name, 0) or 0, latest_if_none)
    name = f"{side}OffsetsByTimestamp"
    if given.has(name):
        times = given.by_partition(name, 'like {"topicA": {"0": 1700000000000}}')
        if min(times.values()) < 0:
            raise OptionError(f"option {name!r} has a time before 1970")
        return AtTimestamps(times, latest_if_none)
    name = f"{side}Offsets"
    text = given.text(name)
    return default if text is None else _offsets(given, name, text)


def _offsets(given: Given, name: str, text: str) -> Boundary:
    if text.lower() in ("earliest", "latest"):
        return Edge(text.lower())
    if text.startswith("-"):
        return _ago(name, text)
    example = 'earliest, latest, a time such as "-10 minutes", or like {"topicA": {"0": 23}}'
    offsets = given.by_partition(name, example)
    if min(offsets.values()) < EARLIEST:
        raise OptionError(f"option {name!r} has an offset below -2")
    return AtOffsets(offsets)


def _ago(name: str, text: str) -> Ago:
    ms = duration_ms(text[1:], bare=False)
    if ms is None:
        raise OptionError(
            f"option {name!r} is a time such as '-10 minutes' or '-36 hours', not {text!r}"
        )
    return Ago(ms)


def _no_match_is_latest(given: Given) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    value = given.text(name) or "error"
    if value.lower() not in ("error", "latest"):
        raise OptionError(f"option {name!r} is error or latest, not {value!r}")
    return value.lower() == "latest"


def _limits(given: Given) -> Limits:
    limits = Limits(
        rows_max=given.whole("maxOffsetsPerTrigger", 1),
        rows_min=given.whole("minOffsetsPerTrigger", 1),
        delay_ms_max=given.duration("maxTriggerDelay", DEFAULT_TRIGGER_DELAY_MS),
        bytes_max=given.whole("maxBytesPerTrigger", 1),
    )
    if (limits.rows_min or 0) > (limits.rows_max or 2**63):
        raise OptionError(
            f"option 'minOffsetsPerTrigger' ({limits.rows_min}) is more than "
            f"'maxOffsetsPerTrigger' ({limits.rows_max})"
        )
    return limits


def _splitting(given: Given) -> Splitting:
    return Splitting(
        partitions_min=given.whole("minPartitions", 1, SPARK_PARTITIONS_MAX),
        records_max=given.whole("maxRecordsPerPartition", 1),
        bytes_max=given.whole("maxBytesPerPartition", 1),
    )


def _patience(given: Given) -> Patience:
    usual = Patience()
    retries = given.whole("fetchOffset.numRetries", 0, 100)
    wait_ms = given.whole("fetchOffset.retryIntervalMs", 0, 60_000)
    return Patience(
        usual.retries if retries is None else retries, usual.wait_ms if wait_ms is None else wait_ms
    )


def _is_committed(given: Given, properties: Mapping[str, str]) -> bool:
    ours, kafkas = given.text("isolation"), properties.get("isolation.level")
    for name, value in (("isolation", ours), ("kafka.isolation.level", kafkas)):
        if value not in (None, "read_committed", "read_uncommitted"):
            raise OptionError(
                f"option {name!r} is read_committed or read_uncommitted, not {value!r}"
            )
    if ours is not None and kafkas is not None and ours != kafkas:
        raise OptionError(f"isolation={ours} contradicts kafka.isolation.level={kafkas}")
    return (ours or kafkas or "read_committed") == "read_committed"
