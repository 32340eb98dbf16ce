"""Malformed requests to a node: it closes and counts the connection, and serves others.

The names are rows of the catalogue of bad inputs.
"""

import logging
import random
import re
import resource
import struct
import urllib.request
from collections.abc import Iterator

import pytest
from one_node import Line, OneNode, one_node, settings
from tests.patience import SECONDS_MAX

from ottla.protocol.api_keys import APIS, ApiKey, Listener
from ottla.protocol.codec.primitives import uvarint
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import request_class
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.schema import Message


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    loaded = settings(
        tmp_path_factory.mktemp("node"),
        "ottla.metrics.listener=127.0.0.1:0",
        "auto.create.topics.enable=false",
        "max.connections.per.ip=40",
    )
    with one_node(loaded) as running:
        yield running


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    tags = b"\0" if flexible else b""
    return framed(struct.pack(">hhih", key, version, 1, -1) + tags + body)


def ask(key: ApiKey, version: int, correlation_id: int, body: Message) -> bytes:
    return bytes(request_frame(RequestHeader(key, version, correlation_id, "test"), body))


def metadata(correlation_id: int, *names: str) -> bytes:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return ask(ApiKey.METADATA, 12, correlation_id, MetadataRequest(topics))


def page(node: OneNode, path: str = "/metrics") -> str:
    at = node.node.metrics_addr
    with urllib.request.urlopen(f"http://{at}{path}", timeout=SECONDS_MAX) as response:
        return str(response.read().decode())


def bad_bytes(node: OneNode) -> int:
    found = re.search(r'ottla_server_bad_bytes_total\{listener="PLAINTEXT"\} (\d+)', page(node))
    return 0 if found is None else int(found[1])


