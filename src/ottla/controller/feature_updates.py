"""UpdateFeatures: the feature levels that the cluster finalizes (KIP-584, KIP-778, KIP-1022).

All updates of a request succeed or none does. A level is finalized only if every registered broker
and every controller supports it, and if the levels of other features that it depends on are
finalized after the request. A downgrade must be requested as one; of metadata.version it is
possible only if no metadata in the log would be lost.

kraft.version is not among the records: the voters keep it in control records of the log. Such an
update is returned as `FeaturesDecision.kraft_version`, with a no-op record so that the reply waits
for its offset.
"""

import enum
from collections.abc import Iterator, Mapping

import msgspec

from ottla.config.layers import Layers, effective_broker_value
from ottla.controller.config_alterations import config_record
from ottla.controller.config_rules import ALL_BROKERS, MIN_INSYNC_REPLICAS, ConfigContext
from ottla.controller.decision import Decision, Refusal
from ottla.metadata.configs import ConfigResourceType
from ottla.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURES,
    KRAFT_VERSION,
    supported_features,
    unmet_needs,
)
from ottla.metadata.image import Image
from ottla.metadata.metadata_versions import (
    METADATA_VERSION,
    MetadataVersion,
    is_metadata_changed,
)
from ottla.metadata.registrations import VersionRange
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_cluster import FeatureLevelRecord, NoOpRecord
from ottla.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

DISABLED = VersionRange(0, 0)


