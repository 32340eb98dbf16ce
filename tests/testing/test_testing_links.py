"""Relays between nodes: bytes that pass, that wait during a cut, and that arrive after healing."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.runtime.ports import Address
from ottla.testing.layout import ClusterPlan, NodePlan
from ottla.testing.links import Links, RelayedNetwork
from ottla.testing.ports import HeldPort

SILENCE_S = 0.05


@dataclass
class Echo:
    """A server that echoes the bytes it receives."""

    received: bytearray = field(default_factory=bytearray)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError):
            while data := await reader.read(1000):
                self.received += data
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[Links, Echo, Address]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    unused = HeldPort()
    plan = ClusterPlan(
        cluster_id="c",
        nodes={
            1: NodePlan(1, True, {"PLAINTEXT": unused.number}),
            2: NodePlan(2, False, {"PLAINTEXT": port}),
        },
    )
    links = await Links.open(plan)
    try:
        yield links, echo, links.relays_of(1)[Address("127.0.0.1", port)]
    finally:
        links.close()
        server.close()
        unused.close()


def asynchronous(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 60))

    run.__name__ = test.__name__
    return run


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        await asyncio.wait_for(reader.readexactly(1), SILENCE_S)
    except TimeoutError:
        return True
    return False


async def wait_received(echo: Echo, wanted: bytes) -> None:
    while bytes(echo.received) != wanted:  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@asynchronous
async def test_bytes_pass_in_both_directions() -> None:
    async with two_nodes() as (_, echo, relay):
        reader, writer = await asyncio.open_connection(relay.host, relay.port)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        assert echo.received == b"hello"
        writer.close()


@asynchronous
async def test_cut_holds_bytes_back_and_healing_delivers_them_in_order() -> None:
    async with two_nodes() as (links, echo, relay):
        reader, writer = await asyncio.open_connection(relay.host, relay.port)
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        links.gates.cut([(1, 2), (2, 1)])
        writer.write(b"b")
        assert await is_silent(reader)
        assert echo.received == b"a"
        writer.write(b"c")
        links.gates.heal()
        assert await reader.readexactly(2) == b"bc"
        writer.close()


@asynchronous
async def test_cut_of_one_direction_leaves_the_other_open() -> None:
    async with two_nodes() as (links, echo, relay):
        reader, writer = await asyncio.open_connection(relay.host, relay.port)
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        links.gates.cut([(2, 1)])
        writer.write(b"b")
        await wait_received(echo, b"ab")
        assert await is_silent(reader)
        links.gates.heal()
        assert await reader.readexactly(1) == b"b"
        writer.close()


@asynchronous
async def test_connection_opened_during_a_cut_is_silent_until_healed() -> None:
    async with two_nodes() as (links, echo, relay):
        links.gates.cut([(1, 2), (2, 1)])
        reader, writer = await asyncio.open_connection(relay.host, relay.port)
        writer.write(b"x")
        assert await is_silent(reader)
        assert echo.received == b""
        links.gates.heal()
        assert await reader.readexactly(1) == b"x"
        writer.close()


@asynchronous
async def test_connection_to_a_stopped_node_is_closed() -> None:
    async with two_nodes() as (links, _, _):
        (relay,) = links.relays_of(2).values()
        reader, writer = await asyncio.open_connection(relay.host, relay.port)
        assert await reader.read() == b""
        writer.close()


@asynchronous
async def test_close_of_one_side_closes_the_other_after_its_last_bytes() -> None:
    async with two_nodes() as (_, echo, relay):
        reader, writer = await asyncio.open_connection(relay.host, relay.port)
        writer.write(b"last")
        writer.close()
        await wait_received(echo, b"last")
        while not reader.at_eof():
            await reader.read()


@asynchronous
async def test_node_dials_peers_through_relays_and_other_addresses_directly() -> None:
    async with two_nodes() as (links, _, relay):
        network = RelayedNetwork(links.relays_of(1))
        target = next(iter(links.relays_of(1)))
        for dialled, reached in ((target, relay), (relay, relay)):
            transport, _ = await network.dial(dialled, asyncio.Protocol)
            peer = transport.get_extra_info("peername")
            assert Address(*peer[:2]) == reached
            transport.close()


def test_held_port_stays_reserved_and_can_be_served_repeatedly() -> None:
    port = HeldPort()
    try:
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port.number))
        for _ in range(2):
            with port.socket() as served:
                with socket.socket() as client:
                    assert client.connect_ex(("127.0.0.1", port.number)) != 0
                served.listen()
                with socket.socket() as client:
                    client.connect(("127.0.0.1", port.number))
    finally:
        port.close()
