"""The progress of the replicas, as their leader knows it.

It comes from fetches alone: a fetch at offset n says that all below n is durable there. It gives
the
high watermark, whether the leader is in contact with a majority (the lease), and which replicas
have caught up. A leader counts itself as any other voter: for what it has flushed, and only while
it is a voter.
"""

import msgspec

from ottla.protocol.types import Millis, Offset
from ottla.raft.core.voters import ReplicaKey, Voter, VoterSet

OBSERVER_SESSION_MS = 300_000
# Any client can fetch as an observer, so their number must be bounded.
OBSERVERS_MAX = 10_000


class ReplicaProgress(msgspec.Struct):
    """One replica. Times are monotonic; None means never in this epoch."""

    key: ReplicaKey
    fetch_offset: Offset | None = None
    fetched_at: Millis | None = None
    contact_at: Millis | None = None
    caught_up_at: Millis | None = None
    leader_end_at_fetch: Offset | None = None

    def note_fetch(self, offset: Offset, leader_end: Offset, now: Millis) -> None:
        """Record a fetch.

        A replica that has now reached the leader's end at the previous fetch had caught up then;
        this keeps ``caught_up_at`` recent under a steady stream of appends.
        """
        if offset >= leader_end:
            self.caught_up_at = now
        elif self.leader_end_at_fetch is not None and offset >= self.leader_end_at_fetch:
            self.caught_up_at = self.fetched_at
        self.leader_end_at_fetch = leader_end
        self.fetch_offset = offset
        self.fetched_at = now


class Progress:
    """All replicas in one leader's epoch."""

    def __init__(self, local: ReplicaKey, voters: VoterSet, now: Millis) -> None:
        self._local = local
        self._began = now
        self.voters: dict[int, ReplicaProgress] = {}
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}
        self.set_voters(voters)

    def set_voters(self, voters: VoterSet) -> None:
        """Put a voter set into effect; the known progress of each replica is kept."""
        old = {p.key: p for p in self.voters.values()} | self.observers
        self.voters = {}
        for voter in voters:
            known = next((p for key, p in old.items() if _is_same(voter, key)), None)
            if known is not None:
                del old[known.key]
                known.key = voter.key
            self.voters[voter.key.node_id] = known or ReplicaProgress(voter.key)
        old.pop(self._local, None)
        self.observers = {key: p for key, p in old.items() if key.is_complete}

    def get(self, key: ReplicaKey) -> ReplicaProgress | None:
        """Return the voter or observer of that key."""
        voter = self.voters.get(key.node_id)
        if voter is not None and (not voter.key.is_complete or voter.key == key):
            return voter
        return self.observers.get(key)

    def note_fetch(self, key: ReplicaKey, offset: Offset, leader_end: Offset, now: Millis) -> None:
        """Record a fetch at a position that is in the leader's log."""
        replica = self.get(key)
        if replica is None:
            self._make_room()
            replica = self.observers[key] = ReplicaProgress(key)
        replica.note_fetch(offset, leader_end, now)
        replica.contact_at = now

    def note_contact(self, key: ReplicaKey, now: Millis) -> None:
        """Record any other contact with a replica that follows this leader."""
        if (replica := self.get(key)) is not None:
            replica.contact_at = now

    def set_local(self, durable: Offset) -> None:
        """Record how far the leader's own log is flushed."""
        local = self.voters.get(self._local.node_id)
        if local is not None and (not local.key.is_complete or local.key == self._local):
            local.fetch_offset = durable

    def committed(self) -> Offset:
        """Return the offset that a majority of the voters has reached; -1 if none."""
        reached = sorted(
            (-1 if p.fetch_offset is None else p.fetch_offset for p in self.voters.values()),
            reverse=True,
        )
        return Offset(reached[len(reached) // 2])

    def lease_start(self) -> Millis | None:
        """Return since when there was no contact with a majority; None for a single voter.

        It is the time of the last contact with the last voter still needed for a majority.
        """
        needed = len(self.voters) // 2 + 1
        contacts = []
        for replica in self.voters.values():
            if replica.key.node_id == self._local.node_id:
                needed -= 1
            else:
                contacts.append(self._began if replica.contact_at is None else replica.contact_at)
        return sorted(contacts, reverse=True)[needed - 1] if needed else None

    def silent_voters(self, since: Millis) -> list[ReplicaKey]:
        """Return the other voters without contact after ``since``, by node id."""
        return [
            p.key
            for p in self.voters.values()
            if p.key.node_id != self._local.node_id
            and (p.contact_at is None or p.contact_at <= since)
        ]

    def successors(self) -> tuple[ReplicaKey, ...]:
        """Return the other voters, the most advanced first."""
        others = [p for p in self.voters.values() if p.key.node_id != self._local.node_id]
        others.sort(key=lambda p: (-(p.fetch_offset or 0), p.key.node_id))
        return tuple(p.key for p in others)

    def drop_idle_observers(self, now: Millis) -> None:
        """Drop observers whose session has expired."""
        self.observers = {
            key: p
            for key, p in self.observers.items()
            if p.fetched_at is not None and now - p.fetched_at < OBSERVER_SESSION_MS
        }

    def _make_room(self) -> None:
        while len(self.observers) >= OBSERVERS_MAX:
            del self.observers[next(iter(self.observers))]


def _is_same(voter: Voter, key: ReplicaKey) -> bool:
    """A static voter's directory becomes known with the first record that contains it."""
    if key.node_id == voter.key.node_id and not key.is_complete:
        return True
    return voter.is_same_replica(key)
