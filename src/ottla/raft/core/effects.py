"""What the core asks for. Effects are carried out one after the other, in list order.

Each class says what must have happened before the next effect of the step may begin, or
that nothing must. A failure of an effect on the disk is final: the node goes down, because
the core already counts on it.
"""

import enum
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class PersistElection:
    """Write the quorum state. **Durable before the next effect**: a vote or an epoch that
    others hear of must survive a crash, or it could be given twice.
    """

    epoch: LeaderEpoch
    voted: ReplicaKey | None
    leader_id: NodeId | None


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The LeaderChangeMessage that opens a reign."""

    leader_id: NodeId
    voters: tuple[NodeId, ...]
    granting: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class VotersRecord:
    """The voter set from here on."""

    voters: VoterSet


@dataclass(frozen=True, slots=True)
class KRaftVersionRecord:
    """The finalised ``kraft.version`` from here on."""

    level: int


ControlRecord = LeaderChange | VotersRecord | KRaftVersionRecord


@dataclass(frozen=True, slots=True)
class AppendControl:
    """Append one control batch, a record per entry, at exactly ``base_offset``.

    In the log (not yet durable) before the next effect.
    """

    base_offset: Offset
    epoch: LeaderEpoch
    records: tuple[ControlRecord, ...]


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append a proposal as one batch at exactly ``base_offset``, in ``epoch``.

    In the log (not yet durable) before the next effect.
    """

    base_offset: Offset
    epoch: LeaderEpoch
    records_count: int
    payload: object


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append a leader's batches as they are. In the log (not yet durable) before the next."""

    batches: Batches


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Cut the log so that it ends at ``offset``, before the next effect.

    It need not be durable: an old tail that comes back diverges again and is cut again. A
    later flush must not succeed without it.
    """

    offset: Offset


@dataclass(frozen=True, slots=True)
class Flush:
    """Make the log durable in the background; `Flushed` with the ticket follows.

    Flushes may be merged; telling the newest ticket tells the older ones.
    """

    ticket: int


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Add a piece to a snapshot that is being downloaded; position 0 starts it anew."""

    snapshot: LogPosition
    position: int
    payload: object


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """The download is whole: check it, make it durable, then replace the whole log by it.

    In the background; `SnapshotInstalled` or `SnapshotRejected` follows. Until then the core
    neither fetches nor stands for election.
    """

    snapshot: LogPosition


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request; `Replied` or `Unanswered` with the ticket may follow, or nothing.

    ``to`` is below -1 for a bootstrap server, whose node id is not known.
    """

    ticket: int
    to: NodeId
    endpoint: Endpoint
    request: Request


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the request of that token."""

    token: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class RefuseProposal:
    """A proposal was not appended and never will be."""

    payload: object
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """Role, epoch or leader changed.

    With role LEADER, records from ``reign_start`` on are this reign's; everything below must
    be applied before new decisions are made. With any other role a proposal that is not
    committed yet is lost to this node: its fate is open until the log tells.
    """

    role: Role
    epoch: LeaderEpoch
    leader_id: NodeId | None
    reign_start: Offset | None = None


@dataclass(frozen=True, slots=True)
class HighWatermark:
    """Everything below ``offset`` is committed: durable on a majority. It never falls.

    A leader's own disk may be behind: flush before writing a snapshot up to it.
    """

    offset: Offset


@dataclass(frozen=True, slots=True)
class VotersChanged:
    """The voter set in force changed, by an append, a truncation or a snapshot."""

    voters: VoterSet


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Send `Tick` at that time; replaces the timer before. None: no timer."""

    at: Millis | None


@dataclass(frozen=True, slots=True)
class ShutdownReady:
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
)
