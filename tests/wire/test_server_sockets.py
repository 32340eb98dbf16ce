"""The server on real sockets, on both event loops: hostile bytes, sendfile, TLS, floods."""

import asyncio
import errno
import logging
import os
import resource
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from loopback import PlainClient, bound, run, wait_until
from serving import Counting, Running, Scripted, ask, find, framed, list_groups, produce, running

from ottla.api.surface.routes import Caller
from ottla.client.connection import Connection
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotController
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import OpenMode
from ottla.server.admission import Admission, AdmissionLimits
from ottla.server.listener import ServerSettings, SharedResources
from record_tools import FileRange
from simulation.disk import SimDisk

Scenario = Callable[[Scripted, Running], Awaitable[None]]


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def play(
    loop: str,
    scenario: Scenario,
    *,
    scripted: Scripted | None = None,
    shared: SharedResources | None = None,
    settings: ServerSettings | None = None,
    handed_over: socket.socket | None = None,
    network: TcpNetwork | None = None,
) -> None:
    async def main() -> None:
        reply = scripted or Scripted()
        async with running(
            network or TcpNetwork(),
            SystemClock(),
            reply,
            shared=shared,
            settings=settings,
            handed_over=handed_over,
        ) as server:
            await scenario(reply, server)

    run(loop, main())


# -- bytes that are no request (faults A 1-12, 22, 24) ---------------------------------


def header(key: int, version: int, rest: bytes = b"") -> bytes:
    return struct.pack(">hhih", key, version, 1, -1) + rest


