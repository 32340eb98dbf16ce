"""The record walker, compiled and as plain Python: valid and malformed records.

Rows 32 and 39 of the list of bad inputs are here by number.
"""

import contextlib
import random
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import InvalidRecord
from ottla.protocol.records.batch import Compression, read_header
from ottla.protocol.records.reader import Header, Record, read_records
from ottla.protocol.records.walker import Spans, check_records, walk_spans
from ottla.protocol.records.writer import build_batch, encode_records, seal_batch, varint
from record_tools import count_and_check

pytestmark = pytest.mark.engine

INT64_MAX = 2**63 - 1
EMPTY = b"\x0c\0\0\0\1\1\0"  # attributes, two deltas, null key, null value, no headers

blobs = st.none() | st.binary(max_size=40) | st.integers(60, 20_000).map(lambda n: b"z" * n)
headers = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)).map(lambda h: Header(*h)),
    max_size=3,
).map(tuple)
timestamps = st.integers(-1, 2**62) | st.integers(0, 300)


@st.composite
def record_lists(draw: st.DrawFn, records_max: int = 12) -> list[Record]:
    base = draw(st.integers(0, 2**40))
    count = draw(st.integers(1, records_max))
    return [
        Record(base + index, draw(timestamps), draw(blobs), draw(blobs), draw(headers))
        for index in range(count)
    ]


def region_of(*bodies: bytes) -> bytes:
    return b"".join(varint(len(body)) + body for body in bodies)


def body(
    timestamp: bytes = b"\0",
    offset: bytes = b"\0",
    key: bytes = b"\1",
    value: bytes = b"\1",
    headers: bytes = b"\0",
) -> bytes:
    return b"\0" + timestamp + offset + key + value + headers


def walkers() -> list[Callable[[bytes, int], object]]:
    return [walk_spans, lambda region, count: check_records(region, count, 0)]


def assert_refused(region: bytes, count: int = 1) -> None:
    for walk in walkers():
        with pytest.raises(InvalidRecord) as caught:
            walk(region, count)
        assert caught.value.code is ErrorCode.INVALID_RECORD


def assert_taken(region: bytes, count: int = 1) -> Spans:
    check_records(region, count, 0)
    return walk_spans(region, count)


@settings(deadline=None)
@given(record_lists(), st.sampled_from(Compression))
def test_records_round_trip(records: list[Record], compression: Compression) -> None:
    batch = build_batch(records, base_offset=records[0].offset, compression=compression)
    assert read_records(batch) == records
    header = read_header(batch)
    summary = count_and_check(batch, 0, header)
    newest = max(records, key=lambda record: record.timestamp)  # the first of the newest
    assert header.base_timestamp + summary.max_timestamp_delta == newest.timestamp
    assert header.base_offset + summary.max_timestamp_offset_delta == newest.offset
    assert header.max_timestamp == newest.timestamp
    assert summary.has_null_key == any(record.key is None for record in records)


@settings(deadline=None)
@given(record_lists())
def test_spans_hold_the_positions_of_all_fields(records: list[Record]) -> None:
    base = records[0]
    region = bytes(encode_records(records, base.offset, base.timestamp))
    spans = walk_spans(region, len(records))
    assert spans.count == len(records)
    assert spans.starts[0] == 0 and spans.starts[-1] == len(region)
    for index, record in enumerate(records):
        assert spans.offset_deltas[index] == index
        assert spans.timestamp_deltas[index] == record.timestamp - base.timestamp
        assert spans.header_counts[index] == len(record.headers)
        for name, field in (("key", record.key), ("value", record.value)):
            start = getattr(spans, f"{name}_starts")[index]
            length = getattr(spans, f"{name}_lengths")[index]
            assert length == (-1 if field is None else len(field))
            assert field is None or region[start : start + length] == field
        alone = region[spans.starts[index] : spans.starts[index + 1]]
        assert alone == encode_records([record], base.offset, base.timestamp)
        begin = spans.header_starts[index]
        expected = b"".join(
            varint(len(key.encode()))
            + key.encode()
            + (varint(-1) if value is None else varint(len(value)) + value)
            for key, value in record.headers
        )
        assert region[begin : spans.starts[index + 1]] == expected


def test_offset_gaps_are_read_but_rejected_from_producers() -> None:
    records = [Record(offset, 0, None, b"v") for offset in (10, 12, 19)]
    batch = build_batch(records, base_offset=10, last_offset_delta=2)
    assert [record.offset for record in read_records(batch)] == [10, 12, 19]
    with pytest.raises(InvalidRecord):
        count_and_check(batch, 0, read_header(batch))


