"""The state of one replica, and the transitions between roles.

The modules beside this one decide *when* to change role; this one defines *how*: what is kept,
persisted and dropped. A transition emits `PersistElection` before anything that would reveal it to
other replicas, and answers the requests left open by the old role only after that.
"""

from collections.abc import Callable

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.raft.core.effects import (
    Answer,
    AppendControl,
    AppendFetched,
    AppendRecords,
    ControlRecord,
    Effect,
    Flush,
    HighWatermark,
    KRaftVersionRecord,
    LeaderChange,
    PersistElection,
    RoleChanged,
    Send,
    TruncateTo,
    VotersChanged,
    VotersRecord,
)
from ottla.raft.core.epochs import next_epoch
from ottla.raft.core.log_view import LogPosition, LogView
from ottla.raft.core.messages import (
    Batches,
    FetchReply,
    KRaftVersionAt,
    LeaderHint,
    Reply,
    Request,
    VoterChangeReply,
    VotersAt,
)
from ottla.raft.core.outstanding import Outstanding
from ottla.raft.core.progress import Progress
from ottla.raft.core.raft_settings import RaftSettings
from ottla.raft.core.roles import (
    AnyRole,
    Ballot,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from ottla.raft.core.voter_history import BEFORE_LOG, Membership
from ottla.raft.core.voters import Endpoint, Endpoints, ReplicaKey, VoterSet


class Quorum:
    """The state of one replica. Belongs to the `RaftCore` that created it."""

    def __init__(
        self,
        settings: RaftSettings,
        log: LogView,
        election: PersistElection,
        membership: Membership,
        below: Callable[[int], int],
    ) -> None:
        self.settings = settings
        self.log = log
        self.membership = membership
        self.below = below
        self.now = Millis(0)
        self.effects: list[Effect] = []
        self.persisted = election
        self.role: AnyRole = Unattached(election.epoch, Millis(0), None, election.voted)
        self.outstanding = Outstanding(settings.request_timeout_ms, settings.retry_backoff_ms)
        # The end of the log once the effects so far are performed, and how much of it is durable.
        # Everything read at the start is durable: recovery has synced it.
        self.end = log.end()
        self.durable = self.end.offset
        self.high_watermark: Offset | None = None
        self._flushes: dict[int, Offset] = {}
        self._flush_tickets = 0
        self.installing: LogPosition | None = None
        self.is_stopping = False
        self.is_rejoining = settings.is_rejoining

    # -- queries -------------------------------------------------------------

    @property
    def epoch(self) -> LeaderEpoch:
        """The epoch this replica is in. It never decreases."""
        return self.role.epoch

    @property
    def voters(self) -> VoterSet:
        """The voters in effect."""
        return self.membership.voters

    @property
    def is_voter(self) -> bool:
        """Whether this replica, with this directory, is one of them."""
        return self.voters.has(self.settings.key)

    @property
    def may_stand(self) -> bool:
        """Whether this replica may become a candidate now.

        A removed replica may, as long as it does not know that its removal is committed: it may be
        the only one with an up-to-date log, and no other could win. It is elected by the voters in
        effect, does not count itself, and resigns once the removal is committed.
        """
        if self.installing is not None or self.is_stopping or self.is_rejoining:
            return False
        return self.is_voter or self._is_removal_open()

    def _is_removal_open(self) -> bool:
        known = 0 if self.high_watermark is None else self.high_watermark
        is_open = self.membership.voters_offset >= known
        return is_open and self.membership.previous_voters.has(self.settings.key)

    def _own_ballot(self) -> Ballot:
        """Return a ballot with this replica's own vote, which counts for voters only."""
        ballot = Ballot(self.voters)
        if self.is_voter:
            ballot.record(self.settings.node_id, is_granted=True)
        return ballot

    def hint(self) -> LeaderHint:
        """Return epoch and leader, as contained in every reply."""
        role = self.role
        if isinstance(role, Leader | Resigned):
            return LeaderHint(role.epoch, role.leader_id, self.settings.endpoints)
        if isinstance(role, Follower | Prospective):
            return LeaderHint(role.epoch, role.leader_id, role.leader_endpoints)
        return LeaderHint(role.epoch, role.leader_id)

    def random_election_deadline(self) -> Millis:
        """Return a time one to two election timeouts away, so that candidates do not collide."""
        timeout = self.settings.election_timeout_ms
        return Millis(self.now + timeout + self.below(timeout))

    # -- effects -------------------------------------------------------------

    def emit(self, effect: Effect) -> None:
        """Add an effect to this step."""
        self.effects.append(effect)

    def answer(self, token: int, reply: Reply) -> None:
        """Answer a request."""
        self.emit(Answer(token, reply))

    def send(self, to: NodeId, endpoint: Endpoint | None, request: Request) -> None:
        """Send a request, unless that node is busy, paused or has no known address."""
        if endpoint is not None and self.outstanding.may_send(to, self.now):
            self.emit(Send(self.outstanding.sent(to, request, self.now), to, endpoint, request))

    # -- transitions ---------------------------------------------------------

    def become_unattached(self, epoch: LeaderEpoch) -> None:
        """Enter a greater epoch whose leader is unknown, or end a lost pre-vote."""
        role = self.role
        assert epoch > role.epoch or isinstance(role, Prospective), (epoch, role)
        voted = role.voted if epoch == role.epoch else None
        leader_id = role.leader_id if epoch == role.epoch else None
        self._enter(Unattached(epoch, self._election_deadline_kept(), leader_id, voted))

    def become_follower(self, epoch: LeaderEpoch, leader_id: NodeId, endpoints: Endpoints) -> None:
        """Follow the leader of ``epoch``, now that it is known and can be reached."""
        role = self.role
        assert leader_id != self.settings.node_id, "a leader does not follow itself"
        assert epoch > role.epoch or role.leader_id in (None, leader_id), (epoch, role)
        self._enter(
            Follower(
                epoch=epoch,
                leader_id=leader_id,
                leader_endpoints=endpoints,
                fetch_deadline=Millis(self.now + self.settings.fetch_timeout_ms),
                update_voter_at=Millis(self.now + self.settings.update_voter_ms),
                voted=role.voted if epoch == role.epoch else None,
            )
        )

    def become_prospective(self) -> None:
        """Start a pre-vote: find out whether an election would be won. The epoch stays."""
        role = self.role
        assert self.may_stand
        hint = self.hint()
        is_own = hint.leader_id == self.settings.node_id
        ballot = self._own_ballot()
        self._enter(
            Prospective(
                epoch=role.epoch,
                election_deadline=self.random_election_deadline(),
                ballot=ballot,
                leader_id=None if is_own else hint.leader_id,
                leader_endpoints=() if is_own else hint.endpoints,
                voted=role.voted,
            )
        )
        if ballot.is_won:
            self.become_candidate(next_epoch(role.epoch))

    def become_candidate(self, epoch: LeaderEpoch) -> None:
        """Start an election in a new epoch, with this replica's own vote."""
        assert self.may_stand
        candidate = self.own_candidacy(epoch)
        self._enter(candidate)
        if candidate.ballot.is_won:
            self.become_leader()

    def become_leader(self) -> None:
        """Become leader: append the control batch that starts the epoch."""
        role = self.role
        assert isinstance(role, Candidate)
        assert role.ballot.is_won
        self._enter(
            Leader(
                epoch=role.epoch,
                leader_id=self.settings.node_id,
                voted=role.voted,
                start_offset=self.end.offset,
                progress=Progress(self.settings.key, self.voters, self.now),
                announce_at=self.now,
            )
        )
        granting = tuple(sorted(role.ballot.granted))
        opening: list[ControlRecord] = [
            LeaderChange(self.settings.node_id, self.voters.ids, granting)
        ]
        updated = self.voters.with_updated(self.settings.voter) or self.voters
        is_outdated = self.membership.voters_offset == BEFORE_LOG or updated != self.voters
        if self.membership.kraft_version >= 1 and is_outdated:
            opening += [KRaftVersionRecord(self.membership.kraft_version), VotersRecord(updated)]
        self.append_control(tuple(opening))

    def become_resigned(self) -> None:
        """Resign; the epoch then has no leader."""
        role = self.role
        assert isinstance(role, Leader)
        successors = role.progress.successors()
        self._enter(
            Resigned(
                epoch=role.epoch,
                leader_id=role.leader_id,
                election_deadline=self.random_election_deadline(),
                successors=successors,
                unacknowledged={key.node_id for key in successors},
                voted=role.voted,
            )
        )

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Grant this epoch's vote, durably."""
        assert isinstance(self.role, Unattached | Prospective)
        if self.role.voted != candidate:
            self.role.voted = candidate
            # A replica that has just voted gives the candidate time to win.
            self.role.election_deadline = self.random_election_deadline()
            self._persist()

    def own_candidacy(self, epoch: LeaderEpoch) -> Candidate:
        """Return the candidacy of a replica that voted for itself."""
        deadline = self.random_election_deadline()
        return Candidate(epoch, deadline, self._own_ballot(), self.settings.key)

    def start_role(self, role: AnyRole) -> None:
        """Enter the role that was found on disk."""
        self._enter(role)

    def _enter(self, role: AnyRole) -> None:
        old = self.role
        self.role = role
        self.outstanding.forget_all()
        self._persist()
        start = role.start_offset if isinstance(role, Leader) else None
        self.emit(RoleChanged(role.name, role.epoch, role.leader_id, start))
        if isinstance(old, Leader):
            self._reject_open_requests(old)

    def _reject_open_requests(self, old: Leader) -> None:
        refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
        for parked in old.parked.values():
            self.answer(
                parked.token, FetchReply(refusal, self.hint(), log_start=self.log.start_offset())
            )
        if old.change is not None:
            self.answer(old.change.token, VoterChangeReply(refusal, self.hint()))

    def _persist(self) -> None:
        election = PersistElection(self.role.epoch, self.role.voted, self.role.leader_id)
        assert election.epoch >= self.persisted.epoch, "epochs never fall"
        if election != self.persisted:
            self.persisted = election
            self.emit(election)

    def _election_deadline_kept(self) -> Millis:
        """Return the deadline: a greater epoch does not extend the wait for an election."""
        role = self.role
        if isinstance(role, Leader | Follower) or _is_lost(role):
            return self.random_election_deadline()
        is_left = role.election_deadline > self.now
        return role.election_deadline if is_left else self.random_election_deadline()

    # -- the log -------------------------------------------------------------

    def append_control(self, records: tuple[ControlRecord, ...]) -> Offset:
        """Append control records as leader; return the offset of the last."""
        assert isinstance(self.role, Leader)
        base = self.end.offset
        self.emit(AppendControl(base, self.epoch, records))
        before = self.voters
        for index, record in enumerate(records):
            offset = Offset(base + index)
            if isinstance(record, VotersRecord):
                self.membership.note(VotersAt(offset, record.voters))
            elif isinstance(record, KRaftVersionRecord):
                self.membership.note(KRaftVersionAt(offset, record.level))
        self._appended(LogPosition(self.epoch, Offset(base + len(records))))
        if self.voters != before:
            self.voters_changed()
        return Offset(base + len(records) - 1)

    def append_records(self, records_count: int, payload: object) -> None:
        """Append a proposal as leader."""
        assert isinstance(self.role, Leader)
        assert records_count > 0
        base = self.end.offset
        self.emit(AppendRecords(base, self.epoch, records_count, payload))
        self._appended(LogPosition(self.epoch, Offset(base + records_count)))

    def append_fetched(self, batches: Batches) -> None:
        """Append what the leader sent, and put its control records into effect."""
        assert batches.base_offset == self.end.offset
        assert batches.end.offset > self.end.offset
        before = self.voters
        self.emit(AppendFetched(batches))
        for control in batches.controls:
            self.membership.note(control)
        self._appended(batches.end)
        if self.voters != before:
            self.voters_changed()

    def truncate(self, offset: Offset) -> None:
        """Truncate the log, and revert the membership that was written behind the new end.

        A follower truncates in reply to a fetch, and it fetches only when everything is flushed: so
        no flush is in progress that could be taken for one of later records.
        """
        assert self.high_watermark is None or offset >= self.high_watermark
        assert self.durable == self.end.offset
        before = self.voters
        self.emit(TruncateTo(offset))
        self.membership.truncate(offset)
        self.end = LogPosition(self.log.epoch_before(offset), offset)
        self.durable = offset
        if self.voters != before:
            self.voters_changed()

    def _appended(self, end: LogPosition) -> None:
        self.end = end
        if self.settings.may_become_voter or self.is_voter:
            self._flush()
        else:
            self.durable = end.offset

    def _flush(self) -> None:
        self._flush_tickets += 1
        self._flushes[self._flush_tickets] = self.end.offset
        # One flush covers everything that the step appended before it.
        self.effects = [
            e for e in self.effects if not (isinstance(e, Flush) and e.ticket in self._flushes)
        ]
        self.emit(Flush(self._flush_tickets))

    def flushed(self, ticket: int) -> bool:
        """Record a completed flush; return whether more is durable than before."""
        done = [t for t in self._flushes if t <= ticket]
        reached = max((self._flushes.pop(t) for t in done), default=self.durable)
        if reached <= self.durable:
            return False
        self.durable = reached
        return True

    def reset_to_snapshot(self, snapshot: LogPosition) -> None:
        """Continue from a snapshot that replaced the log; all of it is durable."""
        assert not self._flushes, "appended while a snapshot was being installed"
        self.end = snapshot
        self.durable = snapshot.offset

    def raise_high_watermark(self, offset: Offset) -> bool:
        """Raise the high watermark; return whether it moved."""
        if self.high_watermark is not None and offset <= self.high_watermark:
            return False
        assert offset <= self.end.offset
        self.high_watermark = offset
        self.emit(HighWatermark(offset))
        return True

    def voters_changed(self) -> None:
        """Report that another voter set is in effect, and count by it from now on."""
        self.emit(VotersChanged(self.voters))
        if isinstance(self.role, Leader):
            self.role.progress.set_voters(self.voters)


def _is_lost(role: AnyRole) -> bool:
    return isinstance(role, Prospective) and role.ballot.is_lost
