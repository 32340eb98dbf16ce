"""A client that connects the instant a port opens gets a usable answer."""

import asyncio
import queue
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from one_node import OneNode, format_one, settings
from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX

from ottla.api.surface.routes import Caller, Route
from ottla.api.surface.start_gate import EMPTY_WAIT_S, OTHERS_WAIT_S, StartGate
from ottla.node.broker.broker_lifecycle import BrokerLifecycle
from ottla.protocol.api_keys import ApiKey
from ottla.runtime.ports import Address
from simulation.loop import run_simulated

METADATA = struct.pack(">ihhihi", 14, 3, 1, 7, -1, 0)
"""Metadata v1 of no topics."""


API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 8, -1)


def answer(wire: socket.socket) -> bytes:
    """Return the next reply without its length."""
    (size,) = struct.unpack(">i", wire.recv(4, socket.MSG_WAITALL))
    return wire.recv(size, socket.MSG_WAITALL)


def first_answer(port: int, found: list[tuple[int, int]]) -> None:
    """Connect as soon as the port is open; add the number of brokers and the controller."""
    end = time.monotonic() + SECONDS_MAX
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as wire:
                wire.sendall(METADATA)
                (size,) = struct.unpack(">i", wire.recv(4, socket.MSG_WAITALL))
                reply = wire.recv(size, socket.MSG_WAITALL)
        except OSError:
            continue
        (brokers,) = struct.unpack_from(">i", reply, 4)
        # Brokers, then the controller, then the topics: none.
        found.append((brokers, struct.unpack_from(">i", reply, size - 8)[0]))
        return


def test_first_metadata_of_a_starting_node_lists_it_and_a_controller(tmp_path: Path) -> None:
    port = free_ports(2)[0]
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
    loaded = format_one(settings(tmp_path, listeners=listeners))
    found: list[tuple[int, int]] = []
    client = threading.Thread(target=first_answer, args=(port, found))
    client.start()
    node = OneNode(loaded)
    try:
        client.join(SECONDS_MAX)
        assert found == [(1, 1)]
    finally:
        node.stop()


def test_first_metadata_is_held_while_the_broker_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker asks to be unfenced only when the test says so, as with a slow controller."""
    port = free_ports(2)[0]
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
    loaded = format_one(settings(tmp_path, listeners=listeners))
    become_ready = BrokerLifecycle.become_ready
    fenced: queue.Queue[Callable[[], object]] = queue.Queue()

    def held_back(lifecycle: BrokerLifecycle) -> None:
        loop = asyncio.get_running_loop()
        fenced.put(lambda: loop.call_soon_threadsafe(become_ready, lifecycle))

    monkeypatch.setattr(BrokerLifecycle, "become_ready", held_back)
    starting: list[OneNode] = []
    thread = threading.Thread(target=lambda: starting.append(OneNode(loaded)))
    thread.start()
    unfence = fenced.get(timeout=SECONDS_MAX)
    try:
        with (
            socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as first,
            socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as other,
        ):
            first.sendall(METADATA)
            for _ in range(3):
                other.sendall(API_VERSIONS)
                answer(other)
            assert select.select([first], [], [], 0)[0] == [], "answered while it is fenced"
            unfence()
            reply = answer(first)
            assert struct.unpack_from(">i", reply, 4) == (1,), "the broker itself"
    finally:
        unfence()
        thread.join(SECONDS_MAX)
        starting[0].stop()


# -- the gate alone -----------------------------------------------------------------


class Cluster:
    """The part of an image that the gate looks at."""

    def __init__(self) -> None:
        self.alive: list[int] = []

    @property
    def cluster(self) -> "Cluster":
        return self

    def is_unfenced(self, node_id: int) -> bool:
        return node_id in self.alive

    def unfenced(self) -> list[int]:
        return self.alive


CALLER = Caller("User:a", None, Address("127.0.0.1", 1), "PLAINTEXT")


def gated(image: Cluster) -> Route:
    gate = StartGate(lambda: image, 1)  # type: ignore[arg-type,return-value]
    return Route(ApiKey.METADATA, gate.hold(lambda *_: list(image.alive)))


async def answer_of(route: Route) -> tuple[object, float]:
    began = asyncio.get_running_loop().time()
    reply = await route.handle(CALLER, None, 1)  # type: ignore[misc]
    return reply, asyncio.get_running_loop().time() - began


def test_held_request_waits_until_this_broker_is_unfenced() -> None:
    async def story() -> None:
        image = Cluster()
        asyncio.get_running_loop().call_later(1.5, image.alive.append, 1)
        reply, took = await answer_of(gated(image))
        assert reply == [1]
        assert 1.5 <= took < 1.6

    run_simulated(story())


def test_held_request_waits_for_a_bounded_time() -> None:
    async def story() -> None:
        image = Cluster()
        reply, took = await answer_of(gated(image))
        assert reply == []
        assert EMPTY_WAIT_S <= took < EMPTY_WAIT_S + 0.1
        image.alive.append(2)
        reply, took = await answer_of(gated(image))
        assert reply == [2]
        assert OTHERS_WAIT_S <= took < OTHERS_WAIT_S + 0.1

    run_simulated(story())


def test_open_gate_stays_open() -> None:
    image = Cluster()
    image.alive.append(1)
    route = gated(image)
    assert route.handle(CALLER, None, 1) == [1]
    image.alive.clear()
    assert route.handle(CALLER, None, 1) == [], "a broker that is fenced later still answers"
