"""What the core asks for. Effects are carried out one after the other, in list order.

Each class says what must have happened before the next effect of the step may begin, or
that nothing must. A failure of an effect on the disk is final: the node goes down, because
the core already counts on it.
"""

import enum

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.messages import Batches, Reply, Request
from ottla.raft.core.voters import Endpoint, ReplicaKey, VoterSet


class Role(enum.Enum):
    """What a replica is at the moment, by Kafka's names."""

    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


class PersistElection(msgspec.Struct, frozen=True):
    """Write the quorum state. **Durable before the next effect**: a vote or an epoch that
    others hear of must survive a crash, or it could be given twice.
    """

    epoch: LeaderEpoch
    voted: ReplicaKey | None
    leader_id: NodeId | None


class LeaderChange(msgspec.Struct, frozen=True):
    """The LeaderChangeMessage that opens a reign."""

    leader_id: NodeId
    voters: tuple[NodeId, ...]
    granting: tuple[NodeId, ...]


class VotersRecord(msgspec.Struct, frozen=True):
    """The voter set from here on."""

    voters: VoterSet


class KRaftVersionRecord(msgspec.Struct, frozen=True):
    """The finalised ``kraft.version`` from here on."""

    level: int


ControlRecord = LeaderChange | VotersRecord | KRaftVersionRecord


class AppendControl(msgspec.Struct, frozen=True):
    """Append one control batch, a record per entry, at exactly ``base_offset``.

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
    """Append a leader's batches as they are. In the log (not yet durable) before the next."""

    batches: Batches


class TruncateTo(msgspec.Struct, frozen=True):
    """Cut the log so that it ends at ``offset``, before the next effect.

    It need not be durable: an old tail that comes back diverges again and is cut again. A
    later flush must not succeed without it.
    """

    offset: Offset


class Flush(msgspec.Struct, frozen=True):
    """Make the log durable in the background; `Flushed` with the ticket follows.

    Flushes may be merged; telling the newest ticket tells the older ones.
    """

    ticket: int


class WriteSnapshotChunk(msgspec.Struct, frozen=True):
    """Add a piece to a snapshot that is being downloaded; position 0 starts it anew."""

    snapshot: LogPosition
    position: int
    payload: object


class InstallSnapshot(msgspec.Struct, frozen=True):
    """The download is whole: check it, make it durable, then replace the whole log by it.

    In the background; `SnapshotInstalled` or `SnapshotRejected` follows. Until then the core
    neither fetches nor stands for election.
    """

    snapshot: LogPosition


class Send(msgspec.Struct, frozen=True):
    """Send a request; `Replied` or `Unanswered` with the ticket may follow, or nothing.

    ``to`` is below -1 for a bootstrap server, whose node id is not known.
    """

    ticket: int
    to: NodeId
    endpoint: Endpoint
    request: Request


class Answer(msgspec.Struct, frozen=True):
    """Answer the request of that token."""

    token: int
    reply: Reply


class RefuseProposal(msgspec.Struct, frozen=True):
    """A proposal was not appended and never will be."""

    payload: object
    error: ErrorCode


class RoleChanged(msgspec.Struct, frozen=True):
    """Role, epoch or leader changed.

    With role LEADER, records from ``reign_start`` on are this reign's; everything below must
    be applied before new decisions are made. With any other role a proposal that is not
    committed yet is lost to this node: its fate is open until the log tells.
    """

    role: Role
    epoch: LeaderEpoch
    leader_id: NodeId | None
    reign_start: Offset | None = None


class HighWatermark(msgspec.Struct, frozen=True):
    """Everything below ``offset`` is committed: durable on a majority. It never falls.

    A leader's own disk may be behind: flush before writing a snapshot up to it.
    """

    offset: Offset


class VotersChanged(msgspec.Struct, frozen=True):
    """The voter set in force changed, by an append, a truncation or a snapshot."""

    voters: VoterSet


class SetTimer(msgspec.Struct, frozen=True):
    """Send `Tick` at that time; replaces the timer before. None: no timer."""

    at: Millis | None


class Rejoined(msgspec.Struct, frozen=True):
    """This replica has caught up after it lost records; it votes from now on."""


class ShutdownReady(msgspec.Struct, frozen=True):
    """This node may stop: it leads nothing, or others know."""


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
