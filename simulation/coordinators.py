"""The scenario ``coordinators``: groups and transactions in whole clusters with faults.

The faults and repairs are those of `cluster.py`, with other clients. A producer writes into a
topic; workers of one group read it and write their output into another, exactly once
(`coordinator_worker.py`); a consumer reads that with read_committed all the time. By seed the group
is classic, a consumer group or a streams group, and transactions are of version 0 or 2. Leaders of
the coordinators' topics fail more often than others, leadership moves, and workers crash, too.

At the end everything is repaired and all nodes crash at once; then, while the group has no members,
the clocks of all nodes jump by eight days and return. All work must be done, once, and nothing may
hang.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.coordinators.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.metadata.image import Image
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from simulation.cluster import PARTITIONS, STEP_S, ClusterScenario
from simulation.cluster_client import ClusterClient, ClusterProducer
from simulation.cluster_node import Machine, Shape
from simulation.cluster_operator import PREFERRED
from simulation.cluster_watch import TOPIC
from simulation.coordinator_members import SESSION_MS
from simulation.coordinator_state import check_shards
from simulation.coordinator_watch import OUT, CoordinatorWatch
from simulation.coordinator_worker import Auditor, Worker
from simulation.simulation import Host, Main, Ports, Simulation

NODES: Final = 3
WORKERS: Final = ("fay", "gus")
KINDS: Final = ("classic", "consumer", "streams")
PRODUCER: Final = "ann"
AUDITOR: Final = "eve"
# The check replays whole logs.
LOOK_EVERY: Final = 4
# Longer than the retention of offsets and transactional ids.
CLOCK_JUMP_MS: Final = 8 * 24 * 3_600_000
# Two sessions and some expiry rounds.
JUMPED_S: Final = 3.0
TOPICS: Final = (TOPIC, OUT, CONSUMER_OFFSETS, TRANSACTION_STATE)

SETTINGS: Final = f"""
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
transaction.abort.timed.out.transaction.cleanup.interval.ms=300
offsets.commit.timeout.ms=600
request.timeout.ms=900
group.initial.rebalance.delay.ms=100
offsets.retention.check.interval.ms=300
transaction.remove.expired.transaction.cleanup.interval.ms=300
log.message.timestamp.after.max.ms=9223372036854775807
group.min.session.timeout.ms=500
group.consumer.session.timeout.ms={SESSION_MS}
group.consumer.min.session.timeout.ms=500
group.consumer.heartbeat.interval.ms=150
group.consumer.min.heartbeat.interval.ms=50
group.streams.session.timeout.ms={SESSION_MS}
group.streams.min.session.timeout.ms=500
group.streams.heartbeat.interval.ms=150
group.streams.min.heartbeat.interval.ms=50
group.streams.num.standby.replicas=1
group.streams.initial.rebalance.delay.ms=100
"""


async def coordinators(simulation: Simulation) -> None:
    """Groups and transactions: exactly once and one owner, whatever fails."""
    await CoordinatorScenario(simulation).run()


class CoordinatorScenario(ClusterScenario):
    """The machines, the workers, and the injected faults."""

    watch: CoordinatorWatch

    def __init__(self, simulation: Simulation) -> None:
        shape = Shape(
            nodes=NODES,
            # With every fourth seed the metadata quorum fails over, too.
            voters=NODES if simulation.seed % 4 == 1 else 1,
            replicas=NODES,
            min_insync=2,
            is_durable=simulation.seed % 2 == 0,
            more=SETTINGS,
        )
        super().__init__(simulation, shape, CoordinatorWatch(PARTITIONS))
        self.kind = KINDS[simulation.seed // 2 % len(KINDS)]
        self.version = 0 if simulation.seed % 3 == 0 else 2
        self._starts = dict.fromkeys(WORKERS, 0)
        self._looks = 0

    # -- hosts -----------------------------------------------------------------

    async def _begin(self) -> None:
        for machine in self.machines:
            self._calm(self.host(machine))
            self.host(machine).start(machine.run)
        self.simulation.host("operator").start(self._operate)
        self._start_client(PRODUCER, ClusterProducer)
        for name in WORKERS:
            self.simulation.host(name).start(self._worker(name))
        self.simulation.host(AUDITOR).start(self._audit)
        await self._wait(self._is_whole, "at the beginning")
        await self._wait(lambda: self.watch.committed > 0, "at the beginning")

    def _worker(self, name: str) -> Main:
        async def run(ports: Ports) -> None:
            self._starts[name] += 1
            worker = Worker(name, ports, self.watch, NODES, start=self._starts[name])
            await worker.run(kind=self.kind, version=self.version)

        return run

    async def _audit(self, ports: Ports) -> None:
        await Auditor(AUDITOR, ports, self.watch, NODES).run(OUT)

    async def _operate(self, ports: Ports) -> None:
        await CoordinatorOperator("operator", ports, self.watch, NODES).run(self._image)

    # -- looking ---------------------------------------------------------------

    def _is_whole(self) -> bool:
        return self._has_whole(TOPICS)

    def _check_all(self) -> None:
        super()._check_all()
        self._looks += 1
        if self._looks % LOOK_EVERY:
            return
        for machine in self._up():
            self.host(machine).call_inside(partial(self._look_at_shards, machine))

    def _look_at_shards(self, machine: Machine) -> None:
        node = machine.node
        if node is None or node.coordinators is None or node.partitions is None:
            return
        check_shards(machine.name, node.coordinators, node.partitions, self.watch)

    # -- faults ---------------------------------------------------------------

    def _victim(self) -> Machine:
        """Return a machine, mostly a coordinator; the controller crashes seldom."""
        random = self.simulation.random
        topic = self._image().topics.named(TOPICS[random.below(len(TOPICS))])
        if topic is not None and random.chance(0.8):
            indexes = sorted(topic.partitions)
            leader = topic.partitions[indexes[random.below(len(indexes))]].leader
            if leader > 0:
                return self.machines[leader - 1]
        return self.machines[random.below(len(self.machines))]

    async def _inject(self) -> None:
        random = self.simulation.random
        if random.chance(0.6):
            self._fail_worker(self.simulation.host(WORKERS[random.below(len(WORKERS))]))
        if random.chance(0.75):
            await super()._inject()

    def _fail_worker(self, host: Host) -> None:
        """Crash a worker now or at a future step, or cut it off; or restart one."""
        random = self.simulation.random
        if not host.is_up or random.chance(0.6):
            self.simulation.journal.note(host.name, "fault", "worker")
            if host.is_up:
                host.kill()
            # A step of a transaction or of a rebalance, whichever it is.
            host.restart(crash_at_step=random.below(900) if random.chance(0.6) else 0)
            return
        self.simulation.journal.note(host.name, "fault", "cut worker")
        for machine in self.machines:
            self.simulation.network.cut(host.name, machine.name, one_way=random.chance(0.3))

    def _repair_faults(self) -> None:
        super()._repair_faults()
        self._wake_workers()

    def _heal(self) -> None:
        super()._heal()
        self._wake_workers()

    def _wake_workers(self) -> None:
        for name in WORKERS:
            host = self.simulation.host(name)
            host.spare()
            if not host.is_up:
                host.restart()

    # -- the end ---------------------------------------------------------------

    async def _finish(self) -> None:
        """Repair; crash all nodes at once; then check that all work is done, once."""
        self.watch.is_calm = True
        self._heal()
        await self._wait(self._is_whole, "after healing")
        self._kill_all()
        self._heal()
        await self._wait(self._is_whole, "after all died")
        await self._jump_clocks()
        self.watch.is_over = True
        await self._wait(lambda: not self.simulation.host(PRODUCER).is_up, "with the last records")
        await self._wait(self._is_done, "with the last work")
        self.watch.is_drained = True
        await self._wait(
            lambda: not any(self.simulation.host(name).is_up for name in (*WORKERS, AUDITOR)),
            "in ending",
        )
        await self._wait(self._is_settled, "with open transactions")
        self._check_all()
        self.watch.check_order()
        self.watch.audit_works()

    async def _jump_clocks(self) -> None:
        """Set the clocks of all nodes eight days ahead, or back, while the group is empty."""
        ahead = CLOCK_JUMP_MS if self.simulation.seed % 3 else -CLOCK_JUMP_MS
        for name in WORKERS:
            if self.simulation.host(name).is_up:
                self.simulation.host(name).kill()
        for jump in (ahead, -ahead):
            self.simulation.journal.note("*", "fault", f"clocks jump {jump}")
            for machine in self.machines:
                self.host(machine).clock.jump(jump)
            await self._let_pass(JUMPED_S)
        self._wake_workers()

    def _is_done(self) -> bool:
        """Say whether the group has committed all of the input."""
        ends = [int(known.end) for known in self.watch.partitions]
        return [self.watch.committed_offset(TOPIC, i) for i in range(PARTITIONS)] == ends

    def _is_settled(self) -> bool:
        """Say whether no transaction is open on any node."""
        for machine in self._up():
            assert machine.node is not None
            for partition in machine.node.partitions or ():
                if partition.topic in (OUT, CONSUMER_OFFSETS):
                    log = partition.log
                    if log.producers.last_stable_offset(log.log_end_offset) != log.log_end_offset:
                        return False
        return True


class CoordinatorOperator(ClusterClient):
    """Create the topics, and move leadership."""

    async def run(self, image: Callable[[], Image]) -> None:
        """Work until ``watch.is_calm``."""
        random = self.ports.random
        while any(image().topics.named(name) is None for name in (TOPIC, OUT)):
            await asyncio.sleep(STEP_S)
            brokers = image().cluster.brokers.values()
            if sum(not each.fenced for each in brokers) == NODES:
                topics = [CreatableTopic(name, PARTITIONS, NODES) for name in (TOPIC, OUT)]
                await self.ask(self.anybody(), CreateTopicsRequest(topics, 1000))
        while not self.watch.is_calm:
            await asyncio.sleep(0.1 + 0.6 * random.fraction())
            name = TOPICS[random.below(len(TOPICS))]
            topic = image().topics.named(name)
            if topic is None or self.watch.is_calm:
                continue
            index = random.below(len(topic.partitions))
            await self._lead_anew(name, index)

    async def _lead_anew(self, name: str, index: int) -> None:
        """Reorder the replicas of a partition, and elect the preferred leader."""
        nodes = list(range(1, NODES + 1))
        replicas = [nodes.pop(self.ports.random.below(len(nodes))) for _ in range(NODES)]
        topic = ReassignableTopic(name, [ReassignablePartition(index, replicas)])
        await self.ask(self.anybody(), AlterPartitionReassignmentsRequest(500, topics=[topic]))
        elect = ElectLeadersRequest(PREFERRED, [TopicPartitions(name, [index])], 500)
        await self.ask(self.anybody(), elect)
