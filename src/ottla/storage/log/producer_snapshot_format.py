"""The file format of producer snapshots: ``%020d.snapshot``, identical to Kafka's.

The number in the name is the offset up to which (exclusive) the log has been applied.

    version  int16    1
    crc      uint32   CRC32C of everything after it
    count    int32
    count times (46 bytes):
      producer_id        int64
      producer_epoch     int16
      last_sequence      int32   -1 when no batch is known
      last_offset        int64   -1 when no batch is known
      offset_delta       int32   last minus first offset of that batch
      timestamp          int64   largest of the newest batch, or of the marker after it
      coordinator_epoch  int32   of the newest marker, -1 for none
      txn_first_offset   int64   of the open transaction, -1 for none

All big-endian. A snapshot is a cache of the log: a corrupt one is deleted and rebuilt.
"""

import struct
from collections.abc import Iterable

from ottla.protocol.records.crc import crc32c
from ottla.protocol.types import Buffer
from ottla.storage.log.producer_state import ProducerEntry

VERSION = 1
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6


class CorruptSnapshot(Exception):
    """A producer snapshot that cannot be used; the log it summarises still can."""


def encode(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the file's contents for ``entries``, in their order."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", VERSION, crc32c(body, 0, len(body))) + body


def decode(data: Buffer) -> list[ProducerEntry]:
    """Parse a snapshot file.

    Raises:
        CorruptSnapshot: unknown version, a length that does not match the count, or a bad CRC.
    """
    if len(data) < _HEAD.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"unknown version {version}")
    if count < 0 or len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} entries do not match {len(data)} bytes")
    if crc32c(data, _CRC_START, len(data)) != crc:
        raise CorruptSnapshot("CRC does not match")
    return [ProducerEntry(*fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :])]
