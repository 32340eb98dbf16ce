"""Reply order, deadlines and muting over a simulated network with virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from serving import Counting, Running, Scripted, Wire, ask, find, list_groups, produce, running

from ottla.api.surface.replies import Answer
from ottla.api.surface.routes import Route, Routes
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.list_groups import ListGroupsResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.types import ZERO_UUID
from ottla.runtime.ports import OpenMode
from ottla.server.admission import Admission, AdmissionLimits, ExceededLimit
from ottla.server.deadlines import Expiry
from ottla.server.held_replies import HeldReplies
from ottla.server.listener import ServerSettings, SharedResources
from ottla.server.listener_context import ConnectionLimits
from ottla.server.memory_release import (
    CONNECTIONS,
    LARGE_BYTES,
    PAUSE_MS,
    REQUEST_BYTES,
    MemoryRelease,
)
from ottla.server.request_memory import RequestMemory
from record_tools import FileRange
from simulation.clock import SimClock
from simulation.disk import SimDisk
from simulation.loop import run_simulated
from simulation.network import SimNetwork

Scenario = Callable[[Scripted, Running, Wire], Awaitable[None]]


def play(
    scenario: Scenario,
    *,
    shared: SharedResources | None = None,
    settings: ServerSettings | None = None,
    scripted: Scripted | None = None,
    split: float = 0.0,
) -> float:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = SimNetwork(loop, seed=1)
        network.link("client", "server").split_chance = split
        handlers = scripted or Scripted()
        async with running(
            network.port_of("server"), SimClock(loop), handlers, shared=shared, settings=settings
        ) as server:
            await scenario(
                handlers, server, await Wire.to(network.port_of("client"), server.address)
            )

    return run_simulated(main())


def test_replies_are_sent_in_request_order_while_the_first_is_pending() -> None:
    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.send(list_groups(1) + find(2, "a") + list_groups(3) + find(4, "b"))
        await asyncio.sleep(1)
        assert scripted.seen == ["a", "b"], "later requests proceed"
        scripted.release(1)
        await asyncio.sleep(1)
        scripted.release(0)
        assert await wire.correlation_ids(4) == [1, 2, 3, 4]

    play(scenario)


def test_replies_do_not_depend_on_segmentation() -> None:
    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.send(b"".join(find(n, "k" * n) for n in range(200)))
        assert await wire.correlation_ids(200) == list(range(200))
        assert scripted.seen == ["k" * n for n in range(200)]

    play(scenario, split=0.95)


def test_request_without_a_reply_does_not_block_later_replies() -> None:
    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        beat = ask(ApiKey.HEARTBEAT, 0, 2, HeartbeatRequest())
        wire.send(list_groups(1) + beat + find(3))
        await asyncio.sleep(1)
        scripted.release()
        assert await wire.correlation_ids(2) == [1, 3]

    play(scenario)


def test_close_in_place_of_a_reply_happens_after_earlier_replies() -> None:
    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        leave = ask(ApiKey.LEAVE_GROUP, 0, 2, LeaveGroupRequest())
        wire.send(list_groups(1) + leave + find(3))
        await asyncio.sleep(1)
        scripted.release()
        assert await wire.correlation_ids(1) == [1]
        assert await wire.is_closed()

    play(scenario)


def test_throttled_connection_is_muted_after_its_reply() -> None:
    now = asyncio.get_running_loop

    def throttle(request: FindCoordinatorRequest) -> object:
        return Answer(FindCoordinatorResponse(throttle_time_ms=5000), throttle_ms=5000)

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.send(find(1) + find(2))
        began = now().time()
        assert await wire.correlation_ids(1) == [1]
        assert now().time() - began < 0.1, "the reply is not held back"
        scripted.answer = None
        assert await wire.correlation_ids(1) == [2]
        assert 5 <= now().time() - began < 5.1

    play(scenario, scripted=Scripted(answer=throttle))


def test_idle_connection_is_closed_and_one_with_a_pending_request_is_not() -> None:
    events = Counting()

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.send(list_groups(1))
        await asyncio.sleep(3600)
        assert not wire.is_ended, "its request is still being worked on"
        scripted.release()
        assert await wire.correlation_ids(1) == [1]
        began = asyncio.get_running_loop().time()
        assert await wire.is_closed()
        assert 599.9 <= asyncio.get_running_loop().time() - began < 602
        assert events.closed == [Expiry.IDLE.value]

    play(scenario, shared=SharedResources(events=events))


def test_free_memory_is_released_after_closed_connections_and_large_requests() -> None:
    released: list[float] = []

    async def release_memory() -> None:
        released.append(asyncio.get_running_loop().time())

    release = MemoryRelease(connections=CONNECTIONS - 1)
    pause_s = PAUSE_MS / 1000

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.send(produce(1, bytes(LARGE_BYTES + 1)))
        assert await wire.correlation_ids(1) == [1]
        await asyncio.sleep(2 * pause_s)
        assert not released, "neither is enough yet"
        assert LARGE_BYTES < release.request_bytes < 2 * LARGE_BYTES
        release.request_bytes += REQUEST_BYTES - LARGE_BYTES
        await asyncio.sleep(2 * pause_s)
        assert len(released) == 1
        release.connections = CONNECTIONS - 1
        wire.transport.close()
        await asyncio.sleep(2 * pause_s)
        assert len(released) == 2

    play(scenario, shared=SharedResources(release=release, release_memory=release_memory))


def test_traffic_keeps_a_connection_from_being_idle() -> None:
    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        for n in range(10):
            await asyncio.sleep(500)
            wire.send(find(n))
            assert await wire.correlation_ids(1) == [n]

    play(scenario)


def test_incomplete_frame_closes_its_connection_after_the_deadline() -> None:
    events = Counting()

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.send(find(1) + b"\x00\x00\x00\x0a\x00\x01\x02\x03")
        assert await wire.correlation_ids(1) == [1]
        assert await wire.is_closed()
        assert 30 <= asyncio.get_running_loop().time() < 33
        assert events.closed == [Expiry.SLOW_FRAME.value]

    play(scenario, shared=SharedResources(events=events))


def test_single_bytes_do_not_extend_the_deadline_of_a_frame() -> None:
    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        for byte in find(1):
            wire.send(bytes([byte]))
            await asyncio.sleep(10)
        assert await wire.is_closed()
        assert asyncio.get_running_loop().time() < 300

    play(scenario)


def test_large_frame_on_a_slow_link_is_accepted() -> None:
    body = bytes(1_000_000)

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        frame = produce(1, body)
        for start in range(0, len(frame), 130_000):
            wire.send(frame[start : start + 130_000])
            await asyncio.sleep(4)
        assert await wire.correlation_ids(1) == [1]

    play(scenario)


def test_client_that_never_reads_is_not_read_from() -> None:
    """10,000 pipelined requests, 10 KB of reply each: the memory held stays within the limits."""

    def large(request: FindCoordinatorRequest) -> object:
        return FindCoordinatorResponse(host="x" * 10_000)

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.transport.pause_reading()
        wire.send(b"".join(find(n) for n in range(10_000)))
        await asyncio.sleep(60)
        served = len(scripted.seen)
        # 1 MiB unsent, what the simulated line takes, and the turn that crossed the bound.
        assert 100 <= served <= 400
        await asyncio.sleep(60)
        assert len(scripted.seen) == served, "nothing more is taken"
        wire.transport.resume_reading()
        assert await wire.correlation_ids(10_000) == list(range(10_000))

    play(scenario, scripted=Scripted(answer=large))


@pytest.mark.parametrize("is_first_pending", [False, True], ids=["unsent", "behind_another"])
def test_replies_that_many_clients_do_not_read_are_bounded_together(is_first_pending: bool) -> None:
    """40 clients send 500 requests each, with 10 KB of reply, and read nothing for a while."""
    clients, requests, reply_bytes = 40, 500, 10_000
    held = HeldReplies(bytes_max=4 << 20)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = SimNetwork(loop, seed=1)
        reply = FindCoordinatorResponse(host="x" * reply_bytes)
        handlers = Scripted(answer=lambda request: reply)
        shared = SharedResources(held=held)
        async with running(
            network.port_of("server"), SimClock(loop), handlers, shared=shared
        ) as server:
            port = network.port_of("client")
            wires = [await Wire.to(port, server.address) for _ in range(clients)]
            for wire in wires:
                wire.transport.pause_reading()
                wire.send(list_groups(0) if is_first_pending else find(0))
                wire.send(b"".join(find(number) for number in range(1, requests)))
            await asyncio.sleep(60)
            served = len(handlers.seen)
            # The limit, the turn that crossed it, one reply of each, and what the line takes.
            assert served * reply_bytes < 3 * held.bytes_max
            assert held.bytes_max <= held.bytes < 1.3 * held.bytes_max
            await asyncio.sleep(60)
            assert len(handlers.seen) == served, "nothing more is served"
            wires.pop().close()
            await asyncio.sleep(1)
            for future in handlers.pending:
                if not future.done():
                    future.set_result(ListGroupsResponse())
            for wire in wires:
                wire.transport.resume_reading()
                assert await wire.correlation_ids(requests) == list(range(requests))
            await asyncio.sleep(700)  # until the connection that was closed unread is given up
            assert held.bytes == 0

    run_simulated(main())


def test_client_that_reads_no_replies_is_disconnected() -> None:
    events = Counting()

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.transport.pause_reading()
        wire.send(b"".join(find(n, "x" * 10_000) for n in range(1000)))
        await asyncio.sleep(700)
        assert events.closed == [Expiry.STALLED.value]

    play(scenario, shared=SharedResources(events=events))


def test_requests_in_flight_are_limited() -> None:
    settings = ServerSettings(connection=ConnectionLimits(in_flight_max=5))

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.send(b"".join(list_groups(n) for n in range(8)) + find(8))
        await asyncio.sleep(1)
        assert len(scripted.pending) == 5
        scripted.release(1)
        await asyncio.sleep(1)
        assert len(scripted.pending) == 5, "its reply has not left: the first is in the way"
        scripted.release(0)
        await asyncio.sleep(1)
        assert len(scripted.pending) == 7
        for n in (2, 3, 4, 5, 6):
            scripted.release(n)
        await asyncio.sleep(1)
        scripted.release(7)
        assert await wire.correlation_ids(9) == list(range(9))

    play(scenario, settings=settings)


def test_bytes_in_flight_are_limited() -> None:
    settings = ServerSettings(connection=ConnectionLimits(in_flight_bytes_max=20_000))

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        scripted.keep_body = True
        wire.send(b"".join(produce(n, bytes([n]) * 9_000) for n in range(6)))
        await asyncio.sleep(1)
        assert len(scripted.pending) == 3, "the one that reaches the bound is the last"
        for n in range(6):
            scripted.pending[n].set_result(None)
            await asyncio.sleep(1)
        assert await wire.correlation_ids(6) == list(range(6))
        bodies = [seen for seen in scripted.seen if len(seen) > 16]
        assert bodies == [bytes([n]) * 9_000 for n in range(6)], "each kept its own bytes"

    play(scenario, settings=settings)


def test_pending_request_keeps_its_body_while_later_frames_are_received() -> None:
    """Small bodies are copied, large ones keep their buffer; neither is overwritten."""
    sizes = [10, 4000, 5000, 70_000, 300, 2_000_000, 60_000]

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        scripted.keep_body = True
        bodies = [bytes([65 + n]) * size for n, size in enumerate(sizes)]
        wire.send(b"".join(produce(n, body) for n, body in enumerate(bodies)))
        await asyncio.sleep(5)
        for future in scripted.pending:
            future.set_result(None)
        assert await wire.correlation_ids(len(sizes)) == list(range(len(sizes)))
        assert scripted.seen[len(sizes) :] == bodies

    play(scenario, split=0.3)


def test_large_requests_wait_for_memory_in_arrival_order() -> None:
    memory = RequestMemory(bytes_max=100_000)

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        scripted.keep_body = True
        network = wire.transport._wire.port_of("other")  # type: ignore[attr-defined]
        second = await Wire.to(network, server.address)
        wire.send(produce(1, bytes(150_000)))
        await asyncio.sleep(1)
        assert memory.used == 150_014, "one may cross the bound"
        second.send(produce(2, bytes(80_000)))
        await asyncio.sleep(100)
        assert len(scripted.pending) == 1 and not second.is_ended, "waits, and is not blamed for it"
        scripted.pending[0].set_result(None)
        assert await wire.correlation_ids(1) == [1]
        await asyncio.sleep(1)
        assert len(scripted.pending) == 2
        scripted.pending[1].set_result(None)
        assert await second.correlation_ids(1) == [2]
        assert memory.used == 0

    play(scenario, shared=SharedResources(memory=memory))


def test_memory_is_freed_however_a_connection_closes() -> None:
    memory = RequestMemory(bytes_max=100_000)

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.send(produce(1, bytes(150_000))[:-1])
        await asyncio.sleep(1)
        assert memory.used > 0
        wire.close()
        await asyncio.sleep(1)
        assert memory.used == 0

    play(scenario, shared=SharedResources(memory=memory))


def test_connection_above_the_rate_is_delayed_and_delays_no_other() -> None:
    admission = Admission(AdmissionLimits(rate_of_ip=lambda ip: 2 if ip == "client" else None))

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        network = wire.transport._wire  # type: ignore[attr-defined]
        mine = [await Wire.to(network.port_of("client"), server.address) for _ in range(3)]
        other = await Wire.to(network.port_of("other"), server.address)
        began = loop.time()
        for each in (*mine, other):
            each.send(find(1))
        assert await other.correlation_ids(1) == [1]
        assert await mine[0].correlation_ids(1) == [1]
        assert loop.time() - began < 0.1
        for expected_s, each in ((0.5, mine[1]), (1.0, mine[2])):
            assert await each.correlation_ids(1) == [1]
            assert expected_s - 0.1 < loop.time() - began < expected_s + 0.1

    play(scenario, shared=SharedResources(admission=admission))


def test_connections_are_uncounted_from_every_state() -> None:
    admission = Admission(AdmissionLimits(rate_of_ip=lambda ip: 1 if ip == "slow" else None))

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        network = wire.transport._wire  # type: ignore[attr-defined]

        async def others(host: str = "other", count: int = 1) -> list[Wire]:
            return [await Wire.to(network.port_of(host), server.address) for _ in range(count)]

        [idle, partial, pending, unread, bad, reset] = await others(count=6)
        partial.send(find(1)[:-1])
        pending.send(list_groups(1))
        unread.transport.pause_reading()
        unread.send(b"".join(find(n, "x" * 9000) for n in range(1000)))
        bad.send(bytes(8))
        delayed = await others("slow", 3)
        await asyncio.sleep(0.1)
        assert admission.describe() == {"total": 9, "client": 1, "other": 5, "slow": 3}
        for each in (idle, partial, pending, unread, *delayed):
            each.close()
        network.reset("other", "server")
        await asyncio.sleep(5)
        assert admission.describe() == {"total": 1, "client": 1}
        assert reset.is_ended and scripted.pending[0].cancelled(), "nobody waits for it any more"
        wire.send(find(1))
        assert await wire.correlation_ids(1) == [1]

    play(scenario, shared=SharedResources(admission=admission))


def test_connection_over_a_limit_is_closed_and_others_are_served() -> None:
    admission = Admission(AdmissionLimits(connections_max=3, per_ip_max=2))
    events = Counting()

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        network = wire.transport._wire  # type: ignore[attr-defined]
        await Wire.to(network.port_of("client"), server.address)
        third = await Wire.to(network.port_of("client"), server.address)
        assert await third.is_closed()
        await Wire.to(network.port_of("other"), server.address)
        fourth = await Wire.to(network.port_of("another"), server.address)
        assert await fourth.is_closed()
        assert events.refused == [ExceededLimit.ADDRESS.value, ExceededLimit.CONNECTIONS.value]
        wire.send(find(1))
        assert await wire.correlation_ids(1) == [1]

    play(scenario, shared=SharedResources(admission=admission, events=events))


def test_drain_answers_requests_in_flight_and_then_closes() -> None:
    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        wire.send(list_groups(1) + find(2))
        idle = await Wire.to(wire.transport._wire.port_of("x"), server.address)  # type: ignore[attr-defined]
        await asyncio.sleep(1)
        address = server.address
        server.task.cancel()
        await asyncio.sleep(1)
        assert idle.is_ended and not wire.is_ended
        try:
            await Wire.to(wire.transport._wire.port_of("x"), address)  # type: ignore[attr-defined]
            raise AssertionError("nobody may come in any more")
        except ConnectionRefusedError:
            pass
        wire.send(find(3))
        scripted.release()
        began = loop.time()
        assert await wire.correlation_ids(2) == [1, 2]
        assert await wire.is_closed()
        assert loop.time() - began < 1

    play(scenario)


def test_drain_that_times_out_fails_the_remaining_requests() -> None:
    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.send(list_groups(1) + find(2))
        await asyncio.sleep(1)
        server.task.cancel()
        frame = await wire.frame()
        assert frame == b"\x00\x00\x00\x01" + b"\x00\x0d" + b"\x00\x00\x00\x00"
        assert await wire.correlation_ids(1) == [2]
        assert await wire.is_closed()
        assert 11 <= asyncio.get_running_loop().time() < 12

    play(scenario)


class PendingProduce(Scripted):
    """Produce stays pending and does not use its body any more."""

    def routes(self, kind: Listener = Listener.BROKER) -> Routes:
        pending_route = Route(ApiKey.PRODUCE, self.stay_pending, raw=True, keeps_body=False)
        return Routes(kind, (pending_route, Route(ApiKey.FIND_COORDINATOR, self.find)))


def test_body_that_is_not_kept_is_freed_and_missing_in_an_error_reply() -> None:
    def asking(name: str) -> ProduceRequest:
        data = [PartitionProduceData(0, bytes(1_000_000))]
        return ProduceRequest(None, -1, 1, [TopicProduceData(name, ZERO_UUID, data)])

    memory = RequestMemory(2_500_000)

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        for number, name in enumerate("abcd"):  # all lie in one buffer, one after the other
            frame = ask(ApiKey.PRODUCE, 3, number, asking(name))
            wire.send(frame[:1000])
            await asyncio.sleep(1)
            wire.send(frame[1000:])
            await asyncio.sleep(1)
        assert len(scripted.pending) == 4, "4 MB are pending where 2.5 may be in use"
        for future in scripted.pending[1:]:
            future.set_result([b""])
        server.task.cancel()
        assert await wire.is_closed()
        assert not wire.received, "a first reply that names topics would name the last request's"

    play(scenario, scripted=PendingProduce(), shared=SharedResources(memory=memory))


def test_drain_ends_although_a_client_reads_nothing() -> None:
    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.transport.pause_reading()
        wire.send(b"".join(find(n, "x" * 10_000) for n in range(1000)))
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        server.task.cancel()
        await asyncio.wait([server.task])
        assert asyncio.get_running_loop().time() - began < 12

    play(scenario)


def test_files_over_a_transport_are_read_in_pieces_as_the_client_reads() -> None:
    content = bytes(range(256)) * 20_000
    file = SimDisk().open("/log", OpenMode.CREATE_NEW)
    file.pwrite(content, 0)

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        scripted.chunks = [b"head", FileRange(file, 256, 5_000_000), b"tail"]
        wire.transport.pause_reading()
        wire.send(produce(1, b"") + find(2))
        await asyncio.sleep(1)
        wire.transport.resume_reading()
        frame = await wire.frame()
        assert frame[4:] == b"head" + content[256:5_000_256] + b"tail"
        assert await wire.correlation_ids(1) == [2]

    play(scenario)
