"""The settings of streams groups."""

from typing import Final

from ottla.coordinators.groups.epoch_group.context import EpochSettings
from ottla.coordinators.groups.group_configs import ANY, Bounds

# The name under which a group's record keeps the setting that its targets are based on.
NUM_STANDBY_REPLICAS: Final = "num.standby.replicas"


class StreamsSettings(EpochSettings, frozen=True):
    """The ``group.streams.*`` keys of the broker.

    ``is_served`` says whether ``group.coordinator.rebalance.protocols`` has streams groups.
    """

    num_standby_replicas: int = 0
    initial_rebalance_delay_ms: int = 3000
    is_served: bool = True
    standby_bounds: Bounds = ANY
