"""APIs that a cluster has only while a feature is on: hidden, and refused, at its level 0.

Consumer groups are not here: their coordinator refuses by itself, since a setting of the broker
turns them off, too.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ottla.metadata.features import SHARE_VERSION
from ottla.metadata.image import Image
from ottla.protocol.api_keys import ApiKey

NEEDS: Final[Mapping[ApiKey, str]] = MappingProxyType(
    dict.fromkeys(
        (
            ApiKey.SHARE_GROUP_HEARTBEAT,
            ApiKey.SHARE_GROUP_DESCRIBE,
            ApiKey.SHARE_FETCH,
            ApiKey.SHARE_ACKNOWLEDGE,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ),
        SHARE_VERSION,
    )
)


def hidden_at(image: Callable[[], Image]) -> Callable[[ApiKey], bool]:
    """Return what `Routes` asks: whether the image at hand has an API's feature turned off."""

    def is_hidden(key: ApiKey) -> bool:
        feature = NEEDS.get(key)
        return feature is not None and image().features.levels.get(feature, 0) == 0

    return is_hidden
