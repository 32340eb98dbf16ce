"""Values of the control records of the metadata log and of snapshots.

The key is a control type (`ottla.protocol.records.control`). Each value repeats its version
as its first field; version 0 of each is written and read.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    INT16,
    INT32,
    INT64,
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


class LeaderChangeVoter(Message):
    """Part of `LeaderChangeMessage`."""

    voter_id: int = 0
    voter_directory_id: Uuid = ZERO_UUID

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("voter_id", INT32, (0, 1)),
            Field("voter_directory_id", UUID, (1, 1)),
        ),
    )


class LeaderChangeMessage(Message):
    """The first record of a leader epoch: the leader and the voters that elected it.

    Versions 0-1, flexible from 0.
    """

    version: int = 0
    leader_id: int = 0
    voters: list[LeaderChangeVoter] = field(default_factory=list)
    granting_voters: list[LeaderChangeVoter] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=0,
        fields=(
            Field("version", INT16, (0, 1)),
            Field("leader_id", INT32, (0, 1)),
            Field("voters", array_of(LeaderChangeVoter), (0, 1)),
            Field("granting_voters", array_of(LeaderChangeVoter), (0, 1)),
        ),
    )


class SnapshotHeaderRecord(Message):
    """The first record of a snapshot.

    Version 0, flexible from 0.
    """

    version: int = 0
    last_contained_log_timestamp: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        fields=(
            Field("version", INT16, (0, 0)),
            Field("last_contained_log_timestamp", INT64, (0, 0)),
        ),
    )


class SnapshotFooterRecord(Message):
    """The last record of a snapshot; without it the snapshot is incomplete.

    Version 0, flexible from 0.
    """

    version: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        fields=(Field("version", INT16, (0, 0)),),
    )


class KRaftVersionRecord(Message):
    """The version of the quorum protocol in force.

    Version 0, flexible from 0.
    """

    version: int = 0
    k_raft_version: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        fields=(
            Field("version", INT16, (0, 0)),
            Field("k_raft_version", INT16, (0, 0)),
        ),
    )


class Endpoint(Message):
    """Part of `VotersRecord`."""

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
    """Part of `VotersRecord`."""

    min_supported_version: int = 0
    max_supported_version: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("min_supported_version", INT16, (0, 0)),
            Field("max_supported_version", INT16, (0, 0)),
        ),
    )


class VotersVoter(Message):
    """Part of `VotersRecord`."""

    voter_id: int = 0
    voter_directory_id: Uuid = ZERO_UUID
    endpoints: list[Endpoint] = field(default_factory=list)
    k_raft_version_feature: KRaftVersionFeature = field(default_factory=KRaftVersionFeature)

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("voter_id", INT32, (0, 0)),
            Field("voter_directory_id", UUID, (0, 0)),
            Field("endpoints", array_of(Endpoint), (0, 0)),
            Field("k_raft_version_feature", struct_of(KRaftVersionFeature), (0, 0)),
        ),
    )


class VotersRecord(Message):
    """The voters from this offset on (KIP-853).

    Version 0, flexible from 0.
    """

    version: int = 0
    voters: list[VotersVoter] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        fields=(
            Field("version", INT16, (0, 0)),
            Field("voters", array_of(VotersVoter), (0, 0)),
        ),
    )


CONTROL_VERSION = 0
"""The version in which these records are written and read."""
