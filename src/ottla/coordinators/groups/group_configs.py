"""The configs of a group, from the image.

The controller accepts only numbers within its own settings. A broker may allow less, or have been
reconfigured since, so values are clamped to the broker's own bounds.
"""

from typing import Final, NamedTuple

from ottla.metadata.configs import ConfigResource, ConfigResourceType
from ottla.metadata.image import Image


class Bounds(NamedTuple):
    """The range that a broker allows, inclusive: the min and max keys of a setting."""

    lowest: int
    highest: int


ANY: Final = Bounds(0, 2**31 - 1)


def of_group(image: Image, group_id: str, key: str, default: str) -> str:
    """Return a config of a group."""
    configs = image.configs.of(ConfigResource(ConfigResourceType.GROUP, group_id))
    return configs.get(key) or default


def number_of_group(
    image: Image, group_id: str, key: str, default: int, bounds: Bounds = ANY
) -> int:
    """Return a number from the configs of a group, within the bounds of this broker."""
    text = of_group(image, group_id, key, "").strip()
    if not text.isdigit():
        return default
    return min(max(int(text), bounds.lowest), bounds.highest)
