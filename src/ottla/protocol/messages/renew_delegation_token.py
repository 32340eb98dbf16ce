"""RenewDelegationToken: the messages of api key 39, versions 1-2.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from ottla.protocol.schema import BYTES, INT16, INT32, INT64, Field, Message, Schema


class RenewDelegationTokenRequest(Message):
    """RenewDelegationToken request, versions 1-2, flexible from 2."""

    hmac: bytes = b""
    renew_period_ms: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 2),
        flexible=2,
        api_key=39,
        fields=(
            Field("hmac", BYTES, (1, 2)),
            Field("renew_period_ms", INT64, (1, 2)),
        ),
    )


class RenewDelegationTokenResponse(Message):
    """RenewDelegationToken response, versions 1-2, flexible from 2."""

    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 2),
        flexible=2,
        api_key=39,
        fields=(
            Field("error_code", INT16, (1, 2)),
            Field("expiry_timestamp_ms", INT64, (1, 2)),
            Field("throttle_time_ms", INT32, (1, 2)),
        ),
    )
