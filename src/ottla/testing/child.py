"""A node of a test cluster in its own process.

    python -m ottla.testing.child '{"settings": "...", "sockets": {"PLAINTEXT": 5}, ...}'

Writes ``ready`` to one inherited pipe once every expected broker serves, and exits when another
pipe, the lifeline, is closed: no node outlives the test run that started it.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec.structs import replace

from ottla.config.loading import Loaded, load
from ottla.node.handle import Node, ShutdownTimeout, start_node
from ottla.node.ports import NodePorts, system_ports
from ottla.protocol.types import NodeId
from ottla.runtime import system_calls
from ottla.runtime.ports import Address
from ottla.testing.links import RelayedNetwork

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
LEAVE_S_MAX = 10.0
READY = b"ready\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The arguments of a process. ``sockets``, ``ready`` and ``lifeline`` are file descriptors;
    ``relays`` are pairs of addresses: that of a peer, and the one to dial instead.
    """

    settings: str
    sockets: dict[str, int]
    relays: list[tuple[tuple[str, int], tuple[str, int]]]
    brokers: list[int]
    ready: int
    lifeline: int

    def to_text(self) -> str:
        """Encode as a command line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Orders":
        """Decode a command line argument."""
        return cls(**json.loads(text))


def node_ports(sockets: dict[str, socket.socket], relays: Mapping[Address, Address]) -> NodePorts:
    """Return the system's ports, with bound sockets, and peers dialled through relays."""
    own = system_ports()
    network = RelayedNetwork(relays) if relays else own.network
    return replace(own, network=network, sockets=sockets)


async def wait_brokers(node: Node, brokers: Iterable[int]) -> None:
    """Wait until a node sees that brokers serve."""
    wanted = [NodeId(broker) for broker in brokers]
    await node.wait_image(lambda image: all(map(image.cluster.is_unfenced, wanted)))


async def _run(orders: Orders, loaded: Loaded) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        system_calls.on_signal(number, stop.set)
    loop.add_reader(orders.lifeline, os._exit, 1)
    sockets = {name: socket.socket(fileno=fd) for name, fd in orders.sockets.items()}
    relays = {Address(*peer): Address(*relay) for peer, relay in orders.relays}
    node = await start_node(loaded, node_ports(sockets, relays))
    try:
        await wait_brokers(node, orders.brokers)
        os.write(orders.ready, READY)
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(node.wait_stopped())
            ended.add_done_callback(lambda _: stop.set())
            await stop.wait()
            ended.cancel()
        await leave(node)
    finally:
        await node.shutdown()


async def leave(node: Node) -> None:
    """Stop a node by controlled shutdown, or without it if no controller answers."""
    try:
        await node.controlled_shutdown(LEAVE_S_MAX)
    except ShutdownTimeout:
        await node.shutdown()


def main() -> None:
    """Run one node until it is stopped."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    orders = Orders.from_text(sys.argv[1])
    loaded = load(Path(orders.settings).read_text(encoding="utf-8"))
    asyncio.run(_run(orders, loaded))


if __name__ == "__main__":
    main()
