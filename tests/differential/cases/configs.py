"""Configs of topics, brokers, groups, client metrics and loggers: described and altered."""

from collections.abc import Iterator

from tests.differential.catalogue import Case, Play, Ranges, request
from tests.differential.mutations import Plan, cases_of
from tests.differential.script import Script
from tests.differential.steps import make_topic, settle

TOPIC = "configs-topic"
KINDS = {"unknown": 0, "topic": 2, "3": 3, "broker": 4, "logger": 8, "metrics": 16, "group": 32}
NAMES = {
    "unknown": ("", "x"),
    "3": ("", "x"),
    "topic": (TOPIC, "", "a b", "configs-unknown", "__consumer_offsets"),
    "broker": ("1", "", "01", "2", "-1", "x", "+1", " 1"),
    "logger": ("1", "", "2", "x"),
    "metrics": ("configs-metrics", "", "configs-unknown"),
    "group": ("configs-group", "", "a b"),
}
# Kafka's loggers are its Java classes; only those whose names we share are compared.
LOGGER_KEYS = ["root", "no.such.logger"]


def setup(script: Script) -> None:
    make_topic(script, TOPIC)


def _describe(script: Script) -> dict[str, object]:
    resource = {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": ["retention.ms"]}
    return {"resources": [resource], "include_synonyms": True, "include_documentation": False}


def _described(version: int, kind: int, name: str, keys: list[str] | None) -> Play:
    def play(script: Script) -> None:
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        script.call("describe_configs", version, resources=[resource], include_synonyms=True)

    return play


def _alter(script: Script) -> dict[str, object]:
    config = {"name": "retention.ms", "value": "5000"}
    resource = {"resource_type": 2, "resource_name": TOPIC, "configs": [config]}
    return {"resources": [resource], "validate_only": False}


def _twice(script: Script) -> dict[str, object]:
    values = _alter(script)
    return {**values, "resources": values["resources"] * 2}


def _increment(script: Script) -> dict[str, object]:
    config = {"name": "retention.ms", "config_operation": 0, "value": "5000"}
    resource = {"resource_type": 2, "resource_name": TOPIC, "configs": [config]}
    return {"resources": [resource], "validate_only": False}


SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
CHANGES: dict[str, tuple[str, list[tuple[str, int, str | None]]]] = {
    "set": ("topic", [("retention.ms", SET, "7000")]),
    "set null": ("topic", [("retention.ms", SET, None)]),
    "delete": ("topic", [("retention.ms", DELETE, None)]),
    "delete with value": ("topic", [("retention.ms", DELETE, "1")]),
    "delete what is not set": ("topic", [("segment.ms", DELETE, None)]),
    "delete unknown": ("topic", [("no.such.key", DELETE, None)]),
    "append to no list": ("topic", [("retention.ms", APPEND, "1")]),
    "append": ("topic", [("cleanup.policy", APPEND, "compact")]),
    "append twice": ("topic", [("cleanup.policy", APPEND, "compact")]),
    "append null": ("topic", [("cleanup.policy", APPEND, None)]),
    "append unknown": ("topic", [("cleanup.policy", APPEND, "burn")]),
    "subtract": ("topic", [("cleanup.policy", SUBTRACT, "compact")]),
    "subtract all": ("topic", [("cleanup.policy", SUBTRACT, "delete")]),
    "subtract what is not there": ("topic", [("cleanup.policy", SUBTRACT, "burn")]),
    "subtract null": ("topic", [("cleanup.policy", SUBTRACT, None)]),
    "a key twice": ("topic", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]),
    "broker's dynamic key": ("broker", [("log.cleaner.threads", SET, "2")]),
    "threads more than doubled": ("broker", [("log.cleaner.threads", SET, "99")]),
    "threads less than halved": ("broker", [("num.io.threads", SET, "1")]),
    "broker's static key": ("broker", [("broker.id", SET, "2")]),
    "broker's unknown key": ("broker", [("no.such.key", SET, "2")]),
    "broker's log dirs": ("broker", [("log.dirs", SET, "/tmp")]),
    "broker's dynamic key away": ("broker", [("log.cleaner.threads", DELETE, None)]),
    "SASL without a listener": ("broker", [("sasl.jaas.config", SET, "x")]),
    "SASL without a listener for all": ("brokers", [("sasl.jaas.config", SET, "x")]),
    "SASL mechanism without a listener": ("broker", [("plain.sasl.jaas.config", SET, "x")]),
    "SASL mechanisms": ("broker", [("sasl.enabled.mechanisms", SET, "PLAIN,SCRAM-SHA-512")]),
    "SASL mechanism of nodes": ("broker", [("sasl.mechanism.inter.broker.protocol", SET, "PLAIN")]),
    "SASL mechanism of controllers": (
        "broker",
        [("sasl.mechanism.controller.protocol", SET, "PLAIN")],
    ),
    "SASL login class": ("broker", [("sasl.login.class", SET, "x")]),
    "SASL Kerberos": ("broker", [("sasl.kerberos.service.name", SET, "kafka")]),
    "SASL refresh": ("broker", [("sasl.login.refresh.window.factor", SET, "0.7")]),
    "SASL refresh, no number": ("broker", [("sasl.login.refresh.window.factor", SET, "x")]),
    "SASL away": (
        "broker",
        [
            ("sasl.jaas.config", DELETE, None),
            ("plain.sasl.jaas.config", DELETE, None),
            ("sasl.enabled.mechanisms", DELETE, None),
            ("sasl.mechanism.inter.broker.protocol", DELETE, None),
            ("sasl.kerberos.service.name", DELETE, None),
            ("sasl.login.refresh.window.factor", DELETE, None),
        ],
    ),
    "key of a listener for all": ("brokers", [("listener.name.x.no.such.key", SET, "1")]),
    "store without a listener": ("broker", [("ssl.keystore.location", SET, "/tmp/x")]),
    "default of brokers": ("brokers", [("log.retention.ms", SET, "600000000")]),
    "per-broker key for all": ("brokers", [("ssl.keystore.location", SET, "/tmp/x")]),
    "default of brokers away": ("brokers", [("log.retention.ms", DELETE, None)]),
    "group": ("group", [("consumer.session.timeout.ms", SET, "46000")]),
    "group out of range": ("group", [("consumer.session.timeout.ms", SET, "1")]),
    "group heartbeat above session": ("group", [("consumer.heartbeat.interval.ms", SET, "99999")]),
    "group share key": ("group", [("share.isolation.level", SET, "read_committed")]),
    "group wrong enum": ("group", [("share.isolation.level", SET, "x")]),
    "group unknown key": ("group", [("no.such.key", SET, "1")]),
    "group away": ("group", [("consumer.session.timeout.ms", DELETE, None)]),
    "metrics": ("metrics", [("metrics", SET, "org.apache.kafka.")]),
    "metrics append": ("metrics", [("metrics", APPEND, "x.")]),
    "metrics subtract": ("metrics", [("metrics", SUBTRACT, "x.")]),
    "metrics interval": ("metrics", [("interval.ms", SET, "5000")]),
    "metrics interval too small": ("metrics", [("interval.ms", SET, "1")]),
    "metrics match": ("metrics", [("match", SET, "client_id=a.*")]),
    "metrics wrong match": ("metrics", [("match", SET, "colour=red")]),
    "metrics bad regex": ("metrics", [("match", SET, "client_id=[")]),
    "metrics unknown key": ("metrics", [("no.such.key", SET, "1")]),
    "metrics empty": ("metrics", [("metrics", SET, "")]),
    "metrics append to empty": ("metrics", [("metrics", APPEND, "x.")]),
    "metrics away": ("metrics", [("interval.ms", DELETE, None)]),
    "logger level": ("logger", [("root", SET, "WARN")]),
    "logger wrong level": ("logger", [("root", SET, "LOUD")]),
    "logger delete root": ("logger", [("root", DELETE, None)]),
    "logger append": ("logger", [("root", APPEND, "INFO")]),
    "logger unknown": ("logger", [("no.such.logger", SET, "INFO")]),
    "logger level back": ("logger", [("root", SET, "INFO")]),
}
TARGETS = {
    "topic": (2, TOPIC),
    "broker": (4, "1"),
    "brokers": (4, ""),
    "group": (32, "configs-group"),
    "metrics": (16, "configs-metrics"),
    "logger": (8, "1"),
}


