# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Copies the records of a batch that compaction keeps, and rebases their timestamps.

A kept record keeps its bytes, including its offset delta: offsets never change. Only when the batch
gets a delete horizon, which replaces the base timestamp (KIP-534), every timestamp delta is
rewritten relative to it. See `walker.py` for the bytes of a record.
"""

from typing import TYPE_CHECKING

from ottla.protocol.records.walker import Spans
from ottla.protocol.types import Buffer

if TYPE_CHECKING:
    from ottla.protocol import cython_stub as cython
else:
    try:
        import cython
    except ImportError:
        from ottla.protocol import cython_stub as cython

VARLONG_BYTES_MAX = 10


@cython.locals(
    marks="const unsigned char[::1]",
    deltas="long long[::1]",
    index=cython.int,
    largest=cython.longlong,
    is_found=cython.bint,
)
def max_timestamp_delta(spans: Spans, keep: Buffer) -> int:
    """Return the largest timestamp delta of the marked records; at least one is marked."""
    deltas, marks = spans.timestamp_deltas, keep
    largest, is_found = 0, False
    for index in range(spans.count):
        if marks[index] and (not is_found or deltas[index] > largest):
            largest, is_found = deltas[index], True
    return largest


@cython.locals(
    starts="int[::1]", marks="const unsigned char[::1]", index=cython.int, begin=cython.int
)
def retain_records(region: Buffer, spans: Spans, keep: Buffer) -> bytearray:
    """Return the records that ``keep`` marks, concatenated byte for byte."""
    starts, marks = spans.starts, keep
    kept = bytearray()
    view = memoryview(region)
    begin = -1  # start of a run of kept records; runs are copied as a whole
    for index in range(spans.count):
        if marks[index]:
            if begin < 0:
                begin = starts[index]
        elif begin >= 0:
            kept += view[begin : starts[index]]
            begin = -1
    if begin >= 0:
        kept += view[begin : starts[spans.count]]
    return kept


@cython.locals(
    source="const unsigned char[::1]",
    target="unsigned char[::1]",
    marks="const unsigned char[::1]",
    starts="int[::1]",
    deltas="long long[::1]",
    index=cython.int,
    position=cython.int,
    at=cython.int,
    rest=cython.int,
    end=cython.int,
    length=cython.int,
    delta=cython.longlong,
    moved=cython.longlong,
    zigzag=cython.ulonglong,
    raw=cython.ulonglong,
)
def retain_records_rebased(region: Buffer, spans: Spans, keep: Buffer, shift: int) -> memoryview:
    """Return the marked records with ``shift`` added to every timestamp delta.

    ``shift`` is the old base timestamp minus the new one, so the timestamps do not change.
    """
    starts, deltas, marks = spans.starts, spans.timestamp_deltas, keep
    source = memoryview(region)
    kept = bytearray(len(region) + spans.count * 2 * VARLONG_BYTES_MAX)
    target = memoryview(kept)
    moved, position = shift, 0
    for index in range(spans.count):
        if not marks[index]:
            continue
        at, end = starts[index], starts[index + 1]
        while source[at] > 0x7F:  # the record's length
            at += 1
        at += 1
        rest = at + 1  # the timestamp delta follows the attributes
        while source[rest] > 0x7F:
            rest += 1
        rest += 1
        delta = deltas[index] + moved
        zigzag = delta * 2 if delta >= 0 else -delta * 2 - 1
        # The new length: attributes, delta, and the rest. A length is never negative.
        raw = zigzag
        length = 2 + end - rest
        while raw > 0x7F:
            raw >>= 7
            length += 1
        raw = length * 2
        while raw > 0x7F:
            target[position] = (raw & 0x7F) | 0x80
            raw >>= 7
            position += 1
        target[position] = raw
        target[position + 1] = source[at]
        position += 2
        while zigzag > 0x7F:
            target[position] = (zigzag & 0x7F) | 0x80
            zigzag >>= 7
            position += 1
        target[position] = zigzag
        position += 1
        while rest < end:
            target[position] = source[rest]
            position += 1
            rest += 1
    return memoryview(kept)[:position]
