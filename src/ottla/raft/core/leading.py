"""The leader: serve fetches, compute the high watermark, hold its lease (KIP-595, KIP-630).

The high watermark is the offset that a majority of the voters has durably, and it moves only once
that includes a record of the leader's own epoch: a record of an older epoch, even on a majority,
can still be replaced by another leader.
"""

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis, Offset
from ottla.raft.core import voter_changes
from ottla.raft.core.effects import RefuseProposal
from ottla.raft.core.elections import check_leader, is_own_cluster
from ottla.raft.core.events import Propose
from ottla.raft.core.log_view import BOOTSTRAP_SNAPSHOT, Match, match_position
from ottla.raft.core.messages import (
    BeginEpochRequest,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    ReadLog,
    ReadSnapshot,
)
from ottla.raft.core.quorum import Quorum
from ottla.raft.core.roles import Leader, ParkedFetch

# Fetches that may wait at a time; further ones are answered at once. A replica sends one at a time.
PARKED_MAX = 10_000

# -- proposals ---------------------------------------------------------------


def on_propose(quorum: Quorum, event: Propose) -> None:
    """Append a proposal made in this epoch."""
    assert event.records_count > 0, "an empty batch has no offset"
    if not isinstance(quorum.role, Leader) or event.epoch != quorum.epoch:
        quorum.emit(RefuseProposal(event.payload, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return
    quorum.append_records(event.records_count, event.payload)


# -- fetches -----------------------------------------------------------------


def on_fetch(quorum: Quorum, token: int, request: FetchRequest) -> None:
    """Answer a fetch, or let it wait for new records."""
    error = _check_fetch(quorum, request)
    role = quorum.role
    if error is not ErrorCode.NONE or not isinstance(role, Leader):
        quorum.answer(token, _refused(quorum, error))
        return
    match, position = match_position(quorum.log, request.log_end)
    if match is not Match.VALID:
        is_snapshot = match is Match.SNAPSHOT
        quorum.answer(
            token,
            FetchReply(
                ErrorCode.NONE,
                quorum.hint(),
                high_watermark=_known_high_watermark(quorum, role),
                log_start=quorum.log.start_offset(),
                diverging=None if is_snapshot else position,
                snapshot=position if is_snapshot else None,
            ),
        )
        return
    _note_fetch(quorum, role, request)
    if _is_worth_answering(quorum, role, request) or len(role.parked) >= PARKED_MAX:
        quorum.answer(token, _fetched(quorum, role, request))
    elif quorum.role is role:
        deadline = Millis(quorum.now + request.wait_ms_max)
        role.parked[token] = ParkedFetch(token, request, deadline)
    else:
        # The fetch itself committed the change that made this leader resign.
        quorum.answer(token, _refused(quorum, ErrorCode.NOT_LEADER_OR_FOLLOWER))


def _refused(quorum: Quorum, error: ErrorCode) -> FetchReply:
    """Return an error reply; as in Kafka it still contains the log start offset."""
    return FetchReply(error, quorum.hint(), log_start=quorum.log.start_offset())


def _check_fetch(quorum: Quorum, request: FetchRequest) -> ErrorCode:
    if not is_own_cluster(quorum, request.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    position = request.log_end
    if (
        request.wait_ms_max < 0
        or position.offset < 0
        or position.epoch < 0
        or position.epoch > request.epoch
        or request.replica.node_id == quorum.settings.node_id
    ):
        return ErrorCode.INVALID_REQUEST
    return check_leader(quorum, request.epoch)


def _note_fetch(quorum: Quorum, role: Leader, request: FetchRequest) -> None:
    # A negative id belongs to a tool that reads the log.
    if request.replica.node_id >= 0:
        end = quorum.end.offset
        role.progress.note_fetch(request.replica, request.log_end.offset, end, quorum.now)
        advance(quorum)


def _is_worth_answering(quorum: Quorum, role: Leader, request: FetchRequest) -> bool:
    if quorum.role is not role:
        return False
    if request.wait_ms_max == 0 or request.log_end.offset < quorum.end.offset:
        return True
    known = _known_high_watermark(quorum, role)
    return known is not None and (request.high_watermark is None or known > request.high_watermark)


def _fetched(quorum: Quorum, role: Leader, request: FetchRequest) -> FetchReply:
    has_news = request.log_end.offset < quorum.end.offset
    return FetchReply(
        ErrorCode.NONE,
        quorum.hint(),
        high_watermark=_known_high_watermark(quorum, role),
        log_start=quorum.log.start_offset(),
        records=ReadLog(request.log_end.offset, request.bytes_max) if has_news else None,
    )


def _known_high_watermark(quorum: Quorum, role: Leader) -> Offset | None:
    return quorum.high_watermark if role.has_committed else None


def serve_parked(quorum: Quorum) -> None:
    """Answer the fetches that have something new to return or whose wait time has passed."""
    role = quorum.role
    if not isinstance(role, Leader):
        return
    for parked in list(role.parked.values()):
        if parked.deadline <= quorum.now or _is_worth_answering(quorum, role, parked.request):
            del role.parked[parked.token]
            quorum.answer(parked.token, _fetched(quorum, role, parked.request))


def on_fetch_snapshot(quorum: Quorum, token: int, request: FetchSnapshotRequest) -> None:
    """Serve a chunk of a snapshot."""
    error = ErrorCode.NONE
    if not is_own_cluster(quorum, request.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
    error = error or check_leader(quorum, request.epoch)
    size = quorum.log.snapshot_size(request.snapshot)
    if size is None or request.snapshot == BOOTSTRAP_SNAPSHOT:
        error = error or ErrorCode.SNAPSHOT_NOT_FOUND
    elif not 0 <= request.position < size:
        error = error or ErrorCode.POSITION_OUT_OF_RANGE
    if error is not ErrorCode.NONE or not isinstance(quorum.role, Leader):
        quorum.answer(token, FetchSnapshotReply(ErrorCode(error), quorum.hint()))
        return
    quorum.role.progress.note_contact(request.replica, quorum.now)
    quorum.answer(
        token,
        FetchSnapshotReply(
            ErrorCode.NONE,
            quorum.hint(),
            snapshot=request.snapshot,
            size=size or 0,
            position=request.position,
            chunk=ReadSnapshot(request.position, request.bytes_max),
        ),
    )


# -- the high watermark ------------------------------------------------------


def advance(quorum: Quorum) -> None:
    """Recompute the high watermark and act on what it commits."""
    role = quorum.role
    if not isinstance(role, Leader):
        return
    role.progress.set_local(quorum.durable)
    committed = role.progress.committed()
    if committed > role.start_offset and quorum.raise_high_watermark(committed):
        role.has_committed = True
        voter_changes.on_committed(quorum, role)


# -- time --------------------------------------------------------------------


def lease_deadline(quorum: Quorum, role: Leader) -> Millis | None:
    """Return when this leader must next have contact with a majority."""
    since = role.progress.lease_start()
    return None if since is None else Millis(since + quorum.settings.check_quorum_ms)


def on_time(quorum: Quorum) -> None:
    """Resign if the lease has expired, and end changes past their deadline."""
    role = quorum.role
    if not isinstance(role, Leader):
        return
    deadline = lease_deadline(quorum, role)
    if deadline is not None and deadline <= quorum.now:
        quorum.become_resigned()
        return
    voter_changes.on_time(quorum, role)
    role.progress.drop_idle_observers(quorum.now)


# -- what to send ------------------------------------------------------------


def send_begin_epochs(quorum: Quorum, role: Leader) -> None:
    """Send BeginQuorumEpoch to voters that do not fetch: at first, then twice per fetch timeout."""
    if quorum.now < role.announce_at:
        return
    interval = quorum.settings.fetch_timeout_ms // 2
    role.announce_at = Millis(quorum.now + interval)
    for key in role.progress.silent_voters(Millis(quorum.now - interval)):
        voter = quorum.voters.get(key.node_id)
        request = BeginEpochRequest(
            cluster_id=quorum.settings.cluster_id,
            leader_id=role.leader_id,
            epoch=role.epoch,
            endpoints=quorum.settings.endpoints,
            voter=key,
        )
        if voter is not None:
            quorum.send(key.node_id, voter.endpoint(quorum.settings.listener), request)
