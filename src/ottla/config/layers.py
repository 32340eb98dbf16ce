"""Determines which value is in effect if several sources set one.

    topic:   its own value, then that of its broker
    broker:  dynamic for the broker, dynamic for the cluster, static, default

Within one level a more precise key (``log.retention.ms``) takes precedence over a coarser one
(``log.retention.hours``); a higher level takes precedence over a lower one whatever the unit.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ottla.config.generated import BrokerConfig, ClientMetricsConfig, GroupConfig, TopicConfig
from ottla.config.key_definition import Key, Scope
from ottla.config.key_table import (
    BROKER_SYNONYMS,
    GROUP_FALLBACK,
    KEYS,
    TOPIC_FALLBACK,
    fields_of,
)
from ottla.config.problems import ConfigError, Problem
from ottla.config.values import BadValue, Value, parse

Texts = Mapping[str, str]
"""Key to value, as written."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The raw settings of one broker, by precedence. Not printed: they may contain secrets."""

    dynamic_broker: Texts = field(default_factory=dict, repr=False)
    dynamic_cluster: Texts = field(default_factory=dict, repr=False)
    static: Texts = field(default_factory=dict, repr=False)

    def strongest_first(self) -> tuple[Texts, Texts, Texts]:
        """Return the levels in order of precedence."""
        return self.dynamic_broker, self.dynamic_cluster, self.static

    def find(self, names: Iterable[str]) -> tuple[str, str] | None:
        """Return the first of ``names`` in the highest level that has any, and its text."""
        for level in self.strongest_first():
            for name in names:
                if name in level:
                    return name, level[name]
        return None


def parse_checked(key: Key, text: str) -> Value:
    """Parse a value and check the rule of its key. Raises `BadValue`."""
    value = parse(key.type, text)
    if key.rule is not None and (expected := key.rule.broken_by(value)) is not None:
        raise BadValue(expected)
    return value


def shown(key: Key | None, text: str) -> str | None:
    """Return the text as it may be shown: None for a secret or an unknown key."""
    return None if key is None or key.is_sensitive else text


def effective_broker_value(layers: Layers, name: str) -> Value | None:
    """Return the value of a broker key, in its own unit, or its default. Raises `BadValue`."""
    table = KEYS[Scope.BROKER]
    factors = dict(BROKER_SYNONYMS.get(name, ((name, 1),)))
    found = layers.find(factors)
    if found is not None:
        return _scaled(parse_checked(table[found[0]], found[1]), factors[found[0]])
    for synonym, factor in factors.items():
        default = table[synonym].default_value
        if default is not None:
            return _scaled(default, factor)
    return None


def _scaled(value: Value, factor: int) -> Value:
    # A negative retention means unlimited in every unit.
    if factor == 1 or not isinstance(value, int) or isinstance(value, bool):
        return value
    return -1 if value < 0 else value * factor


def broker_fallback(scope: Scope, name: str) -> str | None:
    """Return the broker key that gives a topic or group key its default."""
    table = TOPIC_FALLBACK if scope is Scope.TOPIC else GROUP_FALLBACK
    return table.get(name) if scope in (Scope.TOPIC, Scope.GROUP) else None


def effective_value(scope: Scope, name: str, overrides: Texts, layers: Layers) -> Value | None:
    """Return the value of a topic, group or client metrics key. Raises `BadValue`."""
    key = KEYS[scope][name]
    if name in overrides:
        return parse_checked(key, overrides[name])
    fallback = broker_fallback(scope, name)
    return key.default_value if fallback is None else effective_broker_value(layers, fallback)


def broker_config(layers: Layers) -> BrokerConfig:
    """Return the settings of a broker, each key on its own and in its own unit.

    A key that was altered at run time has its new value, all others are as at the start.
    Raises `ConfigError` with every bad value.
    """
    problems: list[Problem] = []
    values: dict[str, Value] = {}
    for key in fields_of(Scope.BROKER):
        found = layers.find((key.name,))
        if found is None:
            continue
        try:
            values[key.field] = parse_checked(key, found[1])
        except BadValue as error:
            problems.append(Problem(key.name, shown(key, found[1]), str(error)))
    if problems:
        raise ConfigError(problems)
    return BrokerConfig(**values)  # type: ignore[arg-type]


def topic_config(overrides: Texts, layers: Layers) -> TopicConfig:
    """Return the settings of a topic. Raises `ConfigError` with every invalid override."""
    return TopicConfig(**_collect(Scope.TOPIC, overrides, layers))  # type: ignore[arg-type]


def group_config(overrides: Texts, layers: Layers) -> GroupConfig:
    """Return the settings of a group. Raises `ConfigError` with every invalid override."""
    return GroupConfig(**_collect(Scope.GROUP, overrides, layers))  # type: ignore[arg-type]


def client_metrics_config(overrides: Texts) -> ClientMetricsConfig:
    """Return one subscription. Raises `ConfigError` with every invalid value."""
    values = _collect(Scope.CLIENT_METRICS, overrides, Layers())
    return ClientMetricsConfig(**values)  # type: ignore[arg-type]


def _collect(scope: Scope, overrides: Texts, layers: Layers) -> dict[str, Value | None]:
    problems = list(_problems(scope, overrides))
    if problems:
        raise ConfigError(problems)
    return {
        key.field: effective_value(scope, key.name, overrides, layers) for key in fields_of(scope)
    }


def _problems(scope: Scope, overrides: Texts) -> Iterator[Problem]:
    for name, text in overrides.items():
        key = KEYS[scope].get(name)
        if key is None:
            yield Problem(name, None, f"unknown {scope.value} key")
            continue
        try:
            parse_checked(key, text)
        except BadValue as error:
            yield Problem(name, shown(key, text), str(error))