BAD = {
    "length 0": struct.pack(">i", 0),
    "length -1": struct.pack(">i", -1),
    "length -2^31": struct.pack(">i", -(2**31)),
    "length 2^31-1": struct.pack(">i", 2**31 - 1),
    "length 100 MiB + 1": struct.pack(">i", 100 * 1024 * 1024 + 1),
    "shorter than a header": framed(b"abc"),
    "unknown api key": framed(header(999, 0)),
    "negative api key": framed(header(-1, 0)),
    "removed api key": framed(header(4, 0)),
    "unsupported version": framed(header(ApiKey.METADATA, 99)),
    "produce v2": framed(header(ApiKey.PRODUCE, 2)),
    "key of the controller listener": framed(header(ApiKey.VOTE, 0, b"\0")),
    "key that is not routed": framed(header(ApiKey.OFFSET_FETCH, 1)),
    "one byte too few": framed(find(1)[4:-1]),
    "old header in a flexible version": framed(header(ApiKey.METADATA, 9, b"\xff\xff\xff\xff")),
    "client id is not UTF-8": framed(struct.pack(">hhih", 10, 0, 1, 2) + b"\xff\xfe\0\1k"),
    "client id longer than the frame": framed(struct.pack(">hhih", 10, 0, 1, 32767)),
    "array longer than the frame": framed(header(ApiKey.METADATA, 0, b"\x7f\xff\xff\xff")),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": bytes.fromhex("16030100a5010000a1030354"),
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_request_closes_only_its_connection(
    loop: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    events = Counting()

    async def scenario(scripted: Scripted, server: Running) -> None:
        good = await PlainClient.to(server.address)
        bad = await PlainClient.to(server.address)
        await bad.send(BAD[name])
        assert await bad.is_closed()
        await good.send(find(7))
        assert (await good.frame())[:4] == b"\0\0\0\7"
        assert events.bad == 1
        assert scripted.seen == ["k"]
        good.close()
        bad.close()

    with caplog.at_level(logging.INFO):
        play(loop, scenario, shared=SharedResources(events=events))
    [line] = [r.message for r in caplog.records if r.message.startswith("connection closed")]
    assert "peer=127.0.0.1:" in line and "reason=" in line and "version=" in line
    if name in ("HTTP", "TLS", "SSH"):
        assert f"looks like {name}" in line


def test_rejected_length_allocates_nothing(loop: str) -> None:
    async def scenario(scripted: Scripted, server: Running) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(50):
            bad = await PlainClient.to(server.address)
            await bad.send(struct.pack(">i", 2**31 - 1) + bytes(1000))
            assert await bad.is_closed()
            bad.close()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000

    play(loop, scenario)


def test_replies_before_an_invalid_request_are_sent(loop: str) -> None:
    async def scenario(scripted: Scripted, server: Running) -> None:
        client = await PlainClient.to(server.address)
        await client.send(find(1) + find(2) + bytes(4))
        assert [(await client.frame())[:4] for _ in range(2)] == [b"\0\0\0\1", b"\0\0\0\2"]
        assert await client.is_closed()
        client.close()

    play(loop, scenario)


@pytest.mark.parametrize("client_id", [None, "", "x" * 32767, "a\r\n\x1b[31mb"])
def test_odd_client_ids_are_served_and_logged_on_one_line(
    loop: str, client_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(scripted: Scripted, server: Running) -> None:
        client = await PlainClient.to(server.address)
        name = None if client_id is None else client_id.encode()
        text = struct.pack(">h", -1) if name is None else struct.pack(">h", len(name)) + name
        body = struct.pack(">hhi", ApiKey.FIND_COORDINATOR, 0, 5) + text
        await client.send(framed(body + b"\0\1k"))
        assert (await client.frame())[:4] == b"\0\0\0\5"
        assert scripted.callers[0].client_id == client_id
        await client.send(bytes(4))
        assert await client.is_closed()
        client.close()

    with caplog.at_level(logging.INFO):
        play(loop, scenario)
    [line] = [r.message for r in caplog.records if r.message.startswith("connection closed")]
    assert line.isprintable() and len(line) < 600


@pytest.mark.parametrize("correlation_id", [-1, 0, 2**31 - 1])
def test_correlation_id_is_echoed(loop: str, correlation_id: int) -> None:
    async def scenario(scripted: Scripted, server: Running) -> None:
        client = await PlainClient.to(server.address)
        await client.send(find(correlation_id, "a") + find(correlation_id, "b"))
        for _ in range(2):
            (echoed,) = struct.unpack_from(">i", await client.frame())
            assert echoed == correlation_id
        assert scripted.seen == ["a", "b"]
        client.close()

    play(loop, scenario)


def test_unknown_api_versions_version_is_answered_and_the_connection_kept(loop: str) -> None:
    async def scenario(scripted: Scripted, server: Running) -> None:
        client = await PlainClient.to(server.address)
        await client.send(framed(struct.pack(">hhih", 18, 99, 7, -1) + b"whatever"))
        assert await client.frame() == struct.pack(">ihihhh", 7, 35, 1, 18, 0, 5)
        await client.send(ask(ApiKey.API_VERSIONS, 3, 8, ApiVersionsRequest("a", "1")))
        assert (await client.frame())[:6] == struct.pack(">ih", 8, 0)
        client.close()

    play(loop, scenario)


def test_handler_error_is_replied_and_closes_if_it_cannot_be_encoded(loop: str) -> None:
    async def scenario(scripted: Scripted, server: Running) -> None:
        scripted.error = NotController("not me")
        client = await PlainClient.to(server.address)
        topics = [MetadataRequestTopic(name="t")]
        await client.send(ask(ApiKey.METADATA, 0, 1, MetadataRequest(topics)))
        frame = await client.frame()
        reply = struct.pack(">ih", 1, ErrorCode.NOT_CONTROLLER) + b"\0\1t"
        assert frame == struct.pack(">ii", 1, 0) + reply + struct.pack(">i", 0)
        await client.send(ask(ApiKey.METADATA, 0, 2, MetadataRequest([])))
        assert await client.is_closed()
        client.close()

    play(loop, scenario)


# -- files ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 70_000, 5_000_000])
def test_sendfile_sends_the_bytes_of_the_file_between_the_chunks(
    loop: str, size: int, tmp_path: Path
) -> None:
    content = os.urandom(size + 100)
    (tmp_path / "log").write_bytes(content)

    async def scenario(scripted: Scripted, server: Running) -> None:
        file = RealDisk().open(str(tmp_path / "log"), OpenMode.READ)
        scripted.chunks = [b"head", FileRange(file, 50, size), b"tail", FileRange(file, 0, 3)]
        client = await PlainClient.to(server.address)
        await client.send(b"".join(produce(n, b"") for n in range(3)) + find(3, "end"))
        for n in range(3):
            frame = await client.frame()
            assert frame[:4] == struct.pack(">i", n)
            assert frame[4:] == b"head" + content[50 : 50 + size] + b"tail" + content[:3]
        assert b"end" in await client.frame()
        client.close()
        file.close()

    play(loop, scenario)


def test_file_that_became_shorter_closes_only_its_connection(
    loop: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "log").write_bytes(bytes(100))
    events = Counting()

    async def scenario(scripted: Scripted, server: Running) -> None:
        file = RealDisk().open(str(tmp_path / "log"), OpenMode.READ)
        for slice_ in (FileRange(file, 50, 100), FileRange(file, 200, 1)):
            scripted.chunks = [slice_]
            client = await PlainClient.to(server.address)
            await client.send(produce(1, b""))
            with pytest.raises(ConnectionError):
                await client.frame()
            client.close()
        file.close()
        scripted.chunks = [FileRange(file, 0, 10)]
        client = await PlainClient.to(server.address)
        await client.send(produce(1, b""))
        with pytest.raises(ConnectionError):
            await client.frame()
        client.close()
        assert len(events.closed) == 3

    play(loop, scenario, shared=SharedResources(events=events))


def test_large_file_to_a_slow_client_continues_when_it_reads(loop: str, tmp_path: Path) -> None:
    content = os.urandom(20_000_000)
    (tmp_path / "log").write_bytes(content)

    async def scenario(scripted: Scripted, server: Running) -> None:
        file = RealDisk().open(str(tmp_path / "log"), OpenMode.READ)
        scripted.chunks = [FileRange(file, 0, len(content))]
        slow = await PlainClient.to(server.address, receive_buffer=4096)
        quick = await PlainClient.to(server.address)
        await slow.send(produce(1, b"") + find(2))
        await quick.send(find(3))
        assert (await quick.frame())[:4] == b"\0\0\0\3"
        frame = await slow.frame()
        assert frame[4:] == content
        assert (await slow.frame())[:4] == b"\0\0\0\2"
        slow.close()
        quick.close()
        file.close()

    play(loop, scenario)


def test_descriptors_are_closed_with_their_connections(loop: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(bytes(1000))

    async def scenario(scripted: Scripted, server: Running) -> None:
        file = RealDisk().open(str(tmp_path / "log"), OpenMode.READ)
        scripted.chunks = [FileRange(file, 0, 1000)]
        before = len(os.listdir("/proc/self/fd"))
        for n in range(30):
            client = await PlainClient.to(server.address)
            await client.send(produce(n, b""))
            await client.frame()
            client.close()
        other = await PlainClient.to(server.address)
        await other.send(find(1))
        await other.frame()
        other.close()
        await wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before + 1)
        file.close()

    play(loop, scenario)


# -- clients that take, or send, more than their share ----------------------------------


def test_ten_thousand_pipelined_requests_of_a_client_that_never_reads(loop: str) -> None:
    """The memory of the server is bounded; another client is served in the meantime."""

    def large(request: FindCoordinatorRequest) -> object:
        return FindCoordinatorResponse(host="x" * (10 if request.key == "other" else 10_000))

    async def scenario(scripted: Scripted, server: Running) -> None:
        greedy = await PlainClient.to(server.address, receive_buffer=65_536)
        other = await PlainClient.to(server.address)
        sending = asyncio.ensure_future(greedy.send(b"".join(find(n) for n in range(10_000))))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        served = -1
        while served != len(scripted.seen):
            served = len(scripted.seen)
            for n in range(20):
                await other.send(find(n, "other"))
                assert (await other.frame())[:4] == struct.pack(">i", n)
            scripted.seen = [key for key in scripted.seen if key != "other"]
        # 100 MB were asked for. Sockets of the kernel take some, the server 1 MiB and a reply.
        assert 10 < served < 1000
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
        for n in range(10_000):
            assert (await greedy.frame())[:4] == struct.pack(">i", n)
        await sending
        greedy.close()
        other.close()

    play(loop, scenario, scripted=Scripted(answer=large))


def test_connections_above_the_limit_are_rejected(loop: str) -> None:
    admission = Admission(AdmissionLimits(per_ip_max=20))
    events = Counting()

    async def scenario(scripted: Scripted, server: Running) -> None:
        first = await PlainClient.to(server.address)
        await first.send(find(1))
        await first.frame()
        flood = [await PlainClient.to(server.address) for _ in range(300)]
        await wait_until(lambda: len(events.refused) == 281)
        assert admission.describe() == {"total": 20, "127.0.0.1": 20}
        await first.send(find(2))
        assert (await first.frame())[:4] == b"\0\0\0\2"
        for each in (first, *flood):
            each.close()
        await wait_until(lambda: admission.describe() == {"total": 0})

    play(loop, scenario, shared=SharedResources(admission=admission, events=events))


def test_connections_are_rejected_without_spinning_when_out_of_descriptors(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(scripted: Scripted, server: Running) -> None:
        client = await PlainClient.to(server.address)
        await client.send(find(1))
        await client.frame()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
        used = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, limits[1]))
        taken = _take_all_descriptors()
        accepts = CountedAccepts(monkeypatched)
        try:
            for each in waiting:
                each.connect_ex((server.address.host, server.address.port))
            turned_away = [await PlainClient(each).is_closed() for each in waiting[:2]]
            assert turned_away == [True, True], "closed at once, not left in the queue"
            for n in range(50):
                await client.send(find(n))
                assert (await client.frame())[:4] == struct.pack(">i", n)
            assert accepts.failed < 20, "tried now and then, not all the time"
        finally:
            for each in taken:
                os.close(each)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        later = await PlainClient.to(server.address)
        await later.send(find(9))
        assert (await later.frame())[:4] == b"\0\0\0\x09"
        for each in (later, client, *waiting):
            each.close()

    monkeypatched = pytest.MonkeyPatch()
    try:
        play(loop, scenario)
    finally:
        monkeypatched.undo()
    replies = [each for each in caplog.messages if "rejecting connections" in each]
    assert len(replies) == 1, "logged once, however often it fails"


class CountedAccepts:
    """Counts accepts that failed for lack of a descriptor."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.failed = 0
        plain = socket.socket.accept

        def accept(listening: socket.socket) -> tuple[socket.socket, object]:
            try:
                return plain(listening)
            except OSError as error:
                self.failed += error.errno == errno.EMFILE
                raise

        patch.setattr(socket.socket, "accept", accept)


def _take_all_descriptors() -> list[int]:
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return taken


# -- binding -----------------------------------------------------------------------------


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_handed_over_socket_is_served(loop: str, family: socket.AddressFamily) -> None:
    async def scenario(scripted: Scripted, server: Running) -> None:
        client = await PlainClient.to(server.address)
        await client.send(find(1))
        assert (await client.frame())[:4] == b"\0\0\0\1"
        client.close()

    play(loop, scenario, handed_over=bound(family))


def test_port_in_use_fails_the_start(loop: str) -> None:
    async def scenario(scripted: Scripted, server: Running) -> None:
        from ottla.server.listener import ListenerSpec, Server

        taken = ListenerSpec("B", server.address, scripted.routes())
        free = ListenerSpec("A", server.address.__class__("127.0.0.1", 0), scripted.routes())
        second = Server(TcpNetwork(), SystemClock(), [free, taken])
        with pytest.raises(OSError, match="in use"):
            await second.run(lambda: None)
        assert second.addresses == {}

    play(loop, scenario)


def test_client_connects_to_the_server(loop: str) -> None:
    async def scenario(scripted: Scripted, server: Running) -> None:
        connection = await Connection.open(TcpNetwork(), server.address, client_id="me")
        assert connection.versions[ApiKey.PRODUCE] == (0, 13)
        replies = await asyncio.gather(
            *(connection.send(FindCoordinatorRequest(key=str(n)), version=0) for n in range(300))
        )
        assert [r.host for r in replies] == [str(n) for n in range(300)]  # type: ignore[attr-defined]
        assert scripted.callers[0].software_name == "ottla"
        await connection.close()

    play(loop, scenario)


def test_pending_replies_are_sent_in_order_over_a_real_socket(loop: str) -> None:
    async def scenario(scripted: Scripted, server: Running) -> None:
        client = await PlainClient.to(server.address)
        await client.send(list_groups(1) + find(2) + list_groups(3) + find(4))
        await wait_until(lambda: len(scripted.pending) == 2 and len(scripted.seen) == 2)
        scripted.release(1)
        scripted.release(0)
        assert [(await client.frame())[3] for _ in range(4)] == [1, 2, 3, 4]
        client.close()

    play(loop, scenario)


def test_file_without_a_descriptor_is_read(loop: str) -> None:
    """Files of the simulated disk have no descriptor; the bytes are the same."""
    content = os.urandom(1_000_000)
    file = SimDisk().open("/log", OpenMode.CREATE_NEW)
    file.pwrite(content, 0)

    async def scenario(scripted: Scripted, server: Running) -> None:
        scripted.chunks = [b"head", FileRange(file, 7, 900_000), b"tail"]
        client = await PlainClient.to(server.address)
        await client.send(produce(1, b"") + produce(2, b""))
        for n in (1, 2):
            frame = await client.frame()
            assert frame[3] == n and frame[4:] == b"head" + content[7:900_007] + b"tail"
        client.close()

    play(loop, scenario)


# -- the fast path ---------------------------------------------------------------------


def test_unread_fast_path_replies_are_sent_whole_and_in_order(loop: str) -> None:
    length = 6 << 20

    def fast_path(
        caller: Caller, client: bytes, data: bytearray, start: int, end: int
    ) -> bytearray | None:
        return bytearray(struct.pack(">i", length)) + data[start + 7 : start + 8] * length

    async def scenario(scripted: Scripted, server: Running) -> None:
        slow = await PlainClient.to(server.address, receive_buffer=4096)
        await slow.send(produce(1, b"body"))
        head = await slow.exactly(4)
        for number in (2, 3):
            await slow.send(produce(number, b"body"))
        assert head + await slow.exactly(length) == struct.pack(">i", length) + b"\1" * length
        for number in (2, 3):
            # The fast path where no reply waits to be sent, else the general path.
            found = await slow.frame()
            ways = (bytes([number]) * length, struct.pack(">i", number) + b"raw")
            assert found in ways, number
        slow.close()

    play(loop, scenario, scripted=Scripted(chunks=[b"raw"], fast_path=fast_path))


def test_fast_path_that_declines_or_returns_no_reply(loop: str) -> None:
    def fast_path(
        caller: Caller, client: bytes, data: bytearray, start: int, end: int
    ) -> bytearray | None:
        return bytearray() if data[start + 7] == 2 else None

    async def scenario(scripted: Scripted, server: Running) -> None:
        client = await PlainClient.to(server.address)
        for number in (1, 2, 3):
            await client.send(produce(number, b""))
            if number != 2:
                assert await client.frame() == struct.pack(">i", number) + b"raw"
        client.close()

    play(loop, scenario, scripted=Scripted(chunks=[b"raw"], fast_path=fast_path))
