"""The settings of one log, as resolved from the topic's configuration.

Names are Kafka's topic keys with ``_`` for ``.``; sizes are bytes, times milliseconds, and ``-1``
means unlimited where Kafka defines it so. A change of settings replaces the whole object.
"""

from typing import Final

import msgspec

INT64_MAX: Final = 2**63 - 1


class LogConfig(msgspec.Struct, frozen=True):
    """Settings of one log; the defaults are Kafka's."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    max_decompressed_message_bytes: int = 2_147_483_639
    is_log_append_time: bool = False  # message.timestamp.type
    preallocate: bool = False
    file_delete_delay_ms: int = 60_000
    is_compacted: bool = False  # cleanup.policy has "compact"
    is_deleted: bool = True  # cleanup.policy has "delete"
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    producer_id_expiration_ms: int = 86_400_000
    is_tiered: bool = False  # remote.storage.enable: old segments are in remote storage, too
    is_remote_copy_disabled: bool = False  # remote.log.copy.disable
    local_retention_ms: int = -2  # -2: as retention_ms
    local_retention_bytes: int = -2  # -2: as retention_bytes
    remote_copy_lag_ms: int = 0  # -1: as the local retention
    remote_copy_lag_bytes: int = -1  # -1: as the local retention

    @property
    def is_copied(self) -> bool:
        """Whether segments are copied to remote storage, and may be deleted here only then."""
        return self.is_tiered and not self.is_remote_copy_disabled

    @property
    def disk_retention_ms(self) -> int:
        """How long segments stay on this broker's disk; -1 is unlimited."""
        is_whole = not self.is_copied or self.local_retention_ms == -2
        return self.retention_ms if is_whole else self.local_retention_ms

    @property
    def disk_retention_bytes(self) -> int:
        """How many bytes of segments stay on this broker's disk; -1 is unlimited."""
        is_whole = not self.is_copied or self.local_retention_bytes == -2
        return self.retention_bytes if is_whole else self.local_retention_bytes

    @property
    def copy_lag_ms(self) -> int:
        """The age at which a segment is copied; -1: age does not matter (KIP-1241)."""
        return self.disk_retention_ms if self.remote_copy_lag_ms == -1 else self.remote_copy_lag_ms

    @property
    def copy_lag_bytes(self) -> int:
        """How many newer bytes there must be; -1: they do not matter (KIP-1241)."""
        whole = self.remote_copy_lag_bytes == -1
        return self.disk_retention_bytes if whole else self.remote_copy_lag_bytes

    @property
    def segment_ms_max(self) -> int:
        """How long a segment may stay active: compaction must reach it in time (KIP-354)."""
        if self.is_compacted and self.max_compaction_lag_ms > 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms
