"""Pushes of client metrics that unpack to much, lie about their size, or have very many parts."""

import gzip
import tracemalloc
from collections.abc import Iterator
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard
from one_node import Line, OneNode, ask, one_node, settings

from ottla.metadata.configs import ConfigResourceType
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import parse_response_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import response_class
from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from ottla.protocol.records.batch import Compression
from ottla.protocol.schema import Message

MIB = 1 << 20
MEMORY_BYTES_MAX = 96 * MIB
"""What one push may take: a multiple of the 10 MiB that its metrics may unpack to."""
NONE, BAD = ErrorCode.NONE, ErrorCode.INVALID_RECORD


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    loaded = settings(tmp_path_factory.mktemp("node"), "ottla.metrics.listener=127.0.0.1:0")
    with one_node(loaded) as running:
        changes = [AlterableConfig("metrics", 0, "*"), AlterableConfig("interval.ms", 0, "100")]
        resource = AlterConfigsResource(ConfigResourceType.CLIENT_METRICS, "all", changes)
        (answer,) = ask(running, IncrementalAlterConfigsRequest([resource])).responses
        assert answer.error_code == NONE, answer.error_message
        yield running


def send(line: Line, request: Message) -> Any:
    key = ApiKey(request.SCHEMA.api_key or 0)
    version = APIS[key].versions[1]
    line.send(bytes(request_frame(RequestHeader(key, version, 7, "test"), request)))
    _, body = parse_response_header(key, version, memoryview(line.frame()))
    return decode(response_class(key), version, bytes(body))


def push(node: OneNode, codec: int, data: bytes) -> tuple[ErrorCode, int]:
    """Push metrics as a new client; return the error and the most memory taken meanwhile."""
    with Line(node.address) as line:
        got = send(line, GetTelemetrySubscriptionsRequest())
        tracemalloc.start()
        try:
            request = PushTelemetryRequest(
                got.client_instance_id, got.subscription_id, False, codec, data
            )
            code = ErrorCode(send(line, request).error_code)
            return code, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def metrics(*bodies: bytes) -> bytes:
    return field(1, field(2, b"".join(field(2, body) for body in bodies)))


NAME = b"org.apache.kafka." + b"n" * (MIB // 2)
POINT = field(1, b"")

PARTS = {
    "long name of a histogram's points": (NONE, metrics(field(1, NAME) + field(9, POINT * 400))),
    "long name of many points": (NONE, metrics(field(1, NAME) + field(5, POINT * 20_000))),
    "point with many labels": (
        BAD,
        metrics(field(1, b"m") + field(5, field(1, field(7, b"") * 1_000_000))),
    ),
    "label with a long value": (
        NONE,
        metrics(field(5, field(1, field(7, field(2, field(1, b"v" * 8 * MIB)))))),
    ),
    "many resources": (BAD, field(1, b"") * (4 * MIB)),
    "many metrics": (BAD, metrics(*[b""] * 1_000_000)),
    "many bodies of one metric": (BAD, metrics(field(5, b"") * 1_000_000)),
    "many points": (NONE, metrics(field(1, b"m") + field(5, POINT * 1_000_000))),
}


@pytest.mark.parametrize("name", PARTS)
def test_push_with_many_or_long_parts_takes_bounded_memory(node: OneNode, name: str) -> None:
    expected, data = PARTS[name]
    packed = zstandard.ZstdCompressor().compress(data)
    assert len(packed) < MIB
    code, taken = push(node, Compression.ZSTD, packed)
    assert code is expected
    assert taken < MEMORY_BYTES_MAX
    assert push(node, Compression.NONE, metrics(field(1, b"m") + field(5, POINT)))[0] is NONE


def unsized_zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


def xerial(length: int) -> bytes:
    """A stream of snappy whose only block says that it unpacks to ``length`` bytes."""
    block = varint(length) + b"\x00a"
    return b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1" + len(block).to_bytes(4, "big") + block


def lying_zstd(stated: int) -> bytes:
    """A frame with one block of a byte that says that it unpacks to ``stated``."""
    frame = b"\x28\xb5\x2f\xfd" + b"\xe0" + stated.to_bytes(8, "little")
    return frame + (1 | 1 << 1 | 1 << 3).to_bytes(3, "little") + b"a"


ZEROS = bytes(200 * MIB)
BOMBS = {
    "gzip": (Compression.GZIP, gzip.compress(ZEROS, 9)),
    "zstd": (Compression.ZSTD, zstandard.ZstdCompressor().compress(ZEROS)),
    "zstd without a size": (Compression.ZSTD, unsized_zstd(ZEROS)),
    "zstd stating 11 MiB": (Compression.ZSTD, lying_zstd(11 * MIB)),
    "zstd stating 2^62": (Compression.ZSTD, lying_zstd(1 << 62)),
    "zstd with a window of 2 GiB": (
        Compression.ZSTD,
        b"\x28\xb5\x2f\xfd\x00\xa8" + (1 | 1 << 1 | 1 << 3).to_bytes(3, "little") + b"a",
    ),
    "lz4": (Compression.LZ4, lz4.frame.compress(ZEROS)),
    "lz4 stating too much": (
        Compression.LZ4,
        lz4.frame.compress(b"a", store_size=True)[:6] + b"\xff" * 40,
    ),
    "snappy": (Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(20 * MIB)))),
    "snappy stating 4 GiB": (Compression.SNAPPY, varint(0xFFFF_FFFF) + b"\x00a"),
    "snappy block stating 2 GiB": (Compression.SNAPPY, xerial(0x7FFF_FFFF)),
    "cut": (Compression.GZIP, gzip.compress(b"metrics" * 100)[:-12]),
    "no frame at all": (Compression.LZ4, b"x" * 1000),
}
del ZEROS


@pytest.mark.parametrize("name", BOMBS)
def test_push_that_unpacks_to_much_or_lies_is_an_invalid_record(node: OneNode, name: str) -> None:
    codec, data = BOMBS[name]
    code, taken = push(node, codec, data)
    too_large = ErrorCode.TELEMETRY_TOO_LARGE
    assert code is (too_large if len(data) > MIB else ErrorCode.INVALID_RECORD)
    assert taken < MEMORY_BYTES_MAX


@pytest.mark.parametrize("codec", [5, 7, 127, -1])
def test_push_of_an_unknown_codec_is_unsupported(node: OneNode, codec: int) -> None:
    assert push(node, codec, b"x")[0] is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
