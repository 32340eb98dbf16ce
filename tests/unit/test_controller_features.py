"""UpdateFeatures, rule by rule."""

import pytest
from controller_images import BROKER, after, broker, config, feature, image_of

from ottla.controller.config_rules import ConfigContext
from ottla.controller.feature_updates import (
    FeatureContext,
    FeaturesDecision,
    UpgradeType,
    decide_update_features,
)
from ottla.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    supported_features,
)
from ottla.metadata.image import Image
from ottla.metadata.metadata_versions import METADATA_VERSION, MetadataVersion
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.metadata_cluster import (
    ControllerFeature,
    NoOpRecord,
    RegisterControllerRecord,
)
from ottla.protocol.internal.metadata_topics import ConfigRecord
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.schema import Message

UP, DOWN, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE
ALL = [(name, levels.min, levels.max) for name, levels in supported_features().items()]
ELR = ELIGIBLE_LEADER_REPLICAS_VERSION
V = MetadataVersion


def context(*controllers: int, kraft_version: int = 1) -> FeatureContext:
    configs = ConfigContext(3000, {"min.insync.replicas": "2"}, frozenset({3000, *controllers}))
    return FeatureContext(configs, kraft_version)


def update(
    image: Image,
    *updates: tuple[str, int, int],
    version: int = 2,
    within: FeatureContext | None = None,
    validate_only: bool = False,
) -> FeaturesDecision:
    keys = [FeatureUpdateKey(name, level, upgrade_type=way) for name, level, way in updates]
    request = UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)
    return decide_update_features(image, request, version, within or context())


def refused(image: Image, *updates: tuple[str, int, int], **more: FeatureContext) -> str:
    decision = update(image, *updates, **more)  # type: ignore[arg-type]
    assert decision.reply.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert decision.records == []
    assert decision.kraft_version is None
    return decision.reply.error_message or ""


def levels(image: Image, decision: FeaturesDecision) -> dict[str, int]:
    assert decision.reply.error_code == ErrorCode.NONE, decision.reply
    return dict(after(image, decision).features.levels)


def messages(decision: FeaturesDecision) -> list[Message]:
    return [record.message for record in decision.records]


# -- directions ----------------------------------------------------------------------------------


def test_upgrade_writes_the_level() -> None:
    image = image_of(feature(TRANSACTION_VERSION, 1))
    decision = update(image, (TRANSACTION_VERSION, 2, UP))
    assert levels(image, decision)[TRANSACTION_VERSION] == 2


def test_level_zero_removes_a_feature() -> None:
    image = image_of(feature(GROUP_VERSION, 1))
    decision = update(image, (GROUP_VERSION, 0, DOWN))
    assert GROUP_VERSION not in levels(image, decision)


def test_downgrade_requires_a_downgrade_type() -> None:
    image = image_of(feature(GROUP_VERSION, 1))
    assert refused(image, (GROUP_VERSION, 0, UP)) == (
        "The update failed for all features since the following feature had an error: "
        "Invalid update version 0 for feature group.version. Can't downgrade the version of this "
        "feature without setting the upgrade type to either safe or unsafe downgrade."
    )


@pytest.mark.parametrize("way", [DOWN, UNSAFE])
def test_downgrade_to_a_higher_level_is_rejected(way: int) -> None:
    assert "Can't downgrade to a newer version." in refused(image_of(), (GROUP_VERSION, 1, way))


def test_unknown_upgrade_type_is_rejected() -> None:
    assert "upgrade type" in refused(image_of(), (GROUP_VERSION, 1, 9))


def test_negative_level_is_rejected() -> None:
    assert "A feature version cannot be less than 0." in refused(
        image_of(), (GROUP_VERSION, -1, DOWN)
    )


@pytest.mark.parametrize("level", [0, 1])
def test_unknown_feature_is_rejected(level: int) -> None:
    reason = (
        "Local controller 3000 does not support this" if level else "Feature x.version not found."
    )
    assert reason in refused(image_of(), ("x.version", level, UP))


def test_version_0_allows_downgrades_by_a_flag() -> None:
    image = image_of(feature(GROUP_VERSION, 1))
    key = FeatureUpdateKey(GROUP_VERSION, 0, allow_downgrade=True)
    request = UpdateFeaturesRequest(feature_updates=[key])
    decision = decide_update_features(image, request, 0, context())
    assert GROUP_VERSION not in levels(image, decision)
    assert [result.feature for result in decision.reply.results] == [GROUP_VERSION]


# -- support by nodes ----------------------------------------------------------------------------


def test_unsupported_level_is_rejected() -> None:
    message = refused(image_of(), (GROUP_VERSION, 2, UP))
    assert "Local controller 3000 only supports versions 0-1" in message


def test_every_broker_must_support_the_level_fenced_or_not() -> None:
    image = image_of(broker(1, features=ALL), broker(2, features=[(GROUP_VERSION, 0, 0)]))
    assert "Broker 2" in refused(image, (GROUP_VERSION, 1, UP))
    image = image_of(broker(1, features=ALL), broker(2, features=ALL))
    assert levels(image, update(image, (GROUP_VERSION, 1, UP)))[GROUP_VERSION] == 1


def test_every_controller_must_support_the_level() -> None:
    old = RegisterControllerRecord(controller_id=3001, features=[])
    assert "Controller 3001" in refused(image_of(old), (GROUP_VERSION, 1, UP))
    features = [ControllerFeature(*each) for each in ALL]
    image = image_of(RegisterControllerRecord(controller_id=3001, features=features))
    within = context(3001)
    assert levels(image, update(image, (GROUP_VERSION, 1, UP), within=within))[GROUP_VERSION] == 1


