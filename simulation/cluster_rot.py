"""The scenario ``bit-rot``: bits flip in stored segments of a partition, on one or two replicas.

A writer and a reader run all the time; the reader uses any replica. After each flip the scrubber
finds the damage; the replica leaves the ISR, is repaired from an intact replica, and rejoins.
Sometimes the damaged node or another one is killed or cut off meanwhile. Invariants:

* every flip in a live segment is found, and all replicas are equal at the end;
* a replica is repaired only after it was seen outside the ISR, unless it was the only one;
* once a replica has found damage, no reader receives the damaged batch from it.
"""

import asyncio
from functools import partial
from typing import Final

from ottla.protocol.faults import CorruptBatch, UnsupportedMagic
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from ottla.protocol.records.batch import batches, is_crc_valid
from ottla.protocol.types import Millis
from ottla.replication.partition import Partition
from simulation.cluster_client import ClusterClient
from simulation.cluster_directed import NODES, STEADY, DirectedScenario
from simulation.cluster_node import Machine
from simulation.cluster_watch import TOPIC
from simulation.ledger import InvariantBroken
from simulation.simulation import Ports, Simulation

SCRUBBED: Final = STEADY + (
    "log.scrub.enable=true\nlog.scrub.interval.ms=300\nlog.scrub.max.bytes.per.second=100000000\n"
    "log.flush.offset.checkpoint.interval.ms=100\n"
)
SEGMENTS_MIN: Final = 3
CHECKPOINTED_S: Final = 0.3
# Several scrub passes over the logs of a node.
PASSED_S: Final = 1.5
LOOK_S: Final = 0.002
FLIPS_MAX: Final = 3


async def bit_rot(simulation: Simulation) -> None:
    """Bits flip in stored segments: found, repaired, and never served once found."""
    await BitRotScenario(simulation).run()


