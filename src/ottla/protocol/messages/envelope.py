"""Envelope: the messages of api key 58, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from ottla.protocol.schema import BYTES, INT16, Field, Message, Schema


class EnvelopeRequest(Message):
    """Envelope request, versions 0-0, flexible from 0."""

    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=58,
        fields=(
            Field("request_data", BYTES, (0, 0)),
            Field("request_principal", BYTES, (0, 0), nullable=(0, 0)),
            Field("client_host_address", BYTES, (0, 0)),
        ),
    )


class EnvelopeResponse(Message):
    """Envelope response, versions 0-0, flexible from 0."""

    response_data: bytes | None = None
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=58,
        fields=(
            Field("response_data", BYTES, (0, 0), nullable=(0, 0)),
            Field("error_code", INT16, (0, 0)),
        ),
    )
