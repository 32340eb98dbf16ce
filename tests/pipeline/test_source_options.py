"""The options of the source and the sink, and the errors of invalid ones."""

import re

import pytest

from ottla.protocol.types import TopicPartition
from ottla.spark.option_values import OptionError
from ottla.spark.options import (
    Assign,
    Delivery,
    Limits,
    Pattern,
    RetryPolicy,
    SinkOptions,
    SourceOptions,
    Splitting,
    Subscribe,
    Tier,
    include_headers,
)
from ottla.spark.stream_offsets import Ago, AtOffsets, AtTimestamp, AtTimestamps, Edge

BASE = {"kafka.bootstrap.servers": "one:9092, two:9092", "subscribe": "a"}
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def parse(stream: bool = False, /, **options: str | None) -> SourceOptions:
    """Parse changed base options; ``__`` stands for a dot, None removes an option."""
    asked = BASE | {key.replace("__", "."): value for key, value in options.items()}
    return SourceOptions.parse(
        {key: value for key, value in asked.items() if value is not None}, is_stream=stream
    )


def test_source_options_have_defaults() -> None:
    batch = parse()
    assert batch.client.bootstrap == ("one:9092", "two:9092")
    assert batch.client.client_id == "ottla-spark" and batch.client.properties == {}
    assert batch.choice == Subscribe(("a",))
    assert (batch.starting, batch.ending) == (Edge.EARLIEST, Edge.LATEST)
    assert (batch.limits, batch.splitting, batch.retry_policy) == (
        Limits(),
        Splitting(),
        RetryPolicy(),
    )
    assert batch.fail_on_data_loss and batch.committed and not batch.include_headers
    assert batch.group is None and batch.tier is Tier.AUTO
    assert parse(True).prefetch_records == 1000
    assert parse(True).starting is Edge.LATEST


def test_option_names_ignore_case_and_values_are_stripped() -> None:
    raw = {
        "KAFKA.Bootstrap.Servers": " h:1 ",
        "SUBSCRIBE": " b , a,b ",
        "FAILondataLOSS": "FALSE",
    }
    options = SourceOptions.parse(raw)
    assert options.client.bootstrap == ("h:1",)
    assert options.choice == Subscribe(("b", "a"))
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("startingOffsets", "EARLIEST", Edge.EARLIEST),
        ("startingOffsets", '{"a": {"0": 5, "1": -1}}', AtOffsets({A0: 5, A1: -1})),
        ("startingOffsets", "-10 minutes", Ago(600_000)),
        ("startingOffsets", "-36 hours", Ago(36 * 3_600_000)),
        ("startingTimestamp", "1700", AtTimestamp(1700, False)),
        ("startingTimestamp", "-2d", Ago(2 * 86_400_000)),
        ("startingOffsetsByTimestamp", '{"a": {"0": 7}}', AtTimestamps({A0: 7}, False)),
    ],
)
def test_starting_options_are_parsed(name: str, value: str, found: object) -> None:
    assert parse(True, **{name: value}).starting == found


def test_timestamp_overrides_partition_timestamps_and_offsets() -> None:
    raw = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"a": {"0": 7}}'}
    assert parse(**raw).starting == AtTimestamps({A0: 7}, False)
    assert parse(**raw, startingTimestamp="9").starting == AtTimestamp(9, False)


def test_timestamp_strategy_applies_to_starts_only() -> None:
    strategy = {"startingOffsetsByTimestampStrategy": "LATEST"}
    assert parse(startingTimestamp="9", **strategy).starting == AtTimestamp(9, True)
    assert parse(endingTimestamp="9").ending == AtTimestamp(9, True)
    assert parse(endingOffsets='{"a": {"0": -1}}').ending == AtOffsets({A0: -1})
    assert parse(endingOffsetsByTimestamp='{"a":{"1":3}}').ending == AtTimestamps({A1: 3}, True)


