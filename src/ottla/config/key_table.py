"""The table of configuration keys; settings, docs and DescribeConfigs derive from it.

It contains every key of Kafka 4.2 for brokers, topics, groups and client metrics, and Ottla's own
keys, which start with ``ottla.``. The rows are in `ottla.config.tables`, by subject.
"""

from collections.abc import Mapping
from types import MappingProxyType

from ottla.config.key_definition import Key, Scope
from ottla.config.tables.broker_groups import BROKER_GROUPS
from ottla.config.tables.broker_log import BROKER_LOG
from ottla.config.tables.broker_network import BROKER_NETWORK
from ottla.config.tables.broker_node import BROKER_NODE
from ottla.config.tables.broker_otlp import BROKER_OTLP
from ottla.config.tables.broker_ottla import BROKER_OTTLA
from ottla.config.tables.broker_quotas import BROKER_QUOTAS
from ottla.config.tables.broker_remote import BROKER_REMOTE
from ottla.config.tables.broker_replication import BROKER_REPLICATION
from ottla.config.tables.broker_security import BROKER_SECURITY
from ottla.config.tables.broker_transactions import BROKER_TRANSACTIONS
from ottla.config.tables.client_metrics import CLIENT_METRICS
from ottla.config.tables.group import GROUP
from ottla.config.tables.topic import TOPIC
from ottla.config.unsupported import UNSUPPORTED_KEYS

_ROWS = {
    Scope.BROKER: (
        *BROKER_NODE,
        *BROKER_NETWORK,
        *BROKER_LOG,
        *BROKER_REPLICATION,
        *BROKER_QUOTAS,
        *BROKER_GROUPS,
        *BROKER_TRANSACTIONS,
        *BROKER_REMOTE,
        *BROKER_SECURITY,
        *BROKER_OTTLA,
        *BROKER_OTLP,
    ),
    Scope.TOPIC: TOPIC,
    Scope.GROUP: GROUP,
    Scope.CLIENT_METRICS: CLIENT_METRICS,
}

KEYS: Mapping[Scope, Mapping[str, Key]] = MappingProxyType(
    {scope: MappingProxyType({key.name: key for key in rows}) for scope, rows in _ROWS.items()}
)

# Throttles can be altered at run time but not set in a file.
DYNAMIC_ONLY: frozenset[str] = frozenset(key.name for key in BROKER_QUOTAS)

MINUTE_MS = 60_000
HOUR_MS = 3_600_000

# Broker keys for the same setting in different units, most precise first, each with the factor that
# converts it to the unit of the first. The first one that is set takes precedence.
BROKER_SYNONYMS: Mapping[str, tuple[tuple[str, int], ...]] = MappingProxyType(
    {
        "log.retention.ms": (
            ("log.retention.ms", 1),
            ("log.retention.minutes", MINUTE_MS),
            ("log.retention.hours", HOUR_MS),
        ),
        "log.roll.ms": (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
        "log.roll.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
        "log.flush.interval.ms": (
            ("log.flush.interval.ms", 1),
            ("log.flush.scheduler.interval.ms", 1),
        ),
    }
)

# The broker key that gives a topic key its default.
TOPIC_FALLBACK: Mapping[str, str] = MappingProxyType(
    {
        "cleanup.policy": "log.cleanup.policy",
        "compression.gzip.level": "compression.gzip.level",
        "compression.lz4.level": "compression.lz4.level",
        "compression.type": "compression.type",
        "compression.zstd.level": "compression.zstd.level",
        "delete.retention.ms": "log.cleaner.delete.retention.ms",
        "file.delete.delay.ms": "log.segment.delete.delay.ms",
        "flush.messages": "log.flush.interval.messages",
        "flush.ms": "log.flush.interval.ms",
        "index.interval.bytes": "log.index.interval.bytes",
        "local.retention.bytes": "log.local.retention.bytes",
        "local.retention.ms": "log.local.retention.ms",
        "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
        "max.decompressed.message.bytes": "max.decompressed.message.bytes",
        "max.message.bytes": "message.max.bytes",
        "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
        "message.timestamp.type": "log.message.timestamp.type",
        "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
        "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
        "min.insync.replicas": "min.insync.replicas",
        "preallocate": "log.preallocate",
        "remote.copy.lag.bytes": "log.remote.copy.lag.bytes",
        "remote.copy.lag.ms": "log.remote.copy.lag.ms",
        "retention.bytes": "log.retention.bytes",
        "retention.ms": "log.retention.ms",
        "segment.bytes": "log.segment.bytes",
        "segment.index.bytes": "log.index.size.max.bytes",
        "segment.jitter.ms": "log.roll.jitter.ms",
        "segment.ms": "log.roll.ms",
        "unclean.leader.election.enable": "unclean.leader.election.enable",
    }
)

# The broker key that gives a group key its default.
GROUP_FALLBACK: Mapping[str, str] = MappingProxyType(
    {
        "consumer.heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms": "group.consumer.session.timeout.ms",
        "share.heartbeat.interval.ms": "group.share.heartbeat.interval.ms",
        "share.record.lock.duration.ms": "group.share.record.lock.duration.ms",
        "share.session.timeout.ms": "group.share.session.timeout.ms",
        "streams.heartbeat.interval.ms": "group.streams.heartbeat.interval.ms",
        "streams.initial.rebalance.delay.ms": "group.streams.initial.rebalance.delay.ms",
        "streams.num.standby.replicas": "group.streams.num.standby.replicas",
        "streams.session.timeout.ms": "group.streams.session.timeout.ms",
    }
)


def fields_of(scope: Scope) -> list[Key]:
    """Return the keys that become fields: all except those without effect here."""
    return [
        key
        for key in KEYS[scope].values()
        if key.name not in UNSUPPORTED_KEYS or UNSUPPORTED_KEYS[key.name].accepted
    ]


# Every key that has synonyms, with its whole group.
_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    name: tuple(synonym for synonym, _ in group)
    for group in BROKER_SYNONYMS.values()
    for name, _ in group
}


def synonyms_of(name: str) -> tuple[str, ...]:
    """Return the broker keys that can set ``name``, in order of precedence.

    ``listener.name.{listener}.[{mechanism}.]{key}`` falls back to ``{key}`` itself.
    """
    if name in _SYNONYMS:
        return _SYNONYMS[name]
    base = base_of_listener_key(name)
    return (name,) if base is None else (name, base.name)


LISTENER_PREFIX = "listener.name."
# The keys that may be set per listener, beside all TLS and SASL keys.
_LISTENER_KEYS = frozenset(
    {
        "connections.max.reauth.ms",
        "max.connection.creation.rate",
        "max.connections",
        "num.network.threads",
        "principal.builder.class",
    }
)


def base_of_listener_key(name: str) -> Key | None:
    """Return the key that ``listener.name.{listener}.[{mechanism}.]{key}`` overrides."""
    parts = name.removeprefix(LISTENER_PREFIX).split(".")
    if not name.startswith(LISTENER_PREFIX) or len(parts) < 2:
        return None
    # Listener names have no dots in practice; a mechanism is one word.
    for tail in (parts[1:], parts[2:]):
        key = KEYS[Scope.BROKER].get(".".join(tail))
        if key is not None and (
            key.name in _LISTENER_KEYS or key.name.startswith(("ssl.", "sasl."))
        ):
            return key
    return None
