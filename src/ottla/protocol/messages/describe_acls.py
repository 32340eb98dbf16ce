"""DescribeAcls: the messages of api key 29, versions 1-3.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT8, INT16, INT32, STRING, Field, Message, Schema, array_of


class DescribeAclsRequest(Message):
    """DescribeAcls request, versions 1-3, flexible from 2."""

    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 3),
        flexible=2,
        api_key=29,
        fields=(
            Field("resource_type_filter", INT8, (1, 3)),
            Field("resource_name_filter", STRING, (1, 3), nullable=(1, 3)),
            Field("pattern_type_filter", INT8, (1, 3)),
            Field("principal_filter", STRING, (1, 3), nullable=(1, 3)),
            Field("host_filter", STRING, (1, 3), nullable=(1, 3)),
            Field("operation", INT8, (1, 3)),
            Field("permission_type", INT8, (1, 3)),
        ),
    )


class AclDescription(Message):
    """Part of the message, in versions 1-3."""

    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("principal", STRING, (1, 3)),
            Field("host", STRING, (1, 3)),
            Field("operation", INT8, (1, 3)),
            Field("permission_type", INT8, (1, 3)),
        ),
    )


class DescribeAclsResource(Message):
    """Part of the message, in versions 1-3."""

    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    acls: list[AclDescription] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("resource_type", INT8, (1, 3)),
            Field("resource_name", STRING, (1, 3)),
            Field("pattern_type", INT8, (1, 3)),
            Field("acls", array_of(AclDescription), (1, 3)),
        ),
    )


class DescribeAclsResponse(Message):
    """DescribeAcls response, versions 1-3, flexible from 2."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 3),
        flexible=2,
        api_key=29,
        fields=(
            Field("throttle_time_ms", INT32, (1, 3)),
            Field("error_code", INT16, (1, 3)),
            Field("error_message", STRING, (1, 3), nullable=(1, 3)),
            Field("resources", array_of(DescribeAclsResource), (1, 3)),
        ),
    )
