"""The field ``throttle_time_ms`` of a response, in a message or in an encoded body."""

from functools import cache
from typing import Final

from msgspec.structs import replace

from ottla.api.surface.replies import Body, Chunk
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.messages import response_class
from ottla.protocol.schema import Message, covers

FIELD: Final = "throttle_time_ms"
_SIZE: Final = 4


def with_throttle(key: ApiKey, version: int, body: Body, throttle_ms: int) -> Body:
    """Return the body of a response with its throttle time set, if the version has the field."""
    position = _position(key, version)
    if position is None:
        return body
    if isinstance(body, Message):
        return replace(body, **{FIELD: throttle_ms})
    if position == 0:
        head = bytearray(_in_memory(body[0]))
        head[:_SIZE] = throttle_ms.to_bytes(_SIZE, "big")
        return [head, *body[1:]]
    # Rare: a client over its quota, and an API with the field behind others.
    message = decode(response_class(key), version, b"".join(map(_in_memory, body)))
    return replace(message, **{FIELD: throttle_ms})


def throttle_of(key: ApiKey, version: int, body: bytes) -> int:
    """Return the throttle time of an encoded body, 0 where it does not start with the field."""
    if _position(key, version) != 0 or len(body) < _SIZE:
        return 0
    return int.from_bytes(body[:_SIZE], "big", signed=True)


def _in_memory(chunk: Chunk) -> bytes:
    assert isinstance(chunk, (bytes, bytearray, memoryview)), "only Fetch sends files"
    return bytes(chunk)


@cache
def _position(key: ApiKey, version: int) -> int | None:
    """Return which field of a version it is, counted from 0; None if the version has none."""
    names = [
        each.name for each in response_class(key).SCHEMA.fields if covers(each.versions, version)
    ]
    return names.index(FIELD) if FIELD in names else None
