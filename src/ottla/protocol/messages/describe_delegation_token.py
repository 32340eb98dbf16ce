"""DescribeDelegationToken: the messages of api key 41, versions 1-3.

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


class DescribeDelegationTokenOwner(Message):
    """Part of the message, in versions 1-3."""

    principal_type: str = ""
    principal_name: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("principal_type", STRING, (1, 3)),
            Field("principal_name", STRING, (1, 3)),
        ),
    )


class DescribeDelegationTokenRequest(Message):
    """DescribeDelegationToken request, versions 1-3, flexible from 2."""

    owners: list[DescribeDelegationTokenOwner] | None = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 3),
        flexible=2,
        api_key=41,
        fields=(Field("owners", array_of(DescribeDelegationTokenOwner), (1, 3), nullable=(1, 3)),),
    )


class DescribedDelegationTokenRenewer(Message):
    """Part of the message, in versions 1-3."""

    principal_type: str = ""
    principal_name: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("principal_type", STRING, (1, 3)),
            Field("principal_name", STRING, (1, 3)),
        ),
    )


class DescribedDelegationToken(Message):
    """Part of the message, in versions 1-3."""

    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""
    issue_timestamp: int = 0
    expiry_timestamp: int = 0
    max_timestamp: int = 0
    token_id: str = ""
    hmac: bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("principal_type", STRING, (1, 3)),
            Field("principal_name", STRING, (1, 3)),
            Field("token_requester_principal_type", STRING, (3, 3)),
            Field("token_requester_principal_name", STRING, (3, 3)),
            Field("issue_timestamp", INT64, (1, 3)),
            Field("expiry_timestamp", INT64, (1, 3)),
            Field("max_timestamp", INT64, (1, 3)),
            Field("token_id", STRING, (1, 3)),
            Field("hmac", BYTES, (1, 3)),
            Field("renewers", array_of(DescribedDelegationTokenRenewer), (1, 3)),
        ),
    )


class DescribeDelegationTokenResponse(Message):
    """DescribeDelegationToken response, versions 1-3, flexible from 2."""

    error_code: int = 0
    tokens: list[DescribedDelegationToken] = field(default_factory=list)
    throttle_time_ms: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 3),
        flexible=2,
        api_key=41,
        fields=(
            Field("error_code", INT16, (1, 3)),
            Field("tokens", array_of(DescribedDelegationToken), (1, 3)),
            Field("throttle_time_ms", INT32, (1, 3)),
        ),
    )
