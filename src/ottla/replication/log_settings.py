"""Resolve the settings of a log from those of its topic and broker.

Pure. The topic's own settings come first, then the dynamic ones of the broker and the cluster, then
the broker's file, then Kafka's defaults; see `config.layers`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.config.generated import TopicConfig
from ottla.config.layers import Layers, effective_broker_value, topic_config
from ottla.config.problems import ConfigError
from ottla.metadata.configs import ConfigResource, ConfigResourceType
from ottla.metadata.image import Image
from ottla.protocol.types import NodeId
from ottla.storage.log.log_config import LogConfig


class TopicSettings(NamedTuple):
    """The effective settings of a topic and its logs, and the invalid keys with the reasons."""

    topic: TopicConfig
    log: LogConfig
    ignored: tuple[str, ...] = ()


def topic_settings(
    image: Image, topic: str, node_id: NodeId, static: Mapping[str, str]
) -> TopicSettings:
    """Resolve the settings of a topic on this broker.

    A key that this node does not understand is ignored and reported: the controller that accepted
    it may be newer, and a node must not stop because of a topic's setting.
    """
    configs = image.configs
    layers = Layers(
        dynamic_broker=configs.of(ConfigResource(ConfigResourceType.BROKER, str(node_id))),
        dynamic_cluster=configs.of(ConfigResource(ConfigResourceType.BROKER, "")),
        static=static,
    )
    overrides = dict(configs.of(ConfigResource(ConfigResourceType.TOPIC, topic)))
    try:
        found = topic_config(overrides, layers)
        ignored: tuple[str, ...] = ()
    except ConfigError as error:
        bad = {problem.key for problem in error.problems}
        kept = {key: value for key, value in overrides.items() if key not in bad}
        found = topic_config(kept, layers)
        ignored = tuple(str(problem) for problem in error.problems)
    expiration = effective_broker_value(layers, "producer.id.expiration.ms")
    assert isinstance(expiration, int)
    is_tiered = bool(effective_broker_value(layers, "remote.log.storage.system.enable"))
    return TopicSettings(found, log_config(found, expiration, is_tiered=is_tiered), ignored)


def log_config(
    topic: TopicConfig, producer_id_expiration_ms: int, *, is_tiered: bool = False
) -> LogConfig:
    """Return the settings of a topic's logs. ``is_tiered``: the broker has remote storage."""
    return LogConfig(
        segment_bytes=topic.internal_segment_bytes or topic.segment_bytes,
        segment_ms=topic.segment_ms,
        segment_jitter_ms=topic.segment_jitter_ms,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        max_message_bytes=topic.max_message_bytes,
        max_decompressed_message_bytes=topic.max_decompressed_message_bytes,
        is_log_append_time=topic.message_timestamp_type == "LogAppendTime",
        preallocate=topic.preallocate,
        file_delete_delay_ms=topic.file_delete_delay_ms,
        is_compacted="compact" in topic.cleanup_policy,
        is_deleted="delete" in topic.cleanup_policy,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        delete_retention_ms=topic.delete_retention_ms,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        max_compaction_lag_ms=topic.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
        producer_id_expiration_ms=producer_id_expiration_ms,
        is_tiered=is_tiered
        and topic.remote_storage_enable
        and "compact" not in topic.cleanup_policy,
        is_remote_copy_disabled=topic.remote_log_copy_disable,
        local_retention_ms=topic.local_retention_ms,
        local_retention_bytes=topic.local_retention_bytes,
        remote_copy_lag_ms=topic.remote_copy_lag_ms,
        remote_copy_lag_bytes=topic.remote_copy_lag_bytes,
    )
