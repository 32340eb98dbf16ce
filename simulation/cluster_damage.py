"""The scenario ``file-damage``: any one file of one replica is damaged in any way, by seed.

A writer runs all the time. A node with a replica is killed or stopped, or keeps running; one file
of its log directory is flipped, cut, emptied, removed, overwritten with garbage, swapped with
another one or replaced by an older copy; then the node starts again, and sometimes the leader is
killed at once. Invariants, after the repair:

* all replicas are equal, byte for byte;
* every acknowledged record is at its offset.
"""

import asyncio
from functools import partial
from typing import Final

from ottla.protocol.records.batch import read_header
from ottla.protocol.types import Millis
from simulation.cluster_directed import ACKS_ALL, DirectedScenario
from simulation.cluster_node import Machine
from simulation.cluster_rot import SCRUBBED
from simulation.cluster_watch import TOPIC
from simulation.disk import SimDisk
from simulation.ledger import InvariantBroken
from simulation.simulation import Ports, Simulation

ROUNDS_MAX: Final = 3
SEGMENTS_MIN: Final = 3
PASSED_S: Final = 1.5
REPAIRED_S: Final = 60.0
# What a start refuses, and what has no copy on other replicas: the page on recovery has them.
UNTOUCHED: Final = ("meta.properties", ".lock", "bootstrap.checkpoint")
IN_USE: Final = (".log", ".index", ".timeindex", ".txnindex")


async def file_damage(simulation: Simulation) -> None:
    """Any damage of one file of one replica is repaired from the others."""
    await FileDamageScenario(simulation).run()


class FileDamageScenario(DirectedScenario):
    """Damage one file at a time, and check that nothing is lost anywhere."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation, min_insync=2, more=SCRUBBED)
        self.acks = ACKS_ALL
        self.damages: list[str] = []

    def timestamp(self, ports: Ports) -> Millis:
        """Return real timestamps: segments roll by them."""
        return ports.clock.now()

    async def aim(self) -> None:
        """Damage files, and wait for the repair of each."""
        random = self.simulation.random
        for _ in range(1 + random.below(ROUNDS_MAX)):
            await self._until(self._has_segments, "of segments")
            machine = self.machines[self.replicas[random.below(len(self.replicas))] - 1]
            (partition,) = self._hosted(machine)
            old = self._files(machine, partition.directory.path)
            had = len(self.acknowledged)
            await self._until(partial(self._has_written, had + 5), "of writing")
            await self._damage(machine, old)
            await self._heal_all()
            await asyncio.sleep(PASSED_S)
            await self._until_repaired()
            await self._check_acknowledged()

    def _has_written(self, count: int) -> bool:
        return len(self.acknowledged) >= count

    def _has_segments(self) -> bool:
        logs = [each.log for machine in self._up() for each in self._hosted(machine)]
        return len(logs) == len(self.replicas) and all(
            len(log.segments) >= SEGMENTS_MIN for log in logs
        )

    # -- the damage --------------------------------------------------------------

    def _files(self, machine: Machine, directory: str) -> dict[str, bytes]:
        """Return the contents of the files of a log directory and of the partition in it."""
        disk = self.host(machine).disk
        files = {
            f"{at}/{name}": data
            for at in (directory, f"{directory}/{TOPIC}-0")
            for name, data in disk.inspect(at).items()
        }
        return {path: files[path] for path in files if not path.endswith(UNTOUCHED)}

    async def _damage(self, machine: Machine, old: dict[str, bytes]) -> None:
        random, host = self.simulation.random, self.host(machine)
        (partition,) = self._hosted(machine)
        directory = partition.directory.path
        is_running = random.chance(0.3)
        if not is_running:
            host.kill() if random.chance(0.5) else host.call_inside(machine.stop)
            await host.wait_down()
        files = self._files(machine, directory)
        if is_running:  # the files that a running node reads again
            files = {path: files[path] for path in files if path.endswith(IN_USE)}
        apply = partial(self._apply, host.disk, files, old)
        if is_running:
            host.call_inside(apply)
        else:
            apply()
            self._restart(machine)
        leader = self._partition().leader
        if random.chance(0.4) and leader > 0 and leader != machine.node_id:
            await asyncio.sleep(random.between(0.0, 1.0))
            self._kill_now(leader)
            await asyncio.sleep(random.between(0.1, 1.0))

    def _apply(self, disk: SimDisk, files: dict[str, bytes], old: dict[str, bytes]) -> None:
        """Damage one of the files in one way."""
        random, paths = self.simulation.random, sorted(files)
        path, other = paths[random.below(len(paths))], paths[random.below(len(paths))]
        data, flipped = files[path], bytearray(files[path])
        place = random.below(max(1, len(data)))
        if data:
            flipped[place] ^= 1 << random.below(8)
        garbage = bytes(random.below(256) for _ in range(1 + random.below(200)))
        damages: dict[str, bytes | None] = {
            "flip": bytes(flipped),
            "cut": data[:place],
            "empty": b"",
            "remove": None,
            "garbage": garbage,
            "stale": old.get(path, b""),
            "swap": files[other],
        }
        name = list(damages)[random.below(len(damages))]
        self.damages.append(f"{name} {path} {other if name == 'swap' else ''}")
        disk.damage(path, damages[name])
        if name == "swap":
            disk.damage(other, data)

    # -- looking -----------------------------------------------------------------

    async def _until_repaired(self) -> None:
        waited = 0.0
        while not self._is_repaired():
            await asyncio.sleep(0.1)
            waited += 0.1
            if waited > REPAIRED_S:
                raise InvariantBroken(f"not repaired: {self.damages[-1]}: {self._describe()}")

    def _is_repaired(self) -> bool:
        hosted = [each for machine in self._up() for each in self._hosted(machine)]
        return self._is_whole() and not any(
            each.log.damaged_ranges or each.is_held or each.log.is_end_lost for each in hosted
        )

    async def _check_acknowledged(self) -> None:
        """Every acknowledged record is in the log of every replica."""
        replies = list(self.acknowledged)
        await self._until_repaired()
        for node, held in (await self._survivors()).items():
            there = {int(read_header(data).base_offset): data for data in held.batches}
            lost = [at for at, value in replies if value not in there.get(at, b"")]
            if lost:
                raise InvariantBroken(
                    f"{node} lost {len(lost)} records, first {lost[0]}, after {self.damages[-1]}"
                )
