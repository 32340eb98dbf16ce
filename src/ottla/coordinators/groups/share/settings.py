"""The settings of share groups."""

import msgspec

from ottla.coordinators.groups.group_configs import ANY, Bounds, number_of_group, of_group


class ShareSettings(msgspec.Struct, frozen=True):
    """Times are milliseconds. Field by field the broker's ``group.share.*`` keys."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    max_size: int = 200
    record_lock_duration_ms: int = 30_000
    session_bounds: Bounds = ANY
    heartbeat_bounds: Bounds = ANY
    lock_bounds: Bounds = ANY


__all__ = ["ShareSettings", "number_of_group", "of_group"]
