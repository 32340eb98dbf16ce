"""Copying to and reading from a real S3 server behind a proxy that injects faults."""

import asyncio
import http.client
import itertools
import logging
import os
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tier_harness import AT, Replica, Tier, is_settled, lead, read_all, sealed_bytes

from ottla.runtime.objects import ObstoreObjects
from ottla.tiering import segment_store
from ottla.tiering.segment_objects import ObjectKind, object_key
from ottla.tiering.verification import find_orphans

Fault = Callable[[str, bytes], tuple[int, bytes] | None]


class Proxy(ThreadingHTTPServer):
    """Forwards to ``target``; ``fault`` gets method and body of a reply and may replace it."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.target = urlsplit(target)
        self.fault: Fault = lambda method, body: None
        self.requests = 0


class Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        self.server.requests += 1
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        upstream = http.client.HTTPConnection(str(self.server.target.netloc), timeout=30)
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
            self.wfile.write(sent)
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
    thread.join(10)


@pytest.fixture
def tier(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tier:
    monkeypatch.setattr(segment_store, "BACKOFF_S", 0.001)
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


def changed(method: str, body: bytes) -> tuple[int, bytes] | None:
    if method != "GET" or len(body) < 50:
        return None
    return 206, body[:40] + bytes([body[40] ^ 0x20]) + body[41:]


FAULTS: dict[str, Fault] = {
    "503": every(2, lambda method, body: (503, b"<Error><Code>SlowDown</Code></Error>")),
    "truncated": every(2, lambda method, body: (206, body[:9]) if method == "GET" else None),
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
