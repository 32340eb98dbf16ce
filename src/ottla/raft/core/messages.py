"""The messages between replicas, independent of version and layout.

One class per request and per reply of Kafka's quorum RPCs; `rpc_codec` converts them to and from
messages. Every reply names the leader that its sender knows: that is how leaders are found.
"""

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, NodeId, Offset
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.voters import (
    NO_RECONFIGURATION,
    Endpoints,
    ReplicaKey,
    VersionRange,
    VoterSet,
)

# -- parts -------------------------------------------------------------------


class LeaderHint(msgspec.Struct, frozen=True):
    """The sender's epoch, and its leader if known."""

    epoch: LeaderEpoch
    leader_id: NodeId | None = None
    endpoints: Endpoints = ()


class VotersAt(msgspec.Struct, frozen=True):
    """A VotersRecord found at ``offset``."""

    offset: Offset
    voters: VoterSet


class KRaftVersionAt(msgspec.Struct, frozen=True):
    """A KRaftVersionRecord found at ``offset``."""

    offset: Offset
    level: int


Control = VotersAt | KRaftVersionAt


class Batches(msgspec.Struct, frozen=True):
    """A run of whole batches from a leader; its creator has checked CRC and framing.

    ``controls`` are the control records among them, in offset order.
    """

    base_offset: Offset
    end: LogPosition
    payload: object
    controls: tuple[Control, ...] = ()


class ReadLog(msgspec.Struct, frozen=True):
    """In an outgoing reply: the driver reads the log from ``offset``, up to ``bytes_max``.

    At least one batch is sent, however large; uncommitted and unflushed records are included.
    """

    offset: Offset
    bytes_max: int


class ReadSnapshot(msgspec.Struct, frozen=True):
    """In an outgoing reply: the driver reads the snapshot from ``position``."""

    position: int
    bytes_max: int


class Chunk(msgspec.Struct, frozen=True):
    """In an incoming reply: a chunk of a snapshot."""

    length: int
    payload: object


# -- requests ----------------------------------------------------------------


class VoteRequest(msgspec.Struct, frozen=True):
    """A vote request, or with ``is_pre_vote`` a query whether a vote would be granted (KIP-996).

    A pre-vote names the sender's current epoch, a vote the new one.
    """

    cluster_id: str | None
    candidate: ReplicaKey
    voter: ReplicaKey | None
    epoch: LeaderEpoch
    log_end: LogPosition
    is_pre_vote: bool = False


class BeginEpochRequest(msgspec.Struct, frozen=True):
    """BeginQuorumEpoch: a new leader announces itself to a voter that does not fetch yet."""

    cluster_id: str | None
    leader_id: NodeId
    epoch: LeaderEpoch
    endpoints: Endpoints = ()
    voter: ReplicaKey | None = None


class EndEpochRequest(msgspec.Struct, frozen=True):
    """EndQuorumEpoch: a leader resigns; ``successors`` are best first."""

    cluster_id: str | None
    leader_id: NodeId
    epoch: LeaderEpoch
    endpoints: Endpoints = ()
    successors: tuple[ReplicaKey, ...] = ()


class FetchRequest(msgspec.Struct, frozen=True):
    """Fetch of the metadata log. Everything before ``log_end`` is durable at the sender.

    A leader with a greater ``high_watermark`` than the sender's answers without waiting; None means
    unknown. Senders before version 18, which lack the field, are given the largest offset.
    """

    cluster_id: str | None
    replica: ReplicaKey
    epoch: LeaderEpoch
    log_end: LogPosition
    high_watermark: Offset | None = None
    wait_ms_max: int = 0
    bytes_max: int = 0


class FetchSnapshotRequest(msgspec.Struct, frozen=True):
    """FetchSnapshot: a chunk of a snapshot, from ``position``."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: LeaderEpoch
    snapshot: LogPosition
    position: int
    bytes_max: int = 0


class ApiVersionsRequest(msgspec.Struct, frozen=True):
    """ApiVersions: which levels of ``kraft.version`` does a prospective voter support?"""


class AddVoterRequest(msgspec.Struct, frozen=True):
    """AddRaftVoter. Answered after commit, or once appended if the client does not wait."""

    cluster_id: str | None
    voter: ReplicaKey
    endpoints: Endpoints
    is_ack_when_committed: bool = True


class RemoveVoterRequest(msgspec.Struct, frozen=True):
    """RemoveRaftVoter. Answered after commit."""

    cluster_id: str | None
    voter: ReplicaKey


class UpdateVoterRequest(msgspec.Struct, frozen=True):
    """UpdateRaftVoter: a voter's endpoints or supported versions changed. Answered at once."""

    cluster_id: str | None
    epoch: LeaderEpoch
    voter: ReplicaKey
    endpoints: Endpoints
    kraft_versions: VersionRange


Request = (
    VoteRequest
    | BeginEpochRequest
    | EndEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | ApiVersionsRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
)

# -- replies -----------------------------------------------------------------


class VoteReply(msgspec.Struct, frozen=True):
    """The reply to a vote or pre-vote."""

    error: ErrorCode
    leader: LeaderHint
    is_granted: bool = False


class BeginEpochReply(msgspec.Struct, frozen=True):
    """The reply to BeginQuorumEpoch."""

    error: ErrorCode
    leader: LeaderHint


class EndEpochReply(msgspec.Struct, frozen=True):
    """The reply to EndQuorumEpoch."""

    error: ErrorCode
    leader: LeaderHint


class FetchReply(msgspec.Struct, frozen=True):
    """The reply to a fetch: records, or the position to truncate to, or the snapshot to load.

    ``high_watermark`` is None until the leader has committed a record of its own epoch.
    """

    error: ErrorCode
    leader: LeaderHint
    high_watermark: Offset | None = None
    log_start: Offset | None = None
    diverging: LogPosition | None = None
    snapshot: LogPosition | None = None
    records: Batches | ReadLog | None = None


class FetchSnapshotReply(msgspec.Struct, frozen=True):
    """The reply to FetchSnapshot; ``size`` is that of the whole snapshot in bytes."""

    error: ErrorCode
    leader: LeaderHint
    snapshot: LogPosition | None = None
    size: int = 0
    position: int = 0
    chunk: Chunk | ReadSnapshot | None = None


class ApiVersionsReply(msgspec.Struct, frozen=True):
    """The reply to ApiVersions, of which only ``kraft.version`` matters here."""

    error: ErrorCode
    kraft_versions: VersionRange = NO_RECONFIGURATION


class VoterChangeReply(msgspec.Struct, frozen=True):
    """The reply to AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter."""

    error: ErrorCode
    leader: LeaderHint
    message: str = ""


Reply = (
    VoteReply
    | BeginEpochReply
    | EndEpochReply
    | FetchReply
    | FetchSnapshotReply
    | ApiVersionsReply
    | VoterChangeReply
)
