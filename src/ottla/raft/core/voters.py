"""Replica keys, endpoints, and the set of voters (KIP-853).

Everything here is immutable. A voter set is sorted by node id, so that two nodes with the same set
iterate over it in the same order.
"""

from collections.abc import Iterator

import msgspec
from msgspec.structs import force_setattr

from ottla.protocol.types import ZERO_UUID, NodeId, Uuid


class ReplicaKey(msgspec.Struct, frozen=True, order=True):
    """A node together with the directory that holds its log.

    A node that lost its disk returns with another directory id: it is a different replica and is
    not bound by the votes of the old one. ``ZERO_UUID`` means "unknown", as in a statically
    configured quorum.
    """

    node_id: NodeId
    directory_id: Uuid = ZERO_UUID

    @property
    def is_complete(self) -> bool:
        """Whether the directory is known as well."""
        return self.directory_id != ZERO_UUID


class Endpoint(msgspec.Struct, frozen=True):
    """The address of one listener of a node."""

    listener: str
    host: str
    port: int


Endpoints = tuple[Endpoint, ...]


class VersionRange(msgspec.Struct, frozen=True):
    """The levels of ``kraft.version`` that a node supports, both ends included."""

    lowest: int
    highest: int

    def includes(self, level: int) -> bool:
        """Return whether ``level`` is in the range."""
        return self.lowest <= level <= self.highest


# Level 0 has static voters only; level 1 keeps them in the log and allows changes.
NO_RECONFIGURATION = VersionRange(0, 0)
ALL_KRAFT_VERSIONS = VersionRange(0, 1)


class Voter(msgspec.Struct, frozen=True):
    """One member of the quorum, as in a VotersRecord."""

    key: ReplicaKey
    endpoints: Endpoints = ()
    kraft_versions: VersionRange = NO_RECONFIGURATION

    def is_same_replica(self, replica: ReplicaKey) -> bool:
        """Return whether ``replica`` is this voter: same node, and same directory if known."""
        if self.key.node_id != replica.node_id:
            return False
        return not self.key.is_complete or self.key == replica

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the voter's endpoint for ``listener``."""
        return find_endpoint(self.endpoints, listener)


def find_endpoint(endpoints: Endpoints, listener: str) -> Endpoint | None:
    """Return the endpoint with that listener name, ignoring case."""
    upper = listener.upper()
    return next((e for e in endpoints if e.listener.upper() == upper), None)


class VoterSet(msgspec.Struct, frozen=True):
    """The voters at one offset of the log. At most one per node id."""

    voters: tuple[Voter, ...] = ()

    def __post_init__(self) -> None:
        ids = [voter.key.node_id for voter in self.voters]
        assert len(set(ids)) == len(ids), "one voter per node id"
        force_setattr(
            self, "voters", tuple(sorted(self.voters, key=lambda voter: voter.key.node_id))
        )

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    @property
    def majority(self) -> int:
        """How many voters form a majority."""
        return len(self.voters) // 2 + 1

    @property
    def ids(self) -> tuple[NodeId, ...]:
        """The voters' node ids, ascending."""
        return tuple(voter.key.node_id for voter in self.voters)

    def get(self, node_id: NodeId) -> Voter | None:
        """Return the voter of that node id."""
        return next((voter for voter in self.voters if voter.key.node_id == node_id), None)

    def has(self, replica: ReplicaKey) -> bool:
        """Return whether ``replica`` is one of the voters."""
        voter = self.get(replica.node_id)
        return voter is not None and voter.is_same_replica(replica)

    def with_added(self, voter: Voter) -> "VoterSet | None":
        """Return the set with one more voter; None if its node id is taken."""
        if self.get(voter.key.node_id) is not None:
            return None
        return VoterSet((*self.voters, voter))

    def with_removed(self, key: ReplicaKey) -> "VoterSet | None":
        """Return the set without one voter; None if it is not in the set, or is the last."""
        voter = self.get(key.node_id)
        if voter is None or voter.key != key or len(self.voters) == 1:
            return None
        return VoterSet(tuple(v for v in self.voters if v is not voter))

    def with_updated(self, voter: Voter) -> "VoterSet | None":
        """Return the set with a voter's endpoints and versions updated; None if not in the set."""
        old = self.get(voter.key.node_id)
        if old is None or not old.is_same_replica(voter.key):
            return None
        return VoterSet(tuple(voter if v is old else v for v in self.voters))