@pytest.mark.parametrize("change", [-1, 1, 2**31 - 4, -4])
def test_wrong_record_count_is_rejected(change: int) -> None:
    records = [Record(offset, 0, b"k", b"v") for offset in range(3)]
    batch = build_batch(records)
    header = read_header(batch)._replace(records_count=3 + change)
    lying = seal_batch(header, batch[61:])
    for honest_delta in (2, header.records_count - 1):
        lying = seal_batch(header._replace(last_offset_delta=honest_delta), batch[61:])
        with pytest.raises(InvalidRecord):
            count_and_check(lying, 0, read_header(lying))
    with pytest.raises(InvalidRecord):
        read_records(lying)


@pytest.mark.parametrize("delta", [-1, 0, 1, 3, 2**31 - 1])
def test_wrong_last_offset_delta_is_rejected(delta: int) -> None:
    batch = build_batch([Record(i, 0, b"k", b"v") for i in range(3)], last_offset_delta=delta)
    with pytest.raises(InvalidRecord):
        count_and_check(batch, 0, read_header(batch))


@pytest.mark.parametrize("deltas", [(1, 2), (0, 0), (0, 2), (1, 0), (0, -1)])
def test_offset_deltas_not_counting_from_0_are_rejected(deltas: tuple[int, int]) -> None:
    region = region_of(*(body(offset=varint(delta)) for delta in deltas))
    with pytest.raises(InvalidRecord):
        check_records(region, 2, 0)
    assert list(walk_spans(region, 2).offset_deltas) == list(deltas)


def test_batch_without_records_is_rejected_from_producers() -> None:
    with pytest.raises(InvalidRecord):
        check_records(b"", 0, 0)
    assert walk_spans(b"", 0).count == 0


def test_bytes_after_the_last_record_are_rejected() -> None:
    assert_taken(region_of(body()))
    assert_refused(region_of(body()) + b"\0")
    assert_refused(region_of(body(), body(offset=b"\2")), count=1)


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_too_large_record_count_allocates_nothing(count: int) -> None:
    assert_refused(region_of(body()), count)


def test_record_length_that_differs_from_its_fields_is_rejected() -> None:
    assert_refused(region_of(body() + b"\0"))
    assert_refused(region_of(body()[:-1]) + b"\0")
    # A second record lends its bytes to the first, whose fields end behind its own end.
    assert_refused(b"\x0a" + body() + region_of(body(offset=b"\2")), count=2)


@pytest.mark.parametrize("length", [-1, 0, 5, 7, 2**31 - 1, -(2**31)])
def test_field_length_that_does_not_fit_is_rejected(length: int) -> None:
    assert_refused(varint(length) + body())


@pytest.mark.parametrize("name", ["key", "value"])
@pytest.mark.parametrize("length", [1, 3, 100, 2**31 - 1])
def test_field_beyond_its_record_is_rejected(name: str, length: int) -> None:
    assert_refused(region_of(body(**{name: varint(length)})))
    # Bytes of the next record do not help.
    padding = region_of(*[body(offset=varint(i)) for i in range(1, 30)])
    assert_refused(region_of(body(**{name: varint(length)})) + padding, count=30)


@pytest.mark.parametrize("name", ["key", "value"])
def test_negative_length_is_null_as_in_kafka(name: str) -> None:
    spans = assert_taken(region_of(body(**{name: varint(-(2**31))})))
    assert list(getattr(spans, f"{name}_lengths")) == [-1]


@pytest.mark.parametrize("count", [2**31 - 1, 2, -1, -(2**31)])
def test_header_count_that_does_not_fit_is_rejected(count: int) -> None:
    assert_refused(region_of(body(headers=varint(count) + b"\2k\2")))
    assert_refused(region_of(body(headers=varint(count))))


def test_header_with_null_key_is_rejected() -> None:
    assert_taken(region_of(body(headers=b"\2" + b"\0\1")))
    assert_refused(region_of(body(headers=b"\2" + b"\1\1")))
    assert_refused(region_of(body(headers=b"\4" + b"\2k\1" + b"\1\1")))


@pytest.mark.parametrize("headers", [b"\2\2k\4v", b"\2\4k\1", b"\2\2k", b"\4\2k\1", b"\2\2k\1\0"])
def test_headers_that_do_not_fill_their_record_are_rejected(headers: bytes) -> None:
    assert_refused(region_of(body(headers=headers)))


PADDED = {  # the same number in more bytes than it needs, and too many
    "timestamp": (10, 11),
    "offset": (5, 6),
    "key": (5, 6),
    "value": (5, 6),
    "headers": (5, 6),
}


