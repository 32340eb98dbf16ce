"""RemoveRaftVoter: the messages of api key 81, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from ottla.protocol.schema import INT16, INT32, STRING, UUID, Field, Message, Schema
from ottla.protocol.types import ZERO_UUID, Uuid


class RemoveRaftVoterRequest(Message):
    """RemoveRaftVoter request, versions 0-0, flexible from 0."""

    cluster_id: str | None = ""
    voter_id: int = 0
    voter_directory_id: Uuid = ZERO_UUID
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=81,
        fields=(
            Field("cluster_id", STRING, (0, 0), nullable=(0, 0)),
            Field("voter_id", INT32, (0, 0)),
            Field("voter_directory_id", UUID, (0, 0)),
        ),
    )


class RemoveRaftVoterResponse(Message):
    """RemoveRaftVoter response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=81,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
        ),
    )
