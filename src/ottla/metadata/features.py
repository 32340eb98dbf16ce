"""The features that this software supports, their levels and dependencies (KIP-584, KIP-1022).

The cluster finalizes a feature at a level that all of its nodes support. A level may depend on a
level of another feature; a new cluster starts with the levels that its metadata.version was
released with.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from ottla.metadata.metadata_versions import (
    LATEST_PRODUCTION,
    METADATA_VERSION,
    MINIMUM_VERSION,
    MetadataVersion,
)
from ottla.metadata.registrations import VersionRange

KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"


class FeatureVersion(msgspec.Struct, frozen=True):
    """One level of a feature.

    ``since`` is the metadata.version from which on a new cluster starts with the level; ``needs``
    are the minimum levels of other features that must be finalized for it.
    """

    level: int
    since: MetadataVersion
    needs: tuple[tuple[str, int], ...] = ()


# Every feature except metadata.version, levels ascending. Level 0 means that it is disabled.
FEATURES: Mapping[str, tuple[FeatureVersion, ...]] = MappingProxyType(
    {
        KRAFT_VERSION: (
            FeatureVersion(0, MINIMUM_VERSION),
            FeatureVersion(1, MetadataVersion.IBP_3_9_IV0),
        ),
        TRANSACTION_VERSION: (
            FeatureVersion(0, MINIMUM_VERSION),
            FeatureVersion(1, MetadataVersion.IBP_4_0_IV2),
            FeatureVersion(2, MetadataVersion.IBP_4_0_IV2),
        ),
        GROUP_VERSION: (
            FeatureVersion(0, MINIMUM_VERSION),
            FeatureVersion(1, MetadataVersion.IBP_4_0_IV0),
        ),
        ELIGIBLE_LEADER_REPLICAS_VERSION: (
            FeatureVersion(0, MINIMUM_VERSION),
            FeatureVersion(
                1,
                MetadataVersion.IBP_4_1_IV0,
                needs=((METADATA_VERSION, MetadataVersion.IBP_4_0_IV1),),
            ),
        ),
        SHARE_VERSION: (
            FeatureVersion(0, MINIMUM_VERSION),
            FeatureVersion(1, MetadataVersion.IBP_4_2_IV0),
            FeatureVersion(2, MetadataVersion.IBP_4_4_IV0),
        ),
        STREAMS_VERSION: (
            FeatureVersion(0, MINIMUM_VERSION),
            FeatureVersion(1, MetadataVersion.IBP_4_2_IV1),
        ),
    }
)


def supported_features() -> dict[str, VersionRange]:
    """Return the features that a node of this software announces when it registers."""
    ranges = {METADATA_VERSION: VersionRange(int(MINIMUM_VERSION), int(LATEST_PRODUCTION))}
    for name, versions in FEATURES.items():
        ranges[name] = VersionRange(versions[0].level, versions[-1].level)
    return ranges


def default_level(feature: str, metadata_version: MetadataVersion) -> int:
    """Return the level of a feature in a new cluster of this metadata.version."""
    return max(v.level for v in FEATURES[feature] if v.since <= metadata_version)


def default_levels(metadata_version: MetadataVersion) -> dict[str, int]:
    """Return all levels of a new cluster, metadata.version first."""
    levels = {METADATA_VERSION: int(metadata_version)}
    for name in FEATURES:
        levels[name] = default_level(name, metadata_version)
    return levels


def unmet_needs(feature: str, level: int, finalized: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the minimum levels of other features that are missing to finalize a level.

    ``finalized`` are the levels as they would be after the change. An unknown level has no
    dependencies: whether it is known is checked elsewhere.
    """
    return [
        (name, least)
        for version in FEATURES.get(feature, ())
        if version.level == level
        for name, least in version.needs
        if finalized.get(name, 0) < least
    ]
