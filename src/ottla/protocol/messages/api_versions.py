"""ApiVersions: the messages of api key 18, versions 0-4.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    Field,
    Message,
    Schema,
    array_of,
)


class ApiVersionsRequest(Message):
    """ApiVersions request, versions 0-4, flexible from 3."""

    client_software_name: str = ""
    client_software_version: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 4),
        flexible=3,
        api_key=18,
        fields=(
            Field("client_software_name", STRING, (3, 4)),
            Field("client_software_version", STRING, (3, 4)),
        ),
    )


class ApiVersion(Message):
    """Part of the message, in versions 0-4."""

    api_key: int = 0
    min_version: int = 0
    max_version: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("api_key", INT16, (0, 4)),
            Field("min_version", INT16, (0, 4)),
            Field("max_version", INT16, (0, 4)),
        ),
    )


class SupportedFeatureKey(Message):
    """Part of the message, in versions 3-4."""

    name: str = ""
    min_version: int = 0
    max_version: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (3, 4)),
            Field("min_version", INT16, (3, 4)),
            Field("max_version", INT16, (3, 4)),
        ),
    )


class FinalizedFeatureKey(Message):
    """Part of the message, in versions 3-4."""

    name: str = ""
    max_version_level: int = 0
    min_version_level: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (3, 4)),
            Field("max_version_level", INT16, (3, 4)),
            Field("min_version_level", INT16, (3, 4)),
        ),
    )


class ApiVersionsResponse(Message):
    """ApiVersions response, versions 0-4, flexible from 3."""

    error_code: int = 0
    api_keys: list[ApiVersion] = field(default_factory=list)
    throttle_time_ms: int = 0
    supported_features: list[SupportedFeatureKey] = field(default_factory=list)
    finalized_features_epoch: int = -1
    finalized_features: list[FinalizedFeatureKey] = field(default_factory=list)
    zk_migration_ready: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 4),
        flexible=3,
        api_key=18,
        fields=(
            Field("error_code", INT16, (0, 4)),
            Field("api_keys", array_of(ApiVersion), (0, 4)),
            Field("throttle_time_ms", INT32, (1, 4)),
            Field(
                "supported_features", array_of(SupportedFeatureKey), (3, 4), tag=0, tagged=(3, 4)
            ),
            Field("finalized_features_epoch", INT64, (3, 4), tag=1, tagged=(3, 4)),
            Field(
                "finalized_features", array_of(FinalizedFeatureKey), (3, 4), tag=2, tagged=(3, 4)
            ),
            Field("zk_migration_ready", BOOL, (3, 4), tag=3, tagged=(3, 4)),
        ),
    )
