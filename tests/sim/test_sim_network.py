"""The simulated network: TCP's guarantees while it works, and every way it fails."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from ottla.runtime.ports import Address
from simulation.journal import Journal
from simulation.loop import run_simulated
from simulation.network import FrameFaults, SimNetwork

SERVER = Address("b", 9092)


@dataclass(eq=False)
class End(asyncio.Protocol):
    """Record all events of a connection."""

    echo: bool = False
    received: bytearray = field(default_factory=bytearray)
    pieces: list[bytes] = field(default_factory=list)
    lost: list[Exception | None] = field(default_factory=list)
    eof: bool = False
    held_back: list[str] = field(default_factory=list)
    transport: asyncio.Transport = None  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.pieces.append(data)
        if self.echo:
            self.transport.write(data)

    def eof_received(self) -> None:
        self.eof = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.held_back.append("pause")

    def resume_writing(self) -> None:
        self.held_back.append("resume")


class Buffered(asyncio.BufferedProtocol):
    """Read into a window of seven bytes that moves along."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.window = bytearray(7)

    def get_buffer(self, sizehint: int) -> bytearray:
        assert sizehint > 0
        return self.window

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.window[:nbytes]


Scenario = Callable[[SimNetwork], Awaitable[None]]


def simulate(scenario: Scenario, seed: int = 0) -> str:
    """Run on a fresh network of hosts a and b; return the journal's hash."""
    hashes = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        journal = Journal(loop.time)
        network = SimNetwork(loop, seed, journal=journal)
        await scenario(network)
        hashes.append(journal.hash())

    run_simulated(main(), seed)
    return hashes[0]


async def connected(network: SimNetwork, *, echo: bool = False) -> tuple[End, End]:
    far = End(echo=echo)
    await network.port_of("b").listen(SERVER, lambda: far)
    _, near = await network.port_of("a").dial(SERVER, End)
    assert isinstance(near, End)
    await asyncio.sleep(0)
    return near, far


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_complete_and_in_order_on_any_link(seed: int) -> None:
    async def scenario(network: SimNetwork) -> None:
        for link in (network.link("a", "b"), network.link("b", "a")):
            link.jitter_s, link.spike_chance, link.split_chance = 0.05, 0.2, 0.5
        near, far = await connected(network, echo=True)
        sent = b""
        for i in range(200):
            piece = bytes([i]) * (i % 40 + 1)
            near.transport.write(piece)
            sent += piece
            await asyncio.sleep(0.003)
        await asyncio.sleep(5)
        assert bytes(far.received) == sent == bytes(near.received)
        assert len(far.pieces) > 250, "some writes arrive in pieces"

    simulate(scenario, seed)


def test_buffered_protocol_receives_through_its_own_buffer() -> None:
    async def scenario(network: SimNetwork) -> None:
        far = Buffered()
        listener = await network.port_of("b").listen(Address("0.0.0.0", 0), lambda: far)
        assert listener.address.port > 1024
        transport, _ = await network.port_of("a").dial(listener.address, End)
        transport.writelines([b"hello ", b"buffered ", memoryview(b"world")])
        await asyncio.sleep(1)
        assert bytes(far.received) == b"hello buffered world"
        assert transport.get_extra_info("peername") == ("b", listener.address.port)

    simulate(scenario)


def test_paused_reader_blocks_the_writer() -> None:
    async def scenario(network: SimNetwork) -> None:
        near, far = await connected(network)
        near.transport.set_write_buffer_limits(high=1000)
        far.transport.pause_reading()
        for _ in range(20):
            near.transport.write(bytes(100))
            await asyncio.sleep(0.01)
        assert near.held_back == ["pause"]
        assert far.received == b""
        assert near.transport.get_write_buffer_size() == 2000
        far.transport.resume_reading()
        await asyncio.sleep(1)
        assert near.held_back == ["pause", "resume"]
        assert len(far.received) == 2000

    simulate(scenario)


def test_close_delivers_written_data_and_ends_both_sides() -> None:
    async def scenario(network: SimNetwork) -> None:
        near, far = await connected(network)
        near.transport.write(b"bye")
        near.transport.close()
        near.transport.write(b"too late")
        await asyncio.sleep(1)
        assert bytes(far.received) == b"bye"
        assert (far.eof, near.lost, far.lost) == (True, [None], [None])
        assert near.transport.is_closing() and far.transport.is_closing()

    simulate(scenario)


def test_abort_resets_the_other_side() -> None:
    async def scenario(network: SimNetwork) -> None:
        near, far = await connected(network)
        near.transport.abort()
        await asyncio.sleep(1)
        assert near.lost == [None]
        assert [type(error) for error in far.lost] == [ConnectionResetError]

    simulate(scenario)


def test_dial_without_listener_is_refused_and_taken_port_is_an_error() -> None:
    async def scenario(network: SimNetwork) -> None:
        with pytest.raises(ConnectionRefusedError):
            await network.port_of("a").dial(SERVER, End)
        listener = await network.port_of("b").listen(SERVER, End)
        with pytest.raises(OSError, match="in use"):
            await network.port_of("b").listen(SERVER, End)
        await listener.close()
        with pytest.raises(ConnectionRefusedError):
            await network.port_of("a").dial(SERVER, End)
        await network.port_of("b").listen(SERVER, End)

    simulate(scenario)


