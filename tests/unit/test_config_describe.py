"""DescribeConfigs and layers, compared with Apache Kafka 4.2.1 for the same settings."""

from pathlib import Path

import pytest

from ottla.config.checks import group_problems, topic_problems
from ottla.config.describe import (
    Entry,
    Source,
    Synonym,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from ottla.config.generated import BrokerConfig, TopicConfig
from ottla.config.layers import (
    Layers,
    broker_config,
    client_metrics_config,
    effective_broker_value,
    group_config,
    topic_config,
)
from ottla.config.problems import ConfigError

GOLDEN = Path(__file__).parent / "golden" / "kafka_describe_configs.txt"

STATIC = {
    "node.id": "1",
    "broker.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "log.retention.hours": "5",
    "log.segment.bytes": "2000000",
    "message.max.bytes": "5000",
    "sasl.jaas.config": "topsecret",
    "listener.name.plaintext.ssl.keystore.location": "/x",
    "some.unknown": "v",
    "log.roll.ms": "1000",
    "log.roll.hours": "2",
    "log.cleanup.policy": "compact,delete",
    "listener.name.plaintext.plain.sasl.jaas.config": "othersecret",
}
LAYERS = Layers(
    dynamic_broker={
        "message.max.bytes": "7000",
        "leader.replication.throttled.rate": "55",
        "log.roll.ms": "9000",
    },
    dynamic_cluster={
        "message.max.bytes": "6000",
        "log.cleaner.threads": "2",
        "log.retention.ms": "777",
    },
    static=STATIC,
)
TOPIC = {"max.message.bytes": "8000", "cleanup.policy": "delete"}
GROUP = {"consumer.session.timeout.ms": "50000"}

# Kafka shows the default as the value of these two although it lists what was set, because a more
# precise key overrides them. Ottla shows what was set.
SHOWN_OTHERWISE = {"log.retention.hours", "log.roll.hours"}


def golden(section: str) -> dict[str, str]:
    lines = GOLDEN.read_text().split(f"#{section}\n")[1].split("#")[0].splitlines()
    return {line.split("|")[0]: line for line in lines}


def line_of(entry: Entry) -> str:
    synonyms = "".join(f"{s.name}={_null(s.value)}@{s.source};" for s in entry.synonyms)
    flags = f"{str(entry.is_read_only).lower()}|{str(entry.is_sensitive).lower()}"
    return f"{entry.name}|{_null(entry.value)}|{int(entry.source)}|{flags}|{entry.type}|{synonyms}"


# Keys that Kafka 4.2.1 does not have.
# Ottla's own, and those of releases after the one that the golden file is from.
OWN_KEYS = (
    *(
        "ottla.",
        "confluent.",
        "schema.registry.",
        "console.",
        "log.scrub.",
        "log.format",
        "log.level",
    ),
    *("cordoned.log.dirs", "errors.deadletterqueue.", "max.decompressed.message.bytes"),
    *("remote.copy.lag.", "log.remote.copy.lag."),
)


def _null(text: str | None) -> str:
    return "null" if text is None else text


@pytest.mark.parametrize(
    ("section", "entries"),
    [
        ("topic", describe_topic(TOPIC, LAYERS)),
        ("group", describe_group(GROUP, LAYERS)),
        ("broker", describe_broker(LAYERS)),
        ("cluster", describe_cluster_default(LAYERS)),
    ],
    ids=["topic", "group", "broker", "cluster"],
)
def test_entries_equal_those_of_kafka(section: str, entries: list[Entry]) -> None:
    expected = golden(section)
    ours = {entry.name: line_of(entry) for entry in entries if not entry.name.startswith(OWN_KEYS)}
    assert set(ours) == set(expected)
    different = {
        name: (ours[name], expected[name]) for name in expected if ours[name] != expected[name]
    }
    assert set(different) == (SHOWN_OTHERWISE if section == "broker" else set())


def test_ottla_keys_are_described() -> None:
    names = {entry.name for entry in describe_broker(LAYERS)}
    assert "ottla.metrics.listener" in names
    assert "ottla.cleaner.interval.ms" not in names


def test_secrets_are_described_without_value() -> None:
    reply = "".join(line_of(entry) for entry in describe_broker(LAYERS))
    assert "topsecret" not in reply and "othersecret" not in reply


def test_every_listed_key_has_documentation() -> None:
    entries = describe_topic({}, LAYERS) + describe_group({}, LAYERS)
    assert all(entry.doc for entry in entries)


def test_client_metrics_list_every_key_with_its_source() -> None:
    interval, match, metrics = describe_client_metrics({"interval.ms": "5000"})
    assert (interval.name, interval.value) == ("interval.ms", "5000")
    assert interval.synonyms == (Synonym("interval.ms", "5000", Source.CLIENT_METRICS),)
    assert [(e.name, e.value, e.source, e.synonyms) for e in (match, metrics)] == [
        ("match", "", Source.DEFAULT, ()),
        ("metrics", "", Source.DEFAULT, ()),
    ]


def test_internal_keys_are_listed_only_if_set() -> None:
    def listed(static: dict[str, str]) -> dict[str, Entry]:
        return {entry.name: entry for entry in describe_broker(Layers(static=static))}

    assert "group.share.enable" not in listed({})
    entry = listed({"group.share.enable": "true"})["group.share.enable"]
    assert (entry.value, entry.source, entry.is_read_only) == ("true", Source.STATIC_BROKER, True)


def test_broker_config_uses_the_dynamic_value() -> None:
    config = broker_config(LAYERS)
    assert (config.message_max_bytes, config.log_cleaner_threads, config.node_id) == (7000, 2, 1)
    assert (config.log_retention_ms, config.log_retention_hours) == (777, 5)
    assert config.num_partitions == 1
    altered = {"num.replica.fetchers": "0", "log.cleaner.threads": "x"}
    with pytest.raises(ConfigError) as caught:
        broker_config(Layers(dynamic_broker=altered, static=STATIC))
    assert {problem.key for problem in caught.value.problems} == set(altered)


def test_topic_value_falls_back_to_its_broker() -> None:
    config = topic_config(TOPIC, LAYERS)
    assert config.max_message_bytes == 8000
    assert config.cleanup_policy == ("delete",)
    assert config.retention_ms == 777
    assert config.segment_ms == 9000
    assert config.segment_bytes == 2_000_000
    assert topic_config({}, Layers()) == TopicConfig()


@pytest.mark.parametrize(
    ("static", "millis"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "5"}, 5 * 3_600_000),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.hours": "5", "log.retention.minutes": "7"}, 7 * 60_000),
        ({"log.retention.minutes": "7", "log.retention.ms": "9"}, 9),
    ],
)
def test_more_precise_unit_takes_precedence_within_a_level(
    static: dict[str, str], millis: int
) -> None:
    assert topic_config({}, Layers(static=static)).retention_ms == millis


