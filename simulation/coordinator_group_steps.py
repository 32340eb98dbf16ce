"""The scenario ``rebalance-steps``: a fault between every two steps of a rebalance.

One member has all partitions; another joins, and both have one at the end. By seed the group is
classic, a consumer group or a streams group. A streams group takes over the id, and the offsets, of
a classic group whose members have left, again and again.

The watch checks that no member owns a partition that another still owns. The joining member, the
revoking member and the coordinator may crash at any step, and still each partition soon has one
reader.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicState
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.machine import GroupMachine, GroupsView
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.shard import Shard, ShardState
from ottla.coordinators.topics import CONSUMER_OFFSETS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from simulation.cluster_node import Machine
from simulation.cluster_watch import TOPIC
from simulation.coordinator_client import AGAIN, FOR_GROUP, CoordinatorClient
from simulation.coordinator_members import (
    SESSION_MS,
    ClassicMember,
    ConsumerMember,
    Member,
    make_member,
)
from simulation.coordinator_state import check_shards
from simulation.coordinator_steps import NODES, Case, SteppedScenario
from simulation.coordinator_watch import GROUP, CoordinatorWatch
from simulation.ledger import InvariantBroken
from simulation.simulation import Main, Ports, Simulation

OWNER: Final = "fay"
JOINER: Final = "gus"
KINDS: Final = ("classic", "consumer", "streams")
ALL: Final = frozenset({0, 1})
PAUSE_S: Final = 0.08

SETTINGS: Final = f"""
group.consumer.session.timeout.ms={SESSION_MS}
group.consumer.min.session.timeout.ms=500
group.consumer.heartbeat.interval.ms=100
group.consumer.min.heartbeat.interval.ms=50
group.streams.session.timeout.ms={SESSION_MS}
group.streams.min.session.timeout.ms=500
group.streams.heartbeat.interval.ms=100
group.streams.min.heartbeat.interval.ms=50
group.streams.num.standby.replicas=1
group.streams.initial.rebalance.delay.ms=0
"""

CLASSIC_STEPS: Final = (
    "join asked",
    "rebalance begun",
    "all joined",
    "join answered",
    "assignment written",
    "assignment committed",
    "assignment answered",
)
CONSUMER_STEPS: Final = (
    "join asked",
    "join written",
    "join committed",
    "join answered",
    "revocation received",
    "let go",
    "release written",
    "release committed",
    "assignment received",
    "taken",
)
FAULTS: Final = {
    "classic": ("worker", "owner", "gone", "coordinator", "deposed"),
    "consumer": ("worker", "owner", "coordinator", "moved"),
    "streams": ("worker", "coordinator", "moved"),
}


async def rebalance_steps(simulation: Simulation) -> None:
    """Each partition has one reader, whatever crashes between any two steps of a rebalance."""
    await RebalanceStepsScenario(simulation).run()


class Reader(CoordinatorClient):
    """A member of the group that does no work, until it is stopped."""

    def __init__(self, name: str, ports: Ports, watch: CoordinatorWatch, member_id: str) -> None:
        super().__init__(name, ports, watch, NODES)
        self._member_id = member_id

    async def run(self, steps: "RebalanceStepsScenario", kind: str) -> None:
        """Join the group, and leave it when stopped."""
        member = make_member(self, kind, self._member_id)
        steps.members[self.name] = member
        while self.name in steps.workers:
            await member.settle()
            await asyncio.sleep(PAUSE_S * (0.5 + self.ports.random.fraction()))
        await member.leave()

    async def commit(self, offset: int) -> None:
        """Commit an offset without being a member, which an empty group accepts."""
        at = OffsetCommitRequestPartition(0, offset)
        topics = [OffsetCommitRequestTopic(TOPIC, partitions=[at])]
        request = OffsetCommitRequest(GROUP, -1, "", topics=topics)
        while True:
            response = await self.ask_coordinator(FOR_GROUP, GROUP, request, version=9)
            if isinstance(response, OffsetCommitResponse):
                error = ErrorCode(response.topics[0].partitions[0].error_code)
                if error is ErrorCode.NONE:
                    return
                self.moved(FOR_GROUP, GROUP, error)
                self.check(error, AGAIN | {ErrorCode.UNKNOWN_MEMBER_ID}, "OffsetCommit")
            await self.rest()


class RebalanceStepsScenario(SteppedScenario):
    """Inject a fault at each step of a rebalance. ``members`` are those of the newest processes."""

    topic = CONSUMER_OFFSETS
    topics = (TOPIC, CONSUMER_OFFSETS)

    def __init__(self, simulation: Simulation, faults: Sequence[str] = ()) -> None:
        super().__init__(simulation, SETTINGS)
        self.kind = KINDS[simulation.seed % len(KINDS)]
        self.workers: list[str] = [OWNER]
        self.members: dict[str, Member] = {}
        self.conversions = 0
        self._faults = faults or FAULTS[self.kind]
        self._starts = 0
        self._generation = -1
        self._written_end = 0
        self._shard: Shard[GroupMachine] | None = None

    def cases(self) -> Sequence[Case]:
        """Return every fault at every step."""
        steps = CLASSIC_STEPS if self.kind == "classic" else CONSUMER_STEPS
        return [(fault, step) for fault in self._faults for step in steps]

    def begin_work(self) -> None:
        """Start the member that owns everything."""
        self._start(OWNER, self.kind)

    def _start(self, name: str, kind: str) -> None:
        async def run(ports: Ports) -> None:
            self._starts += 1
            await Reader(name, ports, self.watch, f"{name}-{self._starts}").run(self, kind)

        main: Main = run
        self.simulation.host(name).start(main)

    def victim(self, fault: str) -> str:
        """Return the member to crash: the joining one, or the one that has to revoke."""
        return OWNER if fault == "owner" else JOINER

    async def prepare(self, case: Case) -> None:
        """Have one member with all partitions; before that, sometimes, a classic group."""
        if self.kind == "streams" and self.number % 4 == 1:
            await self._convert()
        await self.until(lambda: self._has(OWNER) == ALL, f"alone before {case}")
        self._shard = self.newest_shard()
        self._written_end = 0
        self._generation = self.members[OWNER].epoch

    async def _convert(self) -> None:
        """Empty the group, make it classic for a while, empty it again, and continue."""
        await self._drain([OWNER])
        await self.until(self._is_empty, "of members that died")
        self.watch.begins_anew()
        self.workers = [OWNER]
        self._start(OWNER, "classic")
        await self.until(lambda: self._has(OWNER) == ALL, "as a classic group")
        await self._drain([OWNER])
        self.conversions += 1
        self.simulation.host("committer").start(self._commit)
        await self.until(lambda: not self.simulation.host("committer").is_up, "with its offset")
        self.workers = [OWNER]
        self._start(OWNER, self.kind)

    def _is_empty(self) -> bool:
        self._shard = self.newest_shard()
        group = self._group(is_committed=True)
        return isinstance(group, StreamsGroup | None) and not (group and group.members)

    async def _commit(self, ports: Ports) -> None:
        reader = Reader("committer", ports, self.watch, "")
        await reader.commit(self.conversions)

    async def _drain(self, names: Sequence[str]) -> None:
        self.workers = [name for name in self.workers if name not in names]
        hosts = [self.simulation.host(name) for name in names]
        await self.until(lambda: not any(host.is_up for host in hosts), "in leaving")

    def launch(self, case: Case) -> None:
        """Have another member join."""
        self.members.pop(JOINER, None)
        self.workers = [OWNER, JOINER]
        self._start(JOINER, self.kind)

    def on_fault(self, case: Case) -> None:
        """Forget the partitions of a member that crashes: only its next process counts."""
        if case[0] in ("worker", "owner", "gone"):
            self.members.pop(self.victim(case[0]), None)

    def _has(self, name: str) -> frozenset[int]:
        member = self.members.get(name)
        return frozenset() if member is None or member.epoch <= 0 else member.owned

    # -- how far it has come ---------------------------------------------------

    def has_reached(self, step: str) -> bool:
        """Say whether the rebalance has reached a step."""
        joiner, owner = self.members.get(JOINER), self.members.get(OWNER)
        if joiner is None or owner is None or step == "join asked":
            return joiner is not None
        if isinstance(joiner, ClassicMember):
            return self._has_classic_come_to(step, joiner)
        assert isinstance(owner, ConsumerMember)
        assert isinstance(joiner, ConsumerMember)
        own = {
            "join answered": joiner.epoch > 0,
            "revocation received": owner.is_assignment_pending,
            "let go": owner.owned < ALL,
            "assignment received": joiner.is_assignment_pending,
            "taken": bool(joiner.owned),
        }
        if step in own:
            return own[step]
        group = self._group(is_committed=step.endswith("committed"))
        if not isinstance(group, ConsumerGroup | StreamsGroup):
            return False
        held = [at for at, name in group.owners.items() if name == owner.member_id]
        is_released = step.startswith("join") or len(held) < len(ALL)
        return joiner.member_id in group.members and is_released

    def _has_classic_come_to(self, step: str, joiner: ClassicMember) -> bool:
        group = self._group(is_committed=False)
        if not isinstance(group, ClassicGroup):
            return False
        own = {
            "rebalance begun": group.state is ClassicState.PREPARING_REBALANCE,
            "all joined": group.state is ClassicState.COMPLETING_REBALANCE,
            "join answered": joiner.joined > self._generation,
            "assignment answered": joiner.epoch > self._generation,
        }
        if step in own:
            return own[step]
        if group.state is not ClassicState.STABLE or group.generation <= self._generation:
            return False
        assert self._shard is not None
        self._written_end = self._written_end or int(self._shard.end)
        partition = self.led(CONSUMER_OFFSETS)
        is_committed = partition is not None and partition.log.high_watermark >= self._written_end
        return is_committed or step == "assignment written"

    def _group(self, *, is_committed: bool) -> object:
        shard = self._shard
        if shard is None or shard.state is not ShardState.ACTIVE:
            return None
        if not is_committed:
            return shard.machine.groups.get(GROUP)
        view = shard.committed()
        assert isinstance(view, GroupsView)
        return view.groups.get(GROUP)

    def runtime_of(self, machine: Machine) -> Any:  # noqa: ANN401 - as declared
        """Return the runtime of groups."""
        assert machine.node is not None
        assert machine.node.coordinators is not None
        return machine.node.coordinators.groups.coordinator.runtime

    # -- what must come of it --------------------------------------------------

    def is_cleaned_up(self) -> bool:
        """Say whether the group has removed the crashed member."""
        return self._has(OWNER) == ALL

    async def settle(self, case: Case) -> None:
        """Wait until both have one partition each; then one leaves."""
        await self.until(self._is_shared, f"after {case}")
        if self.number % 8 == 0:
            self._check_all()
        await self._drain([JOINER])
        self._check_offset()

    def _is_shared(self) -> bool:
        has = [self._has(name) for name in (OWNER, JOINER)]
        return all(len(each) == 1 for each in has) and has[0] | has[1] == ALL

    def _check_offset(self) -> None:
        """Check that a streams group kept the offset committed by the classic group before it."""
        shard = self.newest_shard()
        if not self.conversions or shard is None or not shard.is_caught_up:
            return
        found = shard.machine.offsets.get(GROUP, (TOPIC, 0))
        if found is None or found.offset != self.conversions:
            raise InvariantBroken(f"committed was {self.conversions}, the group has {found}")

    def _check_all(self) -> None:
        for machine in self._up():
            node = machine.node
            if node is not None and node.coordinators is not None and node.partitions is not None:
                look = partial(
                    check_shards, machine.name, node.coordinators, node.partitions, self.watch
                )
                self.host(machine).call_inside(look)

    async def finish(self) -> None:
        """Let the last member leave, and check everything once more."""
        self._check_all()
        await asyncio.sleep(0.1)
        await self._drain([OWNER])
