"""The links between the nodes of a test cluster, which can be cut.

For every ordered pair (a, b) and every listener of b there is a relay on loopback; node a dials the
relay instead of b (`RelayedNetwork`), so all traffic between nodes, of raft, replication and
forwarding, goes through a relay that knows its sender. Clients dial nodes directly and are never
cut off.

While the link from a to b is cut, bytes from a to b are neither lost nor delivered: they wait, and
arrive once it is healed, as with TCP over a network that recovers. A connection dialled during a
cut is accepted and stays silent. A cut never resets a connection, so a waiting node notices only by
its own timeout.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass

from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.testing.layout import HOST, ClusterPlan

Pair = tuple[int, int]
Way = tuple[asyncio.StreamReader, asyncio.StreamWriter]

CHUNK_BYTES = 64 * 1024


class RelayedNetwork(TcpNetwork):
    """TCP that dials some addresses through a relay."""

    def __init__(self, relays: Mapping[Address, Address]) -> None:
        super().__init__()
        self._relays = relays

    async def dial(
        self, address: Address, connect: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to the relay of an address, or to the address itself."""
        return await super().dial(self._relays.get(address, address), connect)


class Gates:
    """The open directions; all at first."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._gates = {pair: asyncio.Event() for pair in pairs}
        self.heal()

    def cut(self, pairs: Iterable[Pair]) -> None:
        """Close directions."""
        for pair in pairs:
            self._gates[pair].clear()

    def heal(self) -> None:
        """Open all directions."""
        for gate in self._gates.values():
            gate.set()

    async def wait_open(self, pair: Pair) -> None:
        """Wait until bytes may pass in a direction."""
        await self._gates[pair].wait()


@dataclass(frozen=True, slots=True)
class Relay:
    """Forward connections that ``pair[0]`` opens to one listener of ``pair[1]``."""

    pair: Pair
    target: Address
    gates: Gates

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until either end closes it."""
        with closing(writer), suppress(OSError):
            await self.gates.wait_open(self.pair)
            far_reader, far_writer = await asyncio.open_connection(
                self.target.host, self.target.port
            )
            # Closing sends the bytes in flight; there is nothing left to wait for.
            with closing(far_writer):
                await self._carry_both((reader, far_writer), (far_reader, writer))

    async def _carry_both(self, there: Way, back: Way) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._carry(*there, self.pair))
                tasks.create_task(self._carry(*back, self.pair[::-1]))
        except* (OSError, _Ended):
            pass

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: Pair
    ) -> None:
        while chunk := await source.read(CHUNK_BYTES):
            await self.gates.wait_open(way)
            sink.write(chunk)
            await sink.drain()
        await self.gates.wait_open(way)
        raise _Ended


class _Ended(Exception):
    """One side has closed; the other is closed too."""


class Links:
    """All relays of a cluster; runs on one event loop."""

    def __init__(self, gates: Gates) -> None:
        self.gates = gates
        self._servers: list[asyncio.Server] = []
        self._relays: dict[int, dict[Address, Address]] = {}

    @classmethod
    async def open(cls, plan: ClusterPlan) -> "Links":
        """Listen for every pair. Raises OSError when no port is free; none stays open."""
        pairs = [(a, b) for a in plan.nodes for b in plan.nodes if a != b]
        links = cls(Gates(pairs))
        try:
            for pair in pairs:
                for port in plan.nodes[pair[1]].ports.values():
                    await links._listen(pair, Address(HOST, port))
        except BaseException:
            links.close()
            raise
        return links

    async def _listen(self, pair: Pair, target: Address) -> None:
        relay = Relay(pair, target, self.gates)
        server = await asyncio.start_server(relay.serve, HOST, 0)
        self._servers.append(server)
        at = Address(HOST, int(server.sockets[0].getsockname()[1]))
        self._relays.setdefault(pair[0], {})[target] = at

    def relays_of(self, node_id: int) -> dict[Address, Address]:
        """Return the relay by which a node reaches each listener of the others."""
        return self._relays.get(node_id, {})

    def close(self) -> None:
        """Stop accepting; open connections end with the loop."""
        for server in self._servers:
            server.close()
