"""Probes of real processes: which states of a process look like its end, and which do not."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack

import msgspec
import pytest
from test_controller_probes import PEER, World, beat, lead, publish
from tests.patience import SECONDS_MAX

from ottla.controller.broker_probes import ProbeSettings
from ottla.controller.probe_loop import BrokerProbes
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address

pytestmark = pytest.mark.slow

PROBES = 4
"""Probes that prove nothing, before a test believes that none will."""
LISTEN = """
import socket, sys, time
port, backlog = map(int, sys.argv[1:])
listening = socket.create_server(("127.0.0.1", port), backlog=backlog)
print(listening.getsockname()[1], flush=True)
time.sleep(60)
"""


class Listener:
    """A process that listens, and accepts nothing: its kernel completes the connections."""

    def __init__(self, port: int = 0, backlog: int = 100) -> None:
        command = [sys.executable, "-ISc", LISTEN, str(port), str(backlog)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def broker() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


Story = Callable[[World, BrokerProbes], Awaitable[None]]


def play(port: int, story: Story) -> None:
    """Run a story once the port has answered and the heartbeat connection has closed."""

    async def main() -> None:
        world = World(port=lambda: asyncio.sleep(0))
        parts = msgspec.structs.replace(
            world.parts(),
            network=TcpNetwork(),
            address_of=lambda image, broker_id: Address("127.0.0.1", port),
            settings=ProbeSettings(interval_ms=20, timeout_ms=100),
        )
        probes = BrokerProbes(parts)
        async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(probes.run(lambda: None))
            publish(probes, world.cluster.image)
            await until(lambda: 0 in probes._answered)
            lead(world, probes)
            beat(world)
            await story(world, probes)
            running.cancel()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the probes have no event for it
        await asyncio.sleep(0.005)


def test_killed_process_is_fenced(broker: Listener) -> None:
    async def story(world: World, probes: BrokerProbes) -> None:
        broker.kill()
        probes.on_connection_closed("CONTROLLER", PEER)
        await until(lambda: world.fenced_at is not None)
        assert probes.counts.refused == 2

    play(broker.port, story)


def test_paused_process_is_not_fenced_until_it_is_killed(broker: Listener) -> None:
    """The kernel of a paused, swapped or slow process completes connections all the same."""

    async def story(world: World, probes: BrokerProbes) -> None:
        broker.process.send_signal(signal.SIGSTOP)
        probes.on_connection_closed("CONTROLLER", PEER)
        await until(lambda: probes.counts.answered >= PROBES)
        assert world.fenced_at is None
        broker.kill()
        await until(lambda: world.fenced_at is not None)

    play(broker.port, story)


def test_process_with_a_full_accept_queue_is_not_fenced() -> None:
    with ExitStack() as stack:
        listener = Listener(backlog=0)
        stack.callback(listener.close)

        async def story(world: World, probes: BrokerProbes) -> None:
            for _ in range(4):
                filling = stack.enter_context(socket.socket())
                filling.setblocking(False)
                filling.connect_ex(("127.0.0.1", listener.port))
            probes.on_connection_closed("CONTROLLER", PEER)
            await until(lambda: probes.counts.unanswered >= 2)
            assert world.fenced_at is None
            assert probes.counts.refused == 0

        play(listener.port, story)


def test_port_that_another_process_has_taken_over_keeps_the_session(broker: Listener) -> None:
    with ExitStack() as stack:

        async def story(world: World, probes: BrokerProbes) -> None:
            broker.kill()
            stack.callback(Listener(broker.port).close)
            probes.on_connection_closed("CONTROLLER", PEER)
            await until(lambda: probes.counts.answered >= PROBES)
            assert world.fenced_at is None
            assert probes.counts.refused == 0

        play(broker.port, story)
