"""UpdateRaftVoter: the messages of api key 82, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
    struct_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class Listener(Message):
    """Part of the message, in versions 0-0."""

    name: str = ""
    host: str = ""
    port: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("host", STRING, (0, 0)),
            Field("port", UINT16, (0, 0)),
        ),
    )


class KRaftVersionFeature(Message):
    """Part of the message, in versions 0-0."""

    min_supported_version: int = 0
    max_supported_version: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("min_supported_version", INT16, (0, 0)),
            Field("max_supported_version", INT16, (0, 0)),
        ),
    )


class UpdateRaftVoterRequest(Message):
    """UpdateRaftVoter request, versions 0-0, flexible from 0."""

    cluster_id: str | None = ""
    current_leader_epoch: int = 0
    voter_id: int = 0
    voter_directory_id: Uuid = ZERO_UUID
    listeners: list[Listener] = field(default_factory=list)
    k_raft_version_feature: KRaftVersionFeature = field(default_factory=KRaftVersionFeature)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=82,
        fields=(
            Field("cluster_id", STRING, (0, 0), nullable=(0, 0)),
            Field("current_leader_epoch", INT32, (0, 0)),
            Field("voter_id", INT32, (0, 0)),
            Field("voter_directory_id", UUID, (0, 0)),
            Field("listeners", array_of(Listener), (0, 0)),
            Field("k_raft_version_feature", struct_of(KRaftVersionFeature), (0, 0)),
        ),
    )


class CurrentLeader(Message):
    """Part of the message, in versions 0-0."""

    leader_id: int = -1
    leader_epoch: int = -1
    host: str = ""
    port: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("leader_id", INT32, (0, 0)),
            Field("leader_epoch", INT32, (0, 0)),
            Field("host", STRING, (0, 0)),
            Field("port", INT32, (0, 0)),
        ),
    )


class UpdateRaftVoterResponse(Message):
    """UpdateRaftVoter response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    current_leader: CurrentLeader = field(default_factory=CurrentLeader)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=82,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("current_leader", struct_of(CurrentLeader), (0, 0), tag=0, tagged=(0, 0)),
        ),
    )
