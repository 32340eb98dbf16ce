"""Simulations of whole controller nodes, as composed in production, with power losses and cuts.

Every acknowledged change is in every image at the end, and images at equal offsets are always
equal.
"""

import asyncio

import pytest
from tests.seeds import seeds

from ottla.client.connection import Connection, Options
from ottla.config.loading import Loaded, load
from ottla.metadata.image import Image
from ottla.node.directories.format_plan import FormatOptions, plan_format
from ottla.node.directories.formatting import format_node
from ottla.node.handle import Node, start_node
from ottla.node.ports import NodePorts
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.runtime.ports import Address
from simulation.simulation import Ports, Simulation

SEEDS = seeds(3, deep=6)
NODES = (1, 2, 3)
VOTERS = ",".join(f"{node_id}@n{node_id}:9093" for node_id in NODES)
FAULTS = 4
IMPATIENT = Options(connect_timeout_ms=500)


def settings(node_id: int) -> Loaded:
    return load(
        f"process.roles=controller\nnode.id={node_id}\ncontroller.quorum.voters={VOTERS}\n"
        f"listeners=CONTROLLER://n{node_id}:9093\ncontroller.listener.names=CONTROLLER\n"
        "ottla.allow.insecure.controller.listener=true\nlog.dirs=/data\n"
        "ottla.metadata.snapshot.interval.records=40\n"
    )


def set_quota(number: int) -> AlterClientQuotasRequest:
    entity = RequestEntityData("user", f"u{number}")
    return AlterClientQuotasRequest([RequestEntryData([entity], [OpData("request_percentage", 1)])])


class Cluster:
    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.nodes: dict[int, Node] = {}
        self.seen: dict[int, Image] = {}
        self.acknowledged: list[int] = []

    async def run_node(self, ports: Ports, node_id: int) -> None:
        loaded = settings(node_id)
        if not ports.disk.exists("/data/meta.properties"):
            plan = plan_format(loaded, FormatOptions(cluster_id="sim"), ports.random)
            format_node(ports.disk, ports.random, ports.clock.now(), plan)
        node = await start_node(
            loaded,
            NodePorts(
                disk=ports.disk,
                clock=ports.clock,
                random=ports.random,
                network=ports.network,
                committer=ports.committer,
            ),
        )
        self.nodes[node_id] = node
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.watch(node))
            await node.wait_stopped()  # raises the error of the failed service

    async def watch(self, node: Node) -> None:
        while True:
            before = node.image
            await node.wait_image(lambda image: image is not before)  # noqa: B023
            self.check(node.image)

    def check(self, image: Image) -> None:
        """Check that every node has the same image at an offset."""
        known = self.seen.setdefault(image.provenance.offset, image)
        assert known == image, f"two images at {image.provenance.offset}"

    async def change(self, ports: Ports) -> None:
        """Make one change after the other, through the controller that accepted the last one."""
        number = at = 0
        connection: Connection | None = None
        while True:
            number += 1
            try:
                connection = connection or await Connection.open(
                    ports.network, Address(f"n{NODES[at]}", 9093), options=IMPATIENT
                )
                response = await connection.send(set_quota(number), timeout_ms=2000)
                assert isinstance(response, AlterClientQuotasResponse)
                code = response.entries[0].error_code
            except (OSError, Fault):
                code = ErrorCode.NETWORK_EXCEPTION
            if code == ErrorCode.NONE:
                self.acknowledged.append(number)
            else:
                at = (at + 1) % len(NODES)
                if connection is not None:
                    await connection.close()
                connection = None
            await asyncio.sleep(0.1)

    def inject(self) -> None:
        random, network = self.simulation.random, self.simulation.network
        host = self.simulation.host(f"n{NODES[random.below(len(NODES))]}")
        match random.below(4):
            case 0:
                host.crash()
            case 1:
                host.kill()
            case 2:
                host.crash()
                host.restart(crash_at_step=1 + random.below(300))
            case _:
                for node_id in NODES:
                    network.cut(host.name, f"n{node_id}")

    def repair(self) -> None:
        self.simulation.network.heal()
        for node_id in NODES:
            host = self.simulation.host(f"n{node_id}")
            if not host.is_up:
                host.restart()

    async def direct(self) -> None:
        for node_id in NODES:
            self.simulation.host(f"n{node_id}").start(
                lambda ports, node_id=node_id: self.run_node(ports, node_id)  # type: ignore[misc]
            )
        self.simulation.host("client").start(self.change)
        await asyncio.sleep(4)
        for _ in range(FAULTS):
            self.inject()
            await asyncio.sleep(3)
            self.repair()
            await asyncio.sleep(2)
        before = len(self.acknowledged)
        await asyncio.sleep(10)
        assert len(self.acknowledged) > before, "work goes on after healing"
        self.simulation.host("client").kill()
        await asyncio.sleep(3)
        for node in self.nodes.values():
            users = {dict(entity)["user"] for entity in node.image.client_quotas.by_entity}
            assert {f"u{number}" for number in self.acknowledged} <= users
        assert sum(node.is_active_controller for node in self.nodes.values()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_changes_survive_and_images_agree(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.simulation.run(cluster.direct)
