"""The raft core: pass it an event, perform the effects it returns, in order.

Synchronous and deterministic: the same events, with the same results of ``below`` and the same log,
give the same effects. One step does three things: it handles the event, acts on every deadline that
has passed, and then sends what the current role wants sent.

    core = RaftCore(settings, log, election, membership, below)
    for effect in core.step(Start(now)):
        carry_out(effect)
"""

from collections.abc import Callable
from typing import assert_never

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.raft.core import elections, following, leading, voter_changes
from ottla.raft.core.effects import Effect, PersistElection, SetTimer, ShutdownReady
from ottla.raft.core.events import (
    Event,
    Flushed,
    Propose,
    Replied,
    Requested,
    Resign,
    Shutdown,
    SnapshotInstalled,
    SnapshotRejected,
    SnapshotTaken,
    Start,
    Tick,
    Unanswered,
    UpgradeKRaftVersion,
)
from ottla.raft.core.log_view import LogView
from ottla.raft.core.messages import (
    AddVoterRequest,
    ApiVersionsReply,
    ApiVersionsRequest,
    BeginEpochReply,
    BeginEpochRequest,
    EndEpochReply,
    EndEpochRequest,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeReply,
    VoteReply,
    VoteRequest,
)
from ottla.raft.core.quorum import Quorum
from ottla.raft.core.raft_settings import RaftSettings
from ottla.raft.core.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from ottla.raft.core.view import QuorumView, describe
from ottla.raft.core.voter_history import Membership
from ottla.raft.core.voters import Endpoints, VoterSet


