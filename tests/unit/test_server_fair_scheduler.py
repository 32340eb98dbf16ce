"""Fair scheduling of the event loop: prompt connections, the backlog, and work in steps."""

import asyncio
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from tests.unit.produce_pair import Transport

from ottla.api.surface.replies import LARGE_BYTES, Steps
from ottla.api.surface.routes import Caller, Route, Routes
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.types import Millis
from ottla.runtime.ports import Address
from ottla.server.api_versions import ApiVersions
from ottla.server.connection import Connection
from ottla.server.dispatch import Dispatcher
from ottla.server.events import NoEvents
from ottla.server.fair_scheduler import (
    BACKLOG_MEMORY_S,
    FAST_REQUESTS_PER_CLOCK_READ,
    ROUND_S,
    SLICE_S,
    FairScheduler,
)
from ottla.server.listener_context import ConnectionLimits, ListenerContext
from ottla.server.request_memory import RequestMemory

COST_S = SLICE_S / 2
"""The time of one request."""


@dataclass
class Loop:
    """An event loop whose time is advanced by the test."""

    time: float = 100.0
    ready: list[Callable[[], None]] = field(default_factory=list)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.ready.append(callback)

    def iterate(self) -> None:
        """Run the callbacks that are ready now."""
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()

    def scheduler(self) -> FairScheduler:
        return FairScheduler(lambda: self.time, self.call_soon)


@dataclass(eq=False)
class Entry:
    """Takes one cost per slice; queues itself again ``again`` times."""

    loop: Loop
    scheduler: FairScheduler
    ran: list["Entry"]
    again: int = 0
    is_prompt: bool = False

    def run_slice(self) -> None:
        self.ran.append(self)
        self.loop.time += COST_S
        if self.again:
            self.again -= 1
            self.scheduler.enqueue(self, is_prompt=self.is_prompt)


def test_prompt_connections_run_before_the_backlog() -> None:
    loop, ran = Loop(), []
    scheduler = loop.scheduler()
    backlog = [Entry(loop, scheduler, ran, again=5) for _ in range(1000)]
    for entry in backlog:
        scheduler.enqueue(entry, is_prompt=False)
    prompt = Entry(loop, scheduler, ran, is_prompt=True)
    scheduler.enqueue(prompt, is_prompt=True)
    loop.iterate()
    assert ran[0] is prompt


def test_round_ends_when_its_time_is_spent_and_the_loop_polls() -> None:
    loop, ran = Loop(), []
    scheduler = loop.scheduler()
    for _ in range(1000):
        scheduler.enqueue(Entry(loop, scheduler, ran), is_prompt=False)
    began = loop.time
    loop.iterate()
    assert loop.time - began <= 2 * ROUND_S + COST_S
    assert scheduler.describe()["backlog"] == 1000 - len(ran)
    while loop.ready:
        loop.iterate()
    assert len(ran) == 1000


def test_backlog_is_served_while_prompt_connections_keep_arriving() -> None:
    loop, ran = Loop(), []
    scheduler = loop.scheduler()
    slow = Entry(loop, scheduler, ran)
    for _ in range(1000):
        scheduler.enqueue(Entry(loop, scheduler, ran, again=1000, is_prompt=True), is_prompt=True)
    scheduler.enqueue(slow, is_prompt=False)
    loop.iterate()
    assert slow in ran


def test_pause_between_requests_starts_a_round() -> None:
    loop = Loop()
    scheduler = loop.scheduler()
    assert not scheduler.is_round_spent()
    for _ in range(3):
        loop.time += ROUND_S * 1.5
        assert not scheduler.is_round_spent()
    loop.time += ROUND_S * 0.6
    assert not scheduler.is_round_spent()
    loop.time += ROUND_S * 0.6
    assert scheduler.is_round_spent(), "there was no pause, and the round has used its time"


