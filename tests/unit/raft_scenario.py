"""Drives one replica with events and records its effects as a transcript.

Node 1 is the replica; randomness is off (``below`` returns 0), so every wait is exactly one
timeout: election 100 ms, fetch 200 ms, request 150 ms. Effects are performed on a log in memory;
flushes and snapshots wait until the test completes them.
"""

from msgspec.structs import replace
from raft_simulation import CLUSTER, NO_ELECTION, Entry, MemoryLog, settings, voter

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.raft.core import effects as out
from ottla.raft.core import events as into
from ottla.raft.core import messages as said
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.machine import RaftCore
from ottla.raft.core.voter_history import Membership
from ottla.raft.core.voters import ReplicaKey, VoterSet

NONE = ErrorCode.NONE


def at(epoch: int, offset: int) -> LogPosition:
    return LogPosition(LeaderEpoch(epoch), Offset(offset))


def hint(epoch: int, leader: int | None = None) -> said.LeaderHint:
    if leader is None:
        return said.LeaderHint(LeaderEpoch(epoch))
    return said.LeaderHint(LeaderEpoch(epoch), NodeId(leader), voter(leader).endpoints)


def key(node_id: int) -> ReplicaKey:
    return voter(node_id).key


class Scenario:
    """Node 1 among ``voters``; ``history`` is the epoch of each record in its log at start."""

    def __init__(
        self,
        voters: tuple[int, ...] = (1, 2, 3),
        history: tuple[int, ...] = (),
        election: out.PersistElection | None = None,
        **changed: object,
    ) -> None:
        self.now = 0
        self.log = MemoryLog()
        self.log.append(0, [Entry(epoch, f"old{i}") for i, epoch in enumerate(history)])
        self.log.durable = len(history)
        if election is None:
            election = replace(NO_ELECTION, epoch=LeaderEpoch(history[-1] if history else 0))
        self.election = election
        self.settings = settings(1, **changed)
        self.voters = VoterSet(tuple(voter(i) for i in voters))
        # The voters are already in the log, as in a quorum that is not new.
        controls = [said.VotersAt(Offset(0), self.voters)] if history else []
        self.membership = Membership(self.voters, 1, controls)
        self.core = RaftCore(self.settings, self.log, election, self.membership, lambda _: 0)
        self.lines: list[str] = []
        self.effects: list[out.Effect] = []
        self.flush: int | None = None
        self.tickets: dict[int, int] = {}
        self.token = 0

    # -- events --------------------------------------------------------------

    def tell(self, words: str, event: into.Event) -> list[out.Effect]:
        self.now = event.now
        self.lines.append(f"{self.now:>5} > {words}")
        self.effects = self.core.step(event)
        for effect in self.effects:
            self.carry_out(effect)
            self.lines.append(f"        {line_of(effect)}")
        return self.effects

    def carry_out(self, effect: out.Effect) -> None:
        match effect:
            case out.PersistElection():
                self.election = effect
            case out.AppendControl():
                self.log.append(
                    effect.base_offset, [Entry(effect.epoch, r) for r in effect.records]
                )
            case out.AppendRecords():
                values = [Entry(effect.epoch, effect.payload)] * effect.records_count
                self.log.append(effect.base_offset, values)
            case out.AppendFetched():
                self.log.append(effect.batches.base_offset, list(effect.batches.payload))  # type: ignore[call-overload]
            case out.TruncateTo():
                self.log.truncate(effect.offset)
            case out.Flush():
                self.flush = effect.ticket
            case out.Send():
                self.tickets[effect.to] = effect.ticket
            case _:
                pass

    def start(self, now: int = 0) -> list[out.Effect]:
        return self.tell("start", into.Start(Millis(now)))

    def tick(self, now: int) -> list[out.Effect]:
        return self.tell("tick", into.Tick(Millis(now)))

    def flushed(self, now: int) -> list[out.Effect]:
        assert self.flush is not None
        self.log.durable = self.log.end_offset
        return self.tell("flushed", into.Flushed(Millis(now), self.flush))

    def asked(self, now: int, request: said.Request) -> list[out.Effect]:
        self.token += 1
        event = into.Requested(Millis(now), self.token, request)
        return self.tell(f"asked #{self.token}: {request_line(request)}", event)

    def receives(self, now: int, sender: int, reply: said.Reply) -> list[out.Effect]:
        event = into.Replied(Millis(now), self.tickets[sender], reply)
        return self.tell(f"{sender} replies: {reply_line(reply)}", event)

    # -- messages of other replicas ------------------------------------------

    def vote(self, now: int, sender: int, epoch: int, granted: bool, leader: int | None = None):
        return self.receives(now, sender, said.VoteReply(NONE, hint(epoch, leader), granted))

    def fetch(self, now: int, sender: int, epoch: int, end: LogPosition, **more: object):
        options: dict = {"wait_ms_max": 60, "bytes_max": 1000} | more
        request = said.FetchRequest(CLUSTER, key(sender), LeaderEpoch(epoch), end, **options)
        return self.asked(now, request)

    def records(
        self, now: int, leader: int, epoch: int, epochs: tuple[int, ...], high_watermark: int
    ):
        """Answer a fetch, as the leader, with records of those epochs."""
        base = self.log.end_offset
        payload = tuple(Entry(e, f"new{base + i}") for i, e in enumerate(epochs))
        batches = None
        if epochs:
            end = at(epochs[-1], base + len(epochs))
            batches = said.Batches(Offset(base), end, payload)
        reply = said.FetchReply(
            NONE, hint(epoch, leader), Offset(high_watermark), Offset(0), records=batches
        )
        return self.receives(now, leader, reply)

    def elect(self, now: int = 0) -> None:
        """Make node 1 leader, with node 2's votes, at ``now`` + 100."""
        self.start(now)
        self.tick(now + 100)
        epoch = self.election.epoch
        self.vote(now + 100, 2, epoch, True)
        self.vote(now + 100, 2, epoch + 1, True)

    def lead(self, now: int = 0) -> None:
        """Make node 1 leader with its first record committed by node 2, at ``now`` + 100."""
        self.elect(now)
        self.flushed(now + 100)
        self.fetch(now + 100, 2, self.election.epoch, self.log.end())

    def follow(self, leader: int = 2, epoch: int = 5, now: int = 0) -> None:
        """Make node 1 follow that leader."""
        self.start(now)
        request = said.BeginEpochRequest(
            CLUSTER, NodeId(leader), LeaderEpoch(epoch), voter(leader).endpoints, key(1)
        )
        self.asked(now, request)

    # -- results -------------------------------------------------------------

    def restart(self, now: int) -> list[out.Effect]:
        """Simulate a power loss and a restart: unflushed records are lost."""
        self.log.lose_unflushed(0)
        controls = self.log.controls()
        self.membership = Membership(self.voters, 1, controls)
        self.core = RaftCore(self.settings, self.log, self.election, self.membership, lambda _: 0)
        self.tickets = {}
        return self.start(now)

    def text(self) -> str:
        return "\n".join(self.lines)

    def has(self, kind: type) -> bool:
        return any(isinstance(effect, kind) for effect in self.effects)

    def answer(self) -> said.Reply:
        """The one reply of the last step."""
        [answer] = [e for e in self.effects if isinstance(e, out.Answer)]
        return answer.reply

    def sent(self) -> list[said.Request]:
        return [e.request for e in self.effects if isinstance(e, out.Send)]


