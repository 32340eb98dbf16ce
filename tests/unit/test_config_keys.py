"""The table of keys equals Kafka's, and the generated files are current."""

import re
from pathlib import Path

import msgspec
import pytest

import ottla
from ottla.config import generate, generated
from ottla.config.key_definition import Importance, Key, Required, Scope, Update
from ottla.config.key_table import (
    BROKER_SYNONYMS,
    DYNAMIC_ONLY,
    GROUP_FALLBACK,
    KEYS,
    TOPIC_FALLBACK,
    base_of_listener_key,
    fields_of,
    synonyms_of,
)
from ottla.config.layers import parse_checked
from ottla.config.unsupported import REMOVED_KEYS, UNSUPPORTED_KEYS
from ottla.config.values import BadValue, Type, to_text

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden" / "kafka_keys.tsv"
FACTS = [line.split("\t") for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]


OURS = (
    "ottla.",
    "confluent.",
    "schema.registry.",
    "console.",
    "log.scrub.",
    "log.format",
    "log.level",
)
# Keys of Kafka 4.3, as its release 4.3.1 defines them, and of 4.4.
_DEAD = "errors.deadletterqueue."
NEWER = [
    ["broker", "cordoned.log.dirs", "LIST", "", "MEDIUM", "per-broker", "false"],
    *(
        [scope, f"{_DEAD}{name}", kind, default, "MEDIUM", "cluster-wide", "false"]
        for scope, name, kind, default in (
            ("broker", "auto.create.topics.enable", "BOOLEAN", "false"),
            ("broker", "topic.name.prefix", "STRING", "dlq."),
            ("topic", "group.enable", "BOOLEAN", "false"),
            ("group", "copy.record.enable", "BOOLEAN", "false"),
            ("group", "topic.name", "STRING", ""),
        )
    ),
    *(
        [scope, name, "INT", "2147483639", "MEDIUM", "cluster-wide", "false"]
        for scope, name in (
            ("broker", "max.decompressed.message.bytes"),
            ("topic", "max.decompressed.message.bytes"),
        )
    ),
    *(
        [
            scope,
            f"{prefix}remote.copy.lag.{unit}",
            "LONG",
            default,
            "MEDIUM",
            "cluster-wide",
            "false",
        ]
        for scope, prefix in (("broker", "log."), ("topic", ""))
        for unit, default in (("ms", "0"), ("bytes", "-1"))
    ),
]


def kafka_default(key: Key) -> str:
    if isinstance(key.default, Required):
        return "<REQUIRED>"
    text = to_text(key.default)
    return "<NULL>" if text is None else text


@pytest.mark.parametrize("scope", list(Scope), ids=lambda scope: scope.value)
def test_every_key_of_kafka_exists_with_kafkas_definition(scope: Scope) -> None:
    ours = {
        key.name: [
            scope.value,
            key.name,
            key.type.name,
            kafka_default(key),
            key.importance.name,
            key.update.value,
            str(key.internal).lower(),
        ]
        for key in KEYS[scope].values()
        if not key.name.startswith(OURS) and key.name not in DYNAMIC_ONLY
    }
    kafkas = {fact[1]: fact for fact in [*FACTS, *NEWER] if fact[0] == scope.value}
    assert ours == kafkas


def test_number_of_keys_per_scope() -> None:
    assert [len([f for f in FACTS if f[0] == scope.value]) for scope in Scope] == [341, 34, 11, 3]


@pytest.mark.parametrize(
    ("scope", "name", "good", "bad"),
    [
        (Scope.BROKER, "num.partitions", ["1", "+3", " 7 "], ["0", "3.0", "", "2147483648", "x"]),
        (Scope.BROKER, "node.id", ["0"], ["-1"]),
        (Scope.BROKER, "offsets.topic.replication.factor", ["3"], ["40000", "0"]),
        (Scope.BROKER, "log.cleaner.min.cleanable.ratio", [".5", "0.7f", "1"], ["1.01", "1_0"]),
        (Scope.BROKER, "log.preallocate", ["TRUE", "false"], ["yes", "1", ""]),
        (Scope.BROKER, "log.dirs", ["/a,/a", " /a , /b "], ["", "/a,,/b"]),
        (Scope.BROKER, "log.cleanup.policy", ["", "compact, delete"], ["none", "Compact"]),
        (Scope.BROKER, "process.roles", ["broker", "controller,broker"], ["", "x"]),
        (Scope.BROKER, "controller.quorum.voters", ["", "1@a:1,2@[::1]:2"], ["1@a", "x@a:1"]),
        (Scope.BROKER, "controller.quorum.bootstrap.servers", ["a:1"], ["a:1,b", "a:99999"]),
        (Scope.BROKER, "compression.gzip.level", ["-1", "1", "9"], ["0", "10", "-2"]),
        (Scope.BROKER, "compression.type", ["producer", "zstd"], ["none", "ZSTD"]),
        (Scope.BROKER, "group.consumer.migration.policy", ["Upgrade"], ["sideways"]),
        (Scope.BROKER, "group.share.delivery.count.limit", ["2", "10"], ["1", "11"]),
        (Scope.BROKER, "ssl.client.auth", ["required"], ["Required"]),
        (Scope.BROKER, "remote.log.metadata.manager.impl.prefix", ["x."], [""]),
        (Scope.BROKER, "ottla.metrics.listener", ["[::]:9404"], ["9404", ":9404"]),
        (Scope.TOPIC, "retention.ms", ["-1", "0"], ["-2", "9223372036854775808"]),
        (Scope.TOPIC, "segment.bytes", ["1048576"], ["1048575"]),
        (
            Scope.TOPIC,
            "leader.replication.throttled.replicas",
            ["*", "", "0:1,1:2"],
            ["0:1,*", "0:", "none", "a:1"],
        ),
        (
            Scope.GROUP,
            "share.auto.offset.reset",
            ["latest", "earliest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S",
             "by_duration:pt1h", "by_duration:PT0S", "by_duration:PT+1S"],
            ["Latest", "none", "by_duration:", "by_duration:PT", "by_duration:-PT1H",
             "by_duration:PT1.5H", "by_duration:P1W", "by_duration:P-1D"],
        ),
        (Scope.GROUP, "share.isolation.level", ["read_committed"], ["READ_COMMITTED"]),
        (Scope.CLIENT_METRICS, "interval.ms", ["100", "3600000"], ["99", "3600001"]),
        (
            Scope.CLIENT_METRICS,
            "match",
            ["", "client_id=app.*,client_source_port=90[0-9]+"],
            ["client_id", "color=red", "client_id=("],
        ),
    ],
)  # fmt: skip
def test_values_are_validated_as_in_kafka(
    scope: Scope, name: str, good: list[str], bad: list[str]
) -> None:
    key = KEYS[scope][name]
    for text in good:
        parse_checked(key, text)
    for text in bad:
        with pytest.raises(BadValue):
            parse_checked(key, text)


