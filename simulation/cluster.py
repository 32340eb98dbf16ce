"""The scenario ``cluster``: whole nodes, brokers and controllers, with clients.

3 to 5 nodes, by seed; one topic with two partitions, three replicas and min.insync.replicas=2.
Producers and consumers run and an operator reassigns replicas, while nodes lose power, crash, are
cut off, slow down, lose a log directory, or restart one after the other. At the end all faults are
repaired and all nodes crash at once: no acknowledged record may be missing, all replicas must be
equal, and the cluster must accept new work.

With every second seed each append is synced, and power may be lost anywhere, at any time. With the
others it is not, as by default, and records survive on replicas only: one machine at a time loses
its unsynced writes, and no other machine crashes until that one is in sync again.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal

from ottla.metadata.image import EMPTY, Image
from ottla.replication.partition import Partition
from simulation.cluster_client import ClusterConsumer, ClusterProducer
from simulation.cluster_node import DATA, Machine, Shape
from simulation.cluster_operator import Operator
from simulation.cluster_watch import TOPIC, ClusterWatch
from simulation.ledger import InvariantBroken
from simulation.platter import Keep
from simulation.simulation import Host, Ports, Simulation

ROUNDS: Final = 2
PARTITIONS: Final = 2
NODES: Final = (3, 3, 4, 3, 5)
PRODUCERS: Final = ("ann", "bob")
CONSUMERS: Final = ("eve",)
# After repair: sessions expire, logs are recovered, followers catch up and rejoin the ISR.
HEALED_S: Final = 20.0
STEP_S: Final = 0.15


async def cluster(simulation: Simulation) -> None:
    """Whole clusters with clients: acknowledged records survive every fault."""
    await ClusterScenario(simulation).run()


def make_shape(seed: int) -> Shape:
    """Return the cluster's shape for a seed."""
    return Shape(
        nodes=NODES[seed % len(NODES)],
        voters=3,
        replicas=3,
        min_insync=2,
        is_durable=seed % 2 == 0,
    )


