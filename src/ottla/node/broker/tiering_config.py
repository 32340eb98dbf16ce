"""The settings of tiered storage: those of Kafka, and the keys of our stores. Pure.

``remote.log.storage.manager.class.name`` is the kind of store; its keys have the prefix
``rsm.config.``:

    directory   rsm.config.directory           a directory that all brokers share
    s3          rsm.config.bucket              and optionally ``region``, ``endpoint``, ``prefix``,
                                               ``access.key.id``, ``secret.access.key``,
                                               ``session.token``, ``allow.http``

``remote.log.metadata.manager.class.name`` is Kafka's class of the topic-based manager, or
``memory``.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from ottla.config.generated import BrokerConfig
from ottla.config.problems import ConfigError, Problem
from ottla.runtime.ports import Address
from ottla.tiering.metadata_topic import TopicSettings
from ottla.tiering.store_settings import DIRECTORY, S3, S3_OPTIONS, StoreSettings

IN_MEMORY: Final = "memory"
TOPIC_BASED: Final = (
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
)
STORE_KEY: Final = "remote.log.storage.manager.class.name"
METADATA_KEY: Final = "remote.log.metadata.manager.class.name"
_BOOTSTRAP: Final = "remote.log.metadata.common.client.bootstrap.servers"
_DIRECTORY_KEYS: Final = frozenset({"directory", "prefix"})
_BUCKET_KEYS: Final = frozenset({"bucket", "prefix", "allow.http", *S3_OPTIONS})


class TieringSettings(msgspec.Struct, frozen=True):
    """Everything that tiered storage needs. ``topic`` is None for metadata in memory."""

    store: StoreSettings
    topic: TopicSettings | None
    bootstrap: Address | None = None


def tiering_settings(
    config: BrokerConfig, static: Mapping[str, str], log_directory: str
) -> TieringSettings | None:
    """Return the settings; None if ``remote.log.storage.system.enable`` is off.

    Raises:
        ConfigError: there is no store, or its settings are wrong.
    """
    if not config.remote_log_storage_system_enable:
        return None
    store = _prefixed(static, config.remote_log_storage_manager_impl_prefix)
    metadata = _prefixed(static, config.remote_log_metadata_manager_impl_prefix)
    kind = config.remote_log_metadata_manager_class_name
    if kind not in (IN_MEMORY, TOPIC_BASED):
        rule = f"must be {TOPIC_BASED} or {IN_MEMORY}; Java classes cannot be loaded"
        raise ConfigError([Problem(METADATA_KEY, kind, rule)])
    topic = None if kind == IN_MEMORY else _topic(metadata, log_directory)
    return TieringSettings(_store(config, store), topic, _bootstrap(metadata))


def _prefixed(static: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): value.strip()
        for name, value in static.items()
        if name.startswith(prefix)
    }


def _store(config: BrokerConfig, given: Mapping[str, str]) -> StoreSettings:
    kind = config.remote_log_storage_manager_class_name
    prefix = config.remote_log_storage_manager_impl_prefix
    if kind not in (DIRECTORY, S3):
        rule = f"must be {DIRECTORY} or {S3} with remote.log.storage.system.enable"
        raise ConfigError([Problem(STORE_KEY, kind, rule)])
    needed, known = (
        ("directory", _DIRECTORY_KEYS) if kind == DIRECTORY else ("bucket", _BUCKET_KEYS)
    )
    problems = [
        Problem(f"{prefix}{name}", None, f"is not a key of a {kind} store")
        for name in sorted(set(given) - known)
    ]
    if not given.get(needed):
        problems.append(Problem(f"{prefix}{needed}", None, f"must be set for a {kind} store"))
    if kind == DIRECTORY and not given.get(needed, "/").startswith("/"):
        problems.append(Problem(f"{prefix}{needed}", given[needed], "must be an absolute path"))
    if bool(given.get("access.key.id")) != bool(given.get("secret.access.key")):
        rule = "access.key.id and secret.access.key must be set together"
        problems.append(Problem(f"{prefix}access.key.id", None, rule))
    if problems:
        raise ConfigError(problems)
    return StoreSettings(
        kind,
        given[needed],
        given.get("prefix", "").strip("/"),
        {option: given[name] for name, option in S3_OPTIONS.items() if given.get(name)},
        given.get("allow.http", "").lower() == "true",
    )


def _topic(given: Mapping[str, str], log_directory: str) -> TopicSettings:
    prefix = "remote.log.metadata.topic."
    usual = TopicSettings()
    factor = _number(given, f"{prefix}replication.factor", usual.replication_factor)
    return TopicSettings(
        partitions=_number(given, f"{prefix}num.partitions", usual.partitions),
        replication_factor=factor,
        retention_ms=_number(given, f"{prefix}retention.ms", usual.retention_ms, least=-1),
        min_insync_replicas=min(
            factor, _number(given, f"{prefix}min.isr", usual.min_insync_replicas)
        ),
        snapshot_dir=given.get("snapshot.dir") or f"{log_directory}/remote-log-metadata",
        snapshot_interval_ms=_number(given, "snapshot.interval.ms", usual.snapshot_interval_ms),
    )


def _number(given: Mapping[str, str], name: str, usual: int, least: int = 1) -> int:
    text = given.get(name)
    if text is None:
        return usual
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ConfigError([Problem(name, text, f"must be an integer of at least {least}")])
    return value


def _bootstrap(given: Mapping[str, str]) -> Address | None:
    text = given.get(_BOOTSTRAP, "").split(",")[0]
    host, _, port = text.rpartition(":")
    if not text:
        return None
    if not host or not port.isdigit():
        raise ConfigError([Problem(_BOOTSTRAP, text, "must be host:port")])
    return Address(host.strip("[]"), int(port))
