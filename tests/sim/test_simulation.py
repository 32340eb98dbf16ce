"""Hosts that crash: what stops, what survives, and that one seed gives one journal."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from ottla.runtime.ports import Address, OpenMode
from simulation.disk import SimCrash
from simulation.platter import Keep
from simulation.runner import play
from simulation.simulation import Ports, Simulation


def direct(simulation: Simulation, director: Callable[[], Coroutine[None, None, None]]) -> None:
    simulation.run(director)


def test_crashed_host_runs_nothing_not_even_cleanup() -> None:
    simulation, seen = Simulation(0), []

    async def main(ports: Ports) -> None:
        ports.disk.make_dirs("/d")
        try:
            while True:
                seen.append(asyncio.get_running_loop().time())
                await asyncio.sleep(1)
        finally:
            ports.disk.make_dirs("/last-words")
            seen.append(-1.0)

    async def director() -> None:
        host = simulation.host("a")
        host.start(main)
        await asyncio.sleep(2.5)
        host.crash()
        assert not host.is_up
        await host.wait_down()
        await asyncio.sleep(100)
        assert seen == [0, 1, 2]
        host.restart()
        await asyncio.sleep(1.5)
        assert len(seen) == 5
        assert not host.disk.exists("/last-words")

    direct(simulation, director)


def test_call_inside_ends_with_the_process() -> None:
    """A director that makes a program act must not leave timers that outlive it."""
    simulation, seen = Simulation(0), []

    async def main(ports: Ports) -> None:
        await asyncio.sleep(1e6)

    def act() -> None:
        seen.append("now")
        asyncio.get_running_loop().call_later(1, lambda: seen.append("later"))

    async def director() -> None:
        host = simulation.host("a")
        host.call_inside(act)
        host.start(main)
        host.call_inside(act)
        await asyncio.sleep(2)
        assert seen == ["now", "later"]
        host.call_inside(act)
        await asyncio.sleep(0.5)
        host.crash()
        host.restart()
        await asyncio.sleep(2)
        assert seen == ["now", "later", "now"]

    direct(simulation, director)


def test_planned_crash_can_be_cancelled() -> None:
    simulation, steps = Simulation(0), []

    async def main(ports: Ports) -> None:
        while True:
            ports.disk.make_dirs(f"/d{len(steps)}")
            steps.append(1)
            await asyncio.sleep(1)

    async def director() -> None:
        host = simulation.host("a")
        host.start(main, crash_at_step=12)
        host.disk.crash_at(12)
        await asyncio.sleep(2.5)
        host.spare()
        await asyncio.sleep(20)
        assert host.is_up
        assert len(steps) == 23

    direct(simulation, director)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_disk_rejects_writes_of_another_process(is_restarted: bool) -> None:
    """A callback from outside must not act for a process that its host has replaced."""
    simulation = Simulation(0)

    async def main(ports: Ports) -> None:
        await asyncio.sleep(1e6)

    async def director() -> None:
        host = simulation.host("a")
        host.disk.make_dirs("/before")
        host.start(main)
        await asyncio.sleep(1)
        if is_restarted:
            host.crash()
            host.restart()
        host.disk.make_dirs("/ghost")
        await asyncio.sleep(1)

    with pytest.raises(RuntimeError, match=r"a: .*/ghost.* by another process"):
        direct(simulation, director)


def test_crash_at_any_disk_operation_keeps_the_operations_before_it() -> None:
    """A crash at operation k leaves what a crash before it leaves, plus a random part of k; never k
    + 1.
    """

    async def main(ports: Ports) -> None:
        ports.disk.make_dirs("/d")
        file = ports.disk.open("/d/a", OpenMode.CREATE)
        ports.disk.sync_dir("/d")
        for i in range(4):
            file.pwrite(bytes([65 + i]), i)
            await asyncio.sleep(0.1)
            file.sync()
        await asyncio.sleep(1e6)

    def survivors(point: int) -> bytes | None:
        simulation, left = Simulation(point), []

        async def director() -> None:
            host = simulation.host("a")
            host.disk.crash_at(point)
            host.start(main)
            await asyncio.wait_for(host.wait_down(), 10) if point <= 12 else await asyncio.sleep(9)
            if host.is_up:
                host.crash(Keep.NOTHING)
            host.disk.restart()
            left.append(host.disk.read("/d/a") if host.disk.exists("/d/a") else None)

        direct(simulation, director)
        return left[0]

    # mkdir, sync_dir, create, sync_dir, then four times write, sync
    for point in range(1, 13):
        left = survivors(point)
        synced = max(0, (point - 5) // 2)
        assert left is None if point <= 3 else True
        if point > 4:
            assert left is not None
            assert b"ABCD"[:synced] == left[:synced]
            assert len(left) <= synced + 1
    assert survivors(13) == b"ABCD"


def test_crash_at_any_await() -> None:
    def steps_seen(step: int) -> int:
        simulation, seen = Simulation(1), []

        async def main(ports: Ports) -> None:
            for i in range(5):
                seen.append(i)
                await asyncio.sleep(0.1)
            await asyncio.sleep(1e6)

        async def director() -> None:
            simulation.host("a").start(main, crash_at_step=step)
            await asyncio.sleep(10)
            assert simulation.host("a").is_up == (step == 0)

        direct(simulation, director)
        return len(seen)

    counts = [steps_seen(step) for step in range(1, 12)]
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2, 3, 4, 5}
    assert steps_seen(0) == 5


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.lost: list[Exception | None] = []
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.transport.write(data)  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Silent(Echo):
    def data_received(self, data: bytes) -> None:
        self.received += data


SERVER = Address("server", 1)


async def serve(ports: Ports) -> None:
    await ports.network.listen(SERVER, Echo)
    await asyncio.sleep(1e9)


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_kill_resets_peers_and_power_loss_does_not(
    how: str,
) -> None:
    simulation = Simulation(3)

    async def director() -> None:
        server = simulation.host("server")
        server.start(serve)
        await asyncio.sleep(1)
        client = simulation.network.port_of("client")
        transport, protocol = await client.dial(SERVER, Silent)
        transport.write(b"x")
        await asyncio.sleep(1)
        assert isinstance(protocol, Silent)
        assert protocol.received == b"x"
        server.kill() if how == "kill" else server.crash()
        await asyncio.sleep(5)
        assert len(protocol.lost) == (1 if how == "kill" else 0)
        with pytest.raises(ConnectionRefusedError if how == "kill" else TimeoutError):
            await client.dial(SERVER, Silent)
        server.restart()
        await asyncio.sleep(1)
        transport.write(b"still there?")
        await asyncio.sleep(1)
        assert [type(error) for error in protocol.lost] == [ConnectionResetError]
        await client.dial(SERVER, Silent)

    direct(simulation, director)


def test_error_of_a_program_fails_the_simulation() -> None:
    simulation = Simulation(0)

    async def main(ports: Ports) -> None:
        await asyncio.sleep(1)
        raise ValueError("a bug")

    async def director() -> None:
        simulation.host("a").start(main)
        await asyncio.sleep(100)

    with pytest.raises(ValueError, match="a bug"):
        direct(simulation, director)
    assert simulation.loop.time() == 1


def test_program_that_returns_ends_its_process() -> None:
    simulation = Simulation(0)

    async def main(ports: Ports) -> None:
        ports.disk.make_dirs("/d")
        ports.disk.open("/d/a", OpenMode.CREATE).pwrite(b"cached", 0)

    async def director() -> None:
        host = simulation.host("a")
        host.start(main)
        await host.wait_down()
        with pytest.raises(RuntimeError):
            simulation.host("b").restart()
        host.disk.restart()
        assert host.disk.read("/d/a") == b"cached"

    direct(simulation, director)


def test_crash_inside_a_network_callback_ends_the_process() -> None:
    simulation = Simulation(0)

    class Writing(asyncio.Protocol):
        def __init__(self, ports: Ports) -> None:
            self.ports = ports

        def data_received(self, data: bytes) -> None:
            try:
                self.ports.disk.make_dirs("/written")
            except SimCrash:
                with pytest.raises(SimCrash):
                    self.ports.disk.make_dirs("/in-dying")
                raise

    async def main(ports: Ports) -> None:
        await ports.network.listen(SERVER, lambda: Writing(ports))
        await asyncio.sleep(1e9)

    async def director() -> None:
        server = simulation.host("server")
        server.start(main)
        await asyncio.sleep(1)
        transport, _ = await simulation.network.port_of("client").dial(SERVER, Silent)
        server.disk.crash_at(1)
        transport.write(b"x")
        await asyncio.wait_for(server.wait_down(), 1)

    direct(simulation, director)


def test_ports_work_together_and_clocks_may_differ() -> None:
    simulation, seen = Simulation(5), []

    async def main(ports: Ports) -> None:
        ports.disk.make_dirs("/d")
        file = ports.disk.open("/d/a", OpenMode.CREATE)
        file.pwrite(b"abc", 0)
        await ports.committer("/d").commit([file])
        await ports.objects.put_file("k", "/d/a")
        seen.append((ports.clock.now(), ports.random.below(1000), ports.disk.modified("/d/a")))
        await asyncio.sleep(1e6)

    async def director() -> None:
        simulation.host("a").start(main)
        simulation.host("b").clock.jump(5000)
        simulation.host("b").start(main)
        await asyncio.sleep(1)

    direct(simulation, director)
    assert simulation.bucket.contents() == {"k": b"abc"}
    assert seen[0][1] != seen[1][1]
    assert abs(abs(seen[0][0] - seen[1][0]) - 5000) < 100


def test_same_seed_gives_same_journal_and_another_seed_another() -> None:
    first, second = play("journal", 11), play("journal", 11)
    assert first.error is None
    assert (first.hash, first.events, first.seconds) == (second.hash, second.events, second.seconds)
    assert first.events > 500
    assert len({play("journal", seed).hash for seed in (11, 12, 13)}) == 3
