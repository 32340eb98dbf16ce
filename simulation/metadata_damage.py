"""The scenario ``metadata-damage``: a voter's metadata log is damaged on disk, and it rejoins.

Three voters. One lags, cut off from the other two while they commit; so the only complete copies
are the leader's and the victim's. The victim's process ends, a bit of its log flips, and it must
refuse to start. An operator makes it rejoin while the leader is down: with its remaining log it
must not help to elect the lagging voter, since committed records would be lost. Once the leader is
back it catches up, and then its vote counts again: without the old leader the other two elect one,
and all committed records are there.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ottla.protocol.records.batch import LOG_OVERHEAD_BYTES, MAGIC_AT, batches
from ottla.raft.damage import segment_bases
from ottla.raft.metadata_log import DIRECTORY_NAME, UnusableMetadataLog
from ottla.raft.recovery_point import RecoveryPoint
from ottla.raft.repair import NO_REPAIR, Repair
from ottla.storage.log.files import Kind, file_name
from simulation.ledger import InvariantBroken
from simulation.platter import Keep
from simulation.quorum import STEP_S, QuorumScenario, make_machines
from simulation.quorum_node import LOG_DIR, Machine, run_replica
from simulation.quorum_watch import QuorumWatch
from simulation.simulation import Main, Ports, Simulation

VOTERS: Final = 3
METADATA_DIR: Final = f"{LOG_DIR}/{DIRECTORY_NAME}"
# Records that the lagging voter lacks; a snapshot is taken every 12.
BEHIND: Final = 8
WAIT_S: Final = 15.0


async def metadata_damage(simulation: Simulation) -> None:
    """A damaged metadata log is refused, and a voter that rejoins loses nothing."""
    await MetadataDamageScenario(simulation).play()


class MetadataDamageScenario(QuorumScenario):
    """The three voters, and the operator who makes one rejoin."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation, QuorumWatch(), make_machines(simulation, VOTERS))
        self.refusals = 0
        self._repairs: dict[str, Repair] = {}

    def _main(self, machine: Machine) -> Main:
        async def run(ports: Ports) -> None:
            try:
                repair = self._repairs.get(machine.name, NO_REPAIR)
                await run_replica(ports, machine, self.watch, repair)
            except UnusableMetadataLog:
                self.refusals += 1  # the process ends, as it does with exit code 1

        return run

    async def play(self) -> None:
        """Run all steps, in order."""
        self.begin()
        await self._until(lambda: self.watch.end > BEHIND and self._leader() is not None, "begin")
        leader = self._leader()
        assert leader is not None
        victim, lagging = self._others(leader)
        self._isolate(lagging)
        behind = self.watch.end
        await self._until(lambda: self.watch.end > behind + BEHIND, "with one voter cut off")
        await self._damage(victim)
        self.host(leader).kill()
        self.simulation.network.heal()
        self._repairs[victim.name] = Repair(is_rejoining=True)
        self._run_again(victim)
        await asyncio.sleep(3)
        if self._leader() is not None:
            raise InvariantBroken("a voter without committed records was elected")
        self._run_again(leader)
        await self._settle("after rejoining")
        # Restarted without a repair option, as usual: it is a voter like any other.
        self._repairs.clear()
        self._crash([victim], Keep.NOTHING)
        self._run_again(victim)
        await self._settle("after a restart of the one that rejoined")
        self.host(leader).kill()
        await self._until(lambda: self._leader() in (victim, lagging), "without the old leader")
        self._run_again(leader)
        await self.finish()

    def _others(self, leader: Machine) -> tuple[Machine, Machine]:
        others = [each for each in self.machines if each is not leader]
        if self.simulation.random.chance(0.5):
            others.reverse()
        return others[0], others[1]

    async def _until(self, condition: Callable[[], bool], when: str) -> None:
        waited = 0.0
        while not condition():
            await asyncio.sleep(STEP_S)
            waited += STEP_S
            if waited > WAIT_S:
                raise InvariantBroken(f"no progress {when}: {self._describe()}")

    async def _damage(self, victim: Machine) -> None:
        """End a voter's process, flip a durable bit of its log, and check its refusal to start."""
        host = self.host(victim)
        host.kill()
        host.disk.restart()
        path, position = self._choose(victim)
        host.disk.rot(path, position)
        self.simulation.journal.note(victim.name, "fault", f"damage {path} at {position}")
        host.disk.kill()
        self._run_again(victim)
        await self._until(lambda: not host.is_up, "with a voter that has to refuse")
        if self.refusals != 1:
            raise InvariantBroken(f"{victim.name} started with a damaged {path}")

    def _choose(self, victim: Machine) -> tuple[str, int]:
        """Return a file and a byte of a durable batch; the epoch alone has no checksum."""
        random, disk = self.simulation.random, self.host(victim).disk
        point = RecoveryPoint(disk, METADATA_DIR).offset or 0
        found = [
            (path, start, header.size)
            for base in segment_bases(disk, METADATA_DIR)
            for path in [f"{METADATA_DIR}/{file_name(base, Kind.LOG)}"]
            for start, header in batches(disk.read(path))
            if header.next_offset <= point
        ]
        path, start, size = found[random.below(len(found))]
        at = random.below(size)
        return path, start + (at if at < LOG_OVERHEAD_BYTES or at >= MAGIC_AT else MAGIC_AT)