def test_unregistered_controller_blocks_an_upgrade() -> None:
    found = refused(image_of(), (GROUP_VERSION, 1, UP), within=context(3001))
    assert "controller 3001 has not registered" in found


# -- dependencies --------------------------------------------------------------------------------


def test_unmet_feature_dependency_is_rejected() -> None:
    image = image_of(version=V.IBP_4_0_IV0)
    assert METADATA_VERSION in refused(image, (ELR, 1, UP))


def test_feature_dependency_may_be_in_the_same_request() -> None:
    image = image_of(version=V.IBP_4_0_IV0)
    decision = update(image, (ELR, 1, UP), (METADATA_VERSION, V.IBP_4_0_IV1, UP))
    assert levels(image, decision) == {METADATA_VERSION: V.IBP_4_0_IV1, ELR: 1}


def test_one_invalid_update_fails_all() -> None:
    assert GROUP_VERSION in refused(image_of(), (SHARE_VERSION, 1, UP), (GROUP_VERSION, 7, UP))


def test_validate_only_writes_nothing() -> None:
    decision = update(image_of(), (GROUP_VERSION, 1, UP), validate_only=True)
    assert decision.reply.error_code == ErrorCode.NONE
    assert decision.records == []
    within = context(kraft_version=0)
    decision = update(image_of(), (KRAFT_VERSION, 1, UP), within=within, validate_only=True)
    assert decision.records == []
    # The voters are asked all the same whether they would accept it.
    assert decision.kraft_version == 1


@pytest.mark.parametrize(("version", "results"), [(1, 1), (2, 0)])
def test_version_2_returns_no_results_by_feature(version: int, results: int) -> None:
    decision = update(image_of(), (GROUP_VERSION, 1, UP), version=version)
    assert len(decision.reply.results) == results


# -- metadata.version ----------------------------------------------------------------------------


def test_metadata_version_can_be_upgraded() -> None:
    image = image_of(version=V.IBP_3_9_IV0)
    decision = update(image, (METADATA_VERSION, V.IBP_4_2_IV1, UP))
    assert after(image, decision).metadata_version() is V.IBP_4_2_IV1


def test_metadata_version_can_be_downgraded_without_loss() -> None:
    image = image_of(version=V.IBP_4_2_IV1)
    decision = update(image, (METADATA_VERSION, V.IBP_4_0_IV1, DOWN))
    assert after(image, decision).metadata_version() is V.IBP_4_0_IV1


@pytest.mark.parametrize("way", [DOWN, UNSAFE])
def test_metadata_version_downgrade_with_loss_is_rejected(way: int) -> None:
    image = image_of(version=V.IBP_4_0_IV1)
    reason = {
        DOWN: "Refusing to perform the requested downgrade because it might delete metadata "
        "information.",
        UNSAFE: "Unsafe metadata downgrade is not supported in this version.",
    }[way]
    assert refused(image, (METADATA_VERSION, V.IBP_4_0_IV0, way)) == (
        "The update failed for all features since the following feature had an error: "
        f"Unsupported metadata.version downgrade from 23 to 22. {reason}"
    )


@pytest.mark.parametrize("level", [6, 34])
def test_metadata_version_out_of_range_is_rejected(level: int) -> None:
    way = UP if level > V.IBP_4_2_IV1 else DOWN
    assert "Local controller 3000 only supports versions 7-33" in refused(
        image_of(), (METADATA_VERSION, level, way)
    )


# -- kraft.version -------------------------------------------------------------------------------


def test_kraft_version_update_is_passed_to_the_voters() -> None:
    decision = update(image_of(), (KRAFT_VERSION, 1, UP), within=context(kraft_version=0))
    assert decision.kraft_version == 1
    assert messages(decision) == [NoOpRecord()]


def test_unchanged_kraft_version_is_not_passed_to_the_voters() -> None:
    decision = update(image_of(), (KRAFT_VERSION, 1, UP))
    assert decision.reply.error_code == ErrorCode.NONE
    assert decision.kraft_version is None


@pytest.mark.parametrize("way", [UP, DOWN, UNSAFE])
def test_kraft_version_downgrade_is_rejected(way: int) -> None:
    assert "Can't downgrade the version of this feature" in refused(
        image_of(), (KRAFT_VERSION, 0, way)
    )


# -- eligible leader replicas --------------------------------------------------------------------


def test_enabling_elr_sets_min_insync_replicas_of_the_cluster() -> None:
    image = image_of(
        broker(1, features=ALL),
        config(BROKER, "1", "min.insync.replicas", "3"),
        config(BROKER, "2", "log.retention.ms", "3"),
    )
    assert messages(update(image, (ELR, 1, UP))) == [
        feature(ELR, 1),
        ConfigRecord(BROKER, "", "min.insync.replicas", "2"),
        ConfigRecord(BROKER, "1", "min.insync.replicas", None),
    ]


def test_enabling_elr_keeps_an_existing_min_insync_replicas() -> None:
    image = image_of(config(BROKER, "", "min.insync.replicas", "5"))
    assert messages(update(image, (ELR, 1, UP))) == [feature(ELR, 1)]


def test_disabling_elr_changes_no_configuration() -> None:
    image = image_of(feature(ELR, 1))
    assert messages(update(image, (ELR, 0, DOWN))) == [feature(ELR, 0)]
