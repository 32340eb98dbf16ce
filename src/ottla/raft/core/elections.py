"""Votes, and how replicas learn of a leader (KIP-595, KIP-996).

Every check precedes any change: a request that is rejected for its form, its cluster or a stale
epoch changes nothing. A greater epoch, however, is adopted from any sender, even if the vote
itself is then rejected: that is what makes old leaders step down. It must be an epoch that
elections
can have reached: see `epochs`.
"""

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Millis, NodeId
from ottla.raft.core.epochs import is_plausible, next_epoch
from ottla.raft.core.messages import (
    BeginEpochReply,
    BeginEpochRequest,
    EndEpochReply,
    EndEpochRequest,
    LeaderHint,
    VoteReply,
    VoteRequest,
)
from ottla.raft.core.outstanding import InFlight
from ottla.raft.core.quorum import Quorum
from ottla.raft.core.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from ottla.raft.core.voters import Endpoints, ReplicaKey
from ottla.raft.core.voting import may_grant_pre_vote, may_grant_vote

# -- incoming requests -------------------------------------------------------


def on_vote(quorum: Quorum, token: int, request: VoteRequest) -> None:
    """Answer a vote or a pre-vote; a granted vote is durable before the answer."""
    error, is_granted = _decide_vote(quorum, request)
    quorum.answer(token, VoteReply(error, quorum.hint(), is_granted))