def test_higher_level_takes_precedence_whatever_its_unit() -> None:
    layers = Layers(dynamic_cluster={"log.retention.hours": "1"}, static={"log.retention.ms": "9"})
    assert effective_broker_value(layers, "log.retention.ms") == 3_600_000


def test_log_flush_interval_defaults_to_the_scheduler_interval() -> None:
    layers = Layers(static={"log.flush.scheduler.interval.ms": "1234"})
    assert topic_config({}, layers).flush_ms == 1234


def test_group_value_falls_back_to_its_broker() -> None:
    layers = Layers(static={"group.share.session.timeout.ms": "46000"})
    config = group_config(GROUP, layers)
    assert config.consumer_session_timeout_ms == 50000
    assert config.share_session_timeout_ms == 46000


def test_all_invalid_and_unknown_overrides_are_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        topic_config({"retention.ms": "x", "nope": "1"}, Layers())
    assert [problem.key for problem in caught.value.problems] == ["retention.ms", "nope"]
    with pytest.raises(ConfigError):
        client_metrics_config({"interval.ms": "1"})
    assert client_metrics_config({"metrics": "a,b"}).metrics == ("a", "b")


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "min.compaction.lag.ms"),
        ({"remote.storage.enable": "true", "cleanup.policy": "compact"}, "cleanup.policy"),
        ({"remote.storage.enable": "true", "local.retention.ms": "-1"}, "local.retention.ms"),
        (
            {"remote.storage.enable": "true", "retention.bytes": "5", "local.retention.bytes": "6"},
            "local.retention.bytes",
        ),
        (
            {"remote.storage.enable": "true", "retention.ms": "9", "remote.copy.lag.ms": "10"},
            "remote.copy.lag.ms",
        ),
        (
            {"remote.storage.enable": "true", "local.retention.bytes": "5",
             "remote.copy.lag.bytes": "6"},
            "remote.copy.lag.bytes",
        ),
    ],
)  # fmt: skip
def test_conflicting_topic_keys_are_reported(overrides: dict[str, str], key: str) -> None:
    found = list(topic_problems(topic_config(overrides, Layers())))
    assert [problem.key for problem in found] == [key]


def test_consistent_topic_keys_are_accepted() -> None:
    fine = {"remote.storage.enable": "true", "local.retention.ms": "1", "retention.bytes": "-1",
            "local.retention.bytes": "99", "remote.copy.lag.bytes": "99",
            "remote.copy.lag.ms": "-1"}  # fmt: skip
    assert list(topic_problems(topic_config(fine, Layers()))) == []
    assert list(topic_problems(TopicConfig())) == []
    unlimited = {"remote.storage.enable": "true", "remote.copy.lag.bytes": str(2**62)}
    assert list(topic_problems(topic_config(unlimited, Layers()))) == [], "retention is unlimited"
    local = {"retention.ms": "9", "remote.copy.lag.ms": "10"}
    assert list(topic_problems(topic_config(local, Layers()))) == [], "nothing is copied"


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"consumer.session.timeout.ms": "44999"}, "consumer.session.timeout.ms"),
        ({"share.record.lock.duration.ms": "60001"}, "share.record.lock.duration.ms"),
        ({"streams.num.standby.replicas": "3"}, "streams.num.standby.replicas"),
    ],
)
def test_group_values_must_be_within_the_limits_of_the_broker(
    overrides: dict[str, str], key: str
) -> None:
    broker = BrokerConfig(node_id=1, process_roles=("broker",), controller_listener_names=("CTL",))
    found = list(group_problems(group_config(overrides, Layers()), broker))
    assert [problem.key for problem in found] == [key]
    assert list(group_problems(group_config({}, Layers()), broker)) == []
