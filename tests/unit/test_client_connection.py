"""The client against a scripted peer on the simulated network."""

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from ottla.client.connection import Connection, ConnectionLost, NotSent, Options
from ottla.observability.channel_traffic import ChannelTraffic
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.faults import RequestTimedOut, UnsupportedVersion
from ottla.protocol.frames import Request, UnsupportedRequest, parse_request_header, response_frame
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchableTopicResponse as FetchedTopic
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.runtime.ports import Address, Network
from simulation.loop import run_simulated
from simulation.network import SimNetwork

ADDRESS = Address("server", 9092)
SERVED = [
    ApiVersion(ApiKey.API_VERSIONS, 0, 4),
    ApiVersion(ApiKey.FIND_COORDINATOR, 0, 2),
    ApiVersion(ApiKey.FETCH, 4, 4),
    ApiVersion(ApiKey.METADATA, 90, 99),
]
find = FindCoordinatorRequest


class Peer(asyncio.Protocol):
    """Answers FindCoordinator with its key, in order, unless a test overrides it."""

    def __init__(self) -> None:
        self.requests: list[Request | UnsupportedRequest] = []
        self.received = bytearray()
        self.is_silent = False
        self.api_versions_max = 5
        self.on_request: Callable[[Request], bytes | None] | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.received += data
        while len(self.received) >= 4:
            size = 4 + int.from_bytes(self.received[:4], "big")
            if len(self.received) < size:
                return
            frame = bytes(self.received[4:size])
            del self.received[:size]
            self.serve(parse_request_header(frame))

    def serve(self, request: Request | UnsupportedRequest) -> None:
        self.requests.append(request)
        if request.key is ApiKey.API_VERSIONS:
            self.transport.write(self.versions(request))
        elif not self.is_silent:
            assert isinstance(request, Request)
            reply = (self.on_request or self.echo)(request)
            if reply is not None:
                self.transport.write(reply)

    def versions(self, request: Request | UnsupportedRequest) -> bytes:
        key, correlation_id = request.key, request.correlation_id
        if request.version > self.api_versions_max:
            own = ApiVersion(ApiKey.API_VERSIONS, 0, self.api_versions_max)
            refusal = ApiVersionsResponse(error_code=35, api_keys=[own])
            return bytes(response_frame(key, 0, correlation_id, refusal))
        answer = ApiVersionsResponse(api_keys=SERVED)
        return bytes(response_frame(key, request.version, correlation_id, answer))

    @staticmethod
    def echo(request: Request) -> bytes:
        answer = FindCoordinatorResponse(host=str(request.correlation_id))
        return bytes(response_frame(request.key, request.version, request.correlation_id, answer))


Scenario = Callable[[Network, Peer], Awaitable[None]]


def play(scenario: Scenario, peer: Callable[[], Peer] = Peer) -> None:
    async def main() -> None:
        network = SimNetwork(asyncio.get_running_loop(), seed=3)
        peers: list[Peer] = [peer()]
        await network.port_of("server").listen(ADDRESS, lambda: peers[0])
        await scenario(network.port_of("client"), peers[0])

    run_simulated(main())


def test_traffic_counts_requests_replies_and_their_bytes() -> None:
    class Counted(Peer):
        bytes_in = bytes_out = 0

        def data_received(self, data: bytes) -> None:
            self.bytes_in += len(data)
            super().data_received(data)

        def versions(self, request: Request | UnsupportedRequest) -> bytes:
            reply = super().versions(request)
            self.bytes_out += len(reply)
            return reply

    async def scenario(network: Network, peer: Peer) -> None:
        assert isinstance(peer, Counted)
        traffic = ChannelTraffic()
        connection = await Connection.open(network, ADDRESS, options=Options(traffic=traffic))
        opened = ChannelTraffic(1, 1, peer.bytes_in, 1, peer.bytes_out)
        assert traffic == opened and peer.bytes_in > 10 and peer.bytes_out > 10
        await connection.send(find("k"))
        assert (traffic.connections, traffic.requests, traffic.responses) == (1, 2, 2)
        assert traffic.bytes_out == peer.bytes_in
        assert traffic.bytes_in > opened.bytes_in
        await connection.close()

    play(scenario, Counted)


