"""APIs of a feature: rejected while its level is 0; and versions of newer releases.

Consumer groups are not among them: their coordinator rejects requests itself, since a broker
setting turns them off, too.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ottla.api.surface.table import SURFACE
from ottla.metadata.image import Image
from ottla.protocol.api_keys import ApiKey

NEEDS: Final[Mapping[ApiKey, str]] = MappingProxyType(
    {key: row.feature for key, row in SURFACE.items() if row.feature is not None}
)


def disabled_at(image: Callable[[], Image]) -> Callable[[ApiKey], bool]:
    """Return the function by which `Routes` knows the APIs whose feature is off in the newest
    image.
    """

    def is_disabled(key: ApiKey) -> bool:
        feature = NEEDS.get(key)
        return feature is not None and image().features.levels.get(feature, 0) == 0

    return is_disabled


def newest_at(image: Callable[[], Image]) -> Callable[[ApiKey], int | None]:
    """Return the function by which `Routes` leaves out versions that are newer than the finalized
    metadata.version.
    """

    def newest(key: ApiKey) -> int | None:
        row = SURFACE.get(key)
        if row is None or row.newest_at is None:
            return None
        version, level = row.newest_at
        finalized = image().features.metadata_version()
        return None if finalized is not None and finalized >= level else version - 1

    return newest
