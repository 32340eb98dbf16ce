"""The settings of share groups."""

from ottla.coordinators.groups.epoch_group.context import EpochSettings
from ottla.coordinators.groups.group_configs import ANY, Bounds


class ShareSettings(EpochSettings, frozen=True):
    """The ``group.share.*`` keys of the broker. Times are milliseconds."""

    max_size: int = 200
    record_lock_duration_ms: int = 30_000
    lock_bounds: Bounds = ANY
