"""What the rules of share groups know beside their groups: settings, the image, topics seen."""

from collections.abc import Callable

import msgspec

from ottla.coordinators.groups.consumer.topics import TopicHashes
from ottla.coordinators.groups.group_configs import number_of_group
from ottla.coordinators.groups.share.settings import ShareSettings
from ottla.metadata.image import Image


class ShareContext(msgspec.Struct):
    """A shard has one."""

    settings: ShareSettings
    image: Callable[[], Image]
    hashes: TopicHashes = msgspec.field(default_factory=TopicHashes)

    def session_timeout_ms(self, group_id: str) -> int:
        """Return after which silence a member is let go."""
        default, bounds = self.settings.session_timeout_ms, self.settings.session_bounds
        return number_of_group(self.image(), group_id, "share.session.timeout.ms", default, bounds)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return how often members are told to send heartbeats."""
        default, bounds = self.settings.heartbeat_interval_ms, self.settings.heartbeat_bounds
        key = "share.heartbeat.interval.ms"
        return number_of_group(self.image(), group_id, key, default, bounds)