def test_requests_use_the_highest_common_version() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS, client_id="me")
        reply = await connection.send(find("k"))
        assert isinstance(reply, FindCoordinatorResponse)
        assert [(r.key, r.version) for r in peer.requests] == [
            (ApiKey.API_VERSIONS, 5),
            (ApiKey.FIND_COORDINATOR, 2),
        ]
        last = peer.requests[-1]
        assert isinstance(last, Request) and last.client_id == "me"
        await connection.send(find("k"), version=0)
        assert peer.requests[-1].version == 0
        await connection.close()

    play(scenario)


def test_request_that_the_peer_does_not_serve_is_not_sent() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        from ottla.protocol.messages.heartbeat import HeartbeatRequest
        from ottla.protocol.messages.metadata import MetadataRequest

        connection = await Connection.open(network, ADDRESS)
        for request, version in (
            (MetadataRequest(), None),
            (HeartbeatRequest(), None),
            (find("k"), 3),
        ):
            with pytest.raises(UnsupportedVersion):
                await connection.send(request, version=version)
        assert len(peer.requests) == 1 and connection.is_open
        await connection.close()

    play(scenario)


@pytest.mark.parametrize("newest", [1, 4])
def test_negotiation_falls_back_to_an_older_api_versions(newest: int) -> None:
    def old() -> Peer:
        peer = Peer()
        peer.api_versions_max = newest
        return peer

    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS)
        assert [r.version for r in peer.requests] == [5, newest]
        assert connection.version_for(ApiKey.FIND_COORDINATOR) == 2
        await connection.close()

    play(scenario, old)


def test_connection_uses_no_version_above_its_limit() -> None:
    limits = {ApiKey.FIND_COORDINATOR: 1}

    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(
            network, ADDRESS, options=Options(version_max=limits.get)
        )
        await connection.send(find("k"))
        limits[ApiKey.FIND_COORDINATOR] = 9  # a limit that rises while the connection is open
        await connection.send(find("k"))
        assert [r.version for r in peer.requests[1:]] == [1, 2]
        assert connection.version_for(ApiKey.FETCH) == 4
        await connection.close()

    play(scenario)


def test_concurrent_requests_get_their_own_replies() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS)
        replies = await asyncio.gather(*(connection.send(find("k")) for _ in range(50)))
        assert [r.host for r in replies] == [str(n) for n in range(1, 51)]  # type: ignore[attr-defined]
        await connection.close()

    play(scenario)


def test_requests_in_flight_are_limited() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS, options=Options(in_flight_max=3))
        peer.is_silent = True
        waiting = [asyncio.ensure_future(connection.send(find("k"))) for _ in range(5)]
        await asyncio.sleep(1)
        assert len(peer.requests) == 1 + 3
        await connection.close()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(r) for r in results] == [ConnectionLost] * 3 + [NotSent] * 2

    play(scenario)


def test_reply_timeout_closes_the_connection() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        loop = asyncio.get_running_loop()
        connection = await Connection.open(network, ADDRESS)
        peer.is_silent = True
        other = asyncio.ensure_future(connection.send(find("k"), timeout_ms=60_000))
        began = loop.time()
        with pytest.raises(RequestTimedOut):
            await connection.send(find("k"), timeout_ms=5000)
        assert loop.time() - began == pytest.approx(5)
        with pytest.raises(ConnectionLost, match="no reply to FindCoordinator in 5000 ms"):
            await other
        with pytest.raises(ConnectionLost):
            await connection.send(find("k"))
        assert not connection.is_open
        await connection.close()

    play(scenario)