def node(replica: ReplicaKey | None) -> str:
    return "nobody" if replica is None else str(replica.node_id)


def position(where: LogPosition | None) -> str:
    return "nothing" if where is None else f"{where.epoch}:{where.offset}"


def voter_ids(voters: VoterSet) -> str:
    return "{" + " ".join(str(i) for i in voters.ids) + "}"


def hint_line(leader: said.LeaderHint) -> str:
    return f"epoch {leader.epoch} leader {'-' if leader.leader_id is None else leader.leader_id}"


def line_of(effect: out.Effect) -> str:
    match effect:
        case out.PersistElection():
            leader = "-" if effect.leader_id is None else effect.leader_id
            return f"persist epoch {effect.epoch} voted {node(effect.voted)} leader {leader}"
        case out.AppendControl():
            kinds = " ".join(control_line(r) for r in effect.records)
            return f"append control at {effect.base_offset} epoch {effect.epoch}: {kinds}"
        case out.AppendRecords():
            what = f"{effect.payload} x{effect.records_count}"
            return f"append records at {effect.base_offset} epoch {effect.epoch}: {what}"
        case out.AppendFetched():
            return (
                f"append fetched at {effect.batches.base_offset} to {position(effect.batches.end)}"
            )
        case out.TruncateTo():
            return f"truncate to {effect.offset}"
        case out.Flush():
            return "flush"
        case out.WriteSnapshotChunk():
            return f"write snapshot {position(effect.snapshot)} from {effect.position}"
        case out.InstallSnapshot():
            return f"install snapshot {position(effect.snapshot)}"
        case out.Send():
            return f"send to {effect.to}: {request_line(effect.request)}"
        case out.Answer():
            return f"answer #{effect.token}: {reply_line(effect.reply)}"
        case out.RefuseProposal():
            return f"refuse proposal {effect.payload}: {effect.error.name}"
        case out.RoleChanged():
            leader = "-" if effect.leader_id is None else effect.leader_id
            start = (
                "" if effect.epoch_start_offset is None else f" from {effect.epoch_start_offset}"
            )
            return f"{effect.role.value} epoch {effect.epoch} leader {leader}{start}"
        case out.HighWatermark():
            return f"high watermark {effect.offset}"
        case out.VotersChanged():
            return f"voters {voter_ids(effect.voters)}"
        case out.SetTimer():
            return f"timer {effect.at}"
        case out.ShutdownReady():
            return "may stop"


