"""Changing the voters: one at a time, through the log (KIP-853).

A change is a VotersRecord that takes effect once appended. Any two majorities of two voter sets
that differ by one voter share a member; so a change must not begin before the previous one is
committed, nor before the leader has committed a record of its own epoch (which settles what earlier
leaders left uncommitted). A rejected request changes nothing.
"""

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis, NodeId
from ottla.raft.core.effects import KRaftVersionRecord, VotersRecord
from ottla.raft.core.elections import check_leader, is_own_cluster
from ottla.raft.core.events import UpgradeKRaftVersion
from ottla.raft.core.messages import (
    AddVoterRequest,
    ApiVersionsReply,
    ApiVersionsRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeReply,
)
from ottla.raft.core.outstanding import InFlight
from ottla.raft.core.quorum import Quorum
from ottla.raft.core.roles import Leader, PendingChange
from ottla.raft.core.voters import Endpoints, ReplicaKey, Voter, find_endpoint

RECONFIGURATION_LEVEL = 1


class Refusal(msgspec.Struct, frozen=True):
    """Why a change is rejected: Kafka's error code, and a message for the operator."""

    error: ErrorCode
    message: str = ""


ChangeRequest = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest


def _reply(quorum: Quorum, token: int, refusal: Refusal | None) -> None:
    outcome = refusal or Refusal(ErrorCode.NONE)
    quorum.answer(token, VoterChangeReply(outcome.error, quorum.hint(), outcome.message))


# -- requests ----------------------------------------------------------------


def on_change(quorum: Quorum, token: int, request: ChangeRequest) -> None:
    """Begin a change, or reject it."""
    refusal = _check_request(quorum, request)
    leader = quorum.role
    if refusal is not None or not isinstance(leader, Leader):
        _reply(quorum, token, refusal)
        return
    match request:
        case AddVoterRequest():
            refusal = _begin_add(quorum, leader, token, request)
        case RemoveVoterRequest():
            refusal = _begin_remove(quorum, leader, token, request)
        case UpdateVoterRequest():
            refusal = _update(quorum, leader, token, request)
    if refusal is not None:
        _reply(quorum, token, refusal)


def _check_request(quorum: Quorum, request: ChangeRequest) -> Refusal | None:
    if not is_own_cluster(quorum, request.cluster_id):
        return Refusal(ErrorCode.INCONSISTENT_CLUSTER_ID, "the request is for another cluster")
    epoch = request.epoch if isinstance(request, UpdateVoterRequest) else quorum.epoch
    error = check_leader(quorum, epoch)
    if error is not ErrorCode.NONE:
        return Refusal(error)
    if request.voter.node_id < 0 or not request.voter.is_complete:
        return Refusal(ErrorCode.INVALID_REQUEST, "a voter needs a node id and a directory id")
    return None


def _check_free(quorum: Quorum, leader: Leader) -> Refusal | None:
    """Reject while another change is in progress; the client may retry."""
    if leader.change is not None:
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, "the leader is processing another voter change")
    if not leader.has_committed or quorum.high_watermark is None:
        return Refusal(
            ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed a record of its epoch yet"
        )
    if quorum.membership.changed_at >= quorum.high_watermark:
        return Refusal(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the voter change at offset {quorum.membership.changed_at} is not committed yet",
        )
    return None


def _check_level(quorum: Quorum) -> Refusal | None:
    level = quorum.membership.kraft_version
    if level >= RECONFIGURATION_LEVEL:
        return None
    return Refusal(
        ErrorCode.UNSUPPORTED_VERSION, f"kraft.version is {level}; changing voters needs 1"
    )


def _check_endpoints(quorum: Quorum, endpoints: Endpoints) -> Refusal | None:
    listener = quorum.settings.listener
    if find_endpoint(endpoints, listener) is not None:
        return None
    return Refusal(ErrorCode.INVALID_REQUEST, f"no endpoint for listener {listener}")


# -- add ---------------------------------------------------------------------