METADATA = ApiKey.METADATA
TAG = b"\1\1a"  # a tagged field: tag 1, one byte
BAD = {
    "1 length 0": bytes(4),
    "2 length -1": struct.pack(">i", -1),
    "2 length -2^31": struct.pack(">i", -(2**31)),
    "3 length 2^31-1": struct.pack(">i", 2**31 - 1) + bytes(64),
    "4 length 100 MiB + 1": struct.pack(">i", 100 * 1024 * 1024 + 1) + bytes(64),
    "8 unknown api key": header(999, 0, b""),
    "8 negative api key": header(-1, 0, b""),
    "9 unsupported version": header(METADATA, 99, b""),
    "9 removed version": header(ApiKey.PRODUCE, 0, b""),
    "10 key of another listener": header(ApiKey.VOTE, 0, b"", flexible=True),
    "11 header v1 where v2 is due": header(METADATA, 12, b"\1\0\0\0"),
    "12 client id not UTF-8": framed(struct.pack(">hhih", METADATA, 0, 1, 2) + b"\xff\xfe"),
    "12 client id longer than the frame": framed(struct.pack(">hhih", METADATA, 0, 1, 999)),
    "12 client id of length -2": framed(struct.pack(">hhih", METADATA, 0, 1, -2)),
    "13 compact array of 2^32-2": header(METADATA, 12, uvarint(2**32 - 1), flexible=True),
    "13 array of 2^31-1": header(METADATA, 0, struct.pack(">i", 2**31 - 1)),
    "14 array of -5": header(METADATA, 1, struct.pack(">i", -5)),
    "15 arrays that claim the rest": header(
        ApiKey.DELETE_TOPICS, 1, struct.pack(">i", 50) + struct.pack(">h", 46) + b"x" * 44
    ),
    "16 varint of 6 bytes": header(METADATA, 12, b"\xff" * 5 + b"\1", flexible=True),
    "17 string longer than the frame": header(METADATA, 0, struct.pack(">ih", 1, 500) + b"x"),
    "17 string of length -2": header(METADATA, 0, struct.pack(">ih", 1, -2)),
    "18 null for what cannot be": header(METADATA, 0, struct.pack(">ih", 1, -1)),
    "19 a tag twice": header(METADATA, 12, b"\1\0\0" + b"\2" + TAG + TAG, flexible=True),
    "19 tags descending": header(METADATA, 12, b"\1\0\0\2\2\1a\1\1a", flexible=True),
    "19 tag beyond the buffer": header(METADATA, 12, b"\1\0\0\1\1\x7fa", flexible=True),
    "19 a million tags": header(METADATA, 12, b"\1\0\0" + uvarint(10**6), flexible=True),
    "24 HTTP": b"GET /index HTTP/1.1\r\n\r\n",
    "24 TLS": bytes.fromhex("16030100a5010000a1030354") + bytes(200),
    "24 SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_request_closes_its_connection_and_is_counted(
    node: OneNode, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = bad_bytes(node)
    with caplog.at_level(logging.WARNING), Line(node.address) as good, Line(node.address) as bad:
        bad.send(BAD[name])
        assert bad.is_closed()
        good.send(metadata(7))
        assert good.frame()[:4] == b"\0\0\0\7"
    assert bad_bytes(node) == before + 1
    [line] = [each for each in caplog.messages if each.startswith("connection closed")]
    assert "peer=127.0.0.1:" in line and line.isprintable()
    if name.startswith("24"):
        assert f"looks like {name[3:]}" in line


def test_bytes_after_the_last_field_are_ignored(node: OneNode) -> None:
    """Row 7: librdkafka sends such requests, and Kafka answers them."""
    with Line(node.address) as line:
        line.send(header(METADATA, 0, struct.pack(">i", 0) + b"x"))
        assert line.frame()[:4] == b"\0\0\0\1"


def test_unknown_tag_is_skipped(node: OneNode) -> None:
    with Line(node.address) as line:
        body = b"\1\0\0" + b"\2" + b"\5\1a" + b"\x63\2bc"
        line.send(header(METADATA, 12, body, flexible=True))
        assert line.frame()[:4] == b"\0\0\0\1"


@pytest.mark.parametrize("client_id", [None, "", "x" * 32767, "a\r\n\x1b[31m"])
def test_odd_client_ids_are_served(node: OneNode, client_id: str | None) -> None:
    """Row 12."""
    with Line(node.address) as line:
        head = RequestHeader(METADATA, 12, 3, client_id)
        line.send(bytes(request_frame(head, MetadataRequest([]))))
        assert line.frame()[:4] == b"\0\0\0\3"


def test_newer_api_versions_request_gets_the_supported_versions(node: OneNode) -> None:
    """Row 9."""
    with Line(node.address) as line:
        line.send(framed(struct.pack(">hhih", 18, 99, 7, -1) + b"whatever"))
        assert line.frame()[:6] == struct.pack(">ih", 7, 35)
        line.send(metadata(8))
        assert line.frame()[:4] == b"\0\0\0\x08"


def test_many_and_repeated_topics_are_bounded_work(node: OneNode) -> None:
    """Row 20."""
    with Line(node.address) as line:
        line.send(metadata(1, *(f"t{n}" for n in range(65_535))))
        many = line.frame()
        line.send(metadata(2, *["same"] * 10_000))
        same = line.frame()
    assert many[:4] == b"\0\0\0\1" and same[:4] == b"\0\0\0\2"
    assert same.count(b"same") == 1, "reported once"
    assert len(many) < 65_535 * 50


def test_correlation_ids_are_echoed_and_order_is_kept(node: OneNode) -> None:
    """Rows 22 and 23: behind a request that is forwarded, and so is parked."""
    quorum = ask(ApiKey.DESCRIBE_QUORUM, 0, -1, request_class(ApiKey.DESCRIBE_QUORUM)())
    with Line(node.address) as line:
        line.send(quorum + metadata(5) + quorum + metadata(5) + metadata(-1))
        ids = [struct.unpack_from(">i", line.frame())[0] for _ in range(5)]
    assert ids == [-1, 5, -1, 5, -1]


def test_connections_over_the_limit_are_closed_and_others_served(node: OneNode) -> None:
    """Row 27."""
    with Line(node.address) as good:
        good.send(metadata(1))
        good.frame()
        flood = [Line(node.address) for _ in range(60)]
        closed = 0
        for each in flood[45:]:
            closed += each.is_closed()
        good.send(metadata(2))
        assert good.frame()[:4] == b"\0\0\0\2"
        for each in flood:
            each.sock.close()
    assert closed == 15
    assert 'reason="max.connections.per.ip"' in page(node)


def test_ten_thousand_requests_of_a_client_that_never_reads(node: OneNode) -> None:
    """Row 21: the client is held back, and others are served meanwhile."""
    names = [f"topic-{n}-{'x' * 200}" for n in range(20)]
    with Line(node.address) as greedy, Line(node.address) as good:
        greedy.sock.setblocking(False)
        sent, request = 0, metadata(1, *names)
        try:
            for _ in range(10_000):
                sent += greedy.sock.send(request)
        except BlockingIOError:
            pass
        assert sent < 10_000 * len(request), "the kernel's buffers are full: nobody reads"
        good.send(metadata(2))
        assert good.frame()[:4] == b"\0\0\0\2"


def test_arbitrary_bodies_do_not_change_the_node(node: OneNode) -> None:
    """Row 28, in small: every API and version of the listener, random and cut bodies."""
    rng = random.Random(7)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    served = [key for key in APIS if Listener.BROKER in APIS[key].listeners]
    for key in served:
        first, last = APIS[key].versions
        version = rng.randint(first, last)
        good = ask(key, version, 1, request_class(key)()) if rng.random() < 0.5 else b""
        body = bytearray(good[4:] or struct.pack(">hhih", key, version, 1, -1) + b"\0")
        body += rng.randbytes(rng.randint(0, 60))
        with Line(node.address) as line:
            line.sock.settimeout(0.05)
            line.send(framed(bytes(body)))
            try:
                line.sock.recv(64)
            except (TimeoutError, ConnectionError):
                continue
    with Line(node.address) as line:
        line.send(metadata(2))
        assert line.frame()[:4] == b"\0\0\0\2"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000
    assert page(node, "/healthz") == "ok\n"
