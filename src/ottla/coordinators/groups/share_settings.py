"""The settings of share groups, and what the image says about one group."""

import msgspec

from ottla.metadata.configs import ConfigResource, ConfigResourceType
from ottla.metadata.image import Image


class ShareSettings(msgspec.Struct, frozen=True):
    """Times are milliseconds. Field by field the broker's ``group.share.*`` keys."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    max_size: int = 200
    record_lock_duration_ms: int = 30_000


def of_group(image: Image, group_id: str, key: str, default: str) -> str:
    """Return what a group has set for itself."""
    configs = image.configs.of(ConfigResource(ConfigResourceType.GROUP, group_id))
    return configs.get(key) or default


def number_of_group(image: Image, group_id: str, key: str, default: int) -> int:
    """Return a number that a group has set for itself; the controller let in nothing else."""
    text = of_group(image, group_id, key, "")
    return int(text) if text.strip().isdigit() else default
