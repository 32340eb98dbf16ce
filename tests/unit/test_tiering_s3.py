"""Copying to and reading from a real S3 server behind a proxy that injects faults."""

import asyncio
import contextlib
import http.client
import itertools
import logging
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest
from tests.patience import SECONDS_MAX
from tier_harness import AT, Replica, Tier, is_settled, lead, read_all, sealed_bytes

from ottla.protocol.types import Millis
from ottla.runtime import objects
from ottla.runtime.objects import ObstoreObjects
from ottla.storage.log.log_maintenance import delete_old_segments
from ottla.tiering import segment_store
from ottla.tiering.remote_log_manager import RemoteLogManager
from ottla.tiering.segment_objects import ObjectKind, object_key
from ottla.tiering.segment_store import RemoteStorageFailed
from ottla.tiering.verification import find_orphans

pytestmark = pytest.mark.slow

Fault = Callable[[str, bytes], tuple[int, bytes] | None]


class Proxy(ThreadingHTTPServer):
    """Forwards to ``target``; ``fault`` gets method and body of a reply and may replace it."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.target = urlsplit(target)
        self.fault: Fault = lambda method, body: None
        self.is_down = False
        self.stall_s = 0.0
        self.requests = 0


class Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        self.server.requests += 1
        if self.server.is_down:
            self.close_connection = True  # no answer at all
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        upstream = http.client.HTTPConnection(str(self.server.target.netloc), timeout=SECONDS_MAX)
        upstream.request(self.command, self.path, body, dict(self.headers))
        reply = upstream.getresponse()
        data = reply.read()
        replaced = self.server.fault(self.command, data)
        status, sent = (reply.status, data) if replaced is None else replaced
        self.send_response(status)
        for name, value in reply.getheaders():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date"):
                self.send_header(name, value)
        announced = reply.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", announced or str(len(data if status < 300 else sent)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent[: len(sent) // 2])
            if self.server.stall_s and self.server.requests % 2:
                time.sleep(self.server.stall_s)
            with contextlib.suppress(OSError):  # a client that does not wait hangs up
                self.wfile.write(sent[len(sent) // 2 :])
        if status < 300 and len(sent) < len(data):
            self.close_connection = True  # the body is shorter than was announced
        upstream.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def proxy(s3_server: str) -> Iterator[Proxy]:
    found = Proxy(s3_server)
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join(SECONDS_MAX)


@pytest.fixture
def tier(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tier:
    monkeypatch.setattr(segment_store, "BACKOFF_S", 0.001)
    monkeypatch.setattr(objects, "RETRIES_MAX", 0)  # with pauses of its own
    bucket = f"tier-{os.urandom(4).hex()}"
    request = urllib.request.Request(f"{proxy.target.geturl()}/{bucket}", method="PUT")
    urllib.request.urlopen(request).close()
    config = {
        "region": "us-east-1",
        "access_key_id": "a",
        "secret_access_key": "b",
        "endpoint": f"http://127.0.0.1:{proxy.server_address[1]}",
    }
    store = ObstoreObjects.in_s3(bucket, config, allow_http=True)
    return Tier(tmp_path, records=30, objects=store)


def check(tier: Tier) -> None:
    """Everything is there, nothing else is, and it reads as it was written."""
    segments = tier.metadata.cache(AT).all()
    keys = {object_key("", each, kind) for each in segments for kind in ObjectKind}
    assert keys

    async def work() -> None:
        for each in segments:
            await tier.store.verify(each)
        assert await find_orphans(tier.store.objects, "", segments) == []
        assert await read_all(tier) == tier.bytes[: sealed_bytes(tier)]

    asyncio.run(work())


def every(count: int, reply: Callable[[str, bytes], tuple[int, bytes] | None]) -> Fault:
    """Pass one request of ``count``, and let ``reply`` replace the others."""
    turn = itertools.count()
    return lambda method, body: reply(method, body) if next(turn) % count else None


def half(reply: Callable[[str, bytes], tuple[int, bytes] | None]) -> Fault:
    """Let ``reply`` replace half of the replies, in no regular order.

    A failed read is followed by a HEAD: with every second request, all reads would fail.
    """
    random = Random(1)
    return lambda method, body: reply(method, body) if random.random() < 0.5 else None


def changed(method: str, body: bytes) -> tuple[int, bytes] | None:
    if method != "GET" or len(body) < 50:
        return None
    return 206, body[:40] + bytes([body[40] ^ 0x20]) + body[41:]


FAULTS: dict[str, Fault] = {
    "503": half(lambda method, body: (503, b"<Error><Code>SlowDown</Code></Error>")),
    "truncated": half(lambda method, body: (206, body[:9]) if method == "GET" else None),
    "changed": every(3, changed),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_copy_to_a_faulty_s3_store_loses_and_orphans_nothing(
    tier: Tier, proxy: Proxy, fault: str
) -> None:
    proxy.fault = FAULTS[fault]
    asyncio.run(lead(tier.broker(1, Replica(tier.log)), lambda: is_settled(tier), 60))
    proxy.fault = lambda method, body: None
    check(tier)


EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The token has expired.</Message></Error>"


def failures(manager: RemoteLogManager) -> int:
    return manager.counts.copy_failures + manager.counts.delete_failures


def recover(tier: Tier, proxy: Proxy, heal: Callable[[], None]) -> None:
    """Let copies fail until the store recovers: nothing counts as copied before, all does after."""
    segments = len(tier.log.segments)

    async def work() -> None:
        manager = tier.broker(1, Replica(tier.log))
        service = asyncio.ensure_future(manager.run(lambda: None))
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while failures(manager) < 3:  # noqa: ASYNC110 - no one event
                    await asyncio.sleep(0.01)
                delete_old_segments(tier.log, Millis(10_000))
                assert tier.log.remote_end == 0
                assert len(tier.log.segments) == segments
                heal()
                while not is_settled(tier):  # noqa: ASYNC110 - no one event
                    await asyncio.sleep(0.01)
        finally:
            service.cancel()
            await asyncio.wait([service])

    asyncio.run(work())
    check(tier)


@pytest.mark.parametrize("status", [400, 403])
def test_expired_credentials_delay_copies_and_lose_nothing(
    tier: Tier, proxy: Proxy, status: int
) -> None:
    proxy.fault = lambda method, body: (status, EXPIRED)

    def renewed() -> None:
        proxy.fault = lambda method, body: None

    recover(tier, proxy, renewed)


def test_outage_of_the_store_delays_copies_and_loses_nothing(tier: Tier, proxy: Proxy) -> None:
    """Every connection is closed without an answer, for longer than all retries of a request."""
    proxy.is_down = True

    def is_up() -> None:
        proxy.is_down = False

    recover(tier, proxy, is_up)


@pytest.mark.nightly
def test_bodies_that_stall_are_requested_again(
    tier: Tier, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_store, "REQUEST_S", 1.0)
    asyncio.run(lead(tier.broker(1, Replica(tier.log)), lambda: is_settled(tier), 60))
    proxy.stall_s, before = 1.5, proxy.requests
    check(tier)
    assert proxy.requests > before


def test_retries_are_spread_by_jitter(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(segment_store, "BACKOFF_S", 0.1)

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    async def fail() -> None:
        raise OSError(5, "503 slow down")

    async def work() -> None:
        monkeypatch.setattr(segment_store.asyncio, "sleep", note)
        for _ in range(20):
            with pytest.raises(RemoteStorageFailed, match="503 slow down"):
                await tier.store._retry("key", fail)

    asyncio.run(work())
    firsts, seconds = pauses[::3], pauses[1::3]
    assert len(pauses) == 20 * (segment_store.ATTEMPTS_MAX - 1)
    assert all(0.05 <= each <= 0.1 for each in firsts)
    assert all(0.1 <= each <= 0.2 for each in seconds)
    assert len(set(firsts)) > 10