def test_cancelled_caller_does_not_affect_others() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS, options=Options(in_flight_max=2))
        for _ in range(10):
            given_up = asyncio.ensure_future(connection.send(find("k")))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            given_up.cancel()
            reply = await connection.send(find("k"))
            assert reply.host == str(peer.requests[-1].correlation_id)  # type: ignore[attr-defined]
        await connection.close()

    play(scenario)


@pytest.mark.parametrize(
    "reply",
    [
        struct.pack(">ii", 4, 12345),  # to nothing we asked
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ii", 4, 1),  # too short for its body
        b"HTTP/1.1 400 Bad Request",
    ],
)
def test_invalid_reply_closes_the_connection(reply: bytes) -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS)
        peer.on_request = lambda request: reply
        with pytest.raises(ConnectionLost, match="bad bytes"):
            await connection.send(find("k"))
        assert not connection.is_open
        await connection.close()

    play(scenario)


def test_reply_with_another_correlation_id_closes_the_connection() -> None:
    def wrong(request: Request) -> bytes:
        return bytes(response_frame(request.key, request.version, 999, FindCoordinatorResponse()))

    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS)
        peer.on_request = wrong
        with pytest.raises(ConnectionLost, match="reply to 999, expected 1"):
            await connection.send(find("k"))

    play(scenario)


def test_reply_without_a_request_closes_the_connection() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS)
        peer.transport.write(struct.pack(">ii", 4, 1))
        await asyncio.sleep(1)
        assert not connection.is_open

    play(scenario)


def test_lost_connection_fails_all_requests_in_flight() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS)
        peer.is_silent = True
        waiting = [asyncio.ensure_future(connection.send(find("k"))) for _ in range(3)]
        await asyncio.sleep(1)
        peer.transport.abort()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(r) for r in results] == [ConnectionLost] * 3
        assert isinstance(results[0], OSError)

    play(scenario)


def test_records_outlive_the_receive_buffer() -> None:
    def fetched(request: Request) -> bytes:
        records = bytes([65 + request.correlation_id]) * 1000
        topic = FetchedTopic(topic="t", partitions=[PartitionData(records=records)])
        answer = FetchResponse(responses=[topic])
        return bytes(response_frame(request.key, 4, request.correlation_id, answer))

    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS)
        peer.on_request = fetched
        replies = [await connection.send(FetchRequest()) for _ in range(4)]
        kept = [bytes(r.responses[0].partitions[0].records) for r in replies]  # type: ignore[attr-defined]
        assert kept == [bytes([65 + n]) * 1000 for n in range(1, 5)]
        await connection.close()

    play(scenario)


class Looking:
    """A `Reader` that keeps copies of the bytes it reads."""

    def __init__(self, fails_at: str = "") -> None:
        self.shown: list[bytes] = []
        self.whole: list[bytes] = []
        self._fails_at = fails_at

    def arriving(self, version: int, body: memoryview) -> None:
        assert version == 4
        self.shown.append(bytes(body))
        if self._fails_at == "arriving":
            raise ZeroDivisionError

    def arrived(self, response: object) -> None:
        assert isinstance(response, FetchResponse)
        self.whole.append(bytes(response.responses[0].partitions[0].records or b""))
        if self._fails_at == "arrived":
            raise ZeroDivisionError

    def next_request(self) -> None:
        return None


RECORDS = bytes(range(256)) * 40


def slowly(peer: Peer, pieces: int = 5) -> Callable[[Request], None]:
    """Return a handler that answers a fetch piece by piece, one second apart."""
    loop = asyncio.get_running_loop()

    def answer(request: Request) -> None:
        topic = FetchedTopic(topic="t", partitions=[PartitionData(records=RECORDS)])
        reply = FetchResponse(responses=[topic])
        frame = bytes(response_frame(request.key, request.version, request.correlation_id, reply))
        size = len(frame) // pieces + 1
        for number in range(pieces):
            piece = frame[number * size : (number + 1) * size]
            loop.call_later(number, peer.transport.write, piece)

    return answer


