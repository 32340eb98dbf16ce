"""Record batches as tests need them: offsets assigned, records checked, a plain slice of a file."""

import struct

import msgspec

from ottla.protocol.faults import InvalidRecord
from ottla.protocol.records.batch import LOG_OVERHEAD_BYTES, BatchHeader
from ottla.protocol.records.reader import UNPACKED_BYTES_MAX, unpack_region
from ottla.protocol.records.walker import RecordsSummary, check_records
from ottla.protocol.types import Buffer, LeaderEpoch, Offset
from ottla.runtime.ports import File


class FileRange(msgspec.Struct, frozen=True):
    """A `FileSlice` that keeps nothing open."""

    file: File
    position: int
    length: int


def patch_offset(
    buffer: bytearray | memoryview, position: int, base_offset: Offset, leader_epoch: LeaderEpoch
) -> None:
    """Assign offset and leader epoch in place. The CRC does not cover them and stays valid."""
    struct.pack_into(">q", buffer, position, base_offset)
    struct.pack_into(">i", buffer, position + LOG_OVERHEAD_BYTES, leader_epoch)


def count_and_check(
    buffer: Buffer, position: int, header: BatchHeader, *, bytes_max: int = UNPACKED_BYTES_MAX
) -> RecordsSummary:
    """Unpack and check the records of a batch, as `api.record_validation` does in steps.

    Raises:
        CorruptBatch: the batch is incomplete.
        InvalidRecord: the records do not unpack, or contradict the header or each other.
    """
    if header.last_offset_delta != header.records_count - 1:
        raise InvalidRecord(
            f"{header.records_count} records with last offset delta {header.last_offset_delta}"
        )
    region = unpack_region(buffer, position, header, bytes_max=bytes_max)
    return check_records(region, header.records_count, header.base_timestamp)
