"""IncrementalAlterConfigs: the messages of api key 44, versions 0-1.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Field, Message, Schema, array_of


class AlterableConfig(Message):
    """Part of the message, in versions 0-1."""

    name: str = ""
    config_operation: int = 0
    value: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 1)),
            Field("config_operation", INT8, (0, 1)),
            Field("value", STRING, (0, 1), nullable=(0, 1)),
        ),
    )


class AlterConfigsResource(Message):
    """Part of the message, in versions 0-1."""

    resource_type: int = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("resource_type", INT8, (0, 1)),
            Field("resource_name", STRING, (0, 1)),
            Field("configs", array_of(AlterableConfig), (0, 1)),
        ),
    )


class IncrementalAlterConfigsRequest(Message):
    """IncrementalAlterConfigs request, versions 0-1, flexible from 1."""

    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=1,
        api_key=44,
        fields=(
            Field("resources", array_of(AlterConfigsResource), (0, 1)),
            Field("validate_only", BOOL, (0, 1)),
        ),
    )


class AlterConfigsResourceResponse(Message):
    """Part of the message, in versions 0-1."""

    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (0, 1)),
            Field("error_message", STRING, (0, 1), nullable=(0, 1)),
            Field("resource_type", INT8, (0, 1)),
            Field("resource_name", STRING, (0, 1)),
        ),
    )


class IncrementalAlterConfigsResponse(Message):
    """IncrementalAlterConfigs response, versions 0-1, flexible from 1."""

    throttle_time_ms: int = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=1,
        api_key=44,
        fields=(
            Field("throttle_time_ms", INT32, (0, 1)),
            Field("responses", array_of(AlterConfigsResourceResponse), (0, 1)),
        ),
    )
