"""Simulates a quorum of raft cores by seed: disks that lose data, an unreliable network.

Each replica's effects are performed one by one, and a crash may occur between any two. Records that
were appended and not flushed are lost with it, sometimes only in part. Messages are delayed, lost,
repeated and reordered; links are cut one way or both.

The simulation checks invariants while it runs. A violated invariant raises `AssertionError` at the
moment it is violated:

- one leader per epoch, one vote per replica and epoch, epochs and high watermarks never decrease;
- what is committed anywhere is on a majority's disks, never changes, and every leader has it;
- two logs that agree on the epoch at an offset agree on everything before it;
- voter sets in effect at the same time differ by at most one voter.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset, Uuid
from ottla.raft.core import effects as out
from ottla.raft.core import events as into
from ottla.raft.core.effects import Role
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.machine import RaftCore
from ottla.raft.core.messages import (
    AddVoterRequest,
    Batches,
    Chunk,
    Control,
    FetchReply,
    FetchSnapshotReply,
    KRaftVersionAt,
    ReadLog,
    ReadSnapshot,
    RemoveVoterRequest,
    Request,
    VoterChangeReply,
    VoteReply,
    VoteRequest,
    VotersAt,
)
from ottla.raft.core.raft_settings import RaftSettings
from ottla.raft.core.voter_history import Membership
from ottla.raft.core.voters import (
    ALL_KRAFT_VERSIONS,
    Endpoint,
    ReplicaKey,
    Voter,
    VoterSet,
)

CLUSTER = "raft-sim"
NO_ELECTION = out.PersistElection(LeaderEpoch(0), None, None)
SNAPSHOT_BYTES = 5


@dataclass(frozen=True)
class Entry:
    epoch: int
    value: object


@dataclass
class Snapshot:
    id: LogPosition
    kraft_version: int
    voters: VoterSet
    entries: tuple[Entry, ...]


class MemoryLog:
    """A log of entries, of which a prefix is durable. Implements `LogView`."""

    def __init__(self) -> None:
        self.start = 0
        self.entries: list[Entry] = []
        self.durable = 0
        self.snapshots: dict[LogPosition, Snapshot] = {}

    # LogView

    def start_offset(self) -> Offset:
        return Offset(self.start)

    def end(self) -> LogPosition:
        return self.position(self.end_offset)

    def end_offset_for_epoch(self, epoch: int) -> LogPosition:
        offset = self.end_offset
        while offset > self.start and self.entry(offset - 1).epoch > epoch:
            offset -= 1
        return self.position(offset)

    def epoch_before(self, offset: int) -> LeaderEpoch:
        return self.position(offset).epoch

    def earliest_snapshot(self) -> LogPosition | None:
        return min(self.snapshots, key=lambda s: s.offset, default=None)

    def latest_snapshot(self) -> LogPosition | None:
        return max(self.snapshots, key=lambda s: s.offset, default=None)

    def snapshot_size(self, snapshot: LogPosition) -> int | None:
        return SNAPSHOT_BYTES if snapshot in self.snapshots else None

    # effects and faults

    @property
    def end_offset(self) -> int:
        return self.start + len(self.entries)

    def position(self, offset: int) -> LogPosition:
        if offset > self.start:
            return LogPosition(LeaderEpoch(self.entry(offset - 1).epoch), Offset(offset))
        at_start = [s.epoch for s in self.snapshots if s.offset == self.start]
        return LogPosition(LeaderEpoch(at_start[0] if at_start else 0), Offset(self.start))

    def entry(self, offset: int) -> Entry:
        return self.entries[offset - self.start]

    def has(self, offset: int) -> bool:
        return self.start <= offset < self.end_offset

    def append(self, base: int, entries: list[Entry]) -> None:
        assert base == self.end_offset, "appended exactly at the end"
        self.entries += entries

    def truncate(self, offset: int) -> None:
        assert self.start <= offset <= self.end_offset
        del self.entries[offset - self.start :]
        self.durable = min(self.durable, offset)

    def trim(self, snapshot: LogPosition) -> None:
        """Delete what a snapshot covers, and earlier snapshots."""
        del self.entries[: snapshot.offset - self.start]
        self.start = snapshot.offset
        self.snapshots = {k: s for k, s in self.snapshots.items() if k.offset >= snapshot.offset}

    def install(self, snapshot: Snapshot) -> None:
        self.snapshots[snapshot.id] = snapshot
        self.entries = []
        self.start = self.durable = snapshot.id.offset
        self.snapshots = {snapshot.id: snapshot}

    def lose_unflushed(self, kept: int) -> None:
        """Crash: of the unflushed records, ``kept`` happen to be on the disk."""
        self.truncate(min(self.durable + kept, self.end_offset))
        self.durable = self.end_offset

    def controls(self) -> list[Control]:
        return controls_of(self.start, self.entries)


def controls_of(base: int, entries: list[Entry] | tuple[Entry, ...]) -> list[Control]:
    found: list[Control] = []
    for offset, entry in enumerate(entries, base):
        if isinstance(entry.value, out.VotersRecord):
            found.append(VotersAt(Offset(offset), entry.value.voters))
        elif isinstance(entry.value, out.KRaftVersionRecord):
            found.append(KRaftVersionAt(Offset(offset), entry.value.level))
    return found


def directory(number: int) -> Uuid:
    return Uuid(bytes([number % 256]) * 16)


def endpoint(node_id: int) -> Endpoint:
    return Endpoint("CONTROLLER", f"node{node_id}", 9093)


def voter(node_id: int, directory_number: int | None = None) -> Voter:
    number = node_id + 1 if directory_number is None else directory_number
    key = ReplicaKey(NodeId(node_id), directory(number))
    return Voter(key, (endpoint(node_id),), ALL_KRAFT_VERSIONS)


def settings(node_id: int, **changed: object) -> RaftSettings:
    options: dict = {
        "node_id": NodeId(node_id),
        "directory_id": directory(node_id + 1),
        "cluster_id": CLUSTER,
        "endpoints": (endpoint(node_id),),
        "election_timeout_ms": 100,
        "fetch_timeout_ms": 200,
        "request_timeout_ms": 150,
        "retry_backoff_ms": 20,
        "election_backoff_ms_max": 100,
        "fetch_wait_ms_max": 60,
        "observer_lag_records_max": 3,
    }
    return RaftSettings(**(options | changed))


@dataclass
class Replica:
    """One machine: its disk, and the core while it is running."""

    settings: RaftSettings
    log: MemoryLog
    bootstrap: VoterSet
    election: out.PersistElection = NO_ELECTION
    core: RaftCore | None = None
    incarnation: int = 0
    timer: int | None = None
    role: Role | None = None
    high_watermark: int = 0
    lease_at: int = 0
    downloads: dict[LogPosition, Snapshot] = field(default_factory=dict)

    @property
    def id(self) -> int:
        return self.settings.node_id

    @property
    def key(self) -> ReplicaKey:
        return self.settings.key


class QuorumSimulation:
    def __init__(self, seed: int, voters: int, observers: int = 0, lossy: bool = True) -> None:
        self.random = random.Random(seed)
        self.now = 1000
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.sequence = 0
        self.tokens: dict[int, tuple[int, int, int, Request]] = {}
        self.token = 0
        self.cuts: set[tuple[int, int]] = set()
        self.is_lossy = lossy
        self.crash_chance = 0.0
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.committed: list[Entry] = []
        self.change_replies: list[tuple[Request, VoterChangeReply]] = []
        self.client_tokens: dict[int, Request] = {}
        self.proposals = 0
        first = VoterSet(tuple(voter(i) for i in range(voters)))
        self.replicas: dict[int, Replica] = {}
        for node_id in range(voters + observers):
            bootstrap = tuple(endpoint(i) for i in range(voters))
            own = settings(node_id, bootstrap=bootstrap)
            self.replicas[node_id] = Replica(own, MemoryLog(), first)
        for replica in self.replicas.values():
            self.start(replica)

    # -- time ----------------------------------------------------------------

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self.sequence += 1
        heapq.heappush(self.queue, (self.now + delay, self.sequence, action))

    def run(self, ms: int, until: Callable[[], bool] | None = None) -> bool:
        """Run for that long, or until a condition holds; return whether it does."""
        end = self.now + ms
        while self.queue and self.queue[0][0] <= end:
            at, _, action = heapq.heappop(self.queue)
            self.now = max(self.now, at)
            action()
            if until is not None and until():
                return True
        self.now = end
        return until is not None and until()

    # -- machines ------------------------------------------------------------

    def start(self, replica: Replica) -> None:
        log = replica.log
        snapshot = log.latest_snapshot()
        membership = Membership(replica.bootstrap, 1)
        if snapshot is not None:
            found = log.snapshots[snapshot]
            start = found.id.offset
            membership.reset(Offset(start), found.kraft_version, found.voters)
        else:
            start = 0
        for control in log.controls():
            if control.offset >= start:
                membership.note(control)
        replica.core = RaftCore(
            replica.settings, log, replica.election, membership, self.random.randrange
        )
        replica.incarnation += 1
        replica.high_watermark = 0
        replica.timer = None
        replica.downloads = {}
        self.feed(replica, into.Start(Millis(self.now)))

    def crash(self, replica: Replica) -> None:
        replica.core = None
        replica.role = None
        replica.incarnation += 1
        lost = replica.log.end_offset - replica.log.durable
        replica.log.lose_unflushed(self.random.randint(0, lost))

    def lose_disk(self, replica: Replica) -> None:
        """Restart the machine with an empty disk and another directory id."""
        self.crash(replica)
        number = 100 + self.random.randrange(100)
        replica.settings = settings(
            replica.id, bootstrap=replica.settings.bootstrap, directory_id=directory(number)
        )
        replica.log = MemoryLog()
        replica.election = NO_ELECTION

    def heal(self) -> None:
        self.cuts.clear()
        self.is_lossy = False
        self.crash_chance = 0.0
        for replica in self.replicas.values():
            if replica.core is None:
                self.start(replica)

    # -- a step, and its effects ---------------------------------------------

    def feed(self, replica: Replica, event: into.Event) -> None:
        assert replica.core is not None
        for effect in replica.core.step(event):
            if self.crash_chance and self.random.random() < self.crash_chance:
                self.crash(replica)
                self.after(self.random.randint(20, 400), lambda: self.restart(replica))
                return
            self.carry_out(replica, effect)

    def restart(self, replica: Replica) -> None:
        if replica.core is None:
            self.start(replica)

    def later(self, replica: Replica, delay: int, make: Callable[[], into.Event | None]) -> None:
        """Pass an event later, if the same incarnation is still running."""
        incarnation = replica.incarnation

        def act() -> None:
            if replica.incarnation == incarnation and replica.core is not None:
                event = make()
                if event is not None:
                    self.feed(replica, event)

        self.after(delay, act)

    def carry_out(self, replica: Replica, effect: out.Effect) -> None:
        log = replica.log
        match effect:
            case out.PersistElection():
                self.check_election(replica, effect)
                replica.election = effect
            case out.AppendControl():
                log.append(effect.base_offset, [Entry(effect.epoch, r) for r in effect.records])
                self.check_membership(replica)
            case out.AppendRecords():
                entries = [
                    Entry(effect.epoch, (effect.payload, i)) for i in range(effect.records_count)
                ]
                log.append(effect.base_offset, entries)
            case out.AppendFetched():
                log.append(effect.batches.base_offset, list(effect.batches.payload))  # type: ignore[call-overload]
            case out.TruncateTo():
                log.truncate(effect.offset)
            case out.Flush():
                self.flush(replica, effect.ticket)
            case out.WriteSnapshotChunk():
                assert isinstance(effect.payload, Snapshot)
                replica.downloads[effect.snapshot] = effect.payload
            case out.InstallSnapshot():
                self.install(replica, effect.snapshot)
            case out.Send():
                self.send(replica, effect)
            case out.Answer():
                self.reply(replica, effect)
            case out.RoleChanged():
                replica.role = effect.role
                if effect.role is Role.LEADER:
                    self.check_leader(replica, effect)
            case out.HighWatermark():
                self.check_high_watermark(replica, effect.offset)
            case out.SetTimer():
                self.set_timer(replica, effect.at)
            case out.RefuseProposal() | out.VotersChanged() | out.ShutdownReady():
                pass

    def set_timer(self, replica: Replica, at: int | None) -> None:
        replica.timer = at
        if at is not None:

            def tick() -> into.Event | None:
                return into.Tick(Millis(self.now)) if replica.timer == at else None

            self.later(replica, max(0, at - self.now), tick)

    def flush(self, replica: Replica, ticket: int) -> None:
        # A flush makes durable what is in the log when it begins.
        log = replica.log
        covered = list(log.entries)
        start = log.start

        def done() -> into.Event:
            same = 0
            now = log.entries
            skipped = log.start - start
            for old, new in zip(covered[max(skipped, 0) :], now, strict=False):
                if old is not new:
                    break
                same += 1
            log.durable = max(log.durable, log.start + same)
            return into.Flushed(Millis(self.now), ticket)

        self.later(replica, self.random.choice([0, 0, 1, 5, 40]), done)

    def install(self, replica: Replica, wanted: LogPosition) -> None:
        snapshot = replica.downloads.pop(wanted)

        def done() -> into.Event:
            if self.random.random() < 0.1:
                return into.SnapshotRejected(Millis(self.now), wanted)
            replica.log.install(snapshot)
            return into.SnapshotInstalled(
                Millis(self.now), wanted, snapshot.kraft_version, snapshot.voters
            )

        self.later(replica, self.random.choice([0, 3, 30]), done)

    # -- network -------------------------------------------------------------

    def delays(self, sender: int, receiver: int) -> list[int]:
        """Return when copies of a message arrive; empty if it is lost."""
        if (sender, receiver) in self.cuts:
            return []
        if not self.is_lossy:
            return [self.random.randint(1, 3)]
        if self.random.random() < 0.05:
            return []
        copies = 2 if self.random.random() < 0.05 else 1
        return [self.random.choice([1, 2, 3, 5, 30]) for _ in range(copies)]

    def send(self, sender: Replica, effect: out.Send) -> None:
        target = int(effect.endpoint.host.removeprefix("node"))
        receiver = self.replicas[target]
        arrivals = self.delays(sender.id, target)
        incarnation = sender.incarnation

        def arrive() -> None:
            if receiver.core is None:
                return
            self.token += 1
            self.tokens[self.token] = (sender.id, incarnation, effect.ticket, effect.request)
            self.feed(receiver, into.Requested(Millis(self.now), self.token, effect.request))

        for delay in arrivals:
            self.after(delay, arrive)
        is_down = receiver.core is None
        if (is_down or not arrivals) and self.random.random() < 0.5:
            is_refused = is_down and bool(arrivals)
            self.later(
                sender, 2, lambda: into.Unanswered(Millis(self.now), effect.ticket, is_refused)
            )

    def reply(self, replica: Replica, effect: out.Answer) -> None:
        if effect.token in self.client_tokens:
            request = self.client_tokens.pop(effect.token)
            assert isinstance(effect.reply, VoterChangeReply)
            self.change_replies.append((request, effect.reply))
            return
        asker_id, incarnation, ticket, request = self.tokens.pop(effect.token)
        reply = effect.reply
        if isinstance(reply, VoteReply) and isinstance(request, VoteRequest):
            self.check_vote(replica, request, reply)
        if isinstance(reply, FetchReply):
            reply = self.with_records(replica, reply)
        if isinstance(reply, FetchSnapshotReply) and isinstance(reply.chunk, ReadSnapshot):
            assert reply.snapshot is not None
            length = min(self.random.randint(1, 4), SNAPSHOT_BYTES - reply.position)
            chunk = Chunk(length, replica.log.snapshots[reply.snapshot])
            reply = FetchSnapshotReply(
                reply.error, reply.leader, reply.snapshot, reply.size, reply.position, chunk
            )
        asker = self.replicas[asker_id]
        for delay in self.delays(replica.id, asker_id):
            if asker.incarnation == incarnation:
                self.later(
                    asker,
                    delay,
                    lambda reply=reply: into.Replied(Millis(self.now), ticket, reply),  # type: ignore[misc]
                )

    def with_records(self, replica: Replica, reply: FetchReply) -> FetchReply:
        if not isinstance(reply.records, ReadLog):
            return reply
        log = replica.log
        base = reply.records.offset
        count = min(self.random.randint(1, 4), log.end_offset - base)
        # Batches are whole: the first batch of an epoch is not split.
        entries = tuple(log.entry(base + i) for i in range(count))
        batches = Batches(
            base_offset=base,
            end=log.position(base + count),
            payload=entries,
            controls=tuple(controls_of(base, entries)),
        )
        return FetchReply(
            reply.error,
            reply.leader,
            reply.high_watermark,
            reply.log_start,
            records=batches,
        )

    # -- clients -------------------------------------------------------------

    def up(self) -> list[Replica]:
        return [r for r in self.replicas.values() if r.core is not None]

    def leader(self) -> Replica | None:
        """The leader of the greatest epoch, if it is running."""
        leading = [r for r in self.up() if r.role is Role.LEADER]
        return max(leading, key=lambda r: r.election.epoch, default=None)

    def propose(self) -> None:
        for replica in self.up():
            if replica.role is Role.LEADER and replica.core is not None:
                self.proposals += 1
                event = into.Propose(
                    Millis(self.now),
                    replica.election.epoch,
                    self.random.randint(1, 3),
                    f"p{self.proposals}",
                )
                self.feed(replica, event)

    def ask_change(self, replica: Replica, request: Request) -> None:
        self.token += 1
        self.client_tokens[self.token] = request
        self.feed(replica, into.Requested(Millis(self.now), self.token, request))

    def ask_random_change(self) -> None:
        leader = self.leader()
        if leader is None or leader.core is None:
            return
        voters = leader.core.describe(Millis(self.now)).voters
        target = self.random.choice(list(self.replicas.values()))
        if voters.has(target.key):
            if len(voters) > 1:
                self.ask_change(leader, RemoveVoterRequest(CLUSTER, target.key))
        else:
            request = AddVoterRequest(CLUSTER, target.key, target.settings.endpoints)
            self.ask_change(leader, request)

    def take_snapshot(self, replica: Replica) -> None:
        log = replica.log
        offset = min(replica.high_watermark, log.durable)
        if replica.core is None or offset <= log.start:
            return
        version, voters = replica.core.membership_at(Offset(offset))
        position = log.position(offset)
        if position in log.snapshots:
            return
        taken = Snapshot(position, version, voters, tuple(self.committed[:offset]))
        log.snapshots[position] = taken
        self.feed(replica, into.SnapshotTaken(Millis(self.now), position))
        if replica.core is not None and self.random.random() < 0.7:
            log.trim(position)

    # -- invariants ----------------------------------------------------------

    def check_election(self, replica: Replica, new: out.PersistElection) -> None:
        assert new.epoch >= replica.election.epoch, "epochs never fall"
        if new.voted is not None:
            before = self.votes.setdefault((replica.key, new.epoch), new.voted)
            assert before == new.voted, f"{replica.id} voted twice in epoch {new.epoch}"

    def check_vote(self, replica: Replica, request: VoteRequest, reply: VoteReply) -> None:
        if not reply.is_granted or request.is_pre_vote:
            return
        assert replica.election.voted == request.candidate, "a vote is durable before it is sent"
        before = self.votes.setdefault((replica.key, request.epoch), request.candidate)
        assert before == request.candidate, f"{replica.id} voted twice in epoch {request.epoch}"

    def check_leader(self, replica: Replica, effect: out.RoleChanged) -> None:
        before = self.leaders.setdefault(effect.epoch, replica.id)
        assert before == replica.id, f"two leaders in epoch {effect.epoch}"
        assert replica.election.leader_id == replica.id, "leadership is durable before it is used"
        for offset, entry in enumerate(self.committed):
            if offset >= replica.log.start:
                assert replica.log.has(offset), f"leader lacks committed {offset}"
                assert replica.log.entry(offset) == entry, f"leader differs at {offset}"

    def check_high_watermark(self, replica: Replica, offset: int) -> None:
        assert offset > replica.high_watermark, "the high watermark never falls"
        log = replica.log
        assert offset <= log.end_offset
        for at in range(max(replica.high_watermark, log.start), offset):
            if at < len(self.committed):
                assert self.committed[at] == log.entry(at), f"committed {at} changed"
        replica.high_watermark = offset
        if offset > len(self.committed):
            self.check_majority(replica, offset)
            self.committed += [log.entry(at) for at in range(len(self.committed), offset)]

    def check_majority(self, replica: Replica, offset: int) -> None:
        """Check that newly committed records are on the disks of a majority of the voters."""
        assert replica.role is Role.LEADER, "only a leader commits"
        assert replica.core is not None
        voters = replica.core.describe(Millis(self.now)).voters
        last = replica.log.entry(offset - 1)
        holding = [
            r.id
            for r in self.replicas.values()
            if voters.has(r.key)
            and r.log.durable >= offset
            and (r.log.start >= offset or r.log.entry(offset - 1) == last)
        ]
        assert len(holding) >= voters.majority, f"{offset} committed on {holding} of {voters.ids}"
        assert last.epoch == replica.election.epoch, "a commit ends in the leader's own epoch"

    def check_membership(self, replica: Replica) -> None:
        """Check that voter sets in effect differ by at most one voter from the committed one."""
        sets = [{v.key for v in replica.bootstrap}]
        for at, entry in enumerate(self.committed):
            if at < replica.log.start and isinstance(entry.value, out.VotersRecord):
                sets[0] = {v.key for v in entry.value.voters}
        for control in replica.log.controls():
            if isinstance(control, VotersAt):
                keys = {v.key for v in control.voters}
                if control.offset < len(self.committed):
                    sets = [keys]
                else:
                    sets.append(keys)
        distinct = {frozenset(keys) for keys in sets[1:]} - {frozenset(sets[0])}
        assert len(distinct) <= 1, "one voter change at a time"
        for keys in distinct:
            assert len(keys ^ sets[0]) == 1, "a change is of one voter"

    def check_logs_match(self) -> None:
        replicas = list(self.replicas.values())
        for index, one in enumerate(replicas):
            for other in replicas[index + 1 :]:
                low = max(one.log.start, other.log.start)
                high = min(one.log.end_offset, other.log.end_offset)
                agreed = [
                    at
                    for at in range(low, high)
                    if one.log.entry(at).epoch == other.log.entry(at).epoch
                ]
                for at in range(low, max(agreed, default=low - 1) + 1):
                    assert one.log.entry(at) == other.log.entry(at), f"logs differ at {at}"

    def check_change_replies(self) -> None:
        """Check that a change acknowledged as committed is committed."""
        sets = [
            {v.key for v in e.value.voters}
            for e in self.committed
            if isinstance(e.value, out.VotersRecord)
        ]
        for request, reply in self.change_replies:
            if reply.error is not ErrorCode.NONE:
                continue
            if isinstance(request, AddVoterRequest):
                assert any(request.voter in keys for keys in sets)
            elif isinstance(request, RemoveVoterRequest):
                assert any(request.voter not in keys for keys in sets)