def test_time_of_a_slow_request_is_not_a_pause() -> None:
    loop = Loop()
    scheduler = loop.scheduler()
    assert not scheduler.is_round_spent()
    loop.time += 10 * ROUND_S
    scheduler.served(loop.time)
    assert scheduler.is_round_spent()


def test_steps_are_closed_when_their_awaiter_is_cancelled() -> None:
    closed = []

    def steps() -> Iterator[None]:
        try:
            while True:
                yield
        finally:
            closed.append(True)

    async def story() -> None:
        task = asyncio.create_task(FairScheduler().complete(steps()))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(story())
    assert closed


def test_error_of_a_step_is_raised_to_the_awaiter() -> None:
    def steps() -> Iterator[None]:
        yield
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(FairScheduler().complete(steps()))


# -- connections --------------------------------------------------------------------


class Clock:
    def now(self) -> Millis:
        return Millis(0)

    def monotonic(self) -> Millis:
        return Millis(0)


class Server:
    """Connections to one listener, each request of which costs `COST_S`."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.served: list[str] = []
        routes = Routes(Listener.BROKER, (Route(ApiKey.FIND_COORDINATOR, self._find),))
        dispatcher = Dispatcher("CLIENT", routes, ApiVersions(routes), NoEvents())
        self.context = ListenerContext(
            dispatcher,
            RequestMemory(),
            ConnectionLimits(),
            Clock(),
            NoEvents(),
            asyncio.get_running_loop(),
            scheduler=self.loop.scheduler(),
        )

    def _find(
        self, caller: Caller, request: FindCoordinatorRequest, version: int
    ) -> FindCoordinatorResponse | Steps[FindCoordinatorResponse]:
        self.loop.time += COST_S
        self.served.append(request.key or "large")
        if version < 4:
            return FindCoordinatorResponse(host=request.key)
        return self._large(request)

    def _large(self, request: FindCoordinatorRequest) -> Steps[FindCoordinatorResponse]:
        found = []
        for key in request.coordinator_keys:
            found.append(Coordinator(key))
            self.loop.time += COST_S / 100
            yield
        return FindCoordinatorResponse(coordinators=found)

    def connect(self) -> "Client":
        return Client(self.context)


class Client:
    def __init__(self, context: ListenerContext) -> None:
        self.transport = Transport()
        self.connection = Connection(context, Address("127.0.0.1", 1), lambda *_: None)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def send(self, *keys: str) -> None:
        self.receive(b"".join(find(key) for key in keys))

    def receive(self, data: bytes) -> None:
        while data:
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]


def find(key: str) -> bytes:
    header = RequestHeader(int(ApiKey.FIND_COORDINATOR), 1, 1, None)
    return bytes(request_frame(header, FindCoordinatorRequest(key)))


def large(count: int) -> bytes:
    header = RequestHeader(int(ApiKey.FIND_COORDINATOR), 4, 2, None)
    keys = [f"key-{number:08}" for number in range(count)]
    frame = bytes(request_frame(header, FindCoordinatorRequest(coordinator_keys=keys)))
    assert len(frame) > LARGE_BYTES
    return frame


def test_one_request_is_not_delayed_by_connections_that_pipeline() -> None:
    async def story() -> None:
        server = Server()
        for number in range(20):
            server.connect().send(*(f"flood-{number}" for _ in range(60)))
        ping = server.connect()
        ping.send("ping")
        server.loop.iterate()
        assert server.served.index("ping") <= 2 * ROUND_S / COST_S + 2
        while server.loop.ready:
            server.loop.iterate()
        assert len(server.served) == 20 * 60 + 1

    asyncio.run(story())


def test_many_connections_are_all_served_once_before_one_is_served_again() -> None:
    async def story() -> None:
        server = Server()
        clients = {f"client-{number}": server.connect() for number in range(30)}
        for name, client in clients.items():
            client.send(name)
        answered = 0
        while len(server.served) < 90:
            for name in server.served[answered:]:
                clients[name].send(name)  # it has its reply and asks again
                answered += 1
            server.loop.iterate()
        for first in (0, 30, 60):
            assert len(set(server.served[first : first + 30])) == 30

    asyncio.run(story())


def test_fast_path_waits_for_prompt_connections_that_arrived_earlier() -> None:
    loop, ran = Loop(), []
    scheduler = loop.scheduler()
    assert scheduler.has_time_for_fast_path()
    assert scheduler.unseen == 0
    had_time = []

    class Waiting(Entry):
        def run_slice(self) -> None:
            had_time.append(scheduler.has_time_for_fast_path())
            super().run_slice()

    for _ in range(3):
        scheduler.enqueue(Waiting(loop, scheduler, ran), is_prompt=True)
    assert scheduler.unseen >= FAST_REQUESTS_PER_CLOCK_READ, "the next request asks"
    assert not scheduler.has_time_for_fast_path()
    assert scheduler.unseen >= FAST_REQUESTS_PER_CLOCK_READ, "and so does the one after it"
    loop.iterate()
    assert had_time == [True, True, True], "they have waited"
    assert scheduler.has_time_for_fast_path()


def test_fast_path_does_not_wait_for_connections_that_pipeline() -> None:
    loop, ran = Loop(), []
    scheduler = loop.scheduler()
    assert scheduler.has_time_for_fast_path()
    scheduler.enqueue(Entry(loop, scheduler, ran), is_prompt=False)
    assert scheduler.has_time_for_fast_path()


def test_connection_that_recently_used_up_its_slice_is_not_prompt() -> None:
    async def story() -> None:
        server = Server()
        flood = server.connect()
        flood.send(*("flood" for _ in range(60)))
        while server.loop.ready:
            server.loop.iterate()
        server.loop.time += BACKLOG_MEMORY_S / 2
        others = [server.connect() for _ in range(int(ROUND_S / COST_S) + 1)]
        for other in others:
            other.send("other")
        server.served.clear()
        flood.send("again")
        server.connect().send("ping")
        while server.loop.ready:
            server.loop.iterate()
        assert server.served.index("ping") < server.served.index("again")

    asyncio.run(story())


def test_bytes_received_while_a_connection_is_queued_are_served() -> None:
    async def story() -> None:
        server = Server()
        busy = server.connect()
        busy.send(*("busy" for _ in range(40)))
        late = server.connect()
        server.loop.time += ROUND_S
        late.send("one")
        assert late.transport.is_reading
        late.send("two")
        assert not late.transport.is_reading, "at most one read is buffered while it waits"
        while server.loop.ready:
            server.loop.iterate()
        assert [key for key in server.served if key != "busy"] == ["one", "two"]
        assert late.transport.is_reading

    asyncio.run(story())


def test_other_connections_are_served_while_a_large_request_is_decoded_and_answered() -> None:
    async def story() -> None:
        server = Server()
        client, other = server.connect(), server.connect()
        client.receive(large(20_000) + find("behind"))
        assert server.served == [], "a large request is decoded in later rounds"
        pings = 0
        while "behind" not in server.served or not client.transport.written:
            other.send("ping")
            pings += 1
            server.loop.iterate()
            await asyncio.sleep(0)
            server.loop.time += ROUND_S
            assert pings < 10_000
        assert server.served.index("large") < server.served.index("behind")
        assert server.served.count("ping") > 10
        (size,) = struct.unpack_from(">i", client.transport.written)
        assert size > 20_000 * len("key-00000000")

    asyncio.run(story())


def test_large_request_that_cannot_be_decoded_closes_its_connection() -> None:
    async def story() -> None:
        server = Server()
        client = server.connect()
        frame = bytearray(large(20_000))
        frame[-8] = 0xFF
        client.receive(bytes(frame))
        for _ in range(10_000):
            server.loop.iterate()
            await asyncio.sleep(0)
            if client.transport.is_closed:
                break
        assert client.transport.is_closed
        assert server.served == []

    asyncio.run(story())
