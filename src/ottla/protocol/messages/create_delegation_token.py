"""CreateDelegationToken: the messages of api key 38, versions 1-3.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BYTES,
    INT16,
    INT32,
    INT64,
    STRING,
    Field,
    Message,
    Schema,
    array_of,
)


class CreatableRenewers(Message):
    """Part of the message, in versions 1-3."""

    principal_type: str = ""
    principal_name: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("principal_type", STRING, (1, 3)),
            Field("principal_name", STRING, (1, 3)),
        ),
    )


class CreateDelegationTokenRequest(Message):
    """CreateDelegationToken request, versions 1-3, flexible from 2."""

    owner_principal_type: str | None = ""
    owner_principal_name: str | None = ""
    renewers: list[CreatableRenewers] = field(default_factory=list)
    max_lifetime_ms: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 3),
        flexible=2,
        api_key=38,
        fields=(
            Field("owner_principal_type", STRING, (3, 3), nullable=(3, 3)),
            Field("owner_principal_name", STRING, (3, 3), nullable=(3, 3)),
            Field("renewers", array_of(CreatableRenewers), (1, 3)),
            Field("max_lifetime_ms", INT64, (1, 3)),
        ),
    )


class CreateDelegationTokenResponse(Message):
    """CreateDelegationToken response, versions 1-3, flexible from 2."""

    error_code: int = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""
    issue_timestamp_ms: int = 0
    expiry_timestamp_ms: int = 0
    max_timestamp_ms: int = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 3),
        flexible=2,
        api_key=38,
        fields=(
            Field("error_code", INT16, (1, 3)),
            Field("principal_type", STRING, (1, 3)),
            Field("principal_name", STRING, (1, 3)),
            Field("token_requester_principal_type", STRING, (3, 3)),
            Field("token_requester_principal_name", STRING, (3, 3)),
            Field("issue_timestamp_ms", INT64, (1, 3)),
            Field("expiry_timestamp_ms", INT64, (1, 3)),
            Field("max_timestamp_ms", INT64, (1, 3)),
            Field("token_id", STRING, (1, 3)),
            Field("hmac", BYTES, (1, 3)),
            Field("throttle_time_ms", INT32, (1, 3)),
        ),
    )
