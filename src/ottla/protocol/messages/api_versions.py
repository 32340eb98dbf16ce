"""ApiVersions: the messages of api key 18, versions 0-5.

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
    """ApiVersions request, versions 0-5, flexible from 3."""

    client_software_name: str = ""
    client_software_version: str = ""
    cluster_id: str | None = None
    node_id: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 5),
        flexible=3,
        api_key=18,
        fields=(
            Field("client_software_name", STRING, (3, 5)),
            Field("client_software_version", STRING, (3, 5)),
            Field("cluster_id", STRING, (5, 5), nullable=(5, 5)),
            Field("node_id", INT32, (5, 5)),
        ),
    )


class ApiVersion(Message):
    """Part of the message, in versions 0-5."""

    api_key: int = 0
    min_version: int = 0
    max_version: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("api_key", INT16, (0, 5)),
            Field("min_version", INT16, (0, 5)),
            Field("max_version", INT16, (0, 5)),
        ),
    )


class SupportedFeatureKey(Message):
    """Part of the message, in versions 3-5."""

    name: str = ""
    min_version: int = 0
    max_version: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (3, 5)),
            Field("min_version", INT16, (3, 5)),
            Field("max_version", INT16, (3, 5)),
        ),
    )


class FinalizedFeatureKey(Message):
    """Part of the message, in versions 3-5."""

    name: str = ""
    max_version_level: int = 0
    min_version_level: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (3, 5)),
            Field("max_version_level", INT16, (3, 5)),
            Field("min_version_level", INT16, (3, 5)),
        ),
    )


class ApiVersionsResponse(Message):
    """ApiVersions response, versions 0-5, flexible from 3."""

    error_code: int = 0
    api_keys: list[ApiVersion] = field(default_factory=list)
    throttle_time_ms: int = 0
    supported_features: list[SupportedFeatureKey] = field(default_factory=list)
    finalized_features_epoch: int = -1
    finalized_features: list[FinalizedFeatureKey] = field(default_factory=list)
    zk_migration_ready: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 5),
        flexible=3,
        api_key=18,
        fields=(
            Field("error_code", INT16, (0, 5)),
            Field("api_keys", array_of(ApiVersion), (0, 5)),
            Field("throttle_time_ms", INT32, (1, 5)),
            Field(
                "supported_features", array_of(SupportedFeatureKey), (3, 5), tag=0, tagged=(3, 5)
            ),
            Field("finalized_features_epoch", INT64, (3, 5), tag=1, tagged=(3, 5)),
            Field(
                "finalized_features", array_of(FinalizedFeatureKey), (3, 5), tag=2, tagged=(3, 5)
            ),
            Field("zk_migration_ready", BOOL, (3, 5), tag=3, tagged=(3, 5)),
        ),
    )
