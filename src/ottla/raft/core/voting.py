"""Who gets a vote, or a pre-vote (KIP-996): the decision of a voter by its role."""

from ottla.raft.core.roles import AnyRole, Follower, Leader, Prospective, Unattached
from ottla.raft.core.voters import ReplicaKey


def may_grant_vote(role: AnyRole, candidate: ReplicaKey, is_up_to_date: bool) -> bool:
    """Decide a vote in the role's own epoch. One vote per epoch, and none beside a leader.

    A vote is granted again to the same replica: the first reply may have been lost.
    """
    if not isinstance(role, Unattached | Prospective):
        return False
    if role.voted is not None:
        return role.voted == candidate
    return role.leader_id is None and is_up_to_date


def may_grant_pre_vote(role: AnyRole, is_up_to_date: bool) -> bool:
    """Decide a pre-vote: would an election be useful?

    Not for a leader, nor for a follower that has fetched from the leader.
    """
    if isinstance(role, Leader) or (isinstance(role, Follower) and role.has_fetched):
        return False
    return is_up_to_date
