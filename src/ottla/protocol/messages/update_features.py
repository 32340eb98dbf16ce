"""UpdateFeatures: the messages of api key 57, versions 0-2.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Field, Message, Schema, array_of


class FeatureUpdateKey(Message):
    """Part of the message, in versions 0-2."""

    feature: str = ""
    max_version_level: int = 0
    allow_downgrade: bool = False
    upgrade_type: int = 1
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("feature", STRING, (0, 2)),
            Field("max_version_level", INT16, (0, 2)),
            Field("allow_downgrade", BOOL, (0, 0)),
            Field("upgrade_type", INT8, (1, 2)),
        ),
    )


class UpdateFeaturesRequest(Message):
    """UpdateFeatures request, versions 0-2, flexible from 0."""

    timeout_ms: int = 60000
    feature_updates: list[FeatureUpdateKey] = field(default_factory=list)
    validate_only: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=0,
        api_key=57,
        fields=(
            Field("timeout_ms", INT32, (0, 2)),
            Field("feature_updates", array_of(FeatureUpdateKey), (0, 2)),
            Field("validate_only", BOOL, (1, 2)),
        ),
    )


class UpdatableFeatureResult(Message):
    """Part of the message, in versions 0-1."""

    feature: str = ""
    error_code: int = 0
    error_message: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("feature", STRING, (0, 1)),
            Field("error_code", INT16, (0, 1)),
            Field("error_message", STRING, (0, 1), nullable=(0, 1)),
        ),
    )


class UpdateFeaturesResponse(Message):
    """UpdateFeatures response, versions 0-2, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: list[UpdatableFeatureResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=0,
        api_key=57,
        fields=(
            Field("throttle_time_ms", INT32, (0, 2)),
            Field("error_code", INT16, (0, 2)),
            Field("error_message", STRING, (0, 2), nullable=(0, 2)),
            Field("results", array_of(UpdatableFeatureResult), (0, 1)),
        ),
    )
