"""The fast path for common records has the results of a slow and simple reader.

The walk has two ways; which one a record takes depends on what lies behind it. So every record
here is followed by enough others that it could go the quick way.
"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.protocol.faults import InvalidRecord
from ottla.protocol.records.walker import Spans, walk_into, walk_spans
from ottla.protocol.records.writer import varint

pytestmark = pytest.mark.engine

EMPTY = b"\x0c\0\0\0\1\1\0"  # attributes, two deltas, null key, null value, no headers
BEHIND = 12  # records, more bytes than the quick way reads ahead

LONG = varint(8192)  # the shortest of three bytes
assert len(LONG) == 3

Row = tuple[int, int, int, int, int, int, int, int, int]


class Malformed(Exception):
    pass


def number(region: bytes, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    raw = 0
    for index in range(bytes_max):
        if position + index >= end:
            raise Malformed
        byte = region[position + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            raw &= (1 << (32 if bytes_max == 5 else 64)) - 1
            return position + index + 1, (raw >> 1) ^ -(raw & 1)
    raise Malformed


def field(region: bytes, position: int, end: int) -> tuple[int, int, int]:
    """Return where it starts, its length (-1: null) and where it ends."""
    start, length = number(region, position, end, 5)
    if length > end - start:
        raise Malformed
    return start, max(length, -1), start + max(length, 0)


def simple(region: bytes, count: int) -> list[Row]:
    """Read records in the most obvious way."""
    rows: list[Row] = []
    position = 0
    for _ in range(count):
        begin = position
        position, length = number(region, position, len(region), 5)
        if length < 0 or length > len(region) - position:
            raise Malformed
        end = position + length
        position, timestamp = number(region, position + 1, end, 10)
        position, offset = number(region, position, end, 5)
        key_start, key_length, position = field(region, position, end)
        value_start, value_length, position = field(region, position, end)
        headers_start, headers_count = number(region, position, end, 5)
        position = headers_start
        if headers_count < 0:
            raise Malformed
        for _ in range(headers_count):
            _, name_length, position = field(region, position, end)
            if name_length < 0:
                raise Malformed
            _, _, position = field(region, position, end)
        if position != end:
            raise Malformed
        key, value = (key_start, key_length), (value_start, value_length)
        rows.append((begin, timestamp, offset, *key, *value, headers_start, headers_count))
    if position != len(region):
        raise Malformed
    return rows


def walked(region: bytes, count: int) -> list[Row]:
    spans = walk_spans(region, count)
    return list(
        zip(
            spans.starts[:count],
            spans.timestamp_deltas,
            spans.offset_deltas,
            spans.key_starts,
            spans.key_lengths,
            spans.value_starts,
            spans.value_lengths,
            spans.header_starts,
            spans.header_counts,
            strict=True,
        )
    )


def test_spans_can_be_reused() -> None:
    with_headers = b"\0\2\2\1\1\2\2h\2v"
    spans = Spans(1 + BEHIND)
    walk_into(spans, varint(len(with_headers)) + with_headers + EMPTY * BEHIND)
    assert (spans.header_counts[0], spans.offset_deltas[0]) == (1, 1)
    walk_into(spans, EMPTY * (1 + BEHIND))
    fresh = walk_spans(EMPTY * (1 + BEHIND), 1 + BEHIND)
    for column in Spans.__slots__:
        assert getattr(spans, column) == getattr(fresh, column), column


def agree(region: bytes, count: int) -> None:
    try:
        expected = simple(region, count)
    except Malformed:
        with pytest.raises(InvalidRecord):
            walk_spans(region, count)
    else:
        assert walked(region, count) == expected


numbers = st.sampled_from([0, 1, -1, 63, 64, -65, 8191, 8192, 2**20 - 1, 2**20, 2**31 - 1])
lengths = st.sampled_from([-2, -1, 0, 1, 5, 63, 64, 200, 8191, 8192])
# What a length claims beyond what is there.
lies = st.sampled_from([0, 0, 0, 0, 0, 1, -1, 70, 9000])


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    made = b"\0" + varint(draw(numbers)) + varint(draw(numbers))
    for _ in range(2):
        length = draw(lengths)
        made += varint(length + draw(lies)) + b"x" * max(length, 0)
    headers = draw(st.integers(0, 2))
    made += varint(headers + draw(st.sampled_from([0, 0, 0, 1, -1])))
    return made + b"\2h\2v" * headers


@st.composite
def regions(draw: st.DrawFn) -> tuple[bytes, int]:
    made = draw(st.lists(bodies(), min_size=1, max_size=4))
    region = b"".join(varint(len(body) + draw(lies)) + body for body in made)
    return region + EMPTY * BEHIND, len(made) + BEHIND


@given(regions())
def test_fast_path_agrees_on_records_with_wrong_lengths(made: tuple[bytes, int]) -> None:
    agree(*made)


@given(regions(), st.data())
def test_fast_path_agrees_on_damaged_records(made: tuple[bytes, int], data: st.DataObject) -> None:
    region, count = bytearray(made[0]), made[1]
    for _ in range(data.draw(st.integers(1, 3))):
        region[data.draw(st.integers(0, min(len(region) - 1, 40)))] = data.draw(st.integers(0, 255))
    agree(bytes(region), count)


@given(st.binary(min_size=1, max_size=60))
@example(b"\x10\0\0\0\1\1\2\2h")  # one header, cut off
def test_fast_path_agrees_on_arbitrary_bytes(junk: bytes) -> None:
    agree(junk + EMPTY * BEHIND, 1 + BEHIND)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\0\0\0\1\1\2", id="a header that is not there"),
        pytest.param(b"\0\0\0\1\1\0\0", id="a byte behind the headers"),
        pytest.param(b"\0\0\0\1\6abcd\0", id="a value that is longer than it says"),
        pytest.param(b"\0\0\0\6ab\1\0", id="a key that is shorter than it says"),
        pytest.param(b"\0\0\0\1\x80\x80\1\0", id="a value of 16 KiB that is not there"),
        pytest.param(b"\0\0\0\x80\x80\1\1\0", id="a key of 16 KiB that is not there"),
        # Of these the first two bytes of a length, taken for all of it, would fit exactly.
        pytest.param(b"\0\0\0\1" + LONG + b"v" * 8191 + b"\0", id="a value one byte short"),
        pytest.param(b"\0\0\0" + LONG + b"k" * 8191 + b"\1\0", id="a key one byte short"),
        pytest.param(b"\0\0\0\1\x81\x80\x80\x80\x80\x80\0\0", id="a length of six bytes"),
    ],
)
def test_malformed_record_among_valid_ones_is_rejected(body: bytes) -> None:
    for before in (0, 3):
        region = EMPTY * before + varint(len(body)) + body + EMPTY * BEHIND
        with pytest.raises(InvalidRecord):
            walk_spans(region, before + 1 + BEHIND)


def test_three_byte_record_length_is_not_read_as_two_bytes() -> None:
    # As if the third byte of the length were the attributes, all fields would fit.
    shifted = b"\0\0\1" + varint(8185) + b"v" * 8185 + b"\0"
    assert len(LONG[2:] + shifted) == 8192
    with pytest.raises(InvalidRecord):
        walk_spans(LONG + shifted + EMPTY * BEHIND, 1 + BEHIND)


@pytest.mark.parametrize("length", [8191, 8192, 20_000])
def test_long_value_among_short_ones_is_read(length: int) -> None:
    body = b"\0\0\0\1" + varint(length) + b"v" * length + b"\0"
    region = EMPTY + varint(len(body)) + body + EMPTY * BEHIND
    spans = walk_spans(region, 2 + BEHIND)
    assert spans.value_lengths[1] == length
    assert region[spans.value_starts[1] :][:length] == b"v" * length