def _begin_add(
    quorum: Quorum, leader: Leader, token: int, request: AddVoterRequest
) -> Refusal | None:
    """Ask the new voter which versions it supports; the change continues with its reply."""
    refusal = (
        _check_endpoints(quorum, request.endpoints)
        or _check_free(quorum, leader)
        or _check_level(quorum)
    )
    if refusal is not None:
        return refusal
    node_id = request.voter.node_id
    if quorum.voters.get(node_id) is not None:
        return Refusal(ErrorCode.DUPLICATE_VOTER, f"node {node_id} is already a voter")
    if not quorum.outstanding.may_send(node_id, quorum.now):
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, f"node {node_id} cannot be reached now")
    leader.change = PendingChange(
        token=token,
        voter=request.voter,
        endpoints=request.endpoints,
        deadline=Millis(quorum.now + quorum.settings.request_timeout_ms),
        is_ack_when_committed=request.is_ack_when_committed,
    )
    endpoint = find_endpoint(request.endpoints, quorum.settings.listener)
    quorum.send(node_id, endpoint, ApiVersionsRequest())
    return None


def on_api_versions_reply(quorum: Quorum, sent: InFlight, reply: ApiVersionsReply) -> None:
    """Check that the new voter supports the version and has caught up, then append."""
    leader = quorum.role
    if not isinstance(leader, Leader) or not _is_awaited(leader, sent.to):
        return
    change = leader.change
    assert change is not None
    refusal = _check_candidate(quorum, leader, change.voter, reply)
    if refusal is not None:
        _finish(quorum, leader, refusal)
        return
    voters = quorum.voters.with_added(Voter(change.voter, change.endpoints, reply.kraft_versions))
    assert voters is not None, "voters changed while a change was in progress"
    change.offset = quorum.append_control((VotersRecord(voters),))
    if not change.is_ack_when_committed:
        _finish(quorum, leader, None)


def _check_candidate(
    quorum: Quorum, leader: Leader, voter: ReplicaKey, reply: ApiVersionsReply
) -> Refusal | None:
    if reply.error is not ErrorCode.NONE:
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, f"ApiVersions failed: {reply.error.name}")
    level = quorum.membership.kraft_version
    if not reply.kraft_versions.includes(level):
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"node {voter.node_id} lacks kraft.version {level}"
        )
    if not is_caught_up(quorum, leader, voter):
        return Refusal(
            ErrorCode.REQUEST_TIMED_OUT, f"node {voter.node_id} has not caught up with the leader"
        )
    return None


def is_caught_up(quorum: Quorum, leader: Leader, key: ReplicaKey) -> bool:
    """Return whether an observer is near the end of the log and still fetching.

    A voter that is far behind would count for the majority and delay every commit.
    """
    observer = leader.progress.observers.get(key)
    if observer is None or observer.fetch_offset is None or observer.fetched_at is None:
        return False
    lag = quorum.end.offset - observer.fetch_offset
    is_recent = quorum.now - observer.fetched_at <= quorum.settings.check_quorum_ms
    return is_recent and lag <= quorum.settings.observer_lag_records_max


def _is_awaited(leader: Leader, node_id: NodeId) -> bool:
    change = leader.change
    return change is not None and change.offset is None and change.voter.node_id == node_id


# -- remove ------------------------------------------------------------------


def _begin_remove(
    quorum: Quorum, leader: Leader, token: int, request: RemoveVoterRequest
) -> Refusal | None:
    """Append the set without that voter. It may be the leader itself, but not the last voter."""
    refusal = _check_free(quorum, leader) or _check_level(quorum)
    if refusal is not None:
        return refusal
    voters = quorum.voters.with_removed(request.voter)
    if voters is None:
        return Refusal(
            ErrorCode.VOTER_NOT_FOUND,
            f"node {request.voter.node_id} is not a voter with that directory, or the last one",
        )
    change = PendingChange(
        token=token,
        voter=request.voter,
        endpoints=(),
        deadline=Millis(quorum.now + quorum.settings.request_timeout_ms),
    )
    leader.change = change
    change.offset = quorum.append_control((VotersRecord(voters),))
    return None


