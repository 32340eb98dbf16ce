"""The settings of streams groups; what a group has set for itself goes before them."""

from typing import Final

import msgspec

from ottla.coordinators.groups.group_configs import ANY, Bounds

# By this name the record of a group keeps the setting that its targets were made with.
NUM_STANDBY_REPLICAS: Final = "num.standby.replicas"


class StreamsSettings(msgspec.Struct, frozen=True):
    """Times are milliseconds. Field by field the broker's ``group.streams.*`` keys.

    ``is_served`` says whether ``group.coordinator.rebalance.protocols`` has streams groups.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    max_size: int = 2**31 - 1
    num_standby_replicas: int = 0
    initial_rebalance_delay_ms: int = 3000
    is_served: bool = True
    session_bounds: Bounds = ANY
    heartbeat_bounds: Bounds = ANY
    standby_bounds: Bounds = ANY