def control_line(record: out.ControlRecord) -> str:
    match record:
        case out.LeaderChange():
            return f"leader-change({record.leader_id} by {' '.join(map(str, record.granting))})"
        case out.VotersRecord():
            return f"voters{voter_ids(record.voters)}"
        case out.KRaftVersionRecord():
            return f"kraft.version({record.level})"


def request_line(request: said.Request) -> str:
    match request:
        case said.VoteRequest():
            kind = "pre-vote" if request.is_pre_vote else "vote"
            who = request.candidate.node_id
            return f"{kind} for {who} epoch {request.epoch} end {position(request.log_end)}"
        case said.BeginEpochRequest():
            return f"begin epoch {request.epoch} leader {request.leader_id}"
        case said.EndEpochRequest():
            order = " ".join(node(k) for k in request.successors)
            return f"end epoch {request.epoch} leader {request.leader_id} then [{order}]"
        case said.FetchRequest():
            end = position(request.log_end)
            return f"fetch by {node(request.replica)} epoch {request.epoch} end {end}"
        case said.FetchSnapshotRequest():
            return f"fetch snapshot {position(request.snapshot)} from {request.position}"
        case said.ApiVersionsRequest():
            return "api versions"
        case said.AddVoterRequest():
            return f"add voter {node(request.voter)}"
        case said.RemoveVoterRequest():
            return f"remove voter {node(request.voter)}"
        case said.UpdateVoterRequest():
            return f"update voter {node(request.voter)}"


def reply_line(reply: said.Reply) -> str:
    if isinstance(reply, said.ApiVersionsReply):
        return f"kraft.version {reply.kraft_versions.lowest}-{reply.kraft_versions.highest}"
    words = [hint_line(reply.leader)]
    if reply.error is not NONE:
        words = [reply.error.name, *words]
    if isinstance(reply, said.VoteReply) and reply.error is NONE:
        words = ["granted" if reply.is_granted else "refused", *words]
    if isinstance(reply, said.FetchReply):
        words += fetch_words(reply)
    if isinstance(reply, said.FetchSnapshotReply) and reply.chunk is not None:
        words.append(
            f"snapshot {position(reply.snapshot)} piece at {reply.position} of {reply.size}"
        )
    return ", ".join(words)


def fetch_words(reply: said.FetchReply) -> list[str]:
    words = []
    if reply.high_watermark is not None:
        words.append(f"high watermark {reply.high_watermark}")
    if reply.diverging is not None:
        words.append(f"diverging at {position(reply.diverging)}")
    if reply.snapshot is not None:
        words.append(f"load snapshot {position(reply.snapshot)}")
    if isinstance(reply.records, said.ReadLog):
        words.append(f"records from {reply.records.offset}")
    if isinstance(reply.records, said.Batches):
        words.append(f"records {reply.records.base_offset} to {position(reply.records.end)}")
    return words


def without_waits(scenario: Scenario) -> str:
    """Return the transcript without timers."""
    return "\n".join(line for line in scenario.lines if "timer" not in line)
