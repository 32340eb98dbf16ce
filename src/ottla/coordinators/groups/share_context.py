"""What the rules of share groups know beside their groups: settings, the image, topics seen."""

from collections.abc import Callable

import msgspec

from ottla.coordinators.groups.consumer_topics import TopicHashes
from ottla.coordinators.groups.share_settings import ShareSettings, number_of_group
from ottla.metadata.image import Image


class ShareContext(msgspec.Struct):
    """A shard has one."""

    settings: ShareSettings
    image: Callable[[], Image]
    hashes: TopicHashes = msgspec.field(default_factory=TopicHashes)

    def session_timeout_ms(self, group_id: str) -> int:
        """Return after which silence a member is let go."""
        default = self.settings.session_timeout_ms
        return number_of_group(self.image(), group_id, "share.session.timeout.ms", default)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return how often members are told to send heartbeats."""
        default = self.settings.heartbeat_interval_ms
        return number_of_group(self.image(), group_id, "share.heartbeat.interval.ms", default)
