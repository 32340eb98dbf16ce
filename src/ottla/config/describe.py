"""The content of DescribeConfigs: each key's value, its source, and its synonyms.

Synonyms are in order of precedence: the topic's or group's own value, then dynamic for the broker,
dynamic for the cluster, static, default; the first one is in effect. Secrets and unknown keys are
marked sensitive and have no value. An internal key is listed only if it is set.
"""

import enum
from collections.abc import Iterable
from typing import Final

import msgspec

from ottla.config.key_definition import Key, Scope, Update
from ottla.config.key_table import (
    DYNAMIC_ONLY,
    KEYS,
    TOPIC_FALLBACK,
    base_of_listener_key,
    synonyms_of,
)
from ottla.config.layers import Layers, Texts, effective_value, shown
from ottla.config.unenforced import ALLOW_EVERYONE, SUPER_USERS
from ottla.config.values import to_text

_BROKER = KEYS[Scope.BROKER]
_AUTHORIZER_KEYS: Final = frozenset({SUPER_USERS, ALLOW_EVERYONE})


class Source(enum.IntEnum):
    """The source of a value, by Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


UNKNOWN_TYPE = 0


class Synonym(msgspec.Struct, frozen=True):
    """One source that sets the key."""

    name: str
    value: str | None
    source: Source


class Entry(msgspec.Struct, frozen=True):
    """The description of one key."""

    name: str
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...]
    is_read_only: bool
    is_sensitive: bool
    type: int
    """The number of the type in the protocol; 0 for an unknown key."""
    doc: str | None


def describe_topic(overrides: Texts, layers: Layers) -> list[Entry]:
    """Return every key of a topic; an internal one only if it is set."""
    entries = []
    for key in KEYS[Scope.TOPIC].values():
        if key.internal and key.name not in overrides:
            continue
        value = to_text(effective_value(Scope.TOPIC, key.name, overrides, layers))
        inherited: tuple[Synonym, ...] = ()
        if key.name in TOPIC_FALLBACK:
            inherited = _broker_synonyms(TOPIC_FALLBACK[key.name], layers)
        own = (Synonym(key.name, value, Source.TOPIC),) if key.name in overrides else ()
        entries.append(_entry(key, value, own + inherited))
    return entries


def describe_group(overrides: Texts, layers: Layers) -> list[Entry]:
    """Return every key of a group."""
    entries = []
    for key in _listed(Scope.GROUP):
        value = to_text(effective_value(Scope.GROUP, key.name, overrides, layers))
        source = Source.GROUP if key.name in overrides else Source.DEFAULT
        entries.append(_entry(key, value, (Synonym(key.name, value, source),)))
    return entries


def describe_client_metrics(overrides: Texts) -> list[Entry]:
    """Return every key of a client metrics subscription.

    As in Kafka, only a key that the subscription sets has a synonym: its own value.
    """
    entries = []
    for key in _listed(Scope.CLIENT_METRICS):
        value = to_text(effective_value(Scope.CLIENT_METRICS, key.name, overrides, Layers()))
        is_set = key.name in overrides
        own = (Synonym(key.name, value, Source.CLIENT_METRICS),) if is_set else ()
        entries.append(_entry(key, value, own))
    return entries


def describe_loggers(levels: Texts) -> list[Entry]:
    """Return the loggers of one broker with their levels (KIP-412); Kafka gives them no type."""
    return [
        Entry(name, level, Source.DYNAMIC_BROKER_LOGGER, (), False, False, UNKNOWN_TYPE, None)
        for name, level in levels.items()
    ]


def describe_broker(layers: Layers) -> list[Entry]:
    """Return every key of one broker, including internal and unknown keys that are set."""
    names = [key.name for key in _listed(Scope.BROKER) if key.name not in DYNAMIC_ONLY]
    names += sorted({name for level in layers.strongest_first() for name in level} - set(names))
    return [_broker_entry(name, _broker_synonyms(name, layers)) for name in names]


def describe_cluster_default(layers: Layers) -> list[Entry]:
    """Return only what was set for all brokers at run time."""
    entries = []
    for name in sorted(layers.dynamic_cluster):
        synonyms = _broker_synonyms(name, layers)
        kept = tuple(item for item in synonyms if item.source is Source.DYNAMIC_DEFAULT_BROKER)
        entries.append(_broker_entry(name, kept))
    return entries


def _listed(scope: Scope) -> Iterable[Key]:
    return (key for key in KEYS[scope].values() if not key.internal)


def _broker_synonyms(name: str, layers: Layers) -> tuple[Synonym, ...]:
    """Return all sources of ``name``, without those before the first that sets ``name`` itself.

    So a broker-wide key does not list the listener's, and an unset ``log.retention.ms`` lists
    nothing rather than the value of ``log.retention.hours``.
    """
    sources = (Source.DYNAMIC_BROKER, Source.DYNAMIC_DEFAULT_BROKER, Source.STATIC_BROKER)
    names = synonyms_of(name)
    found = [
        Synonym(synonym, _shown(synonym, level[synonym]), source)
        for level, source in zip(layers.strongest_first(), sources, strict=True)
        for synonym in names
        if synonym in level
    ]
    for synonym in names:
        key = _BROKER.get(synonym)
        if synonym in DYNAMIC_ONLY:
            continue
        if key is not None and key.default_value is not None:
            text = to_text(key.default_value) or ""
            found.append(Synonym(synonym, shown(key, text), Source.DEFAULT))
    first = next((at for at, item in enumerate(found) if item.name == name), len(found))
    return tuple(found[first:])


def _known(name: str) -> Key | None:
    return _BROKER.get(name) or base_of_listener_key(name)


def _shown(name: str, text: str) -> str | None:
    # Keys of the authorizer are unknown to Kafka, which hides them. They are no secret to a client
    # that may describe the settings of brokers, and decide about requests.
    return text if name in _AUTHORIZER_KEYS else shown(_known(name), text)


def _broker_entry(name: str, synonyms: tuple[Synonym, ...]) -> Entry:
    key = _known(name)
    value = synonyms[0].value if synonyms else None
    source = synonyms[0].source if synonyms else Source.DEFAULT
    if key is None and name in _AUTHORIZER_KEYS:
        return Entry(name, value, source, synonyms, True, False, UNKNOWN_TYPE, None)
    if key is None:
        return Entry(name, None, source, synonyms, True, True, UNKNOWN_TYPE, None)
    # Kafka reports throttles and listener-specific keys as read-only although they can be altered.
    altered_only = name in DYNAMIC_ONLY or name not in _BROKER
    read_only = altered_only or key.update is Update.READ_ONLY
    return Entry(
        name, value, source, synonyms, read_only, key.is_sensitive, key.type.value, key.doc
    )


def _entry(key: Key, value: str | None, synonyms: tuple[Synonym, ...]) -> Entry:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    text = None if key.is_sensitive else value
    return Entry(key.name, text, source, synonyms, False, key.is_sensitive, key.type.value, key.doc)
