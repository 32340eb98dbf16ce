"""Encodes committed offsets by hand: one commit may have hundreds of them. Pure.

    key    int16 1, string group, string topic, int32 partition
    value  int16 4, int64 offset, int32 leader epoch, compact string metadata, int64 commit time,
           then no tagged field: byte 0, or the id of the topic: bytes 1 0 16 and the id
    value  int16 1, int64 offset, string metadata, int64 commit time, int64 expiry

Only the second form of a value can hold an expiry time. The bytes equal those that the codec writes
for `OffsetCommitKey` and `OffsetCommitValue`.
"""

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, Protocol

from ottla.protocol.codec.primitives import uvarint
from ottla.protocol.types import NO_TIMESTAMP, ZERO_UUID, Millis, Uuid

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">hqi")
_TAIL: Final = struct.Struct(">q")
# The most common value: without metadata (length 1), and the number of tagged fields.
_SHORT: Final = struct.Struct(">hqibqb")
_EXPIRING: Final = struct.Struct(">hq")
_EXPIRING_TAIL: Final = struct.Struct(">qq")

_KEY_TYPE: Final = 1
_VERSION: Final = 4
_VERSION_EXPIRING: Final = 1
_ID_TAG: Final = bytes((1, 0, 16))
_NO_TAGS: Final = bytes(1)
_TOPICS_KEPT: Final = 1024


class NewOffset(Protocol):
    """An offset of an OffsetCommit or TxnOffsetCommit request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


@lru_cache(maxsize=_TOPICS_KEPT)
def key_of_topic(group: str, topic: str) -> bytes:
    """Return the key of an offset up to the partition."""
    found = bytearray(_INT16.pack(_KEY_TYPE))
    for text in (group, topic):
        encoded = text.encode()
        found += _INT16.pack(len(encoded)) + encoded
    return bytes(found)


def tags_of_value(topic_id: Uuid) -> bytes:
    """Return the tagged fields that end a value: none, or the id of the topic."""
    return _ID_TAG + topic_id if topic_id != ZERO_UUID else _NO_TAGS


def pairs_of_topic(
    key: bytes, topic_id: Uuid, partitions: Iterable[NewOffset], times: tuple[Millis, Millis]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each offset. ``times`` are its commit and expiry times."""
    committed_at, expires = times
    tags = tags_of_value(topic_id)
    has_id = tags is not _NO_TAGS
    pack_index, pack_short = _INT32.pack, _SHORT.pack
    for each in partitions:
        offset, epoch = each.committed_offset, each.committed_leader_epoch
        metadata = each.committed_metadata
        if expires != NO_TIMESTAMP:
            value = _expiring(offset, metadata or "", committed_at, expires)
        elif metadata:
            value = _with_metadata(offset, epoch, metadata, committed_at, tags)
        else:
            value = pack_short(_VERSION, offset, epoch, 1, committed_at, has_id) + tags[1:]
        yield key + pack_index(each.partition_index), value


def _with_metadata(
    offset: int, leader_epoch: int, metadata: str, committed_at: Millis, tags: bytes
) -> bytes:
    text = metadata.encode()
    head = _HEAD.pack(_VERSION, offset, leader_epoch) + uvarint(len(text) + 1) + text
    return head + _TAIL.pack(committed_at) + tags


def _expiring(offset: int, metadata: str, committed_at: Millis, expires: Millis) -> bytes:
    text = metadata.encode()
    head = _EXPIRING.pack(_VERSION_EXPIRING, offset) + _INT16.pack(len(text)) + text
    return head + _EXPIRING_TAIL.pack(committed_at, expires)
