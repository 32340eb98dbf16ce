"""The HTTP pages, over a simulated network."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.observability.http import (
    HEAD_BYTES_MAX,
    BadRequest,
    Get,
    Page,
    SlicedPage,
    parse,
    plain,
)
from ottla.observability.http_service import CONNECTIONS_MAX, IDLE_S, HttpService
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from simulation.loop import run_simulated
from simulation.network import SimNetwork


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.ended = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


Dial = Callable[[], Awaitable[Client]]


def broken() -> Page:
    raise RuntimeError("secret")


PIECES = [bytes([number]) * 40_000 for number in range(100)]


def breaking() -> Iterator[bytes]:
    yield b"some"
    raise RuntimeError("secret")


PAGES: dict[str, Callable[[], Page | SlicedPage]] = {
    "/metrics": lambda: plain(200, "up 1"),
    "/broken": broken,
    "/large": lambda: SlicedPage("text/plain", iter(PIECES)),
    "/huge": lambda: SlicedPage("text/plain", iter(PIECES * 10)),
    "/breaking": lambda: SlicedPage("text/plain", breaking()),
}


def play(scenario: Callable[[Dial], Awaitable[None]]) -> float:
    async def main() -> None:
        network = SimNetwork(asyncio.get_running_loop(), seed=1)
        service = HttpService(network.port_of("server"), Address("server", 0), PAGES)
        ready = asyncio.Event()
        task = asyncio.get_running_loop().create_task(service.run(ready.set))
        await ready.wait()

        async def dial() -> Client:
            assert service.address is not None
            _, client = await network.port_of("client").dial(service.address, Client)
            assert isinstance(client, Client)
            return client

        try:
            await scenario(dial)
        finally:
            task.cancel()
            await asyncio.wait([task])

    return run_simulated(main())


def test_pages_are_served_on_one_connection_with_any_segmentation() -> None:
    async def scenario(dial: Dial) -> None:
        client = await dial()
        for byte in b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n":
            client.transport.write(bytes([byte]))
        client.transport.write(b"HEAD /metrics HTTP/1.1\r\n\r\nGET /no HTTP/1.1\r\n\r\n")
        client.transport.write(b"GET /broken HTTP/1.1\r\nConnection: close\r\n\r\n")
        await client.ended.wait()
        answers = client.received.split(b"HTTP/1.1 ")[1:]
        assert [answer[:3] for answer in answers] == [b"200", b"200", b"404", b"503"]
        assert answers[0].endswith(b"\r\n\r\nup 1\n") and answers[1].endswith(b"\r\n\r\n")
        assert b"Content-Length: 5\r\n" in answers[1]
        assert b"secret" not in client.received

    play(scenario)


def test_large_page_is_sent_in_pieces_and_later_requests_follow_it() -> None:
    async def scenario(dial: Dial) -> None:
        client = await dial()
        client.transport.write(b"GET /large HTTP/1.1\r\n\r\nHEAD /large HTTP/1.1\r\n\r\n")
        client.transport.write(b"GET /breaking HTTP/1.1\r\n\r\n")
        client.transport.write(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
        await client.ended.wait()
        whole = b"".join(PIECES)
        head, _, rest = client.received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200") and f"Length: {len(whole)}".encode() in head
        assert rest[: len(whole)] == whole
        answers = rest[len(whole) :].split(b"HTTP/1.1 ")[1:]
        assert [answer[:3] for answer in answers] == [b"200", b"503", b"200"]
        assert answers[0].endswith(b"\r\n\r\n") and answers[2].endswith(b"up 1\n")
        assert b"secret" not in client.received and b"some" not in client.received

    play(scenario)


def test_slow_client_gets_the_whole_page_and_another_is_served_meanwhile() -> None:
    async def main() -> None:
        service = HttpService(TcpNetwork(), Address("127.0.0.1", 0), PAGES)
        ready = asyncio.Event()
        task = asyncio.get_running_loop().create_task(service.run(ready.set))
        await ready.wait()
        assert service.address is not None
        at = (service.address.host, service.address.port)
        slow, writer = await asyncio.open_connection(*at, limit=1024)
        # More than the kernel's buffers hold.
        writer.write(b"GET /huge HTTP/1.1\r\nConnection: close\r\n\r\n")
        await slow.readexactly(100)
        quick, other = await asyncio.open_connection(*at)
        other.write(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert (await quick.read()).endswith(b"up 1\n")
        assert (await slow.read()).endswith(b"".join(PIECES * 10))
        writer.close()
        other.close()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(asyncio.wait_for(main(), 30))


def test_pipelined_requests_do_not_hold_the_event_loop() -> None:
    """Other work goes on between the requests of a client that sends many at once."""
    requests, answered, most = 300, 0, 0

    def page() -> Page:
        nonlocal answered
        answered += 1
        time.sleep(0.001)
        return plain(200, "x" * 1000)

    def count(before: int) -> None:
        nonlocal most
        most = max(most, answered - before)
        asyncio.get_running_loop().call_soon(count, answered)

    async def main() -> None:
        service = HttpService(TcpNetwork(), Address("127.0.0.1", 0), {"/page": page})
        ready = asyncio.Event()
        task = asyncio.get_running_loop().create_task(service.run(ready.set))
        await ready.wait()
        assert service.address is not None
        reader, writer = await asyncio.open_connection(service.address.host, service.address.port)
        count(0)
        # The client reads nothing at first, so that the service may not write for a while.
        writer.write(b"GET /page HTTP/1.1\r\n\r\n" * (requests - 1))
        writer.write(b"GET /page HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).count(b"HTTP/1.1 200") == requests
        writer.close()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(asyncio.wait_for(main(), 60))
    assert most < requests / 3


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nGET", b"405"),
        (b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n", b"400"),
        (b"GET http://a/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nbad header\r\n\r\n", b"400"),
        (b"\x00\x00\x00\x10\r\n\r\n", b"400"),
        (b"x" * (HEAD_BYTES_MAX + 1), b"431"),
        (b"GET /" + b"x" * HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n", b"431"),
    ],
)
def test_invalid_request_is_rejected_and_closed(sent: bytes, status: bytes) -> None:
    async def scenario(dial: Dial) -> None:
        client = await dial()
        client.transport.write(sent + b"GET /metrics HTTP/1.1\r\n\r\n")
        await client.ended.wait()
        assert client.received.count(b"HTTP/1.1 ") == 1
        assert client.received.startswith(b"HTTP/1.1 " + status)

    play(scenario)


def test_too_long_head_is_an_invalid_request_and_is_not_buffered() -> None:
    async def scenario(dial: Dial) -> None:
        client = await dial()
        client.transport.write(b"x" * (HEAD_BYTES_MAX + 1))
        async with asyncio.timeout(IDLE_S / 2):
            await client.ended.wait()
        assert client.received.startswith(b"HTTP/1.1 431")

    play(scenario)


def test_silent_connection_is_closed_and_connections_are_limited() -> None:
    async def scenario(dial: Dial) -> None:
        clients = [await dial() for _ in range(CONNECTIONS_MAX + 5)]
        await asyncio.sleep(1)
        assert [c.ended.is_set() for c in clients] == [True] * 5 + [False] * CONNECTIONS_MAX
        del clients[:5]
        clients[0].transport.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        clients[1].transport.write(b"GET /met")
        await asyncio.sleep(IDLE_S - 0.5)
        assert [c.ended.is_set() for c in clients[:3]] == [False, True, True]
        await asyncio.sleep(2)
        assert clients[0].ended.is_set()

    play(scenario)


def test_idle_connections_do_not_keep_a_probe_out() -> None:
    async def scenario(dial: Dial) -> None:
        scraper = await dial()
        idle = [await dial() for _ in range(CONNECTIONS_MAX - 1)]
        scraper.transport.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await asyncio.sleep(1)
        probe = await dial()
        probe.transport.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await asyncio.sleep(1)
        assert probe.received.startswith(b"HTTP/1.1 200")
        assert idle[0].ended.is_set(), "it has waited longest"
        assert not any(client.ended.is_set() for client in (scraper, *idle[1:]))

    play(scenario)


@given(st.binary(max_size=200))
def test_any_head_is_parsed_or_rejected(head: bytes) -> None:
    found = parse(head)
    assert isinstance(found, Get | BadRequest)


def test_http_1_0_closes_unless_keep_alive_is_requested() -> None:
    assert parse(b"GET / HTTP/1.0") == Get("/", False)
    assert parse(b"GET / HTTP/1.0\r\nConnection: keep-alive") == Get("/", True)
    assert parse(b"HEAD / HTTP/1.1\r\nConnection: close") == Get("/", False, True)