def test_reader_sees_a_partial_reply() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS)
        peer.on_request = slowly(peer)
        for _ in range(2):
            reader = Looking()
            reply = await connection.send(FetchRequest(), reader=reader)
            assert isinstance(reply, FetchResponse)
            assert reader.whole == [RECORDS]
            assert len(reader.shown) == 4, "but for the last piece, with which it is whole"
            assert [len(each) for each in reader.shown] == sorted(map(len, reader.shown))
            assert all(reader.shown[-1].startswith(each) for each in reader.shown)
            assert RECORDS[:1000] in reader.shown[0]
        await connection.close()

    play(scenario)


def test_reply_of_a_cancelled_caller_is_not_shown_to_its_reader() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS)
        peer.on_request = slowly(peer)
        reader = Looking()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await connection.send(FetchRequest(), reader=reader)
        seen = len(reader.shown)
        assert 0 < seen < 4
        await asyncio.sleep(10)
        assert (len(reader.shown), reader.whole) == (seen, [])
        assert connection.is_open
        await connection.close()

    play(scenario)


@pytest.mark.parametrize("at", ["arriving", "arrived"])
def test_exception_of_a_reader_is_raised_to_the_caller(at: str) -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS)
        peer.on_request = slowly(peer)
        reader = Looking(at)
        with pytest.raises(ZeroDivisionError):
            await connection.send(FetchRequest(), reader=reader)
        assert len(reader.shown) == (1 if at == "arriving" else 4)
        assert connection.is_open
        await connection.close()

    play(scenario)


def test_partial_reply_to_another_request_is_not_shown_to_the_reader() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS)
        answer = slowly(peer)
        peer.on_request = lambda request: answer(request._replace(correlation_id=77))
        reader = Looking()
        with pytest.raises(ConnectionLost):
            await connection.send(FetchRequest(), reader=reader)
        assert (reader.shown, reader.whole) == ([], [])

    play(scenario)


class Asking:
    """A `Reader` that answers replies with ``count`` more requests."""

    def __init__(self, count: int, then: Callable[[], None] = lambda: None) -> None:
        self.count = count
        self.then = then
        self.read: list[object] = []
        self.asked = 0

    def arriving(self, version: int, body: memoryview) -> None:
        raise AssertionError("replies here are small")

    def arrived(self, response: object) -> None:
        assert isinstance(response, FindCoordinatorResponse)
        self.read.append(response.host)
        self.then()

    def next_request(self) -> FindCoordinatorRequest | None:
        self.asked += 1
        return find(f"next {self.asked}") if self.asked <= self.count else None


def keys_of(peer: Peer) -> list[str]:
    found = [r for r in peer.requests if r.key is ApiKey.FIND_COORDINATOR]
    return [decode(find, r.version, r.body).key for r in found if isinstance(r, Request)]


def test_readers_next_request_is_sent_before_its_caller_is_woken() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        traffic = ChannelTraffic()
        connection = await Connection.open(network, ADDRESS, options=Options(traffic=traffic))
        sent: list[int] = []
        reader = Asking(3, lambda: sent.append(traffic.requests))
        reply = await connection.send(find("first"), reader=reader)
        assert isinstance(reply, FindCoordinatorResponse)
        assert reader.read == ["1", "2", "3", "4"] and reply.host == "4"
        assert sent == [2, 3, 4, 5], "each in the call that received the reply before"
        assert keys_of(peer) == ["first", "next 1", "next 2", "next 3"]
        assert traffic.responses == 5
        await connection.send(find("k"))
        await connection.close()

    play(scenario)


def test_timeout_counts_from_each_request_of_a_reader() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        loop = asyncio.get_running_loop()
        connection = await Connection.open(network, ADDRESS)
        times: list[float] = []

        def slowly_echo(request: Request) -> None:
            times.append(loop.time())
            if len(times) < 4:
                loop.call_later(0.8, peer.transport.write, peer.echo(request))

        peer.on_request = slowly_echo
        with pytest.raises(RequestTimedOut):
            await connection.send(find("k"), timeout_ms=1000, reader=Asking(9))
        assert len(times) == 4, "together they take longer than one request may"
        assert 0.9 < loop.time() - times[-1] <= 1.1
        assert not connection.is_open

    play(scenario)