class UpgradeType(enum.IntEnum):
    """The allowed direction of an update, by Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeaturesDecision(Decision[UpdateFeaturesResponse], frozen=True):
    """A decision that may also ask the voters for another kraft.version.

    It does so for a validate-only request as well: the voters have further reasons to reject it.
    """

    kraft_version: int | None = None


class FeatureContext(msgspec.Struct, frozen=True):
    """The active controller's input for features beside the image.

    ``configs`` names the quorum's nodes, all of which must support a new level.
    """

    configs: ConfigContext
    kraft_version: int = 1


def decide_update_features(
    image: Image, request: UpdateFeaturesRequest, version: int, context: FeatureContext
) -> FeaturesDecision:
    """Finalize levels. ``version`` is that of the request: its fields changed twice."""
    updates = {update.feature: update for update in request.feature_updates}
    after = _levels(image, context)
    after.update((name, update.max_version_level) for name, update in updates.items())
    for update in updates.values():
        refusal = _refuse(image, update, version, after, context)
        if refusal is not None:
            message = (
                "The update failed for all features since the following feature had an error: "
                f"{refusal.message}"
            )
            reply = UpdateFeaturesResponse(error_code=refusal.code, error_message=message)
            return FeaturesDecision([], reply)
    reply = _accepted(request, version)
    requested = after[KRAFT_VERSION]
    kraft_version = requested if requested != context.kraft_version else None
    if request.validate_only:
        return FeaturesDecision([], reply, kraft_version=kraft_version)
    records = [_record(update) for update in updates.values()]
    if ELIGIBLE_LEADER_REPLICAS_VERSION in updates and after[ELIGIBLE_LEADER_REPLICAS_VERSION]:
        static = effective_broker_value(Layers(static=context.configs.static), MIN_INSYNC_REPLICAS)
        records += elr_safety_records(image, int(str(static)))
    return FeaturesDecision(records, reply, kraft_version=kraft_version)


def _accepted(request: UpdateFeaturesRequest, version: int) -> UpdateFeaturesResponse:
    if version > 1:
        return UpdateFeaturesResponse(error_message=None)
    # The message of no error is its name, as in Kafka.
    results = [
        UpdatableFeatureResult(feature=update.feature, error_message=ErrorCode.NONE.name)
        for update in request.feature_updates
    ]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _levels(image: Image, context: FeatureContext) -> dict[str, int]:
    return dict(image.features.levels) | {KRAFT_VERSION: context.kraft_version}


def _record(update: FeatureUpdateKey) -> Versioned:
    if update.feature == KRAFT_VERSION:
        return Versioned(NoOpRecord(), 0)
    record = FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level)
    return Versioned(record, 0)


# -- errors --------------------------------------------------------------------------------------


# The texts are Kafka's: its tests and tools compare them.


def _refuse(
    image: Image,
    update: FeatureUpdateKey,
    version: int,
    after: Mapping[str, int],
    context: FeatureContext,
) -> Refusal | None:
    way = _upgrade_type(update, version)
    now = _levels(image, context).get(update.feature, 0)
    level = update.max_version_level
    reason = (
        _reason_of_shape(update, way)
        or _reason_unsupported(image, update.feature, level, context)
        or _reason_of_direction(update.feature, now, level, way)
        or _reason_of_needs(update, after)
    )
    message = None
    if reason is not None:
        message = f"Invalid update version {level} for feature {update.feature[:300]}. {reason}"
    elif update.feature == METADATA_VERSION:
        message = _refuse_metadata_version(now, level, way)
    return None if message is None else Refusal(ErrorCode.INVALID_UPDATE_VERSION, message)


def _upgrade_type(update: FeatureUpdateKey, version: int) -> UpgradeType | None:
    if version == 0:
        # Before upgrade types existed, a flag allowed a safe downgrade.
        return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    known = update.upgrade_type in UpgradeType._value2member_map_
    return UpgradeType(update.upgrade_type) if known else None


def _reason_of_shape(update: FeatureUpdateKey, way: UpgradeType | None) -> str | None:
    if way is None:
        return "The controller does not support the given upgrade type."
    if update.max_version_level < 0:
        return "A feature version cannot be less than 0."
    return None


def _reason_of_direction(feature: str, now: int, level: int, way: UpgradeType | None) -> str | None:
    if level < now and way is UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if level > now and way is not UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    if level < now and feature == KRAFT_VERSION:
        return "Can't downgrade the version of this feature."
    return None


def _reason_of_needs(update: FeatureUpdateKey, after: Mapping[str, int]) -> str | None:
    level = update.max_version_level
    if update.feature != METADATA_VERSION and update.feature not in FEATURES:
        return f"Feature {update.feature[:300]} not found."
    for name, least in unmet_needs(update.feature, level, after):
        needed = f"it depends on {name} level {least}"
        return f"{update.feature} could not be set to {level} because {needed}"
    return None


def _refuse_metadata_version(now: int, level: int, way: UpgradeType | None) -> str | None:
    old, new = MetadataVersion(now), MetadataVersion(level)
    if new >= old or not is_metadata_changed(old, new):
        return None
    reason = (
        "Unsafe metadata downgrade is not supported in this version."
        if way is UpgradeType.UNSAFE_DOWNGRADE
        else "Refusing to perform the requested downgrade because it might delete metadata "
        "information."
    )
    return f"Unsupported metadata.version downgrade from {old:d} to {new:d}. {reason}"


def _reason_unsupported(
    image: Image, feature: str, level: int, context: FeatureContext
) -> str | None:
    for node, supported in _nodes(image, context):
        allowed = supported.get(feature, DISABLED)
        if not allowed.contains(level):
            if not allowed.max:
                return f"{node} does not support this feature."
            levels = (
                str(allowed.min) if allowed.min == allowed.max else f"{allowed.min}-{allowed.max}"
            )
            return f"{node} only supports versions {levels}"
    return _reason_unregistered(image, context)


def _nodes(
    image: Image, context: FeatureContext
) -> Iterator[tuple[str, Mapping[str, VersionRange]]]:
    own = context.configs.node_id
    yield f"Local controller {own}", supported_features()
    for broker_id in sorted(image.cluster.brokers):
        yield f"Broker {broker_id}", image.cluster.brokers[broker_id].features
    for controller_id in sorted(image.cluster.controllers):
        if controller_id != own:
            features = image.cluster.controllers[controller_id].features
            yield f"Controller {controller_id}", features


def _reason_unregistered(image: Image, context: FeatureContext) -> str | None:
    """Return an error that names a node of the quorum whose supported levels are unknown."""
    if not image.metadata_version().is_controller_registration_supported():
        return None
    known = {context.configs.node_id, *image.cluster.controllers}
    unknown = sorted(context.configs.controller_ids - known)
    if not unknown:
        return None
    return f"controller {unknown[0]} has not registered, and may not support this feature"


# -- eligible leader replicas --------------------------------------------------------------------


def elr_safety_records(image: Image, min_insync_replicas: int) -> list[Versioned]:
    """Return the records that make min.insync.replicas one value for the cluster (KIP-966).

    Eligibility depends on that value, so brokers must not differ in it: the value of their files
    becomes the cluster's, unless it has one, and values set for single brokers are removed.
    """
    records = []
    if MIN_INSYNC_REPLICAS not in image.configs.of(ALL_BROKERS):
        records.append(config_record(ALL_BROKERS, MIN_INSYNC_REPLICAS, str(min_insync_replicas)))
    own = (
        resource
        for resource, values in image.configs.by_resource.items()
        if resource.type == ConfigResourceType.BROKER and resource.name
        if MIN_INSYNC_REPLICAS in values
    )
    records += [config_record(resource, MIN_INSYNC_REPLICAS, None) for resource in sorted(own)]
    return records
