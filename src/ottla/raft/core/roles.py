"""The six roles of a replica, and which candidates each would vote for (KIP-595, KIP-996).

    Unattached -- election timeout --> Prospective -- pre-votes --> Candidate -- votes --> Leader
        ^                                  |  ^                        |                    |
        |                                  |  +--- election timeout ---+                    |
        +----- refused, no leader known ---+                                             Resigned
    Follower -- fetch timeout, or the leader's port refuses --> Prospective -- refused --> Follower

A greater epoch, or learning the epoch's leader, leads from any role to Unattached or Follower.
Only becoming a candidate raises the epoch without a message from another replica.
"""

import msgspec

from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.raft.core.effects import Role
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.messages import FetchRequest
from ottla.raft.core.progress import Progress
from ottla.raft.core.voters import Endpoints, ReplicaKey, VoterSet


class Ballot(msgspec.Struct):
    """The vote count of one election, among the voters at its start."""

    voters: VoterSet
    granted: set[NodeId] = msgspec.field(default_factory=set)
    rejected: set[NodeId] = msgspec.field(default_factory=set)

    def record(self, node_id: NodeId, is_granted: bool) -> None:
        """Count a voter's reply. A granted vote stays granted; a rejection may be reversed."""
        if node_id not in self.voters.ids or node_id in self.granted:
            return
        if is_granted:
            self.rejected.discard(node_id)
            self.granted.add(node_id)
        else:
            self.rejected.add(node_id)

    @property
    def is_won(self) -> bool:
        """Whether a majority granted."""
        return len(self.granted) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        """Whether a majority can no longer be reached."""
        return len(self.voters) - len(self.rejected) < self.voters.majority

    @property
    def unanswered(self) -> list[ReplicaKey]:
        """The voters that have not answered, by node id."""
        answered = self.granted | self.rejected
        return [v.key for v in self.voters if v.key.node_id not in answered]

    @property
    def ungranted(self) -> list[ReplicaKey]:
        """The voters that have not granted, by node id."""
        return [v.key for v in self.voters if v.key.node_id not in self.granted]


class Unattached(msgspec.Struct):
    """Knows the epoch, perhaps its leader's id, but no node to fetch from."""

    epoch: LeaderEpoch
    election_deadline: Millis
    leader_id: NodeId | None = None
    voted: ReplicaKey | None = None
    name = Role.UNATTACHED


class Download(msgspec.Struct):
    """A snapshot being downloaded from the leader; ``position`` is the number of bytes received."""

    snapshot: LogPosition
    position: int = 0


class Follower(msgspec.Struct):
    """Fetches from the leader of its epoch; an observer is always in this role."""

    epoch: LeaderEpoch
    leader_id: NodeId
    leader_endpoints: Endpoints
    fetch_deadline: Millis
    update_voter_at: Millis
    voted: ReplicaKey | None = None
    has_fetched: bool = False
    has_updated: bool = False
    # Connections to the leader that were refused, in a row.
    refusals: int = 0
    leader_high_watermark: Offset | None = None
    download: Download | None = None
    name = Role.FOLLOWER


class Prospective(msgspec.Struct):
    """Asks whether it would be elected, without starting a new epoch."""

    epoch: LeaderEpoch
    election_deadline: Millis
    ballot: Ballot
    leader_id: NodeId | None = None
    leader_endpoints: Endpoints = ()
    voted: ReplicaKey | None = None
    name = Role.PROSPECTIVE


class Candidate(msgspec.Struct):
    """Requests votes in a new epoch."""

    epoch: LeaderEpoch
    election_deadline: Millis
    ballot: Ballot
    voted: ReplicaKey
    leader_id: None = None
    name = Role.CANDIDATE


class ParkedFetch(msgspec.Struct, frozen=True):
    """A fetch that found nothing new and waits."""

    token: int
    request: FetchRequest
    deadline: Millis


class PendingChange(msgspec.Struct):
    """A voter change in progress. ``offset`` is None until its record is appended."""

    token: int
    voter: ReplicaKey
    endpoints: Endpoints
    deadline: Millis
    is_ack_when_committed: bool = True
    offset: Offset | None = None


class Leader(msgspec.Struct):
    """Accepts proposals, serves fetches, computes the high watermark."""

    epoch: LeaderEpoch
    leader_id: NodeId
    voted: ReplicaKey
    start_offset: Offset
    progress: Progress
    announce_at: Millis
    # Set once a record of this epoch is committed: only then is the high watermark known.
    has_committed: bool = False
    parked: dict[int, ParkedFetch] = msgspec.field(default_factory=dict)
    change: PendingChange | None = None
    name = Role.LEADER


class Resigned(msgspec.Struct):
    """Led this epoch and resigned; notifies the other voters until the election timeout."""

    epoch: LeaderEpoch
    leader_id: NodeId
    election_deadline: Millis
    successors: tuple[ReplicaKey, ...]
    unacknowledged: set[NodeId]
    voted: ReplicaKey | None = None
    name = Role.RESIGNED


AnyRole = Unattached | Follower | Prospective | Candidate | Leader | Resigned
