"""Mutated real batches: only faults are raised, and memory stays near the input's size."""

import contextlib
import random

import pytest

from ottla.protocol.faults import CorruptBatch, InvalidRecord, UnsupportedMagic
from ottla.protocol.records.batch import Compression, batches, is_crc_valid, read_header
from ottla.protocol.records.control import (
    EndTxnMarker,
    build_end_txn_marker,
    read_end_txn_marker,
)
from ottla.protocol.records.reader import Header, Record, read_records
from ottla.protocol.records.writer import Producer, build_batch
from record_tools import count_and_check

pytestmark = pytest.mark.engine

ROUNDS = 400
UNPACKED_BYTES_MAX = 1 << 20
EXPECTED = (CorruptBatch, InvalidRecord, UnsupportedMagic)


def originals() -> list[bytes]:
    records = [
        Record(i, 1_700_000_000_000 + i * 37, b"key%d" % i, b"value " * i, (Header("h", b"x"),))
        for i in range(9)
    ]
    made = [bytes(build_batch(records, compression=codec)) for codec in Compression]
    marker = build_end_txn_marker(EndTxnMarker(True, 3), Producer(9, 1), 1000)
    return [*made, bytes(marker)]


def damaged(original: bytes, source: random.Random) -> bytearray:
    batch = bytearray(original)
    for _ in range(source.randrange(1, 5)):
        at = source.randrange(len(batch))
        kind = source.randrange(5)
        if kind == 0:
            batch[at] ^= 1 << source.randrange(8)
        elif kind == 1:
            batch[at] = source.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            batch[at:at] = source.randbytes(source.randrange(1, 9))
        elif kind == 3:
            del batch[at : at + source.randrange(1, 9)]
        else:
            batch[at : at + 4] = source.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\0\0\0"))
        if len(batch) < 2:
            break
    return batch


def judge(batch: bytearray) -> None:
    """Run every operation that is done on untrusted bytes."""
    for ask in (
        lambda: list(batches(batch)),
        lambda: is_crc_valid(batch, 0, read_header(batch)),
        lambda: read_records(batch, bytes_max=UNPACKED_BYTES_MAX),
        lambda: count_and_check(batch, 0, read_header(batch), bytes_max=UNPACKED_BYTES_MAX),
        lambda: read_end_txn_marker(batch),
    ):
        with contextlib.suppress(*EXPECTED):
            ask()


@pytest.mark.parametrize("index", range(len(Compression) + 1))
def test_mutated_batch_raises_only_faults(index: int) -> None:
    original = originals()[index]
    judge(bytearray(original))
    source = random.Random(index)
    for _ in range(ROUNDS):
        judge(damaged(original, source))


@pytest.mark.parametrize("index", range(len(Compression)))
def test_damage_after_a_valid_header_is_never_read_as_other_records(index: int) -> None:
    """The CRC finds what the walk cannot: every flipped bit of the records is noticed."""
    original = originals()[index]
    header = read_header(original)
    source = random.Random(index)
    for _ in range(ROUNDS):
        batch = bytearray(original)
        at = source.randrange(61, len(batch))
        batch[at] ^= 1 << source.randrange(8)
        assert not is_crc_valid(batch, 0, header)
