"""Encoded columns are the same bytes as records written one by one."""

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.partitioner import partition_of_key
from ottla.formats.batch_encoder import (
    Cells,
    Columns,
    HeaderCells,
    encode_rows,
    partitions_of_keys,
    rows_by_number,
)
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.records.writer import encode_records

pytestmark = pytest.mark.engine

FIELD = st.none() | st.binary(max_size=200)
ROW = st.tuples(FIELD, FIELD, st.lists(st.tuples(st.text(max_size=5), FIELD), max_size=3))


def columns_of(rows: list) -> Columns:
    bounds = [0]
    for _, _, headers in rows:
        bounds.append(bounds[-1] + len(headers))
    flat = [header for _, _, headers in rows for header in headers]
    return Columns(
        Cells.of([key for key, _, _ in rows]),
        Cells.of([value for _, value, _ in rows]),
        HeaderCells(
            memoryview(array("i", bounds)),
            Cells.of([name.encode() for name, _ in flat]),
            Cells.of([content for _, content in flat]),
        ),
    )


def one_by_one(rows: list) -> bytearray:
    records = [
        Record(offset, 0, key, value, tuple(Header(*each) for each in headers))
        for offset, (key, value, headers) in enumerate(rows)
    ]
    return encode_records(records, 0, 0)


@given(st.lists(ROW, min_size=1, max_size=20), st.data())
@settings(max_examples=60, deadline=None)
def test_encoded_rows_equal_records_written_one_by_one(rows: list, data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=30))
    region = encode_rows(columns_of(rows), array("i", order), 0, 1 << 30)
    assert region.data == one_by_one([rows[each] for each in order])
    assert (region.count, region.next_row) == (len(order), len(order))


def test_long_rows_have_multi_byte_lengths() -> None:
    rows = [(None, bytes(size), []) for size in (63, 64, 8191, 8192, 1 << 20)]
    region = encode_rows(columns_of(rows), array("i", range(5)), 0, 1 << 30)
    assert region.data == one_by_one(rows)


@given(st.lists(ROW, min_size=1, max_size=20), st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_regions_respect_the_limit_and_lose_no_row(rows: list, bytes_max: int) -> None:
    columns, order = columns_of(rows), array("i", range(len(rows)))
    first, regions = 0, []
    while first < len(rows):
        region = encode_rows(columns, order, first, bytes_max)
        assert region.data == one_by_one(rows[first : region.next_row])
        assert len(region.data) <= bytes_max or region.count == 1
        if region.next_row < len(rows):
            more = one_by_one(rows[first : region.next_row + 1])
            assert len(more) > bytes_max
        first = region.next_row
        regions.append(region)
    assert sum(region.count for region in regions) == len(rows)


@given(st.lists(FIELD, max_size=40), st.integers(1, 50))
@settings(max_examples=60, deadline=None)
def test_keys_are_partitioned_as_by_the_client(keys: list, partitions: int) -> None:
    expected = [-7 if key is None else partition_of_key(key, partitions) for key in keys]
    assert list(partitions_of_keys(Cells.of(keys), partitions, -7)) == expected


@given(st.lists(st.integers(-1, 5), max_size=60))
@settings(max_examples=60, deadline=None)
def test_rows_by_number_keeps_order(numbers: list) -> None:
    found = rows_by_number(array("i", numbers), 6)
    expected = [[row for row, each in enumerate(numbers) if each == number] for number in range(6)]
    assert [list(rows) for rows in found] == expected