@pytest.mark.parametrize("name", PADDED)
def test_varints_are_accepted_up_to_their_longest_form(name: str) -> None:
    most, too_many = PADDED[name]
    plain = b"\0" if name in ("timestamp", "offset", "headers") else b"\1"
    for size in range(2, too_many + 1):
        padded = bytes([plain[0] | 0x80]) + b"\x80" * (size - 2) + b"\0"
        # Behind it enough bytes for the fast way, or none.
        for tail in (b"", region_of(body(offset=b"\2", value=varint(8) + b"v" * 8))):
            count = 2 if tail else 1
            region = region_of(body(**{name: padded})) + tail
            if size <= most:
                assert_taken(region, count)
            else:
                assert_refused(region, count)


def test_bits_beyond_32_and_64_are_dropped_as_in_kafka() -> None:
    spans = assert_taken(region_of(body(offset=b"\x80\x80\x80\x80\x70")))
    assert list(spans.offset_deltas) == [0]
    spans = assert_taken(region_of(body(timestamp=b"\x82" + b"\x80" * 8 + b"\x7e")))
    assert list(spans.timestamp_deltas) == [1]


@settings(deadline=None)
@given(st.integers(-(2**63), INT64_MAX))
@example(INT64_MAX)
@example(-(2**63))
def test_every_timestamp_delta_of_64_bits_is_read(delta: int) -> None:
    region = region_of(body(timestamp=varint(delta)))
    assert list(walk_spans(region, 1).timestamp_deltas) == [delta]
    padded = region + region_of(body())
    assert walk_spans(padded, 2).timestamp_deltas[0] == delta
    assert check_records(region, 1, 0).max_timestamp_delta == delta


@settings(deadline=None)
@given(st.integers(-(2**31), 2**31 - 1))
@example(2**31 - 1)
@example(-(2**31))
def test_every_offset_delta_of_32_bits_is_read(delta: int) -> None:
    region = region_of(body(offset=varint(delta)))
    assert list(walk_spans(region, 1).offset_deltas) == [delta]
    assert walk_spans(region + region_of(body()), 2).offset_deltas[0] == delta


@pytest.mark.parametrize(
    ("base", "delta", "is_taken"),
    [
        (INT64_MAX, 0, True),
        (INT64_MAX, 1, False),
        (INT64_MAX, -(2**63), True),
        (5, INT64_MAX - 5, True),
        (5, INT64_MAX - 4, False),
        (-5, -(2**63) + 5, True),
        (-5, -(2**63) + 4, False),
    ],
)
def test_timestamp_beyond_64_bits_is_rejected(base: int, delta: int, is_taken: bool) -> None:
    region = region_of(body(timestamp=varint(delta)))
    if is_taken:
        assert check_records(region, 1, base).max_timestamp_delta == delta
    else:
        with pytest.raises(InvalidRecord):
            check_records(region, 1, base)


def test_summary_has_the_first_record_with_the_max_timestamp() -> None:
    deltas = [-3, 4, -9, 4, 1]
    region = region_of(
        *(body(timestamp=varint(d), offset=varint(i), key=b"\0") for i, d in enumerate(deltas))
    )
    assert check_records(region, 5, 1000) == (4, 1, False, -9)
    region = region_of(*(body(timestamp=varint(-1 - i), offset=varint(i)) for i in range(3)))
    assert check_records(region, 3, 1000) == (-1, 0, True, -3)


def test_truncation_at_every_byte_is_rejected() -> None:
    records = [
        Record(0, 0, b"key", b"v" * 100, (Header("a", b"b"),)),
        Record(1, 10**12, None, b"", (Header("", None), Header("cc", b"x" * 70))),
    ]
    region = bytes(encode_records(records, 0, 0))
    assert_taken(region, 2)
    for cut in range(len(region)):
        assert_refused(region[:cut], 2)


@pytest.mark.parametrize("seed", range(20))
def test_arbitrary_bytes_are_walked_or_rejected(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(100):
        region = source.randbytes(source.randrange(60))
        for walk in walkers():
            with contextlib.suppress(InvalidRecord):
                walk(region, source.randrange(4))


def test_invalid_utf8_in_header_keys_is_replaced() -> None:
    region = region_of(body(headers=b"\2" + b"\4\xff\xfe" + b"\1"))
    plain = read_header(build_batch([Record(0, 0, None, None)]))
    assert read_records(seal_batch(plain, region))[0].headers == (Header("\ufffd\ufffd", None),)


def test_empty_record_has_seven_bytes() -> None:
    assert encode_records([Record(0, 0, None, None)], 0, 0) == EMPTY
    assert_taken(EMPTY)