class BitRotScenario(DirectedScenario):
    """Flip bits of stored batches and check that they are repaired."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation, min_insync=1, more=SCRUBBED)
        self.found = 0
        self.refused = 0
        self._is_breaking = False
        self._known: dict[int, bool] = {}  # by node: whether its replica has found damage
        self._was_out: dict[int, bool] = {}  # since then: whether it was seen outside the ISR

    def timestamp(self, ports: Ports) -> Millis:
        """Return real timestamps: segments roll by them."""
        return ports.clock.now()

    async def aim(self) -> None:
        """Flip bits, sometimes with another fault at once, and wait until all are intact."""
        self.simulation.host("watcher").start(self._watch)
        self.simulation.host("reader").start(self._read)
        for _ in range(1 + self.simulation.random.below(FLIPS_MAX)):
            await self._until(self._has_old_segments, "of segments")
            await asyncio.sleep(CHECKPOINTED_S)
            victims = self._choose_victims()
            wanted = self.found + len(victims)
            self._flip(victims)
            if self.simulation.random.chance(0.4):
                self._is_breaking = True  # the node killed or cut off may be the last in the ISR
                await self._break_more(victims)
                await self._heal_all()
                await asyncio.sleep(PASSED_S)  # a killed node has to find the damage again
            else:
                await self._until(partial(self._has_found, wanted), "of finding it")
            await self._until(self._is_repaired, "of the repair")
            self._is_breaking = False
        if not self.watch.read:
            raise InvariantBroken("nothing was read")

    def _has_found(self, count: int) -> bool:
        return self.found >= count

    def _has_old_segments(self) -> bool:
        """Say whether every replica has sealed segments that a restart does not recover."""
        logs = [each.log for machine in self._up() for each in self._hosted(machine)]
        return len(logs) == len(self.replicas) and all(
            len(log.segments) >= SEGMENTS_MIN
            and log.recovery_point >= log.segments[SEGMENTS_MIN - 1].base_offset
            for log in logs
        )

    def _choose_victims(self) -> list[Machine]:
        """Choose one replica, the leader half the time, and sometimes a second one."""
        random, leader = self.simulation.random, self._partition().leader
        others = self._followers()
        order = [leader, *others] if random.chance(0.5) else [*others, leader]
        count = 2 if random.chance(0.3) else 1
        return [self.machines[each - 1] for each in order[:count]]

    def _flip(self, victims: list[Machine]) -> None:
        """Flip one bit of the same sealed segment on each replica."""
        number = self.simulation.random.below(SEGMENTS_MIN - 1)
        part = self.simulation.random.fraction()
        for machine in victims:
            (partition,) = self._hosted(machine)
            segment = partition.log.segments[number]
            host = self.host(machine)
            host.call_inside(partial(host.disk.rot, segment.path, int(part * segment.size)))

    async def _break_more(self, victims: list[Machine]) -> None:
        """Kill or cut off the damaged node or the leader during detection and repair."""
        random = self.simulation.random
        await asyncio.sleep(random.between(0.0, 0.5))
        leader = self._partition().leader
        node = victims[0].node_id if random.chance(0.6) or leader < 0 else leader
        if random.chance(0.6):
            self._kill_now(node)
        else:
            for other in range(2, NODES + 1):
                if other != node:
                    self._cut(node, other)
        await asyncio.sleep(random.between(0.1, 1.0))

    def _is_repaired(self) -> bool:
        return self._is_whole() and not any(
            each.log.damaged_ranges for machine in self._up() for each in self._hosted(machine)
        )

    # -- looking ---------------------------------------------------------------

    async def _watch(self, ports: Ports) -> None:
        """Check every replica all the time."""
        while self.is_writing:
            await asyncio.sleep(LOOK_S)
            up = self._up()
            for machine in self.machines:
                hosted = self._hosted(machine) if machine in up else []
                if not hosted:
                    self._known.pop(machine.node_id, None)
                for partition in hosted:
                    self._look_at(machine.node_id, partition)

    def _look_at(self, node: int, partition: Partition) -> None:
        is_known, was_known = bool(partition.log.damaged_ranges), self._known.get(node, False)
        if is_known and not was_known:
            self.found += 1
            self._was_out[node] = False
        self._known[node] = is_known
        isr = self._partition().isr
        if node not in isr or isr == (node,) or self._is_breaking:
            self._was_out[node] = True
        if was_known and not is_known and not self._was_out[node]:
            raise InvariantBroken(f"{node} was repaired in the ISR {isr}")

    # -- clients ---------------------------------------------------------------

    async def _read(self, ports: Ports) -> None:
        """Read from any replica at any offset; the batch is intact, or its damage was not found
        yet.
        """
        client = ClusterClient("reader", ports, self.watch, NODES)
        while self.is_writing:
            await asyncio.sleep(ports.random.fraction() * 0.02)
            if await client.leader(0) is None:
                continue
            node = self.replicas[ports.random.below(len(self.replicas))]
            was_known = self._known.get(node, False)
            offset = ports.random.below(max(1, self._end()))
            asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=4096)
            topic = FetchTopic(TOPIC, client.topic_ids[TOPIC], [asked])
            response = await client.ask(node, FetchRequest(topics=[topic], max_wait_ms=0))
            if isinstance(response, FetchResponse) and response.responses:
                row = response.responses[0].partitions[0]
                self.refused += row.error_code != 0
                self._check_batch(node, was_known, bytes(row.records or b""))

    def _end(self) -> int:
        logs = [each.log for machine in self._up() for each in self._hosted(machine)]
        return max((int(log.high_watermark) for log in logs), default=0)

    def _check_batch(self, node: int, was_known: bool, data: bytes) -> None:
        try:
            sound = [is_crc_valid(data, position, header) for position, header in batches(data)]
        except (CorruptBatch, UnsupportedMagic):
            sound = [False]
        if was_known and not all(sound):
            raise InvariantBroken(f"{node} sent a batch that it knew to be damaged")
        self.watch.read += sum(sound)