def test_cut_holds_bytes_until_it_is_healed() -> None:
    async def scenario(network: SimNetwork) -> None:
        near, far = await connected(network, echo=True)
        network.cut("a", "b")
        near.transport.write(b"held")
        await asyncio.sleep(20)
        assert far.received == b""
        network.heal()
        await asyncio.sleep(1)
        assert bytes(near.received) == b"held"
        assert near.lost == far.lost == []

    simulate(scenario)


def test_one_way_cut_leaves_the_other_direction_open() -> None:
    async def scenario(network: SimNetwork) -> None:
        near, far = await connected(network)
        network.cut("a", "b", one_way=True)
        near.transport.write(b"lost")
        far.transport.write(b"alive")
        await asyncio.sleep(5)
        assert (bytes(near.received), bytes(far.received)) == (b"alive", b"")
        assert far.transport.get_write_buffer_size() == 5, "its acknowledgement cannot come back"
        network.heal()
        await asyncio.sleep(1)
        assert bytes(far.received) == b"lost"
        assert far.transport.get_write_buffer_size() == 0

    simulate(scenario)


@pytest.mark.parametrize("one_way", [True, False])
def test_sender_times_out_and_the_other_side_is_half_open(one_way: bool) -> None:
    async def scenario(network: SimNetwork) -> None:
        near, far = await connected(network)
        network.cut("a", "b", one_way=one_way)
        near.transport.write(b"x")
        await asyncio.sleep(31)
        assert [type(error) for error in near.lost] == [TimeoutError]
        assert far.lost == []
        network.heal()
        await asyncio.sleep(1)
        assert far.received == b"", "the sender gave up: nothing is sent on"
        far.transport.write(b"anybody there?")
        await asyncio.sleep(1)
        assert [type(error) for error in far.lost] == [ConnectionResetError]

    simulate(scenario)


def test_dial_into_a_cut_waits_and_times_out() -> None:
    async def scenario(network: SimNetwork) -> None:
        await network.port_of("b").listen(SERVER, End)
        network.cut("b", "a", one_way=True)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TimeoutError):
            await network.port_of("a").dial(SERVER, End)
        assert 30 < loop.time() - began < 35
        loop.call_later(2, network.heal)
        await network.port_of("a").dial(SERVER, End)

    simulate(scenario)


def test_reset_breaks_both_ends() -> None:
    async def scenario(network: SimNetwork) -> None:
        near, far = await connected(network)
        network.reset("b", "a")
        assert [type(e) for e in near.lost + far.lost] == [ConnectionResetError] * 2

    simulate(scenario)


def frame(number: int) -> bytes:
    body = b"%d" % number
    return struct.pack(">i", len(body)) + body


def frames_of(data: bytes) -> list[int]:
    found = []
    while data:
        size = struct.unpack_from(">i", data)[0]
        found.append(int(data[4 : 4 + size]))
        data = data[4 + size :]
    return found


def test_frame_faults_drop_repeat_and_reorder_whole_frames() -> None:
    async def scenario(network: SimNetwork) -> None:
        network.link("a", "b").frame_faults = FrameFaults(drop=0.1, duplicate=0.1, reorder=0.2)
        near, far = await connected(network)
        stream = b"".join(frame(i) for i in range(300))
        for start in range(0, len(stream), 11):
            near.transport.write(stream[start : start + 11])
            await asyncio.sleep(0.001)
        await asyncio.sleep(5)
        got = frames_of(bytes(far.received))
        missing = set(range(300)) - set(got)
        assert 10 < len(missing) < 60
        assert 10 < len(got) - len(set(got)) < 60
        assert got != sorted(got)
        assert near.transport.get_write_buffer_size() == 0

    simulate(scenario, 4)


def test_same_network_seed_gives_same_journal() -> None:
    async def scenario(network: SimNetwork) -> None:
        network.link("a", "b").split_chance = 0.5
        near, _ = await connected(network, echo=True)
        for i in range(20):
            near.transport.write(bytes(i * 10))
        await asyncio.sleep(1)

    assert simulate(scenario, 1) == simulate(scenario, 1)
    assert len({simulate(scenario, seed) for seed in range(5)}) == 5


def test_error_in_a_protocol_fails_the_run() -> None:
    class Broken(End):
        def data_received(self, data: bytes) -> None:
            raise ValueError("a bug")

    async def scenario(network: SimNetwork) -> None:
        await network.port_of("b").listen(SERVER, Broken)
        transport, _ = await network.port_of("a").dial(SERVER, End)
        transport.write(b"x")
        await asyncio.sleep(1)

    with pytest.raises(ValueError, match="a bug"):
        simulate(scenario)


def test_close_during_a_cut_delivers_after_it() -> None:
    async def scenario(network: SimNetwork) -> None:
        near, far = await connected(network)
        network.cut("a", "b")
        near.transport.write(b"last words")
        near.transport.close()
        await asyncio.sleep(5)
        network.heal()
        await asyncio.sleep(1)
        assert bytes(far.received) == b"last words"
        assert far.eof

    simulate(scenario)
