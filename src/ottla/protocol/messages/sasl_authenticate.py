"""SaslAuthenticate: the messages of api key 36, versions 0-2.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from ottla.protocol.schema import BYTES, INT16, INT64, STRING, Field, Message, Schema


class SaslAuthenticateRequest(Message):
    """SaslAuthenticate request, versions 0-2, flexible from 2."""

    auth_bytes: bytes = b""
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=2,
        api_key=36,
        fields=(Field("auth_bytes", BYTES, (0, 2)),),
    )


class SaslAuthenticateResponse(Message):
    """SaslAuthenticate response, versions 0-2, flexible from 2."""

    error_code: int = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=2,
        api_key=36,
        fields=(
            Field("error_code", INT16, (0, 2)),
            Field("error_message", STRING, (0, 2), nullable=(0, 2)),
            Field("auth_bytes", BYTES, (0, 2)),
            Field("session_lifetime_ms", INT64, (1, 2)),
        ),
    )
