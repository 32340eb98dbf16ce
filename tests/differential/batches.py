"""Record batches (message format 2), good and bad, built without any code of ours.

Header of 61 bytes: base offset 8, length 4, leader epoch 4, magic 1, CRC-32C 4 (of all that
follows), attributes 2, last offset delta 4, first and max timestamp 8 each, producer id 8, epoch 2,
base sequence 4, record count 4; then the records, each with a varint length before it.
"""

import struct
from dataclasses import dataclass, replace

import google_crc32c

TIME_MS = 1_700_000_000_000
_AFTER_CRC = struct.Struct(">hiqqqhii")


def _signed_varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(delta: int, value: bytes | None = b"value", key: bytes | None = None) -> bytes:
    """Return one record with no headers, written ``delta`` ms and offsets after the first."""
    body = b"\0" + _signed_varint(delta) + _signed_varint(delta)
    for part in (key, value):
        body += _signed_varint(-1 if part is None else len(part)) + (part or b"")
    body += _signed_varint(0)
    return _signed_varint(len(body)) + body


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of ``count`` small records; any field can be set to something wrong."""

    count: int = 1
    base_offset: int = 0
    leader_epoch: int = -1
    magic: int = 2
    attributes: int = 0
    first_ms: int = TIME_MS
    max_ms: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    last_delta: int | None = None
    claimed_count: int | None = None
    records: bytes | None = None
    crc: int | None = None
    claimed_length: int | None = None
    key: bytes | None = None

    def encode(self) -> bytes:
        records = self.records
        if records is None:
            records = b"".join(record(n, b"value %d" % n, self.key) for n in range(self.count))
        after = _AFTER_CRC.pack(
            self.attributes,
            self.count - 1 if self.last_delta is None else self.last_delta,
            self.first_ms,
            self.first_ms + self.count - 1 if self.max_ms is None else self.max_ms,
            self.producer_id,
            self.producer_epoch,
            self.sequence,
            self.count if self.claimed_count is None else self.claimed_count,
        )
        body = after + records
        crc = google_crc32c.value(body) if self.crc is None else self.crc
        length = len(body) + 9 if self.claimed_length is None else self.claimed_length
        return (
            struct.pack(">qiibI", self.base_offset, length, self.leader_epoch, self.magic, crc)
            + body
        )

    def but(self, **changes: object) -> "Batch":
        return replace(self, **changes)
