"""Whether a protocol of groups with epochs is enabled, on this broker and in the cluster."""

from typing import Final

from ottla.metadata.image import Image
from ottla.protocol.faults import UnsupportedVersion

# From this level on the features group.version and streams.version enable their protocol.
_LEVEL_MIN: Final = 1


def check_enabled(protocol: str, feature: str, image: Image, *, is_served: bool) -> None:
    """Raise `UnsupportedVersion` unless this broker serves a protocol and the cluster has it."""
    if not is_served or image.features.level(feature) < _LEVEL_MIN:
        raise UnsupportedVersion(f"The {protocol} group protocol is not enabled.")