def test_selection_options_are_parsed() -> None:
    pattern = parse(subscribe=None, subscribePattern="or.ers").choice
    assert pattern == Pattern("or.ers")
    assert pattern.matches("orders") and not pattern.matches("orders-2")
    assigned = parse(subscribe=None, assign='{"b": [1], "a": [1, 0, 0]}').choice
    assert assigned == Assign((A0, A1, TopicPartition("b", 1)))


def test_limits_and_splitting_are_parsed() -> None:
    asked = {
        "maxOffsetsPerTrigger": "100",
        "minOffsetsPerTrigger": "10",
        "maxTriggerDelay": "30s",
        "maxBytesPerTrigger": "4096",
        "minPartitions": "8",
        "maxRecordsPerPartition": "50",
        "maxBytesPerPartition": "1000",
    }
    options = parse(True, **asked)
    assert options.limits == Limits(100, 10, 30_000, 4096)
    assert options.splitting == Splitting(8, 50, 1000)
    assert parse(True, maxTriggerDelay="250").limits.delay_ms_max == 250


def test_remaining_source_options_are_parsed() -> None:
    options = parse(
        True,
        includeHeaders="true",
        groupId="g",
        groupIdPrefix="p",
        prefetchRecords="0",
        isolation="read_uncommitted",
        tier="direct",
        tierPath="/logs",
        fetchOffset__numRetries="0",
        fetchOffset__retryIntervalMs="7",
        kafkaConsumer__pollTimeoutMs="512",
    )
    assert options.include_headers and options.group == "g" and not options.committed
    assert (options.tier, options.tier_path) == (Tier.DIRECT, "/logs")
    assert options.retry_policy == RetryPolicy(0, 7) and options.prefetch_records == 0
    assert not parse(kafka__isolation__level="read_uncommitted").committed
    assert include_headers({"INCLUDEheaders": "True"}) and not include_headers({})


def test_kafka_properties_reach_the_client_and_are_not_printed() -> None:
    options = parse(
        kafka__client__id="me", kafka__sasl__jaas__config="secret", kafka__max__poll__records="5"
    )
    assert options.client.client_id == "me"
    assert options.client.properties == {"sasl.jaas.config": "secret", "max.poll.records": "5"}
    assert "secret" not in repr(options) and "sasl.jaas.config" in repr(options)


