"""The quorum as one replica sees it: the content of DescribeQuorum, and for operators."""

import msgspec

from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.raft.core.effects import Role
from ottla.raft.core.progress import OBSERVER_SESSION_MS, ReplicaProgress
from ottla.raft.core.quorum import Quorum
from ottla.raft.core.roles import Follower, Leader
from ottla.raft.core.voters import ReplicaKey, VoterSet


class ReplicaView(msgspec.Struct, frozen=True):
    """The progress of a replica. Times are ages in milliseconds; None means never."""

    key: ReplicaKey
    log_end_offset: Offset | None
    last_fetch_age_ms: int | None
    last_caught_up_age_ms: int | None


class QuorumView(msgspec.Struct, frozen=True):
    """The whole view; ``replicas`` and ``observers`` are filled on the leader only."""

    role: Role
    epoch: LeaderEpoch
    leader_id: NodeId | None
    voted: ReplicaKey | None
    high_watermark: Offset | None
    log_end_offset: Offset
    durable_offset: Offset
    kraft_version: int
    voters: VoterSet
    is_voter: bool
    is_led: bool
    """Whether this replica leads, or fetches from a leader that answers."""
    replicas: tuple[ReplicaView, ...] = ()
    observers: tuple[ReplicaView, ...] = ()


def describe(quorum: Quorum, now: Millis) -> QuorumView:
    """Return the view at ``now``, on the clock of the events."""
    role = quorum.role
    replicas: tuple[ReplicaView, ...] = ()
    observers: tuple[ReplicaView, ...] = ()
    if isinstance(role, Leader):
        replicas = tuple(
            _leader(quorum, p) if p.key.node_id == role.leader_id else _replica(p, now)
            for p in role.progress.voters.values()
        )
        observers = tuple(
            _replica(p, now)
            for p in role.progress.observers.values()
            if p.fetched_at is not None and now - p.fetched_at < OBSERVER_SESSION_MS
        )
    return QuorumView(
        role=role.name,
        epoch=role.epoch,
        leader_id=role.leader_id,
        voted=role.voted,
        high_watermark=quorum.high_watermark,
        log_end_offset=quorum.end.offset,
        durable_offset=quorum.durable,
        kraft_version=quorum.membership.kraft_version,
        voters=quorum.voters,
        is_voter=quorum.is_voter,
        is_led=_is_led(quorum, now),
        replicas=replicas,
        observers=observers,
    )


def _is_led(quorum: Quorum, now: Millis) -> bool:
    role = quorum.role
    if isinstance(role, Follower):
        return role.has_fetched and not role.refusals and role.fetch_deadline > now
    return isinstance(role, Leader)


def _leader(quorum: Quorum, progress: ReplicaProgress) -> ReplicaView:
    """Return the leader's own entry: it has always caught up with itself."""
    return ReplicaView(progress.key, quorum.end.offset, 0, 0)


def _replica(progress: ReplicaProgress, now: Millis) -> ReplicaView:
    return ReplicaView(
        progress.key,
        progress.fetch_offset,
        None if progress.fetched_at is None else now - progress.fetched_at,
        None if progress.caught_up_at is None else now - progress.caught_up_at,
    )
