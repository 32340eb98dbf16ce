"""CreateAcls: the messages of api key 30, versions 1-3.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT8, INT16, INT32, STRING, Field, Message, Schema, array_of


class AclCreation(Message):
    """Part of the message, in versions 1-3."""

    resource_type: int = 0
    resource_name: str = ""
    resource_pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("resource_type", INT8, (1, 3)),
            Field("resource_name", STRING, (1, 3)),
            Field("resource_pattern_type", INT8, (1, 3)),
            Field("principal", STRING, (1, 3)),
            Field("host", STRING, (1, 3)),
            Field("operation", INT8, (1, 3)),
            Field("permission_type", INT8, (1, 3)),
        ),
    )


class CreateAclsRequest(Message):
    """CreateAcls request, versions 1-3, flexible from 2."""

    creations: list[AclCreation] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 3),
        flexible=2,
        api_key=30,
        fields=(Field("creations", array_of(AclCreation), (1, 3)),),
    )


class AclCreationResult(Message):
    """Part of the message, in versions 1-3."""

    error_code: int = 0
    error_message: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (1, 3)),
            Field("error_message", STRING, (1, 3), nullable=(1, 3)),
        ),
    )


class CreateAclsResponse(Message):
    """CreateAcls response, versions 1-3, flexible from 2."""

    throttle_time_ms: int = 0
    results: list[AclCreationResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 3),
        flexible=2,
        api_key=30,
        fields=(
            Field("throttle_time_ms", INT32, (1, 3)),
            Field("results", array_of(AclCreationResult), (1, 3)),
        ),
    )
