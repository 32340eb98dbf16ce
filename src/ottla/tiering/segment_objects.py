"""The objects of a remote segment: their keys, and the sizes and checksums kept of them. Pure.

    <prefix>/<topic id>/<partition>/<start offset>-<segment id>.log | .index | ...

A key has ids and offsets only, never a topic's name: a name is chosen by a client. The custom
metadata of a segment lists its objects, so that each can be verified when it is read:

    version  uint8   1
    then for each object: kind uint8, size uint64, crc32c uint32
"""

import enum
from collections.abc import Mapping
from functools import lru_cache
from struct import Struct, error
from typing import Final, NamedTuple

from ottla.protocol.faults import CorruptBatch
from ottla.protocol.uuids import uuid_text
from ottla.tiering.segment_metadata import SegmentMetadata

DECODED_MAX: Final = 4096
"""The segments whose objects are kept in memory, about 1 KB each."""
_VERSION: Final = 1
_ENTRY: Final = Struct(">BQI")


class ObjectKind(enum.Enum):
    """What an object holds: its number in the custom metadata, and its suffix.

    The manifest is stored last and deleted first (`manifest.py`).
    """

    LOG = (0, ".log")
    OFFSET_INDEX = (1, ".index")
    TIME_INDEX = (2, ".timeindex")
    SNAPSHOT = (3, ".snapshot")
    LEADER_EPOCHS = (4, ".leader-epochs")
    TXN_INDEX = (5, ".txnindex")
    MANIFEST = (6, ".manifest")

    @property
    def number(self) -> int:
        """Its number in the custom metadata."""
        return self.value[0]

    @property
    def suffix(self) -> str:
        """The end of its key."""
        return self.value[1]


_KINDS: Final = {kind.number: kind for kind in ObjectKind}
_SUFFIXES: Final = {kind.suffix: kind for kind in ObjectKind}


class StoredObject(NamedTuple):
    """The size and CRC32C of an object."""

    size: int
    crc: int


Objects = dict[ObjectKind, StoredObject]


class CorruptCustomMetadata(CorruptBatch):
    """Custom metadata of a segment that this version did not write."""


def partition_prefix(prefix: str, metadata: SegmentMetadata) -> str:
    """Return the part of the keys that all segments of a partition share."""
    at = metadata.partition
    path = f"{uuid_text(at.topic_id)}/{at.partition}"
    return f"{prefix}/{path}" if prefix else path


def object_key(prefix: str, metadata: SegmentMetadata, kind: ObjectKind) -> str:
    """Return the key of an object of a segment."""
    name = f"{metadata.start_offset:020d}-{uuid_text(metadata.segment_id.id)}{kind.suffix}"
    return f"{partition_prefix(prefix, metadata)}/{name}"


def parse_key(key: str) -> tuple[int, str, ObjectKind] | None:
    """Return the start offset, the segment id as text, and the kind of an object; None if other."""
    stem, dot, suffix = key.rpartition("/")[2].partition(".")
    start, dash, segment = stem.partition("-")
    kind = _SUFFIXES.get(dot + suffix)
    if kind is None or not dash or not start.isdigit():
        return None
    return int(start), segment, kind


def encode_objects(objects: Objects) -> bytes:
    """Return the custom metadata of a segment with these objects."""
    return bytes([_VERSION]) + b"".join(
        _ENTRY.pack(kind.number, *stored) for kind, stored in objects.items()
    )


@lru_cache(DECODED_MAX)
def decode_objects(custom: bytes | None) -> Mapping[ObjectKind, StoredObject]:
    """Return the objects of a segment. Every read asks for their sizes, so they are kept.

    Raises:
        CorruptCustomMetadata: they were not written by `encode_objects`.
    """
    if not custom or custom[0] != _VERSION:
        raise CorruptCustomMetadata(f"custom metadata {custom!r:.40}")
    try:
        return {
            _KINDS[number]: StoredObject(size, crc)
            for number, size, crc in _ENTRY.iter_unpack(custom[1:])
        }
    except (error, KeyError) as cause:
        raise CorruptCustomMetadata(f"custom metadata {custom!r:.40}") from cause