WRONG = [
    ({"subscribe": None}, "one of subscribe, subscribePattern and assign.*none is set"),
    ({"assign": '{"a":[0]}'}, "subscribe and assign together"),
    ({"subscribe": " , "}, "'subscribe' names no topic"),
    ({"subscribe": ""}, "'subscribe' is empty"),
    ({"subscribe": None, "subscribePattern": "a("}, "'subscribePattern' is not a regular"),
    ({"subscribe": None, "assign": "a:0"}, "'assign' must be like"),
    ({"subscribe": None, "assign": '{"a": [-1]}'}, "'assign' must be like"),
    ({"subscribe": None, "assign": "{}"}, "'assign' names no partition"),
    ({"kafka__bootstrap__servers": None}, "'kafka.bootstrap.servers' is missing"),
    ({"startingOffset": "earliest"}, "'startingOffset'; did you mean 'startingOffsets'"),
    ({"bootstrap__servers": "h"}, "did you mean 'kafka.bootstrap.servers'"),
    ({"kafka__sekurity__protocol": "SSL"}, "did you mean 'kafka.security.protocol'"),
    ({"zzz": "1"}, "unknown option 'zzz'$"),
    ({"kafka__auto__offset__reset": "earliest"}, "not supported: use startingOffsets"),
    ({"kafka__enable__auto__commit": "true"}, "not supported.*groupId"),
    ({"startingOffsets": "latest"}, "'startingOffsets': a batch cannot start at the latest"),
    ({"startingOffsets": '{"a":{"0":-1}}'}, "'startingOffsets' has a -1"),
    ({"startingOffsets": '{"a":{"0":-3}}'}, "'startingOffsets' has an offset below -2"),
    ({"startingOffsets": '{"a":{"x":1}}'}, "'startingOffsets' must be earliest, latest"),
    ({"startingOffsets": "yesterday"}, "'startingOffsets' must be earliest, latest"),
    ({"startingOffsets": "{}"}, "'startingOffsets' names no partition"),
    ({"startingOffsets": "-10"}, "'startingOffsets' must be a time such as '-10 minutes'"),
    ({"startingOffsets": "-10 fortnights"}, "'startingOffsets' must be a time such as"),
    ({"startingTimestamp": "soon"}, "'startingTimestamp' must be an integer"),
    ({"startingOffsetsByTimestamp": '{"a":{"0":-5}}'}, "a timestamp before 1970"),
    ({"startingOffsetsByTimestampStrategy": "guess"}, "must be error or latest"),
    ({"endingOffsets": "earliest"}, "'endingOffsets': a batch cannot end at the earliest"),
    ({"endingOffsets": '{"a":{"0":-2}}'}, "'endingOffsets' has a -2"),
    ({"maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger' must be an integer of at least 1"),
    ({"maxBytesPerTrigger": "1k"}, "'maxBytesPerTrigger' must be an integer"),
    ({"maxTriggerDelay": "soon"}, "'maxTriggerDelay' must be a duration such as"),
    ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, r"\(9\) is greater than"),
    ({"minPartitions": "0"}, "'minPartitions' must be an integer"),
    ({"minPartitions": "100001"}, "'minPartitions'.*at most 100000"),
    ({"maxRecordsPerPartition": "-1"}, "'maxRecordsPerPartition'"),
    ({"prefetchRecords": "100001"}, "'prefetchRecords'.*at most 100000"),
    ({"failOnDataLoss": "maybe"}, "'failOnDataLoss' must be true or false, not 'maybe'"),
    ({"includeHeaders": "1"}, "'includeHeaders' must be true or false"),
    ({"isolation": "none"}, "'isolation' must be read_committed or read_uncommitted"),
    ({"isolation": "read_committed", "kafka__isolation__level": "read_uncommitted"}, "contradicts"),
    ({"tier": "maybe"}, "'tier' must be auto or direct or never"),
    ({"tier": "direct"}, "tier=direct needs tierPath"),
    ({"fetchOffset__numRetries": "1000"}, "'fetchOffset.numRetries'.*at most 100"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_invalid_option_error_names_the_option(
    options: dict[str, str | None], message: str
) -> None:
    with pytest.raises(OptionError) as raised:
        parse(**options)
    assert re.search(message, str(raised.value)), str(raised.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_ending_options_are_rejected_for_streams(name: str) -> None:
    with pytest.raises(OptionError, match=f"'{name}' applies to batch reads only"):
        parse(True, **{name: "latest"})


def test_sink_options_are_parsed() -> None:
    sink = {"kafka.bootstrap.servers": "h:1"}
    options = SinkOptions.parse(sink | {"checkpointLocation": "/c", "queryName": "q"})
    assert (options.topic, options.delivery) == (None, Delivery.AT_LEAST_ONCE)
    asked = {"topic": "t", "delivery": "exactly-once", "atomicBatches": "true", "markerTopic": "m"}
    options = SinkOptions.parse(sink | asked | {"kafka.acks": "all"})
    assert (options.topic, options.marker_topic) == ("t", "m")
    assert options.delivery is Delivery.EXACTLY_ONCE and options.atomic_batches
    assert options.client.properties == {"acks": "all"}
    with pytest.raises(OptionError, match="atomicBatches needs delivery=exactly-once"):
        SinkOptions.parse(sink | {"atomicBatches": "true"})
    with pytest.raises(OptionError, match=r"unknown option 'kafka.isolation.level'"):
        SinkOptions.parse(sink | {"kafka.isolation.level": "read_committed"})
    with pytest.raises(OptionError, match="unknown option 'topc'; did you mean 'topic'"):
        SinkOptions.parse(sink | {"topc": "t"})
