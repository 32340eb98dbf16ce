"""The principal in an Envelope: the sender of a forwarded request.

bytes: int16 version, then the message in that version.
"""

from typing import ClassVar

from ottla.protocol.codec import decode, encode
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.schema import (
    BOOL,
    STRING,
    Field,
    Message,
    Schema,
)
from ottla.protocol.types import Buffer


class DefaultPrincipalData(Message):
    """A principal: its type, its name, and whether it authenticated with a delegation token.

    Version 0, flexible from 0.
    """

    type: str = ""
    name: str = ""
    token_authenticated: bool = False

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        fields=(
            Field("type", STRING, (0, 0)),
            Field("name", STRING, (0, 0)),
            Field("token_authenticated", BOOL, (0, 0)),
        ),
    )


PRINCIPAL_VERSION = 0


def encode_principal(principal: DefaultPrincipalData) -> bytes:
    """Write a principal as an Envelope carries it."""
    return PRINCIPAL_VERSION.to_bytes(2, "big") + encode(principal, PRINCIPAL_VERSION)


def decode_principal(buffer: Buffer) -> DefaultPrincipalData:
    """Read a principal out of an Envelope. Raises `ProtocolFault`."""
    view = memoryview(buffer)
    if len(view) < 2:
        raise ProtocolFault("principal ends within its version")
    return decode(DefaultPrincipalData, int.from_bytes(view[:2], "big", signed=True), view[2:])