class RaftCore:
    """One replica of the metadata quorum, voter or observer.

    ``election`` is the content of the quorum state file (epoch 0 if there is none), and
    ``membership`` the control records of snapshot and log. ``below(n)`` returns a random number in
    ``[0, n)``.
    """

    def __init__(
        self,
        settings: RaftSettings,
        log: LogView,
        election: PersistElection,
        membership: Membership,
        below: Callable[[int], int],
    ) -> None:
        self._quorum = Quorum(settings, log, election, membership, below)
        self._election = election
        self._timer: Millis | None = None
        self._is_shutdown_ready_emitted = False

    def step(self, event: Event) -> list[Effect]:
        """Handle one event; return the effects to perform, in order.

        Raises:
            CommittedLogCutError: a leader asked to truncate committed records; stop the node.
        """
        quorum = self._quorum
        assert event.now >= quorum.now, "time is monotonic"
        # A snapshot is installed in the background, so the log may be ahead of the event.
        is_carried_out = quorum.end == quorum.log.end() or quorum.installing is not None
        assert is_carried_out, "effects of the last step were not performed"
        quorum.now = event.now
        quorum.effects = []
        self._take(event)
        following.end_rejoining(quorum)
        self._act_on_time()
        self._send()
        leading.serve_parked(quorum)
        self._emit_shutdown_ready()
        self._set_timer()
        return quorum.effects

    def describe(self, now: Millis) -> QuorumView:
        """Return the quorum as this replica sees it, for operators and DescribeQuorum."""
        return describe(self._quorum, now)

    def membership_at(self, offset: Offset) -> tuple[int, VoterSet]:
        """Return ``kraft.version`` and voters, for a snapshot that ends at ``offset``."""
        return self._quorum.membership.at(offset)

    # -- events --------------------------------------------------------------

    def _take(self, event: Event) -> None:  # noqa: C901, PLR0912 - one line per event
        quorum = self._quorum
        match event:
            case Start():
                self._start()
            case Tick():
                pass
            case Requested():
                self._take_request(event)
            case Replied():
                self._take_reply(event)
            case Unanswered():
                if (sent := quorum.outstanding.take(event.ticket)) is not None:
                    quorum.outstanding.pause(sent.to, quorum.now)
                    voter_changes.on_unanswered(quorum, sent)
                    following.on_unanswered(quorum, sent, is_refused=event.is_refused)
            case Flushed():
                if quorum.flushed(event.ticket):
                    leading.advance(quorum)
                    following.follow_high_watermark(quorum)
            case Propose():
                leading.on_propose(quorum, event)
            case SnapshotInstalled():
                following.on_installed(quorum, event)
            case SnapshotRejected():
                following.on_rejected(quorum, event)
            case SnapshotTaken():
                quorum.membership.forget_before(event.snapshot.offset)
            case Resign():
                if isinstance(quorum.role, Leader) and event.epoch == quorum.epoch:
                    quorum.become_resigned()
            case UpgradeKRaftVersion():
                voter_changes.on_upgrade(quorum, event)
            case Shutdown():
                quorum.is_stopping = True
                if isinstance(quorum.role, Leader):
                    quorum.become_resigned()
            case _:
                assert_never(event)

    def _start(self) -> None:
        """Resume from the state on disk. A restarted leader no longer leads."""
        quorum = self._quorum
        found = self._election
        own = quorum.settings.key
        if (snapshot := quorum.log.latest_snapshot()) is not None and snapshot.offset > 0:
            quorum.raise_high_watermark(snapshot.offset)
        deadline = quorum.random_election_deadline()
        endpoints: Endpoints = ()
        if found.leader_id is not None and (voter := quorum.voters.get(found.leader_id)):
            endpoints = voter.endpoints
        if found.epoch < quorum.end.epoch:
            # The log is newer than the quorum state: that file was lost. Votes in the log's last
            # epoch are unknown, so none is granted in it.
            quorum.start_role(Unattached(LeaderEpoch(quorum.end.epoch + 1), deadline))
        elif found.leader_id == own.node_id:
            others = {v.key.node_id for v in quorum.voters} - {own.node_id}
            quorum.start_role(Resigned(found.epoch, own.node_id, deadline, (), others, found.voted))
        elif found.voted == own and found.leader_id is None and quorum.may_stand:
            quorum.start_role(quorum.own_candidacy(found.epoch))
        elif found.leader_id is not None and endpoints:
            quorum.become_follower(found.epoch, found.leader_id, endpoints)
        else:
            quorum.start_role(Unattached(found.epoch, deadline, found.leader_id, found.voted))
        if quorum.voters.ids == (own.node_id,) and quorum.may_stand:
            quorum.become_prospective()

    def _take_request(self, event: Requested) -> None:
        quorum = self._quorum
        token = event.token
        match event.request:
            case VoteRequest() as request:
                elections.on_vote(quorum, token, request)
            case BeginEpochRequest() as request:
                elections.on_begin_epoch(quorum, token, request)
            case EndEpochRequest() as request:
                elections.on_end_epoch(quorum, token, request)
            case FetchRequest() as request:
                leading.on_fetch(quorum, token, request)
            case FetchSnapshotRequest() as request:
                leading.on_fetch_snapshot(quorum, token, request)
            case AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest() as request:
                voter_changes.on_change(quorum, token, request)
            case ApiVersionsRequest():
                versions = quorum.settings.kraft_versions
                quorum.answer(token, ApiVersionsReply(ErrorCode.NONE, versions))
            case _:
                assert_never(event.request)

    def _take_reply(self, event: Replied) -> None:
        quorum = self._quorum
        sent = quorum.outstanding.take(event.ticket)
        if sent is None:
            return
        match sent.request, event.reply:
            case VoteRequest(), VoteReply() as reply:
                elections.on_vote_reply(quorum, sent, reply)
            case BeginEpochRequest(), BeginEpochReply() as reply:
                elections.on_begin_epoch_reply(quorum, sent, reply)
            case EndEpochRequest(), EndEpochReply() as reply:
                elections.on_end_epoch_reply(quorum, sent, reply)
            case FetchRequest(), FetchReply() as reply:
                following.on_fetch_reply(quorum, sent, reply)
            case FetchSnapshotRequest(), FetchSnapshotReply() as reply:
                following.on_fetch_snapshot_reply(quorum, sent, reply)
            case UpdateVoterRequest(), VoterChangeReply() as reply:
                following.on_update_reply(quorum, sent, reply)
            case ApiVersionsRequest(), ApiVersionsReply() as reply:
                voter_changes.on_api_versions_reply(quorum, sent, reply)
            case _:
                raise AssertionError(f"{event.reply} does not answer {sent.request}")

    # -- time ----------------------------------------------------------------

    def _act_on_time(self) -> None:
        quorum = self._quorum
        for late in quorum.outstanding.expire(quorum.now):
            voter_changes.on_unanswered(quorum, late)
        leading.on_time(quorum)
        following.on_time(quorum)
        elections.on_time(quorum)

    def _send(self) -> None:
        quorum = self._quorum
        match quorum.role:
            case Unattached():
                following.send_to_bootstrap_nodes(quorum)
            case Follower() as role:
                following.send_as_follower(quorum, role)
            case (Prospective() | Candidate()) as role:
                elections.send_votes(quorum, role)
            case Leader() as role:
                leading.send_begin_epochs(quorum, role)
            case Resigned() as role:
                elections.send_end_epochs(quorum, role)

    def _emit_shutdown_ready(self) -> None:
        """Report that a stopping node may stop: it leads no epoch, or all others know."""
        quorum = self._quorum
        if not quorum.is_stopping or self._is_shutdown_ready_emitted:
            return
        role = quorum.role
        is_alone = not quorum.is_voter or len(quorum.voters) == 1
        is_known = isinstance(role, Resigned) and not role.unacknowledged
        if is_alone or is_known or not isinstance(role, Resigned | Candidate):
            self._is_shutdown_ready_emitted = True
            quorum.emit(ShutdownReady())

    def _deadlines(self) -> list[Millis]:
        quorum = self._quorum
        role = quorum.role
        found = quorum.outstanding.deadlines()
        match role:
            case Follower():
                if quorum.may_stand or role.fetch_deadline > quorum.now:
                    found.append(role.fetch_deadline)
                if quorum.is_voter and role.update_voter_at > quorum.now:
                    found.append(role.update_voter_at)
            case Leader():
                lease = leading.lease_deadline(quorum, role)
                found += [] if lease is None else [lease]
                if len(quorum.voters) > 1 or not quorum.is_voter:
                    found.append(role.announce_at)
                found += [parked.deadline for parked in role.parked.values()]
                found += [] if role.change is None else [role.change.deadline]
            case _:
                found.append(role.election_deadline)
        return found

    def _set_timer(self) -> None:
        at = min(self._deadlines(), default=None)
        assert at is None or at > self._quorum.now, "a deadline that has passed is still set"
        if at != self._timer:
            self._timer = at
            self._quorum.emit(SetTimer(at))
