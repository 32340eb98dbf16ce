"""The settings of groups that their rules need."""

from typing import Final

import msgspec

# A member that joins for the first time has this long until its first generation; it does not
# know its id before and cannot be heard of. Kafka's number.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000


class GroupSettings(msgspec.Struct, frozen=True):
    """Times are milliseconds. Field by field the broker's ``group.*`` and ``offset*`` keys."""

    max_size: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000
