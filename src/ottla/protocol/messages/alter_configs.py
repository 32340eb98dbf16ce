"""AlterConfigs: the messages of api key 33, versions 0-2.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Field, Message, Schema, array_of


class AlterableConfig(Message):
    """Part of the message, in versions 0-2."""

    name: str = ""
    value: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 2)),
            Field("value", STRING, (0, 2), nullable=(0, 2)),
        ),
    )


class AlterConfigsResource(Message):
    """Part of the message, in versions 0-2."""

    resource_type: int = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("resource_type", INT8, (0, 2)),
            Field("resource_name", STRING, (0, 2)),
            Field("configs", array_of(AlterableConfig), (0, 2)),
        ),
    )


class AlterConfigsRequest(Message):
    """AlterConfigs request, versions 0-2, flexible from 2."""

    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=2,
        api_key=33,
        fields=(
            Field("resources", array_of(AlterConfigsResource), (0, 2)),
            Field("validate_only", BOOL, (0, 2)),
        ),
    )


class AlterConfigsResourceResponse(Message):
    """Part of the message, in versions 0-2."""

    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (0, 2)),
            Field("error_message", STRING, (0, 2), nullable=(0, 2)),
            Field("resource_type", INT8, (0, 2)),
            Field("resource_name", STRING, (0, 2)),
        ),
    )


class AlterConfigsResponse(Message):
    """AlterConfigs response, versions 0-2, flexible from 2."""

    throttle_time_ms: int = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=2,
        api_key=33,
        fields=(
            Field("throttle_time_ms", INT32, (0, 2)),
            Field("responses", array_of(AlterConfigsResourceResponse), (0, 2)),
        ),
    )