def _decide_vote(quorum: Quorum, request: VoteRequest) -> tuple[ErrorCode, bool]:
    if not is_own_cluster(quorum, request.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID, False
    last = request.log_end
    # A pre-vote names the sender's current epoch, which may be that of its last record; a vote
    # names a new one.
    epoch_max = request.epoch if request.is_pre_vote else request.epoch - 1
    if last.offset < 0 or last.epoch < 0 or last.epoch > epoch_max:
        return ErrorCode.INVALID_REQUEST, False
    error = check_peer(quorum, request.candidate.node_id, request.epoch)
    if error is not ErrorCode.NONE:
        return error, False
    if request.epoch > quorum.epoch:
        quorum.become_unattached(request.epoch)
    if not is_addressed(quorum, request.voter):
        return ErrorCode.INVALID_VOTER_KEY, False
    # A log that lost acknowledged records cannot tell which candidate is up to date.
    is_up_to_date = last >= quorum.end and not quorum.is_rejoining
    if request.is_pre_vote:
        return ErrorCode.NONE, may_grant_pre_vote(quorum.role, is_up_to_date)
    is_granted = may_grant_vote(quorum.role, request.candidate, is_up_to_date)
    if is_granted:
        quorum.vote_for(request.candidate)
    return ErrorCode.NONE, is_granted


def on_begin_epoch(quorum: Quorum, token: int, request: BeginEpochRequest) -> None:
    """Handle BeginQuorumEpoch: a leader announces itself."""
    error = _take_leader(quorum, request)
    if error is ErrorCode.NONE and not is_addressed(quorum, request.voter):
        error = ErrorCode.INVALID_VOTER_KEY
    quorum.answer(token, BeginEpochReply(error, quorum.hint()))


def on_end_epoch(quorum: Quorum, token: int, request: EndEpochRequest) -> None:
    """Handle EndQuorumEpoch: the leader resigned; start an election soon, best successors first."""
    error = _take_leader(quorum, request)
    role = quorum.role
    if error is ErrorCode.NONE and isinstance(role, Follower):
        delay = successor_delay_ms(
            request.successors, quorum.settings.key, quorum.settings.election_backoff_ms_max
        )
        role.fetch_deadline = Millis(quorum.now + delay)
        # The leader itself resigned: a pre-vote would protect nothing.
        role.has_fetched = False
    quorum.answer(token, EndEpochReply(error, quorum.hint()))


def _take_leader(quorum: Quorum, request: BeginEpochRequest | EndEpochRequest) -> ErrorCode:
    if not is_own_cluster(quorum, request.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    error = check_peer(quorum, request.leader_id, request.epoch)
    if error is not ErrorCode.NONE:
        return error
    hint = LeaderHint(request.epoch, request.leader_id, request.endpoints)
    return ErrorCode.NONE if take_hint(quorum, hint) else ErrorCode.INVALID_REQUEST


def successor_delay_ms(
    successors: tuple[ReplicaKey, ...], own: ReplicaKey, backoff_ms_max: int
) -> int:
    """Return how long a follower waits after its leader resigns: zero for the best successor,
    then doubling with every place, so that the first is elected before the next one starts.
    """
    place = next(
        (
            index
            for index, key in enumerate(successors)
            if key == own or (key.node_id == own.node_id and not key.is_complete)
        ),
        None,
    )
    if place == 0:
        return 0
    if place is None:
        return backoff_ms_max
    base = backoff_ms_max >> (len(successors) - 1)
    return min(backoff_ms_max, base << (place - 1))


# -- checks and updates that all messages share ------------------------------


def is_own_cluster(quorum: Quorum, cluster_id: str | None) -> bool:
    """Return whether a request is for this cluster; one without a cluster id is accepted."""
    return cluster_id is None or cluster_id == quorum.settings.cluster_id


def is_addressed(quorum: Quorum, voter: ReplicaKey | None) -> bool:
    """Return whether a request for ``voter`` is for this very replica, directory included."""
    if voter is None:
        return True
    own = quorum.settings.key
    return voter == own or (voter.node_id == own.node_id and not voter.is_complete)


def check_peer(quorum: Quorum, node_id: NodeId, epoch: LeaderEpoch) -> ErrorCode:
    """Check the sender and the epoch of a request between voters.

    Requests of any replica are accepted, known voter or not: a node may not have learned yet that
    it or the sender became one.
    """
    if epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if node_id < 0 or node_id == quorum.settings.node_id:
        return ErrorCode.INVALID_REQUEST
    if not is_plausible(quorum.epoch, epoch, is_reply=False):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def check_leader(quorum: Quorum, epoch: LeaderEpoch) -> ErrorCode:
    """Check that this replica leads ``epoch``, for a request meant for its leader."""
    if epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > quorum.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(quorum.role, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def take_hint(quorum: Quorum, hint: LeaderHint) -> bool:
    """Act on a hint about an epoch and its leader; return whether the hint is possible.

    An epoch cannot have two leaders, nor can this replica lead an epoch without knowing it: such a
    hint changes nothing.
    """
    role = quorum.role
    if hint.epoch < role.epoch:
        return True
    is_own = hint.leader_id == quorum.settings.node_id
    if is_own or not is_plausible(role.epoch, hint.epoch, is_reply=True):
        return is_own and isinstance(role, Leader | Resigned) and hint.epoch == role.epoch
    if hint.leader_id is None:
        if hint.epoch > role.epoch:
            quorum.become_unattached(hint.epoch)
        return True
    endpoints = hint.endpoints or _known_endpoints(quorum, hint.leader_id)
    if hint.epoch > role.epoch:
        _follow(quorum, hint.epoch, hint.leader_id, endpoints)
        return True
    if role.leader_id is not None and role.leader_id != hint.leader_id:
        return False
    _take_same_epoch(quorum, hint.leader_id, endpoints)
    return True


def _take_same_epoch(quorum: Quorum, leader_id: NodeId, endpoints: Endpoints) -> None:
    role = quorum.role
    if isinstance(role, Follower):
        if len(endpoints) > len(role.leader_endpoints):
            role.leader_endpoints = endpoints
        return
    # A prospective replica that knows its leader has lost contact with it; receiving the same
    # leader again is no reason to wait for another fetch timeout.
    if isinstance(role, Prospective) and role.leader_id == leader_id:
        return
    if endpoints:
        quorum.become_follower(role.epoch, leader_id, endpoints)


def _follow(quorum: Quorum, epoch: LeaderEpoch, leader_id: NodeId, endpoints: Endpoints) -> None:
    if endpoints:
        quorum.become_follower(epoch, leader_id, endpoints)
    else:
        quorum.become_unattached(epoch)


def _known_endpoints(quorum: Quorum, node_id: NodeId) -> Endpoints:
    voter = quorum.voters.get(node_id)
    return voter.endpoints if voter is not None else ()


def is_settled(quorum: Quorum, sent: InFlight, error: ErrorCode, hint: LeaderHint) -> bool:
    """Do what all replies have in common; return whether nothing more is to be done.

    After this, a reply that is not settled is of the current epoch. After one with an error that
    was not about epochs or leaders, the sender is paused for the retry backoff.
    """
    if hint.epoch < quorum.epoch or error is ErrorCode.UNKNOWN_LEADER_EPOCH:
        # The other replica is behind; an immediate retry would find it unchanged.
        quorum.outstanding.pause(sent.to, quorum.now)
        return True
    before = quorum.role
    if not take_hint(quorum, hint):
        quorum.outstanding.pause(sent.to, quorum.now)
        return True
    if error is ErrorCode.NONE:
        return False
    if quorum.role is before:
        quorum.outstanding.pause(sent.to, quorum.now)
    return True


# -- replies -----------------------------------------------------------------


def on_vote_reply(quorum: Quorum, sent: InFlight, reply: VoteReply) -> None:
    """Count a vote or pre-vote."""
    assert isinstance(sent.request, VoteRequest)
    if reply.error is ErrorCode.INVALID_VOTER_KEY and reply.leader.epoch <= quorum.epoch:
        # Another directory answers in place of that voter: it cannot vote, now or later.
        _count(quorum, sent, is_granted=False)
        return
    if not is_settled(quorum, sent, reply.error, reply.leader):
        _count(quorum, sent, reply.is_granted)


def _count(quorum: Quorum, sent: InFlight, is_granted: bool) -> None:
    role = quorum.role
    assert isinstance(sent.request, VoteRequest)
    if isinstance(role, Prospective) and sent.request.is_pre_vote:
        role.ballot.record(sent.to, is_granted)
        if role.ballot.is_won:
            quorum.become_candidate(next_epoch(role.epoch))
        elif role.ballot.is_lost:
            leave_prospective(quorum)
        elif not is_granted:
            # A voter rejects while it is in contact with the leader, and may lose that soon.
            quorum.outstanding.pause(sent.to, quorum.now)
    elif isinstance(role, Candidate) and sent.request.epoch == role.epoch:
        role.ballot.record(sent.to, is_granted)
        if role.ballot.is_won:
            quorum.become_leader()
        elif not is_granted:
            # The votes were most likely split: retry soon, and not at the same moment as the
            # other candidate. Kafka waits for the election timeout, a second or two.
            backoff_max = quorum.settings.election_backoff_ms_max
            backoff = Millis(quorum.now + quorum.below(max(1, backoff_max)))
            role.election_deadline = min(role.election_deadline, backoff)


def on_begin_epoch_reply(quorum: Quorum, sent: InFlight, reply: BeginEpochReply) -> None:
    """Handle a voter's reply; only its fetches count, so nothing is recorded."""
    is_settled(quorum, sent, reply.error, reply.leader)


def on_end_epoch_reply(quorum: Quorum, sent: InFlight, reply: EndEpochReply) -> None:
    """Record that a voter knows that this leader resigned."""
    is_done = not is_settled(quorum, sent, reply.error, reply.leader)
    if is_done and isinstance(quorum.role, Resigned):
        quorum.role.unacknowledged.discard(sent.to)


# -- time --------------------------------------------------------------------


def leave_prospective(quorum: Quorum) -> None:
    """End a failed pre-vote: return to the leader if one is known, else wait."""
    role = quorum.role
    assert isinstance(role, Prospective)
    if role.leader_id is not None and role.leader_endpoints:
        quorum.become_follower(role.epoch, role.leader_id, role.leader_endpoints)
    else:
        quorum.become_unattached(role.epoch)


def on_time(quorum: Quorum) -> None:
    """Act on election timeouts that have passed."""
    role = quorum.role
    if isinstance(role, Leader | Follower) or quorum.now < role.election_deadline:
        return
    if not quorum.may_stand and not isinstance(role, Prospective | Resigned):
        # An observer, or a voter between two logs, cannot be a candidate.
        role.election_deadline = quorum.random_election_deadline()
        return
    match role:
        case Unattached():
            quorum.become_prospective()
        case Prospective():
            leave_prospective(quorum)
        case Candidate():
            quorum.become_prospective()
        case Resigned():
            _leave_resigned(quorum, role)


def _leave_resigned(quorum: Quorum, role: Resigned) -> None:
    if quorum.is_stopping:
        role.election_deadline = quorum.random_election_deadline()
    else:
        # In this epoch others may still take this node for the leader; in the next they do not.
        quorum.become_unattached(next_epoch(role.epoch))


# -- what to send ------------------------------------------------------------


def send_votes(quorum: Quorum, role: Prospective | Candidate) -> None:
    """Send requests to the voters that have not answered, while the election can be won.

    A rejected pre-vote is requested again: the rejection holds only for the moment.
    """
    if role.ballot.is_lost:
        return
    ballot = role.ballot
    for key in ballot.ungranted if isinstance(role, Prospective) else ballot.unanswered:
        voter = quorum.voters.get(key.node_id)
        request = VoteRequest(
            cluster_id=quorum.settings.cluster_id,
            candidate=quorum.settings.key,
            voter=key,
            epoch=role.epoch,
            log_end=quorum.end,
            is_pre_vote=isinstance(role, Prospective),
        )
        if voter is not None:
            quorum.send(key.node_id, voter.endpoint(quorum.settings.listener), request)


def send_end_epochs(quorum: Quorum, role: Resigned) -> None:
    """Send EndQuorumEpoch to the voters that have not acknowledged the resignation."""
    request = EndEpochRequest(
        cluster_id=quorum.settings.cluster_id,
        leader_id=role.leader_id,
        epoch=role.epoch,
        endpoints=quorum.settings.endpoints,
        successors=role.successors,
    )
    for node_id in sorted(role.unacknowledged):
        voter = quorum.voters.get(node_id)
        if voter is not None:
            quorum.send(node_id, voter.endpoint(quorum.settings.listener), request)