# -- update ------------------------------------------------------------------


def _update(
    quorum: Quorum, leader: Leader, token: int, request: UpdateVoterRequest
) -> Refusal | None:
    """Update a voter's entry; answered once appended.

    At ``kraft.version`` 0 there is no record for it: the leader keeps the entry in memory until
    the version is raised.
    """
    refusal = _check_endpoints(quorum, request.endpoints) or _check_free(quorum, leader)
    if refusal is not None:
        return refusal
    versions = request.kraft_versions
    level = quorum.membership.kraft_version
    if not 0 <= versions.lowest <= versions.highest or not versions.includes(level):
        return Refusal(ErrorCode.INVALID_REQUEST, f"kraft.version {level} is not in the range")
    updated = quorum.voters.with_updated(Voter(request.voter, request.endpoints, versions))
    if updated is None:
        return Refusal(ErrorCode.VOTER_NOT_FOUND, f"node {request.voter.node_id} is not a voter")
    if level >= RECONFIGURATION_LEVEL:
        quorum.append_control((VotersRecord(updated),))
    elif updated != quorum.voters:
        quorum.membership.set_volatile(updated)
        quorum.voters_changed()
    _reply(quorum, token, None)
    return None


# -- kraft.version -----------------------------------------------------------


def on_upgrade(quorum: Quorum, event: UpgradeKRaftVersion) -> None:
    """Raise ``kraft.version``: from then on the voters are in the log and may change."""
    refusal = _check_upgrade(quorum, event.level)
    is_news = event.level > quorum.membership.kraft_version
    if refusal is None and is_news and not event.is_validate_only:
        quorum.append_control((KRaftVersionRecord(event.level), VotersRecord(quorum.voters)))
    _reply(quorum, event.token, refusal)


def _check_upgrade(quorum: Quorum, level: int) -> Refusal | None:
    error = check_leader(quorum, quorum.epoch)
    if error is not ErrorCode.NONE or not isinstance(quorum.role, Leader):
        return Refusal(error)
    now_at = quorum.membership.kraft_version
    if level < now_at or level > RECONFIGURATION_LEVEL:
        return Refusal(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid upgrade of kraft.version from version {now_at} to {level}",
        )
    unsupported = [
        voter.key.node_id
        for voter in quorum.voters
        if not voter.key.is_complete or not voter.kraft_versions.includes(level)
    ]
    if unsupported:
        return Refusal(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid upgrade of kraft.version to {level} because not all of the voters support "
            f"it: {unsupported}",
        )
    return _check_free(quorum, quorum.role)


# -- progress of a change ----------------------------------------------------


def on_committed(quorum: Quorum, leader: Leader) -> None:
    """Answer a change that the new high watermark commits; resign if this leader was removed."""
    high_watermark = quorum.high_watermark
    assert high_watermark is not None
    change = leader.change
    if change is not None and change.offset is not None and change.offset < high_watermark:
        _finish(quorum, leader, None)
    if not quorum.is_voter and quorum.membership.voters_offset < high_watermark:
        quorum.become_resigned()


def on_time(quorum: Quorum, leader: Leader) -> None:
    """Stop waiting for a change past its deadline; its record may still be committed."""
    if leader.change is not None and leader.change.deadline <= quorum.now:
        _finish(quorum, leader, Refusal(ErrorCode.REQUEST_TIMED_OUT, "not committed in time"))


def on_unanswered(quorum: Quorum, sent: InFlight) -> None:
    """Reject the change: the new voter could not be reached."""
    leader = quorum.role
    if isinstance(leader, Leader) and _is_awaited(leader, sent.to):
        _finish(
            quorum,
            leader,
            Refusal(ErrorCode.REQUEST_TIMED_OUT, f"node {sent.to} did not answer"),
        )


def _finish(quorum: Quorum, leader: Leader, refusal: Refusal | None) -> None:
    assert leader.change is not None
    _reply(quorum, leader.change.token, refusal)
    leader.change = None
