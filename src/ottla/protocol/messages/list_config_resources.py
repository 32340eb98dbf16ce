"""ListConfigResources: the messages of api key 74, versions 0-1.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT8, INT16, INT32, STRING, Field, Message, Schema, array_of


class ListConfigResourcesRequest(Message):
    """ListConfigResources request, versions 0-1, flexible from 0."""

    resource_types: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=74,
        fields=(Field("resource_types", array_of(INT8), (1, 1)),),
    )


class ConfigResource(Message):
    """Part of the message, in versions 0-1."""

    resource_name: str = ""
    resource_type: int = 16
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("resource_name", STRING, (0, 1)),
            Field("resource_type", INT8, (1, 1)),
        ),
    )


class ListConfigResourcesResponse(Message):
    """ListConfigResources response, versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    config_resources: list[ConfigResource] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=74,
        fields=(
            Field("throttle_time_ms", INT32, (0, 1)),
            Field("error_code", INT16, (0, 1)),
            Field("config_resources", array_of(ConfigResource), (0, 1)),
        ),
    )