def test_reader_of_a_cancelled_caller_is_not_asked_for_a_request() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        loop = asyncio.get_running_loop()
        connection = await Connection.open(network, ADDRESS, options=Options(in_flight_max=1))
        peer.on_request = lambda request: (
            loop.call_later(  # type: ignore[assignment,return-value]
                1, peer.transport.write, peer.echo(request)
            )
            and None
        )
        reader = Asking(99)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3.5):
                await connection.send(find("k"), reader=reader)
        seen = reader.asked
        assert 0 < seen < 4
        peer.on_request = None
        await connection.send(find("last"))  # its place among the requests in flight is free
        assert reader.asked == seen
        assert keys_of(peer)[-1] == "last"
        await connection.close()

    play(scenario)


@pytest.mark.parametrize("reason", ["full", "login", "version"])
def test_caller_sends_the_next_request_itself(reason: str) -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        newest = [2]
        options = Options(version_max=lambda key: newest[0])
        connection = await Connection.open(network, ADDRESS, options=options)

        def change() -> None:
            if reason == "full":
                connection._stream.pause_writing()
            elif reason == "login":
                connection._login_ends = 0.0
            else:
                newest[0] = 1

        reader = Asking(9, change)
        await connection.send(find("k"), reader=reader)
        assert reader.asked == 0
        await connection.close()

    play(scenario)


def test_exception_of_a_readers_next_request_is_raised_to_the_caller() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS, options=Options(in_flight_max=1))
        reader = Asking(9)
        reader.next_request = lambda: 1 / 0  # type: ignore[assignment,method-assign]
        with pytest.raises(ZeroDivisionError):
            await connection.send(find("k"), reader=reader)
        await connection.send(find("k"))
        await connection.close()

    play(scenario)


def test_connection_closed_by_a_reader_sends_no_request() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS)
        reader = Asking(9, lambda: connection._lose("closed"))
        with pytest.raises(ConnectionLost):
            await connection.send(find("k"), reader=reader)
        assert keys_of(peer) == ["k"]

    play(scenario)


def test_connection_lost_during_the_requests_of_a_reader_is_raised() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS)
        reader = Asking(9, lambda: peer.transport.close() if reader.asked == 2 else None)
        with pytest.raises(ConnectionLost):
            await connection.send(find("k"), reader=reader)
        assert reader.asked == 3

    play(scenario)


def test_requests_of_a_reader_leave_room_for_others() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS, options=Options(in_flight_max=2))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(connection.send(find("k"), reader=Asking(20)))
            for _ in range(5):
                await connection.send(find("other"))
        assert keys_of(peer).count("other") == 5 and len(keys_of(peer)) == 26
        await connection.close()

    play(scenario)


def test_refused_connection_raises_os_error() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        with pytest.raises(ConnectionRefusedError):
            await Connection.open(network, Address("server", 1))

    play(scenario)


def test_silent_peer_raises_request_timed_out() -> None:
    class Mute(Peer):
        def versions(self, request: Request | UnsupportedRequest) -> bytes:
            return b""

    async def scenario(network: Network, peer: Peer) -> None:
        with pytest.raises(RequestTimedOut):
            await Connection.open(network, ADDRESS, options=Options(connect_timeout_ms=2000))
        assert asyncio.get_running_loop().time() < 2.1
        await asyncio.sleep(1)
        assert peer.transport.is_closing(), "nothing is left open"

    play(scenario, Mute)


def test_close_is_idempotent() -> None:
    async def scenario(network: Network, peer: Peer) -> None:
        connection = await Connection.open(network, ADDRESS)
        await connection.close()
        await connection.close()

    play(scenario)
