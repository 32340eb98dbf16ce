"""Decoding alone: batches into Arrow columns, compared with aiokafka's reader.

aiokafka's reader is compiled, too, and creates an object for each record. The figure is the CPU
time of this thread to build the same columns; its bare pass over the records is shown as well.
"""

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from time import thread_time

import pyarrow as pa
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]

from benchmarks.report import Row, spread
from ottla.client.fetched import Chunk
from ottla.formats.arrow_batches import TYPES, record_batches
from ottla.protocol.records.batch import Compression
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Millis, Offset, TopicPartition

AREA = "pipeline"
RECORDS = 200_000
PER_BATCH = (5_000, 500)
ROUNDS = 5
TARGET = 20.0
WORDS = (b"order", b"click", b"shipped", b"basket", b"returned", b"paid", b"open", b"closed")


def value(number: int) -> bytes:
    """Return 100 bytes that compress about as well as JSON."""
    text = b'{"id":%d,"what":"%s","who":"user-%d","sum":%d,"note":"%s"}' % (
        number,
        WORDS[number % 8],
        number * 7919 % 100_000,
        number * 31 % 9973,
        WORDS[number * 5 % 8],
    )
    return text.ljust(100, b".")


def log(per_batch: int, codec: Compression) -> bytearray:
    """Return `RECORDS` records in consecutive batches."""
    data = bytearray()
    for first in range(0, RECORDS, per_batch):
        records = [
            Record(Offset(each), Millis(1_700_000_000_000 + each), b"key-%08d" % each, value(each))
            for each in range(first, first + per_batch)
        ]
        data += build_batch(records, base_offset=first, compression=codec)
    return data


def ours(data: bytearray) -> None:
    """Decode all columns."""
    chunks = [Chunk(memoryview(data))]
    partition = TopicPartition("decoded", 0)
    rows = sum(
        batch.num_rows for batch in record_batches(chunks, partition, tuple(TYPES), 0, RECORDS)
    )
    assert rows == RECORDS


def theirs(data: bytes) -> None:
    """Read every record with aiokafka's reader, and build the same columns."""
    columns: list[list[object]] = [[] for _ in TYPES]
    records = MemoryRecords(data)
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        for record in batch:
            row = (
                record.key,
                record.value,
                "decoded",
                0,
                record.offset,
                record.timestamp * 1000,
                record.timestamp_type,
                record.headers or None,
            )
            for column, each in zip(columns, row, strict=True):
                column.append(each)
    arrays = [pa.array(each, kind) for each, kind in zip(columns, TYPES.values(), strict=True)]
    assert len(arrays[0]) == RECORDS


def walked(data: bytes) -> None:
    """Iterate over every record with aiokafka's reader, and keep nothing."""
    records = MemoryRecords(data)
    while records.has_next():
        for record in records.next_batch():
            _ = (record.offset, record.timestamp, record.key, record.value, record.headers)


def cpu(work: Callable[[], None]) -> float:
    """Return the CPU time of one call."""
    began = thread_time()
    work()
    return thread_time() - began


def decode_rows() -> Iterator[Row]:
    """Yield a row for each codec and batch size; the first one has the target."""
    for per_batch in PER_BATCH:
        for codec in (Compression.NONE, Compression.LZ4, Compression.ZSTD):
            data = log(per_batch, codec)
            works = (
                partial(ours, data),
                partial(theirs, bytes(data)),
                partial(walked, bytes(data)),
            )
            for work in works:
                work()
            rounds = [tuple(cpu(work) for work in works) for _ in range(ROUNDS)]
            is_judged = codec is Compression.NONE and per_batch == PER_BATCH[0]
            yield _row(f"{per_batch:,} per batch, {codec.name.lower()}", rounds, is_judged)


def _row(what: str, rounds: list[tuple[float, ...]], is_judged: bool) -> Row:
    mine, other, walk = (statistics.median(each) for each in zip(*rounds, strict=True))
    ratios = [each[1] / each[0] for each in rounds]
    ratio = statistics.median(ratios)
    return Row(
        AREA,
        f"decode to 8 Arrow columns, {what}",
        f"{RECORDS / mine / 1e6:.1f} M records/s of one core",
        f"aiokafka {RECORDS / other / 1e6:.2f} M/s, and {RECORDS / walk / 1e6:.2f} M/s without"
        f" columns ({spread(ratios)})",
        ratio,
        f"at least {TARGET:.0f}" if is_judged else "reported",
        ratio >= TARGET or not is_judged,
    )