class ClusterScenario:
    """The machines of one cluster, its clients, and the faults injected into it."""

    def __init__(
        self, simulation: Simulation, shape: Shape | None = None, watch: ClusterWatch | None = None
    ) -> None:
        self.simulation = simulation
        self.shape = shape or make_shape(simulation.seed)
        self.watch = watch or ClusterWatch(PARTITIONS)
        self.machines = [Machine(i, self.shape) for i in range(1, self.shape.nodes + 1)]
        self.is_cut = False
        self._suspect: set[str] = set()  # a sync or write failed since the last power loss
        self._lossy: set[str] = set()  # lost unsynced data since all replicas were in sync
        self._killed: set[str] = set()  # crashed since all replicas were in sync
        self._armed: set[str] = set()  # will lose power at a future step or disk operation

    async def run(self) -> None:
        """Inject faults and repair them, round after round, then check the result."""
        random = self.simulation.random
        await self._begin()
        for _ in range(ROUNDS):
            await self._let_pass(random.between(0.1, 0.4))
            await self._inject()
            if random.chance(0.6):
                # Two faults in quick succession find what one alone does not.
                await self._let_pass(random.between(0.02, 0.4))
                await self._inject()
            # Mostly long enough for another leader to be elected while one is cut off.
            is_long = random.chance(0.8 if self.is_cut else 0.3)
            await self._let_pass(random.between(0.9, 1.5) if is_long else random.between(0.05, 0.5))
            self._repair_faults()
        await self._finish()

    # -- hosts -----------------------------------------------------------------

    def host(self, machine: Machine) -> Host:
        """Return the host of a machine."""
        return self.simulation.host(machine.name)

    async def _begin(self) -> None:
        for machine in self.machines:
            self._calm(self.host(machine))
            self.host(machine).start(machine.run)
        self.simulation.host("operator").start(self._operate)
        await self._wait(self._is_whole, "at the beginning")
        for name in PRODUCERS:
            self._start_client(name, ClusterProducer)
        for name in CONSUMERS:
            self._start_client(name, ClusterConsumer)

    def _start_client(self, name: str, kind: type[ClusterProducer] | type[ClusterConsumer]) -> None:
        async def run(ports: Ports) -> None:
            await kind(name, ports, self.watch, self.shape.nodes).run()

        self.simulation.host(name).start(run)

    async def _operate(self, ports: Ports) -> None:
        await Operator(ports, self.watch, self.shape, self._image).run()

    def _calm(self, host: Host) -> None:
        host.sync_delay_s = lambda: self.simulation.random.between(0.001, 0.01)

    # -- looking ---------------------------------------------------------------

    def _image(self) -> Image:
        """Return the newest image of any node."""
        images = [each.node.image for each in self._up() if each.node is not None]
        return max(images, key=lambda image: image.provenance.offset, default=EMPTY)

    def _up(self) -> list[Machine]:
        """Return the machines whose node runs and was not ended by a crash."""
        return [each for each in self.machines if self.host(each).is_up and each.node is not None]

    def _is_whole(self) -> bool:
        """Say whether all nodes are up and all replicas in sync."""
        topic = self._image().topics.named(TOPIC)
        if topic is None or len(self._up()) < len(self.machines):
            return False
        return all(
            set(each.isr) == set(each.replicas) and each.leader >= 0 and not each.is_reassigning()
            for each in topic.partitions.values()
        )

    def _has_whole(self, names: Sequence[str]) -> bool:
        """Say whether all nodes are up and all replicas of these topics in sync."""
        if len(self._up()) < len(self.machines):
            return False
        image = self._image()
        topics = [image.topics.named(name) for name in names]
        return all(
            topic is not None
            and all(
                set(each.isr) == set(each.replicas) and each.leader >= 0
                for each in topic.partitions.values()
            )
            for topic in topics
        )

    def _check_all(self) -> None:
        """Compare the state of all nodes."""
        for machine in self._up():
            assert machine.node is not None
            self.watch.look_at_image(machine.node.image)
            self._each(machine, partial(self.watch.look_at_log, machine.name, machine.starts))

    def _each(self, machine: Machine, look: Callable[[Partition], None]) -> None:
        """Inspect every replica of a machine, in its own context: reading opens a log."""
        for partition in self._hosted(machine):
            self.host(machine).call_inside(partial(look, partition))

    def _hosted(self, machine: Machine) -> list[Partition]:
        if machine.node is None:
            return []
        return [each for each in machine.node.partitions or () if each.topic == TOPIC]

    async def _let_pass(self, seconds: float) -> None:
        """Let time pass, checking the invariants regularly."""
        loop = self.simulation.loop
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(min(STEP_S, end - loop.time()))
            self._check_all()
        if self._is_whole():
            self._lossy &= self._suspect | self._armed
            self._killed.clear()

    async def _wait(self, condition: Callable[[], bool], when: str) -> None:
        waited = 0.0
        while not condition():
            await self._let_pass(STEP_S)
            waited += STEP_S
            for machine in self.machines:
                if not self.host(machine).is_up:
                    self._restart(machine)
            if waited > HEALED_S:
                raise InvariantBroken(f"no progress {when}: {self._describe()}")

    def _describe(self) -> str:
        image = self._image()
        topic = image.topics.named(TOPIC)
        fenced = [each.id for each in image.cluster.brokers.values() if each.fenced]
        partitions = "" if topic is None else topic.partitions
        nodes = ", ".join(
            f"{each.name} {'up' if each in self._up() else 'down'}" for each in self.machines
        )
        return f"{nodes}; fenced {fenced}; {partitions}"

    # -- faults ---------------------------------------------------------------

    def _victim(self) -> Machine:
        """Return a machine; leaders are chosen more often."""
        random = self.simulation.random
        up = self._up()
        topic = self._image().topics.named(TOPIC)
        if topic is not None and random.chance(0.5):
            leader = topic.partitions[random.below(PARTITIONS)].leader
            return self.machines[leader - 1] if leader > 0 else self.machines[0]
        active = [each for each in up if each.node is not None and each.node.is_active_controller]
        if active and random.chance(0.3):
            return active[0]
        return self.machines[random.below(len(self.machines))]

    async def _inject(self) -> None:
        """Inject one random fault."""
        random = self.simulation.random
        victim = self._victim()
        host = self.host(victim)
        faults: list[tuple[str, Callable[[], None]]] = [
            ("power", lambda: self._crash(victim)),
            ("power", lambda: self._crash(victim)),
            ("power soon", lambda: self._crash_at(victim)),
            ("kill", lambda: self._kill(victim)),
            ("kill", lambda: self._kill(victim)),
            ("kill all", self._kill_all),
            ("sync fails", lambda: self._fail(victim, "sync")),
            ("write fails", lambda: self._fail(victim, "write")),
            ("isolate", lambda: self._isolate(victim)),
            ("isolate", lambda: self._isolate(victim)),
            ("isolate", lambda: self._isolate(victim)),
            ("cut some", self._cut_some),
            ("slow links", self._slow_links),
            ("slow disks", self._slow_disks),
            ("clock", lambda: host.clock.jump(random.below(2_400_000) - 1_200_000)),
        ]
        if random.below(10) == 0:
            self.simulation.journal.note("*", "fault", "restart in turn")
            await self._restart_all_in_turn()
        else:
            name, fault = faults[random.below(len(faults))]
            self.simulation.journal.note(victim.name, "fault", name)
            fault()

    def _may_lose(self, machine: Machine) -> bool:
        """Say whether a machine may lose its unsynced writes."""
        if self.shape.is_durable:
            return True
        return self._lossy <= {machine.name} and self._killed <= {machine.name}

    def _may_die(self, machine: Machine) -> bool:
        """Say whether a machine's process may crash; the page cache survives."""
        return self.shape.is_durable or self._lossy <= {machine.name}

    def _crash(self, machine: Machine, keep: Keep | None = None) -> None:
        if not self._may_lose(machine):
            self._isolate(machine)
            return
        self._lossy.add(machine.name)
        lost = Keep.NOTHING if self.simulation.random.chance(0.5) else Keep.SEEDED
        self.host(machine).crash(keep or lost)
        self._suspect.discard(machine.name)

    def _crash_at(self, machine: Machine) -> None:
        if self._may_lose(machine):
            self._lossy.add(machine.name)
            self._armed.add(machine.name)
            self.host(machine).disk.crash_at(1 + self.simulation.random.below(30))

    def _kill(self, machine: Machine) -> None:
        if self._may_die(machine) and self.host(machine).is_up:
            self._killed.add(machine.name)
            self.host(machine).kill()

    def _kill_all(self) -> None:
        """Kill all processes at once; where everything is synced, cut their power too."""
        for machine in self.machines:
            if self.shape.is_durable:
                self._crash(machine)
            else:
                self._kill(machine)

    def _fail(self, machine: Machine, kind: Literal["sync", "write"]) -> None:
        if not self._may_lose(machine):
            return
        self._lossy.add(machine.name)
        self._suspect.add(machine.name)
        where = DATA if self.simulation.random.chance(0.7) else ""
        self.host(machine).disk.fail(
            kind, path_contains=where, after=self.simulation.random.below(6)
        )

    def _isolate(self, machine: Machine) -> None:
        self.is_cut = True
        one_way = self.simulation.random.chance(0.3)
        for other in self.machines:
            if other is not machine:
                self.simulation.network.cut(machine.name, other.name, one_way=one_way)

    def _cut_some(self) -> None:
        self.is_cut = True
        random = self.simulation.random
        for one in self.machines:
            for other in self.machines:
                if one is not other and random.chance(0.3):
                    self.simulation.network.cut(one.name, other.name, one_way=random.chance(0.5))

    def _slow_links(self) -> None:
        random = self.simulation.random
        for one in self.machines:
            for other in self.machines:
                if one is not other and random.chance(0.5):
                    link = self.simulation.network.link(one.name, other.name)
                    link.delay_s, link.jitter_s = 0.02, random.between(0.02, 0.2)

    def _slow_disks(self) -> None:
        for machine in self.machines:
            if self.simulation.random.chance(0.6):
                self.host(machine).sync_delay_s = lambda: self.simulation.random.between(0.1, 0.5)

    async def _restart_all_in_turn(self) -> None:
        """Restart every node by controlled shutdown, one after the other."""
        for machine in self.machines:
            if machine.node is None or not self._may_die(machine):
                continue
            host = self.host(machine)
            host.call_inside(machine.stop)
            waited = 0.0
            while host.is_up and waited < 2:
                await self._let_pass(STEP_S)
                waited += STEP_S
            if not host.is_up:
                self._killed.add(machine.name)
                self._restart(machine)
            await self._let_pass(self.simulation.random.between(0.2, 0.8))

    # -- repair ----------------------------------------------------------------

    def _repair_faults(self) -> None:
        """Repair most of what is broken, and start the nodes that are down."""
        random = self.simulation.random
        if random.chance(0.8):
            self._heal_links()
        for machine in self.machines:
            host = self.host(machine)
            host.disk.heal()
            self._calm(host)
            if machine.name in self._suspect and random.chance(0.5):
                self._crash(machine, Keep.NOTHING)
            if not host.is_up:
                self._restart(machine, crash_at_step=self._maybe_step(machine))

    def _maybe_step(self, machine: Machine) -> int:
        """Return a step at which a starting machine loses power, sometimes; 0 for none."""
        if not self._may_lose(machine) or self.simulation.random.chance(0.7):
            return 0
        self._lossy.add(machine.name)
        self._armed.add(machine.name)
        return 1 + self.simulation.random.below(600)

    def _heal_links(self) -> None:
        self.is_cut = False
        self.simulation.network.heal()
        for one in self.machines:
            for other in self.machines:
                link = self.simulation.network.link(one.name, other.name)
                link.delay_s, link.jitter_s = 0.0002, 0.0003

    def _restart(self, machine: Machine, crash_at_step: int = 0) -> None:
        """Start a machine; if its disk failed, it loses its page cache first."""
        host = self.host(machine)
        if not crash_at_step:
            self._armed.discard(machine.name)
        if machine.name in self._suspect:
            host.disk.crash(Keep.NOTHING if self.simulation.random.chance(0.5) else Keep.SEEDED)
            self._suspect.discard(machine.name)
        machine.node = None
        host.restart(crash_at_step=crash_at_step)

    # -- the end ---------------------------------------------------------------

    async def _finish(self) -> None:
        """Repair everything, crash all nodes at once, then check logs and that work continues."""
        self.watch.is_calm = True
        self._heal()
        await self._wait(self._is_whole, "after healing")
        await self._let_pass(0.2)
        self._kill_all()
        self._heal()
        await self._wait(self._is_whole, "after all died")
        await self._work("after all died")
        self.watch.is_over = True
        await self._wait(self._are_clients_done, "with the last records")
        await self._wait(self._is_equal, "in catching up")
        for machine in self.machines:
            self._each(machine, partial(self.watch.audit, machine.name))
        await asyncio.sleep(STEP_S)
        self.watch.check_order()

    def _heal(self) -> None:
        self._heal_links()
        for machine in self.machines:
            host = self.host(machine)
            host.disk.heal()
            host.spare()
            self._armed.discard(machine.name)
            self._calm(host)
            if host.is_up and machine.name in self._suspect:
                host.crash()
                self._suspect.discard(machine.name)
            if not host.is_up:
                self._restart(machine)

    async def _work(self, when: str) -> None:
        before = self.watch.acknowledged
        await self._wait(lambda: self.watch.acknowledged > before + 5, when)

    def _are_clients_done(self) -> bool:
        return not any(self.simulation.host(name).is_up for name in (*PRODUCERS, *CONSUMERS))

    def _is_equal(self) -> bool:
        """Say whether all replicas have all records, and have advanced their high watermark."""
        if not self._is_whole():
            return False
        self._check_all()
        logs = [
            (partition.index, partition.log)
            for machine in self.machines
            for partition in self._hosted(machine)
        ]
        ends = {
            index: max(log.log_end_offset for at, log in logs if at == index) for index, _ in logs
        }
        return len(logs) == PARTITIONS * self.shape.replicas and all(
            log.log_end_offset == log.high_watermark == ends[index] for index, log in logs
        )
