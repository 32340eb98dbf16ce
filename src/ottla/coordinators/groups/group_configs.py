"""What a group has set for itself, as the image has it.

The controller lets in nothing that is no number, or outside what its own settings allow. A broker
may allow less, or have been set otherwise since: what it goes by is brought within its own bounds.
"""

from typing import Final, NamedTuple

from ottla.metadata.configs import ConfigResource, ConfigResourceType
from ottla.metadata.image import Image


class Bounds(NamedTuple):
    """What a broker allows, both included: the min and max keys beside a setting's own."""

    lowest: int
    highest: int


ANY: Final = Bounds(0, 2**31 - 1)


def of_group(image: Image, group_id: str, key: str, default: str) -> str:
    """Return what a group has set for itself."""
    configs = image.configs.of(ConfigResource(ConfigResourceType.GROUP, group_id))
    return configs.get(key) or default


def number_of_group(
    image: Image, group_id: str, key: str, default: int, bounds: Bounds = ANY
) -> int:
    """Return a number that a group has set for itself, within what this broker allows."""
    text = of_group(image, group_id, key, "").strip()
    if not text.isdigit():
        return default
    return min(max(int(text), bounds.lowest), bounds.highest)