def _changed(version: int) -> Play:
    """All changes in one script: each one is followed by a look at the keys it named."""

    def play(script: Script) -> None:
        for label, (target, configs) in CHANGES.items():
            kind, name = TARGETS[target]
            rows = [{"name": k, "config_operation": op, "value": v} for k, op, v in configs]
            resource = {"resource_type": kind, "resource_name": name, "configs": rows}
            for is_trial in (True, False):
                word = f"{label}, validated only" if is_trial else label
                script.call(
                    "incremental_alter_configs",
                    version,
                    word,
                    resources=[resource],
                    validate_only=is_trial,
                )
            if kind == 4:
                continue  # Kafka applies changes of brokers some time after it answered
            settle(script)
            keys = [key for key, _, _ in configs]
            shown = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            script.call("describe_configs", 4, f"{label}, described", resources=[shown])

    return play


def _replaced(version: int) -> Play:
    """AlterConfigs replaces all keys of a resource."""

    def play(script: Script) -> None:
        name = f"{script.name}-t"
        make_topic(script, name, configs={"retention.ms": "5", "segment.ms": "6"})
        for label, configs in {
            "one key": [("retention.ms", "9")],
            "none": [],
            "a key twice": [("retention.ms", "1"), ("retention.ms", "2")],
            "null": [("retention.ms", None)],
            "unknown": [("no.such.key", "1")],
            "wrong": [("retention.ms", "x")],
        }.items():
            rows = [{"name": key, "value": value} for key, value in configs]
            resource = {"resource_type": 2, "resource_name": name, "configs": rows}
            script.call("alter_configs", version, label, resources=[resource])
            settle(script)
            shown = {"resource_type": 2, "resource_name": name}
            shown["configuration_keys"] = ["retention.ms", "segment.ms"]
            script.call("describe_configs", 4, f"{label}, described", resources=[shown])
        metrics = {"resource_type": 16, "resource_name": "x", "configs": []}
        script.call("alter_configs", version, "metrics", resources=[metrics])
        group = {"resource_type": 32, "resource_name": "x", "configs": []}
        script.call("alter_configs", version, "group", resources=[group])

    return play


def _resources(script: Script) -> dict[str, object]:
    return {"resource_types": [16, 32]}


def cases(ranges: Ranges) -> Iterator[Case]:
    yield from cases_of(Plan("describe_configs", _describe), "configs", ranges)
    for version in ranges.of("describe_configs"):
        for word, kind in KINDS.items():
            for name in NAMES[word]:
                keys = LOGGER_KEYS if word == "logger" else None
                play = _described(version, kind, name, keys)
                yield Case(f"configs/all of {word} '{name}'/v{version}", play)
    # Kafka does not answer a request that names a resource twice: asked once, with less patience.
    skip = frozenset({"resources twice"})
    yield Case("configs/alter a resource twice/v2", request("alter_configs", 2, _twice), 2.0)
    yield from cases_of(Plan("alter_configs", _alter, skip=skip), "configs", ranges)
    yield from cases_of(Plan("incremental_alter_configs", _increment), "configs", ranges)
    for version in ranges.of("incremental_alter_configs"):
        yield Case(f"configs/changes/v{version}", _changed(version))
    for version in ranges.of("alter_configs"):
        yield Case(f"configs/replaced/v{version}", _replaced(version))
    yield from cases_of(Plan("list_config_resources", _resources), "configs", ranges)
