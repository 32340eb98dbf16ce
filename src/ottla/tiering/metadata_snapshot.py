"""A file with the remote segments of one metadata partition, so that a start need not read it all.

    version   uint16   1
    topic id  16 bytes of ``__remote_log_metadata``: a file of an earlier topic is ignored
    offset    int64    the next record to read
    count     uint32, then for each segment: length uint32, value as in the topic
    crc32c    uint32   of everything before

Pure, apart from the file itself, which is replaced as a whole.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.faults import ProtocolFault
from ottla.protocol.records.crc import crc32c
from ottla.protocol.types import Buffer, Offset, Uuid
from ottla.tiering.metadata_records import decode_event, encode_event
from ottla.tiering.segment_metadata import SegmentMetadata

_VERSION: Final = 1
_HEAD: Final = Struct(">H16sqI")
_UINT32: Final = Struct(">I")


class MetadataSnapshot(NamedTuple):
    """The segments as of ``offset``, the next record to read."""

    offset: Offset
    segments: tuple[SegmentMetadata, ...]


def encode_snapshot(topic_id: Uuid, offset: Offset, segments: Iterable[SegmentMetadata]) -> bytes:
    """Return the contents of a file."""
    values = [encode_event(segment) for segment in segments]
    body = bytearray(_HEAD.pack(_VERSION, topic_id, offset, len(values)))
    for value in values:
        body += _UINT32.pack(len(value)) + value
    return bytes(body + _UINT32.pack(crc32c(body, 0, len(body))))


def decode_snapshot(data: Buffer, topic_id: Uuid) -> MetadataSnapshot | None:
    """Return what a file holds; None for a damaged one, or one of another topic."""
    end = len(data) - _UINT32.size
    if end < _HEAD.size or crc32c(data, 0, end) != _UINT32.unpack_from(data, end)[0]:
        return None
    version, written_for, offset, count = _HEAD.unpack_from(data)
    if version != _VERSION or written_for != topic_id:
        return None
    segments, position = [], _HEAD.size
    try:
        for _ in range(count):
            (length,) = _UINT32.unpack_from(data, position)
            position += _UINT32.size
            event = decode_event(memoryview(data)[position : position + length])
            if not isinstance(event, SegmentMetadata):
                return None
            segments.append(event)
            position += length
    except (ProtocolFault, ValueError):
        return None
    return MetadataSnapshot(Offset(offset), tuple(segments))