@pytest.mark.parametrize("scope", list(Scope), ids=lambda scope: scope.value)
def test_every_default_satisfies_its_rule(scope: Scope) -> None:
    for key in KEYS[scope].values():
        if key.default_value is not None and key.rule is not None:
            assert key.rule.broken_by(key.default_value) is None, key.name


@pytest.mark.parametrize("scope", list(Scope), ids=lambda scope: scope.value)
def test_every_key_has_one_sentence_of_documentation(scope: Scope) -> None:
    for key in KEYS[scope].values():
        assert key.doc.endswith(".") and len(key.doc) < 130, key.name
        assert "<" not in key.doc, key.name


def test_generated_module_is_current() -> None:
    assert generate.MODULE.read_text() == generate.render_module()


def test_generated_page_is_current() -> None:
    assert (ROOT / "docs" / "config.md").read_text() == generate.render_docs()


@pytest.mark.parametrize("scope", list(Scope), ids=lambda scope: scope.value)
def test_generated_classes_have_the_defaults_of_the_table(scope: Scope) -> None:
    cls = getattr(generated, generate.CLASSES[scope][0])
    fields = {field.name: field for field in msgspec.structs.fields(cls)}
    assert set(fields) == {key.field for key in fields_of(scope)}
    for key in fields_of(scope):
        if isinstance(key.default, Required):
            assert fields[key.field].default is msgspec.NODEFAULT
        else:
            assert fields[key.field].default == key.default


def test_key_without_effect_is_in_the_table_but_not_a_field() -> None:
    fields = {key.name for key in fields_of(Scope.BROKER)}
    assert set(UNSUPPORTED_KEYS) <= set(KEYS[Scope.BROKER])
    assert "num.io.threads" not in fields
    assert "authorizer.class.name" in fields


def test_removed_keys_are_not_in_the_table() -> None:
    assert not set(REMOVED_KEYS) & set(KEYS[Scope.BROKER])


def test_fallback_keys_have_the_same_type() -> None:
    for table, scope in ((TOPIC_FALLBACK, Scope.TOPIC), (GROUP_FALLBACK, Scope.GROUP)):
        for name, fallback in table.items():
            assert KEYS[scope][name].type is KEYS[Scope.BROKER][fallback].type, name


def test_synonyms_are_ordered_from_precise_to_coarse() -> None:
    assert synonyms_of("log.retention.hours") == (
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    )
    assert synonyms_of("num.partitions") == ("num.partitions",)
    for first, group in BROKER_SYNONYMS.items():
        assert group[0] == (first, 1)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("listener.name.external.ssl.keystore.location", "ssl.keystore.location"),
        ("listener.name.external.plain.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.external.scram-sha-256.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.external.max.connections", "max.connections"),
        ("listener.name.external.log.dirs", None),
        ("listener.name.external", None),
        ("ssl.keystore.location", None),
    ],
)
def test_listener_keys_override_broker_keys(name: str, base: str | None) -> None:
    found = base_of_listener_key(name)
    assert (found.name if found else None) == base


def test_all_update_modes_and_importances_are_used() -> None:
    keys = KEYS[Scope.BROKER].values()
    assert {key.update for key in keys} == set(Update)
    assert {key.importance for key in keys} == set(Importance)
    assert {key.type for key in keys} == set(Type)


# Keys of what is not complete yet: authentication, TLS and the windows of quotas.
INCOMPLETE = ("sasl.", "ssl.", "ottla.oauthbearer.", "quota.window.")
INCOMPLETE += ("controller.quota.", "replication.quota.", "alter.log.dirs.replication.quota.")


def test_every_key_is_read_or_listed_as_without_effect() -> None:
    package = Path(ottla.__file__).parent
    declared = {"generated.py", "unsupported.py", "unenforced.py"}
    readers = [
        path.read_text()
        for path in package.rglob("*.py")
        if path.parent != package / "config" / "tables"
        and not (path.parent.name == "config" and path.name in declared)
    ]
    text = "\n".join(readers)
    words = set(re.findall(r"\w+", text))
    unread = [
        key.name
        for scope in Scope
        for key in KEYS[scope].values()
        if key.field not in words
        and f'"{key.name}"' not in text
        and not key.name.endswith(".impl.prefix")  # composed by the loader
    ]
    assert [
        name for name in unread if name not in UNSUPPORTED_KEYS and not name.startswith(INCOMPLETE)
    ] == []
