"""Simulations that inject a fault exactly between two steps, at every step in turn.

The scenario ``coordinators`` injects faults at random, and hits few of the moments between two
steps. Here the work has named steps, and after every event-loop callback a probe checks which step
it has reached. At the chosen step the fault is injected at once; then everything is repaired, the
work continues, and the next step is chosen. The run ends when every fault was injected at every
step, and counts each of them.

    worker        the client crashes and restarts at once
    gone          it crashes, and restarts only after the coordinator has cleaned up
    owner         the member that has to revoke partitions crashes and restarts
    usurped       another client takes over its transactional id while it continues
    coordinator   the leader of the coordinator's partition loses power
    leader        the leader of another partition that the work needs loses power
    deposed       it is cut off from the other nodes but not from clients: it continues while
                  the others elect another leader, in a newer epoch
    moved         the controller makes another replica its leader, by a metadata change
    leader moved  the same, for another partition that the work needs
    controller    the active controller crashes, and another controller takes over

All nodes are controllers too, so that the metadata quorum fails over during the work.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.coordinators.shard import Shard
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.replication.partition import Partition
from simulation.cluster import PARTITIONS, ClusterScenario
from simulation.cluster_client import ClusterClient
from simulation.cluster_node import Machine, Shape
from simulation.cluster_operator import PREFERRED
from simulation.coordinator_watch import CoordinatorWatch
from simulation.ledger import InvariantBroken
from simulation.platter import Keep
from simulation.simulation import Ports, Simulation

NODES: Final = 3
STEP_S: Final = 0.05
WAIT_S: Final = 25.0
NOBODY: Final = -1
_OF_WORKERS: Final = ("worker", "owner", "gone")
NEWS_DELAY_S: Final = 0.15

SETTINGS: Final = """
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=3
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
offsets.commit.timeout.ms=600
request.timeout.ms=900
group.initial.rebalance.delay.ms=50
group.min.session.timeout.ms=300
auto.leader.rebalance.enable=false
broker.heartbeat.interval.ms=100
broker.session.timeout.ms=400
"""

Case = tuple[str, str]
"""A fault, and the step at which it falls."""


class SteppedScenario(ClusterScenario):
    """A cluster with faults at named steps. A subclass defines the work and its steps.

    ``topic`` is the internal topic whose leader is the coordinator under test; ``hits`` counts how
    often each fault was injected at each step.
    """

    watch: CoordinatorWatch
    topic: str
    topics: Sequence[str]
    workers: Sequence[str]

    def __init__(self, simulation: Simulation, more: str = "") -> None:
        shape = Shape(NODES, NODES, NODES, 2, is_durable=False, more=SETTINGS + more)
        super().__init__(simulation, shape, CoordinatorWatch(PARTITIONS))
        self.hits: dict[Case, int] = {}
        self.number = 0  # of the case
        self.is_steady = False  # no fault was injected since all was repaired
        self.faulted: tuple[Machine, ...] = ()
        self._aim: Case | None = None
        self._place = ("", 0)  # the partition whose leader fails
        self._leader_before = NOBODY
        self._must_move = asyncio.Event()

    # -- what a subclass says --------------------------------------------------

    def cases(self) -> Sequence[Case]:
        """Return every fault at every step."""
        raise NotImplementedError

    def has_reached(self, step: str) -> bool:
        """Say whether the work has reached a step. Called between any two callbacks."""
        raise NotImplementedError

    def begin_work(self) -> None:
        """Start the clients; called once, when the cluster is up."""
        raise NotImplementedError

    async def prepare(self, case: Case) -> None:
        """Bring the work to the start of a case."""

    def launch(self, case: Case) -> None:
        """Start the work that a case interrupts."""

    def on_fault(self, case: Case) -> None:
        """Note the required outcome: a fault is about to be injected."""

    async def settle(self, case: Case) -> None:
        """Check that work continues after everything was repaired. Raises InvariantBroken."""
        raise NotImplementedError

    async def finish(self) -> None:
        """Check the final state. Raises InvariantBroken."""

    # -- the course ------------------------------------------------------------

    async def run(self) -> None:
        """Run all cases."""
        for machine in self.machines:
            self._calm(self.host(machine))
            self.host(machine).start(machine.run)
        self.simulation.host("operator").start(self._operate)
        await self.until(self._has_all_unfenced, "at the beginning")
        self.begin_work()
        await self.until(self._is_whole, "with its topics")
        self.simulation.loop.on_step = self._probe
        for case in self.cases():
            self.number += 1
            await self.play(case)
        self.simulation.loop.on_step = None
        self.watch.is_calm = self.watch.is_over = True
        await self.finish()

    async def play(self, case: Case) -> None:
        """Choose the step, wait for the fault, repair, and check that work continues."""
        await self.prepare(case)
        self._aim, self.is_steady = case, True
        self.launch(case)
        await self.until(lambda: self._aim is None, f"to {case}", 0.01)
        await self._repair(case[0])
        await self.settle(case)

    def check(self) -> None:
        """Check that nothing has happened too early. Called between any two callbacks."""

    def _probe(self) -> None:
        self.check()
        case = self._aim
        if case is None or not self.has_reached(case[1]):
            return
        self._aim, self.is_steady = None, False
        self.hits[case] = self.hits.get(case, 0) + 1
        self.simulation.journal.note("*", "fault", f"{case[0]} at {case[1]}")
        self.on_fault(case)
        self._inject_fault(case[0])

    # -- faults -----------------------------------------------------------------

    def _inject_fault(self, fault: str) -> None:
        self.faulted = ()
        self._place = self.other_place() if fault.startswith("leader") else (self.topic, 0)
        self._leader_before = self.leader_of(*self._place)
        if fault in _OF_WORKERS:
            self.simulation.host(self.victim(fault)).kill()
        elif fault == "usurped":
            self.usurp()
        elif fault.endswith("moved"):
            if fault == "leader moved":
                self._delay_metadata()
            self.simulation.host("operator").call_inside(self._must_move.set)
        else:
            self._fail_machine(fault)

    def _delay_metadata(self) -> None:
        """Delay the metadata of one node."""
        names = (self._active().name, self._led_by(self.slow_node()).name)
        if names[0] != names[1]:
            self.simulation.network.link(*names).delay_s = NEWS_DELAY_S

    def slow_node(self) -> int:
        """Return the node that learns late of a new leader: the coordinator, which asks the old
        one.
        """
        return self.leader_of(self.topic)

    def victim(self, fault: str) -> str:
        """Return the host of the client that crashes."""
        return self.workers[0]

    def usurp(self) -> None:
        """Have another client take over the work."""
        raise NotImplementedError

    def other_place(self) -> tuple[str, int]:
        """Return another partition that the work needs, preferably with another leader."""
        raise NotImplementedError

    def _fail_machine(self, fault: str) -> None:
        machine = self._active() if fault == "controller" else self._led_by(self._leader_before)
        self.faulted = (machine,)
        if fault == "deposed":
            for other in self.machines:
                if other is not machine:
                    self.simulation.network.cut(machine.name, other.name)
        elif fault in ("coordinator", "leader"):
            self.host(machine).crash(Keep.NOTHING)
        else:
            self.host(machine).kill()

    def _led_by(self, leader: int) -> Machine:
        if leader == NOBODY:
            raise InvariantBroken(f"{self._place} has no leader")
        return self.machines[leader - 1]

    def _active(self) -> Machine:
        active = [each for each in self._up() if each.node and each.node.is_active_controller]
        if not active:
            raise InvariantBroken("no controller is active")
        return active[0]

    async def _repair(self, fault: str) -> None:
        """Wait until the others have noticed, then restart what failed."""
        if fault == "usurped":
            return
        if fault in _OF_WORKERS:
            if fault == "gone":
                await self.until(self.is_cleaned_up, "of what was left")
            self.simulation.host(self.victim(fault)).restart()
            return
        if fault == "controller":
            await self.until(self._is_another_active, "of controllers")
        else:
            await self.until(self._is_led_anew, "of elections")
        self._heal_links()
        for machine in self.faulted:
            if not self.host(machine).is_up:
                self._restart(machine)
        await self.until(self._is_whole, "after repair")

    def is_cleaned_up(self) -> bool:
        """Say whether the coordinator has cleaned up after a crashed client."""
        raise NotImplementedError

    def _is_another_active(self) -> bool:
        return any(
            each.node is not None and each.node.is_active_controller
            for each in self._up()
            if each not in self.faulted
        )

    def _is_led_anew(self) -> bool:
        return self.leader_of(*self._place) not in (NOBODY, self._leader_before)

    # -- looking ---------------------------------------------------------------

    def leader_of(self, topic: str, index: int = 0) -> int:
        """Return a partition's leader in the newest image; `NOBODY` if there is none."""
        found = self._image().topics.named(topic)
        return NOBODY if found is None else found.partitions[index].leader

    def led(self, topic: str, index: int = 0) -> Partition | None:
        """Return the partition in the node that leads it, if that node knows it."""
        leader = self.leader_of(topic, index)
        node = self.machines[leader - 1].node if leader != NOBODY else None
        found = (
            None if node is None or node.partitions is None else node.partitions.get(topic, index)
        )
        return found if found is not None and found.is_leader else None

    def newest_shard(self) -> Shard[Any] | None:
        """Return the shard of the active coordinator: the one with the newest epoch."""
        found: list[Shard[Any]] = []
        for machine in self._up():
            if machine.node is not None and machine.node.coordinators is not None:
                found.extend(shard for _, shard in self.runtime_of(machine).active())
        return max(found, key=lambda shard: shard.epoch, default=None)

    def runtime_of(self, machine: Machine) -> Any:  # noqa: ANN401 - of any coordinator
        """Return the runtime of the coordinator under test."""
        raise NotImplementedError

    def _is_whole(self) -> bool:
        return self._has_whole(self.topics)

    def _has_all_unfenced(self) -> bool:
        brokers = self._image().cluster.brokers.values()
        return sum(not each.fenced for each in brokers) == NODES

    async def until(self, condition: Callable[[], bool], when: str, step_s: float = STEP_S) -> None:
        """Wait for a condition that must come true."""
        waited = 0.0
        while not condition():
            await asyncio.sleep(step_s)
            waited += step_s
            if waited > WAIT_S:
                raise InvariantBroken(f"no progress {when}: {self._describe()}")

    # -- the operator ----------------------------------------------------------

    async def _operate(self, ports: Ports) -> None:
        """Create the topics; then move leadership whenever a fault requires it."""
        client = ClusterClient("operator", ports, self.watch, NODES)
        self._must_move = asyncio.Event()
        mine = [name for name in self.topics if not name.startswith("__")]
        while any(self._image().topics.named(name) is None for name in mine):
            await asyncio.sleep(STEP_S)
            if self._has_all_unfenced():
                topics = [CreatableTopic(name, PARTITIONS, NODES) for name in mine]
                await client.ask(client.anybody(), CreateTopicsRequest(topics, 1000))
        while not self.watch.is_calm:
            await self._must_move.wait()
            self._must_move.clear()
            while not self._is_led_anew():
                await self._move(client)

    async def _move(self, client: ClusterClient) -> None:
        """Put another replica first, and elect the preferred leader."""
        others = [node for node in range(1, NODES + 1) if node != self._leader_before]
        if self.number % 2:
            others.reverse()
        name, index = self._place
        wanted = ReassignablePartition(index, [*others, self._leader_before])
        topic = ReassignableTopic(name, [wanted])
        request = AlterPartitionReassignmentsRequest(500, topics=[topic])
        await client.ask(self._active().node_id, request)
        elect = ElectLeadersRequest(PREFERRED, [TopicPartitions(name, [index])], 500)
        await client.ask(self._active().node_id, elect)
