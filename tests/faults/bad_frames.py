"""Rows 1 to 28 of the catalogue of bad inputs, as bytes for a listener.

size int32 | api key int16 | version int16 | correlation id int32 | client id string | body
"""

import random
import struct

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec.primitives import uvarint
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.schema import Message

METADATA = ApiKey.METADATA


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def asked(key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    return framed(struct.pack(">hhih", key, version, 1, -1) + (b"\0" if flexible else b"") + body)


def request(key: ApiKey, version: int, correlation_id: int, body: Message) -> bytes:
    return bytes(request_frame(RequestHeader(key, version, correlation_id, "test"), body))


def metadata(correlation_id: int, *names: str) -> bytes:
    topics = [MetadataRequestTopic(name=name) for name in names]
    body = MetadataRequest(topics, allow_auto_topic_creation=False)
    return request(METADATA, 12, correlation_id, body)


# The connection is closed without a reply.
CLOSED = {
    "1 length 0": bytes(4),
    "2 length -1": struct.pack(">i", -1),
    "2 length -2^31": struct.pack(">i", -(2**31)),
    "3 length 2^31-1": struct.pack(">i", 2**31 - 1) + bytes(64),
    "4 length 100 MiB + 1": struct.pack(">i", 100 * 1024 * 1024 + 1) + bytes(64),
    "8 unknown api key": asked(999, 0, b""),
    "9 unsupported version": asked(METADATA, 99, b""),
    "10 key of another listener": asked(ApiKey.VOTE, 0, b"", flexible=True),
    "11 header v1 where v2 is due": asked(METADATA, 12, b"\1\0\0\0"),
    "12 client id not UTF-8": framed(struct.pack(">hhih", METADATA, 0, 1, 2) + b"\xff\xfe"),
    "12 client id longer than the frame": framed(struct.pack(">hhih", METADATA, 0, 1, 999)),
    "13 compact array of 2^32-2": asked(METADATA, 12, uvarint(2**32 - 1), flexible=True),
    "13 array of 2^31-1": asked(METADATA, 0, struct.pack(">i", 2**31 - 1)),
    "14 array of -5": asked(METADATA, 1, struct.pack(">i", -5)),
    "15 arrays that claim the rest": asked(
        ApiKey.DELETE_TOPICS, 1, struct.pack(">i", 50) + struct.pack(">h", 46) + b"x" * 44
    ),
    "16 varint of 6 bytes": asked(METADATA, 12, b"\xff" * 5 + b"\1", flexible=True),
    "17 string longer than the frame": asked(METADATA, 0, struct.pack(">ih", 1, 500) + b"x"),
    "17 string of length -2": asked(METADATA, 0, struct.pack(">ih", 1, -2)),
    "18 null for what cannot be": asked(METADATA, 0, struct.pack(">ih", 1, -1)),
    "19 a tag twice": asked(METADATA, 12, b"\1\0\0\2\1\1a\1\1a", flexible=True),
    "19 tags descending": asked(METADATA, 12, b"\1\0\0\2\2\1a\1\1a", flexible=True),
    "19 tag beyond the buffer": asked(METADATA, 12, b"\1\0\0\1\1\x7fa", flexible=True),
    "19 a million tags": asked(METADATA, 12, b"\1\0\0" + uvarint(10**6), flexible=True),
    "24 HTTP": b"GET /index HTTP/1.1\r\n\r\n",
    "24 TLS": bytes.fromhex("16030100a5010000a1030354") + bytes(200),
    "24 SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "28 noise": random.Random(28).randbytes(500),
}


def with_client_id(client_id: str | None) -> bytes:
    body = MetadataRequest([], allow_auto_topic_creation=False)
    return bytes(request_frame(RequestHeader(METADATA, 12, 1, client_id), body))


# The request is answered, with the given first bytes.
ANSWERED = {
    "7 a byte too many, as librdkafka sends": (
        asked(METADATA, 0, struct.pack(">i", 0) + b"x"),
        struct.pack(">i", 1),
    ),
    "9 a newer ApiVersions": (
        framed(struct.pack(">hhih", 18, 99, 7, -1) + b"whatever"),
        struct.pack(">ih", 7, 35),
    ),
    "12 client id null": (with_client_id(None), struct.pack(">i", 1)),
    "12 client id of 32 KiB": (with_client_id("x" * 32767), struct.pack(">i", 1)),
    "12 client id with CR LF ESC": (with_client_id("a\r\n\x1b[31m"), struct.pack(">i", 1)),
    "19 unknown tags": (
        asked(METADATA, 12, b"\1\0\0\2\5\1a\x63\2bc", flexible=True),
        struct.pack(">i", 1),
    ),
    "20 a topic 10,000 times": (metadata(3, *["same"] * 10_000), struct.pack(">i", 3)),
    "22 correlation id -1": (metadata(-1), struct.pack(">i", -1)),
}
