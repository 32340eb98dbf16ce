"""What decisions about share groups know beside the groups."""

from typing import ClassVar

from ottla.coordinators.groups.epoch_group.context import EpochContext
from ottla.coordinators.groups.share.settings import ShareSettings


class ShareContext(EpochContext[ShareSettings]):
    """One per shard."""

    config_prefix: ClassVar[str] = "share"
