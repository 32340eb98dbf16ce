"""The manifest of a remote segment: an object that describes the others. Pure.

    value    as in ``__remote_log_metadata``: offsets, epochs, sizes and checksums of the objects
    crc32c   uint32 of the value

It is stored after all other objects have been verified, and deleted before them. So a reader that
has the store alone, without the metadata topic, knows that a segment with a manifest is complete,
and whether it has a transaction index.
"""

from struct import Struct
from typing import Final

import msgspec

from ottla.protocol.faults import ProtocolFault
from ottla.protocol.records.crc import crc32c
from ottla.protocol.types import Buffer
from ottla.tiering.metadata_records import decode_event, encode_event
from ottla.tiering.segment_metadata import SegmentMetadata
from ottla.tiering.segment_objects import CorruptCustomMetadata, decode_objects

_CRC: Final = Struct(">I")


class CorruptManifest(CorruptCustomMetadata):
    """A manifest that is not what was stored."""


def encode_manifest(metadata: SegmentMetadata, custom: bytes) -> bytes:
    """Return the manifest of a segment whose objects are listed in ``custom``."""
    value = encode_event(msgspec.structs.replace(metadata, custom=custom))
    return value + _CRC.pack(crc32c(value, 0, len(value)))


def decode_manifest(data: Buffer) -> SegmentMetadata:
    """Return the metadata of a segment as it was when its copy was verified.

    Raises:
        CorruptManifest
    """
    end = len(data) - _CRC.size
    if end < 0 or crc32c(data, 0, end) != _CRC.unpack_from(data, end)[0]:
        raise CorruptManifest(f"manifest of {len(data)} bytes: the checksum does not match")
    try:
        event = decode_event(memoryview(data)[:end])
    except (ProtocolFault, ValueError) as error:
        raise CorruptManifest(f"manifest of {len(data)} bytes: {error}") from error
    if not isinstance(event, SegmentMetadata):
        raise CorruptManifest("manifest: not the metadata of a segment")
    decode_objects(event.custom)
    return event
