"""The settings of classic groups and offsets."""

from typing import Final

import msgspec

# The time that a new member has until its first generation, when it cannot send heartbeats because
# it does not know its id. Kafka's value.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000


class GroupSettings(msgspec.Struct, frozen=True):
    """Times are milliseconds. Each field is a ``group.*`` or ``offset*`` key of the broker."""

    max_size: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000
