"""The effects that the core asks for. They are performed one after the other, in list order.

Each class says what must be complete before the next effect of the step may begin. A failed disk
effect is final: the node stops, because the core already relies on it.
"""

import enum

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.messages import Batches, Reply, Request
from ottla.raft.core.voters import Endpoint, ReplicaKey, VoterSet


class Role(enum.Enum):
    """The role of a replica, by Kafka's names."""

    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


class PersistElection(msgspec.Struct, frozen=True):
    """Write the quorum state. **Durable before the next effect**: a vote or an epoch that other
    replicas have received must survive a crash, or the replica could vote twice.
    """

    epoch: LeaderEpoch
    voted: ReplicaKey | None
    leader_id: NodeId | None


class LeaderChange(msgspec.Struct, frozen=True):
    """The LeaderChangeMessage that starts an epoch."""

    leader_id: NodeId
    voters: tuple[NodeId, ...]
    granting: tuple[NodeId, ...]


class VotersRecord(msgspec.Struct, frozen=True):
    """The voter set from this offset on."""

    voters: VoterSet


class KRaftVersionRecord(msgspec.Struct, frozen=True):
    """The finalized ``kraft.version`` from this offset on."""

    level: int


ControlRecord = LeaderChange | VotersRecord | KRaftVersionRecord


class AppendControl(msgspec.Struct, frozen=True):
    """Append one control batch, one record per entry, at exactly ``base_offset``.

    In the log (not yet durable) before the next effect.
    """

    base_offset: Offset
    epoch: LeaderEpoch
    records: tuple[ControlRecord, ...]


class AppendRecords(msgspec.Struct, frozen=True):
    """Append a proposal as one batch at exactly ``base_offset``, in ``epoch``.

    In the log (not yet durable) before the next effect.
    """

    base_offset: Offset
    epoch: LeaderEpoch
    records_count: int
    payload: object


class AppendFetched(msgspec.Struct, frozen=True):
    """Append a leader's batches unchanged. In the log (not yet durable) before the next effect."""

    batches: Batches


class TruncateTo(msgspec.Struct, frozen=True):
    """Truncate the log to end at ``offset``, before the next effect.

    It need not be durable: an old tail that reappears diverges again and is truncated again. A
    later flush must not succeed without it.
    """

    offset: Offset


class Flush(msgspec.Struct, frozen=True):
    """Make the log durable in the background; `Flushed` with the ticket follows.

    Flushes may be merged; `Flushed` with the newest ticket covers the older ones.
    """

    ticket: int


class WriteSnapshotChunk(msgspec.Struct, frozen=True):
    """Write a chunk of a snapshot that is being downloaded; position 0 starts it over."""

    snapshot: LogPosition
    position: int
    payload: object


class InstallSnapshot(msgspec.Struct, frozen=True):
    """The download is complete: verify it, make it durable, then replace the whole log with it.

    In the background; `SnapshotInstalled` or `SnapshotRejected` follows. Until then the core
    neither fetches nor starts an election.
    """

    snapshot: LogPosition


class Send(msgspec.Struct, frozen=True):
    """Send a request; `Replied` or `Unanswered` with the ticket may follow, or neither.

    ``to`` is below -1 for a bootstrap server, whose node id is unknown.
    """

    ticket: int
    to: NodeId
    endpoint: Endpoint
    request: Request


class Answer(msgspec.Struct, frozen=True):
    """Answer the request with that token."""

    token: int
    reply: Reply


class RefuseProposal(msgspec.Struct, frozen=True):
    """A proposal was not appended and never will be."""

    payload: object
    error: ErrorCode


class RoleChanged(msgspec.Struct, frozen=True):
    """Role, epoch or leader changed.

    With role LEADER, records from ``epoch_start_offset`` on belong to this epoch; everything below
    must be applied before new decisions are made. With any other role, a proposal of this node that
    is not committed yet may still be committed or lost; the log will show which.
    """

    role: Role
    epoch: LeaderEpoch
    leader_id: NodeId | None
    epoch_start_offset: Offset | None = None


class HighWatermark(msgspec.Struct, frozen=True):
    """Everything below ``offset`` is committed: durable on a majority. It never decreases.

    A leader's own disk may lag behind: flush before writing a snapshot up to it.
    """

    offset: Offset


class VotersChanged(msgspec.Struct, frozen=True):
    """The voter set in effect changed, by an append, a truncation or a snapshot."""

    voters: VoterSet


class SetTimer(msgspec.Struct, frozen=True):
    """Send `Tick` at that time; replaces the previous timer. None: no timer."""

    at: Millis | None


class Rejoined(msgspec.Struct, frozen=True):
    """This replica has caught up after losing records; it votes from now on."""


class ShutdownReady(msgspec.Struct, frozen=True):
    """This node may stop: it leads no epoch, or the other voters know that it resigned."""


Effect = (
    PersistElection
    | AppendControl
    | AppendRecords
    | AppendFetched
    | TruncateTo
    | Flush
    | WriteSnapshotChunk
    | InstallSnapshot
    | Send
    | Answer
    | RefuseProposal
    | RoleChanged
    | HighWatermark
    | VotersChanged
    | SetTimer
    | ShutdownReady
    | Rejoined
)
