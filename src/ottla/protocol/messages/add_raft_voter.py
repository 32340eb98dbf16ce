"""AddRaftVoter: the messages of api key 80, versions 0-1.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class Listener(Message):
    """Part of the message, in versions 0-1."""

    name: str = ""
    host: str = ""
    port: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 1)),
            Field("host", STRING, (0, 1)),
            Field("port", UINT16, (0, 1)),
        ),
    )


class AddRaftVoterRequest(Message):
    """AddRaftVoter request, versions 0-1, flexible from 0."""

    cluster_id: str | None = ""
    timeout_ms: int = 0
    voter_id: int = 0
    voter_directory_id: Uuid = ZERO_UUID
    listeners: list[Listener] = field(default_factory=list)
    ack_when_committed: bool = True
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=80,
        fields=(
            Field("cluster_id", STRING, (0, 1), nullable=(0, 1)),
            Field("timeout_ms", INT32, (0, 1)),
            Field("voter_id", INT32, (0, 1)),
            Field("voter_directory_id", UUID, (0, 1)),
            Field("listeners", array_of(Listener), (0, 1)),
            Field("ack_when_committed", BOOL, (1, 1)),
        ),
    )


class AddRaftVoterResponse(Message):
    """AddRaftVoter response, versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        api_key=80,
        fields=(
            Field("throttle_time_ms", INT32, (0, 1)),
            Field("error_code", INT16, (0, 1)),
            Field("error_message", STRING, (0, 1), nullable=(0, 1)),
        ),
    )
