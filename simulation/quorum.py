"""The scenario ``quorum``: real replicas of the metadata log under every kind of fault.

1 to 5 voters and 0 to 5 observers, by seed. Hosts lose power, processes crash, disks fail and fill
up, links are cut one way or both, voters are added and removed, sometimes all lose power together.
At the end everything is repaired, then all hosts lose power at once and keep only what was synced:
a leader must be elected, all records ever committed must be there, and work must continue.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from msgspec.structs import replace

from ottla.client.connection import Connection, Options
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.raft.core.effects import Role
from ottla.raft.core.messages import AddVoterRequest, RemoveVoterRequest, Request
from ottla.raft.core.voters import ReplicaKey, VoterSet
from ottla.raft.driver import RaftDriver
from ottla.raft.metadata_log import DIRECTORY_NAME
from ottla.raft.rpc_codec import to_message, to_reply
from ottla.raft.snapshots import write_initial_snapshot
from ottla.runtime.ports import Address
from simulation.ledger import InvariantBroken
from simulation.platter import Keep
from simulation.quorum_node import (
    CLUSTER,
    CONTROLLER,
    LOG_DIR,
    PORT,
    Machine,
    directory,
    endpoint,
    run_replica,
)
from simulation.quorum_watch import QuorumWatch
from simulation.simulation import Host, Main, Ports, Simulation

METADATA_DIR = f"{LOG_DIR}/{DIRECTORY_NAME}"
ROUNDS = 5
# All sizes occur, small ones most often; large quorums run fewer rounds, to stay fast.
OBSERVERS = (0, 1, 0, 2, 1, 5)
# After repair: a lease may have to expire, and elections may collide a few times.
HEALED_S = 12.0
STEP_S = 0.1
IMPATIENT = Options(connect_timeout_ms=500)


async def quorum(simulation: Simulation) -> None:
    """Whole quorums of the real driver: committed records survive every fault."""
    await run_quorum(QuorumScenario(simulation, QuorumWatch(), make_machines(simulation)))


async def run_quorum(play: "QuorumScenario", rounds: int = ROUNDS) -> None:
    """Inject faults and repair them, round after round, then check the result."""
    simulation = play.simulation
    play.begin()
    random = simulation.random
    for _ in range(rounds):
        await asyncio.sleep(random.between(0.1, 0.6))
        play.inject()
        if random.chance(0.5):
            # Two faults in quick succession find what one alone does not.
            await asyncio.sleep(random.between(*((0.3, 1.0) if play.is_slow else (0.02, 0.4))))
            play.inject()
        # Mostly long enough for the others to elect a leader while one is cut off.
        long = random.chance(0.8 if play.is_cut else 0.15)
        await asyncio.sleep(random.between(1.0, 1.8) if long else random.between(0.1, 0.6))
        play.repair()
    await play.finish()


def make_machines(simulation: Simulation, voters: int | None = None) -> list[Machine]:
    """Return the machines of a seed; the first ones are the voters.

    One quorum in three is static, with voters from the configuration; the others are formatted
    with theirs, and may change them.
    """
    observers = 0
    if voters is None:
        voters = 1 + simulation.seed % 5
        observers = min(OBSERVERS[simulation.seed // 5 % len(OBSERVERS)], 6 - voters)
    endpoints = tuple(endpoint(node_id) for node_id in range(voters))
    machines = [
        Machine(i, directory(i + 1), VoterSet(), endpoints) for i in range(voters + observers)
    ]
    first = VoterSet(tuple(machine.voter for machine in machines[:voters]))
    for machine in machines:
        if is_static(simulation):
            machine.voters = configured(first, machine)
        elif machine in machines[:voters]:
            disk = simulation.host(machine.name).disk
            write_initial_snapshot(
                disk, METADATA_DIR, first, simulation.host(machine.name).clock.now()
            )
    return machines


def is_static(simulation: Simulation) -> bool:
    """Say whether the voters of a simulation are fixed by its configuration."""
    return simulation.seed % 3 == 0


def configured(voters: VoterSet, machine: Machine) -> VoterSet:
    """Return static voters as a node knows them: without the directory ids of the others."""
    return VoterSet(
        tuple(
            voter if voter.key == machine.key else replace(voter, key=ReplicaKey(voter.key.node_id))
            for voter in voters
        )
    )


@dataclass
class QuorumScenario:
    """The hosts of one quorum, and the injected faults."""

    simulation: Simulation
    watch: QuorumWatch
    machines: list[Machine]

    def __post_init__(self) -> None:
        self._suspect: set[str] = set()  # a sync or write failed since the last power loss
        # With some seeds that change voters, one of three or more loses its disk, once; the only
        # changes there are those that restore its vote: more could leave no majority.
        voters = 1 + self.simulation.seed % 5
        self.is_slow = self.is_cut = False
        self._is_disk_lost = self._is_changing = False
        self._may_lose_disk = (
            not is_static(self.simulation) and voters >= 3 and self.simulation.seed % 4 < 2
        )
        self._lost: ReplicaKey | None = None
        # Machines that never were voters: one of them may lose its disk at any time.
        self._newcomers = [] if is_static(self.simulation) else self.machines[voters:]
        self.watch.voters.update(machine.key for machine in self.machines[:voters])
        self._orders: asyncio.Queue[tuple[Machine, Request]] = asyncio.Queue()

    # -- hosts ---------------------------------------------------------------

    def host(self, machine: Machine) -> Host:
        """Return the host of a machine."""
        return self.simulation.host(machine.name)

    def _main(self, machine: Machine) -> Main:
        async def run(ports: Ports) -> None:
            await run_replica(ports, machine, self.watch)

        return run

    def begin(self) -> None:
        """Start everything."""
        for machine in self.machines:
            host = self.host(machine)
            host.sync_delay_s = lambda: self.simulation.random.between(0.001, 0.01)
            host.start(self._main(machine))
        self.simulation.host("operator").start(self._operate)

    def _driver(self, machine: Machine) -> RaftDriver | None:
        """Return the replica that runs on a machine; None if its process has crashed."""
        return machine.driver if self.host(machine).is_up else None

    def _run_again(self, machine: Machine, crash_at_step: int = 0) -> None:
        machine.driver = None
        self.host(machine).restart(crash_at_step=crash_at_step)

    def _leader(self) -> Machine | None:
        leading = [
            (view.epoch, machine)
            for machine in self.machines
            if (driver := self._driver(machine)) is not None
            and (view := driver.describe()).role is Role.LEADER
        ]
        return max(leading, key=lambda pair: pair[0], default=(0, None))[1]

    def _victim(self) -> Machine:
        """Return a machine; the leader is chosen more often."""
        leader = self._leader()
        if leader is not None and self.simulation.random.chance(0.4):
            return leader
        return self.machines[self.simulation.random.below(len(self.machines))]

    # -- faults -------------------------------------------------------------

    def inject(self) -> None:
        """Inject one random fault."""
        random = self.simulation.random
        machine = self._victim()
        host = self.host(machine)
        faults: list[Callable[[], None]] = [
            lambda: self._crash([machine]),
            lambda: self._crash([machine]),
            lambda: self._crash(self.machines),
            lambda: self._kill_then_crash(machine),
            lambda: host.disk.crash_at(1 + random.below(12)),
            lambda: self._fail(machine, "sync"),
            lambda: self._fail(machine, "write"),
            lambda: self._isolate(machine),
            lambda: self._isolate(machine),
            self._cut_some,
            self._slow_down,
            self._slow_down,
            lambda: host.clock.jump(random.below(7_200_000) - 3_600_000),
        ]
        is_changing, self._is_changing = self._is_changing, False
        if self.is_slow:
            # Now the most writes are unsynced.
            self._crash(self.machines, Keep.NOTHING)
        elif is_changing and random.chance(0.5):
            # Some replicas know the new voters, others only the old ones.
            self._crash(self.machines)
        elif self._may_lose_disk and not self._is_disk_lost:
            self._lose_disk(self.machines[random.below(1 + self.simulation.seed % 5)])
        elif random.chance(0.4):
            self._change_voters()
        else:
            faults[random.below(len(faults))]()

    def _crash(self, machines: list[Machine], keep: Keep | None = None) -> None:
        for machine in machines:
            host = self.host(machine)
            lost = Keep.NOTHING if self.simulation.random.chance(0.3) else Keep.SEEDED
            host.crash(keep or lost)  # a host that is down loses its page cache
            self._suspect.discard(machine.name)

    def _kill_then_crash(self, machine: Machine) -> None:
        host = self.host(machine)
        if host.is_up:
            host.kill()
            self._run_again(machine, 1 + self.simulation.random.below(400))

    def _fail(self, machine: Machine, kind: Literal["sync", "write"]) -> None:
        self._suspect.add(machine.name)
        self.host(machine).disk.fail(kind, after=self.simulation.random.below(6))

    def _isolate(self, machine: Machine) -> None:
        self.is_cut = True
        one_way = self.simulation.random.chance(0.3)
        for other in self.machines:
            if other is not machine:
                self.simulation.network.cut(machine.name, other.name, one_way=one_way)

    def _cut_some(self) -> None:
        random = self.simulation.random
        for one in self.machines:
            for other in self.machines:
                if one is not other and random.chance(0.3):
                    self.simulation.network.cut(one.name, other.name, one_way=random.chance(0.5))

    def _slow_down(self) -> None:
        self.is_slow = True
        for machine in self.machines:
            if self.simulation.random.chance(0.7):
                self.host(machine).sync_delay_s = lambda: self.simulation.random.between(0.1, 0.6)

    def _lose_disk(self, machine: Machine) -> None:
        """Restart a machine with an empty disk: as another replica, with a new directory id."""
        self._is_disk_lost, self._lost = True, machine.key
        self._wipe(machine)

    def _wipe(self, machine: Machine) -> None:
        host = self.host(machine)
        host.crash()
        host.disk.restart()
        host.disk.remove_tree(LOG_DIR)
        host.disk.sync_dir("/")
        host.disk.kill()
        machine.directory_id = directory(100 + machine.node_id)

    def _next_change(self, voters: VoterSet) -> AddVoterRequest | RemoveVoterRequest | None:
        target = self.machines[self.simulation.random.below(len(self.machines))]
        self._newcomers = [machine for machine in self._newcomers if machine is not target]
        if self._lost is not None:
            target = self.machines[self._lost.node_id]
            if voters.has(self._lost):
                return RemoveVoterRequest(CLUSTER, self._lost)
            if voters.has(target.key):
                return None
        if voters.has(target.key):
            return RemoveVoterRequest(CLUSTER, target.key)
        return AddVoterRequest(CLUSTER, target.key, target.voter.endpoints)

    def _change_voters(self) -> None:
        """Have the operator ask the leader to add or remove a voter; any answer is accepted."""
        leader = self._leader()
        if leader is None or leader.driver is None:
            return
        self._is_changing = True
        if self._newcomers and self._lost is None and self.simulation.random.chance(0.7):
            self._add_newcomer(leader)
            return
        request = self._next_change(leader.driver.describe().voters)
        if request is not None:
            self._orders.put_nowait((leader, request))

    def _add_newcomer(self, leader: Machine) -> None:
        """Start an empty, slow machine, and add it as a voter before it has caught up."""
        random = self.simulation.random
        newcomer = self._newcomers.pop()
        self._wipe(newcomer)
        self.host(newcomer).sync_delay_s = lambda: random.between(0.02, 0.1)
        self._run_again(newcomer)
        change = AddVoterRequest(CLUSTER, newcomer.key, newcomer.voter.endpoints)
        order = partial(self._orders.put_nowait, (leader, change))
        self.simulation.loop.call_later(random.between(0.02, 0.3), order)

    async def _operate(self, ports: Ports) -> None:
        """Carry out the operator's requests over the network, from a host that never fails."""
        while True:
            leader, request = await self._orders.get()
            address = Address(leader.name, PORT)
            try:
                connection = await Connection.open(ports.network, address, options=IMPATIENT)
                response = await connection.send(to_message(request), timeout_ms=1000)
                await connection.close()
            except (OSError, Fault):
                continue
            reply = to_reply(response, CONTROLLER)
            self.watch.changes += reply.error is ErrorCode.NONE

    # -- repair --------------------------------------------------------------

    def repair(self) -> None:
        """Repair most of what is broken, and start the machines that are down."""
        random = self.simulation.random
        self.is_slow = False
        if random.chance(0.8):
            self.is_cut = False
            self.simulation.network.heal()
        for machine in self.machines:
            host = self.host(machine)
            host.disk.heal()
            host.sync_delay_s = lambda: random.between(0.001, 0.01)
            if machine.name in self._suspect and random.chance(0.5):
                self._crash([machine], Keep.NOTHING)
            if not host.is_up:
                self._restart(machine, crash_at_step=random.below(400) * random.below(2))

    def _restart(self, machine: Machine, crash_at_step: int = 0) -> None:
        """Start a machine; if its disk failed, it loses its page cache first."""
        host = self.host(machine)
        if machine.name in self._suspect:
            host.disk.crash(Keep.NOTHING if self.simulation.random.chance(0.5) else Keep.SEEDED)
            self._suspect.discard(machine.name)
        self._run_again(machine, crash_at_step)

    # -- the end -------------------------------------------------------------

    async def finish(self) -> None:
        """Repair; cut all power at once; then check committed records and that work continues."""
        self._heal()
        await self._settle("after healing")
        for machine in self.machines:
            if self.host(machine).is_up:
                self.host(machine).crash(Keep.NOTHING)
        before = self.watch.end
        self._heal()
        await self._settle("after the last power loss")
        if self.watch.end <= before:
            raise InvariantBroken("nothing was committed after the last power loss")

    def _heal(self) -> None:
        self.simulation.network.heal()
        for machine in self.machines:
            host = self.host(machine)
            host.disk.heal()
            host.spare()
            host.sync_delay_s = lambda: self.simulation.random.between(0.001, 0.01)
            if host.is_up and machine.name in self._suspect:
                host.crash()
                self._suspect.discard(machine.name)
            if not host.is_up:
                self._restart(machine)

    async def _settle(self, when: str) -> None:
        """Wait until a leader commits a new record and all replicas have everything."""
        target = self.watch.end + 1
        waited = 0.0
        while not self._is_settled(target):
            await asyncio.sleep(STEP_S)
            waited += STEP_S
            for machine in self.machines:
                if not self.host(machine).is_up:
                    self._restart(machine)
            if waited > HEALED_S:
                raise InvariantBroken(f"no progress {when}: {self._describe()}")

    def _is_settled(self, target: int) -> bool:
        if self._leader() is None:
            return False
        drivers = [self._driver(machine) for machine in self.machines]
        return all(driver is not None and driver.applied >= target for driver in drivers)

    def _describe(self) -> str:
        return "; ".join(
            f"{machine.name} {driver.describe() if driver else 'down'}"
            for machine in self.machines
            for driver in [self._driver(machine)]
        )
