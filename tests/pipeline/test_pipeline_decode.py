"""Decoding into Arrow columns: the same rows as the record reader, and bad bytes are rejected."""

import contextlib
import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.fetched import Chunk, next_offset
from ottla.formats.arrow_batches import TYPES, BadBatch, record_batches
from ottla.protocol.records.batch import Compression, batches, patch_crc, read_header
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.reader import Header, Record, read_records
from ottla.protocol.records.writer import Producer, build_batch, encode_records, seal_batch
from ottla.protocol.types import TopicPartition

pytestmark = pytest.mark.engine

AT = TopicPartition("orders", 3)
ALL = tuple(TYPES)
EVERYTHING = 2**62
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def rows_of(*data, columns=ALL, start=0, end=EVERYTHING, aborted=(), rows=10_000):
    """Return every row as a dict, after validating the Arrow arrays."""
    found = []
    chunks = [Chunk(memoryview(each), tuple(aborted)) for each in data]
    for batch in record_batches(chunks, AT, columns, start, end, rows):
        batch.validate(full=True)
        assert batch.schema == pa.schema([(name, TYPES[name]) for name in columns])
        found += batch.to_pylist()
    return found


def row(record, timestamp_type=0, timestamp=None):
    """Return the row of Spark's Kafka source for a record."""
    millis = record.timestamp if timestamp is None else timestamp
    return {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 3,
        "offset": record.offset,
        "timestamp": EPOCH + datetime.timedelta(milliseconds=millis),
        "timestampType": timestamp_type,
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
    }


def numbered(first, count, **changes):
    fields = {"key": b"k", "value": b"v"} | changes
    return [Record(first + each, 1000 + each, **fields) for each in range(count)]


class TestRows:
    @pytest.mark.parametrize("codec", list(Compression))
    def test_rows_of_every_codec_are_decoded(self, codec):
        records = numbered(7, 50, value=b"x" * 40)
        data = build_batch(records, base_offset=7, compression=codec)
        assert rows_of(data) == [row(each) for each in records]

    def test_null_and_empty_values_differ(self):
        records = [
            Record(0, 5, None, b"value"),
            Record(1, 5, b"", None),
            Record(2, 5, None, None),
            Record(3, 5, b"key", b""),
        ]
        assert rows_of(build_batch(records)) == [row(each) for each in records]

    def test_headers_keep_order_duplicates_and_nulls(self):
        records = [
            Record(0, 5, b"k", b"v", (Header("a", b"1"), Header("a", None), Header("", b""))),
            Record(1, 5, b"k", b"v"),
            Record(2, 5, b"k", b"v", (Header("ümläut", b"\xff\x00"),)),
        ]
        assert rows_of(build_batch(records), build_batch(records[:1])) == [
            row(each) for each in (*records, records[0])
        ]

    def test_invalid_utf8_in_header_key_is_replaced_as_in_java(self):
        data = build_batch([Record(0, 5, b"k", b"v", (Header("né", b"1"),))])
        data[data.index("é".encode())] = 0xFF
        patch_crc(data, 0, len(data))
        assert rows_of(data)[0]["headers"] == [{"key": "n\ufffd\ufffd", "value": b"1"}]

    def test_log_append_time_applies_to_every_record(self):
        records = numbered(0, 3)
        data = build_batch(records, append_time=99_000)
        assert rows_of(data) == [row(each, timestamp_type=1, timestamp=99_000) for each in records]

    def test_delete_horizon_does_not_change_timestamps(self):
        records = numbered(0, 3)
        data = build_batch(records, delete_horizon_ms=123_456)
        assert rows_of(data) == [row(each) for each in records]

    def test_negative_timestamps_and_negative_deltas_are_decoded(self):
        records = [Record(0, 5000, b"k", b"v"), Record(1, -1, b"k", b"v")]
        assert rows_of(build_batch(records)) == [row(each) for each in records]

    def test_selected_columns_are_returned_in_order(self):
        data = build_batch(numbered(0, 2))
        assert rows_of(data, columns=("offset", "value")) == [
            {"offset": 0, "value": b"v"},
            {"offset": 1, "value": b"v"},
        ]

    def test_constant_columns_fit_every_record_batch(self):
        data = [build_batch(numbered(first, 30), base_offset=first) for first in (0, 30, 60)]
        found = rows_of(*data, columns=("topic", "partition", "offset"), rows=20)
        assert [each["offset"] for each in found] == list(range(90))
        assert {(each["topic"], each["partition"]) for each in found} == {("orders", 3)}

    def test_compaction_gaps_are_kept(self):
        records = [Record(offset, 1, b"k", b"v") for offset in (10, 13, 17)]
        data = build_batch(records, base_offset=10, last_offset_delta=9)
        assert [each["offset"] for each in rows_of(data)] == [10, 13, 17]
        assert next_offset(data) == 20

    def test_batch_without_records_has_no_rows(self):
        empty = build_batch([], base_offset=5, last_offset_delta=4)
        assert rows_of(empty + build_batch(numbered(10, 1), base_offset=10)) == [
            row(numbered(10, 1)[0])
        ]

    @pytest.mark.parametrize(("start", "end"), [(0, 30), (3, 30), (0, 27), (12, 13), (10, 20)])
    def test_rows_outside_the_range_are_left_out(self, start, end):
        data = bytearray().join(
            build_batch(numbered(first, 10), base_offset=first) for first in (0, 10, 20)
        )
        found = rows_of(data, columns=("offset",), start=start, end=end)
        assert [each["offset"] for each in found] == list(range(start, end))

    def test_incomplete_batch_at_the_end_is_ignored(self):
        data = build_batch(numbered(0, 3)) + build_batch(numbered(3, 3), base_offset=3)[:-1]
        assert len(rows_of(data)) == 3
        assert next_offset(data) == 3

    def test_large_batches_are_split_by_rows(self):
        data = build_batch(numbered(0, 1000))
        chunks = [Chunk(memoryview(data))]
        sizes = [each.num_rows for each in record_batches(chunks, AT, ("key",), 0, 1000, 300)]
        assert sizes == [334, 334, 332]

    def test_small_batches_are_combined(self):
        data = b"".join(build_batch(numbered(each, 1), base_offset=each) for each in range(100))
        chunks = [Chunk(data)]
        sizes = [each.num_rows for each in record_batches(chunks, AT, ALL, 0, 100, 40)]
        assert sizes == [40, 40, 20]


class TestTransactions:
    ANN, BOB = Producer(1, 0, 0), Producer(2, 0, 0)

    def data(self, first, producer, count=2):
        return build_batch(
            numbered(first, count), base_offset=first, producer=producer, is_transactional=True
        )

    def marker(self, offset, producer, *, is_commit):
        return build_end_txn_marker(EndTxnMarker(is_commit, 0), producer, 1000, base_offset=offset)

    def log(self):
        """Ann aborts 0-1 and commits 6-7; Bob commits 2-3."""
        return b"".join(
            [
                self.data(0, self.ANN),
                self.data(2, self.BOB),
                self.marker(4, self.ANN, is_commit=False),
                self.marker(5, self.BOB, is_commit=True),
                self.data(6, self.ANN),
                self.marker(8, self.ANN, is_commit=True),
                build_batch(numbered(9, 1), base_offset=9),
            ]
        )

    def offsets(self, data, **options):
        return [each["offset"] for each in rows_of(data, columns=("offset",), **options)]

    def test_aborted_records_and_markers_are_not_rows(self):
        assert self.offsets(self.log(), aborted=[(1, 0)]) == [2, 3, 6, 7, 9]

    def test_read_uncommitted_leaves_out_only_markers(self):
        assert self.offsets(self.log()) == [0, 1, 2, 3, 6, 7, 9]

    def test_aborted_transaction_may_begin_before_the_chunk(self):
        rest = self.data(10, self.ANN) + self.marker(12, self.ANN, is_commit=False)
        assert self.offsets(rest, aborted=[(1, 3)]) == []

    def test_abort_marker_before_the_range_takes_effect(self):
        assert self.offsets(self.log(), start=5, aborted=[(1, 0)]) == [6, 7, 9]


KEYS = st.none() | st.binary(max_size=6)
HEADERS = st.lists(
    st.builds(Header, st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3
).map(tuple)
BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(1, 4), KEYS, KEYS, HEADERS), max_size=6),
        st.sampled_from(Compression),
        st.none() | st.integers(0, 10**12),
    ),
    min_size=1,
    max_size=5,
)


def log_of(drawn):
    """Return contiguous batches with gaps, and their end offset."""
    data, offset = bytearray(), 0
    for records, codec, append_time in drawn:
        base, made = offset, []
        for gap, key, value, headers in records:
            made.append(Record(offset, 10**12 + 17 * gap, key, value, headers))
            offset += gap
        offset += 1
        data += build_batch(
            made,
            base_offset=base,
            compression=codec,
            append_time=append_time,
            last_offset_delta=offset - base - 1,
        )
    return data, offset


@given(
    BATCHES,
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(1, 8),
    st.sets(st.sampled_from(ALL), min_size=1),
)
def test_decoded_rows_equal_those_of_the_record_reader(drawn, start, end, rows, columns):
    data, _ = log_of(drawn)
    expected = []
    for position, header in batches(data):
        kind = int(header.is_log_append_time)
        for record in read_records(data, position):
            if start <= record.offset < end:
                full = row(record, kind)
                expected.append({name: full[name] for name in ALL if name in columns})
    asked = tuple(name for name in ALL if name in columns)
    assert rows_of(data, columns=asked, start=start, end=end, rows=rows) == expected


class TestHostileBytes:
    def test_wrong_crc_error_names_partition_and_offset(self):
        data = build_batch(numbered(7, 3), base_offset=7)
        data[-1] ^= 1
        with pytest.raises(BadBatch, match="orders-3: the batch at offset 7 has a wrong CRC"):
            rows_of(data)

    @pytest.mark.parametrize("change", [1, -1, 1000, -3, 2**31 - 4])
    def test_wrong_record_count_is_rejected(self, change):
        data = build_batch(numbered(0, 3))
        count = read_header(data).records_count + change
        data[57:61] = count.to_bytes(4, "big", signed=True)
        patch_crc(data, 0, len(data))
        if count == 0:
            assert rows_of(data) == []
        else:
            with pytest.raises(BadBatch):
                rows_of(data)

    @pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (-1, 0), (0, 3)])
    def test_non_increasing_offset_deltas_are_rejected(self, deltas):
        region = b"".join(encode_records([Record(each + 5, 0, b"", b"")], 5, 0) for each in [0, 0])
        region = bytearray(region)
        for index, delta in enumerate(deltas):
            region[index * len(region) // 2 + 3] = delta << 1 if delta >= 0 else 1
        header = read_header(build_batch(numbered(0, 2)))
        data = seal_batch(header._replace(last_offset_delta=2), region)
        with pytest.raises(BadBatch, match="offset delta"):
            rows_of(data)

    def test_timestamp_beyond_64_bit_microseconds_is_rejected(self):
        for late in (2**62, 2**63 // 1000 + 1):
            for records in (
                [Record(0, late, b"", b"")],
                [*numbered(0, 1), Record(1, late, b"", b"")],
            ):
                with pytest.raises(BadBatch, match="microseconds"):
                    rows_of(build_batch(records))
        with pytest.raises(BadBatch, match="microseconds"):
            rows_of(build_batch(numbered(0, 1), append_time=2**62))

    def test_older_message_format_is_rejected(self):
        data = build_batch(numbered(0, 3))
        data[16] = 1
        with pytest.raises(BadBatch, match="message format 1"):
            rows_of(data)

    @given(st.data())
    def test_arbitrary_bytes_only_raise_bad_batch(self, draw):
        data, _ = log_of(draw.draw(BATCHES))
        for _ in range(draw.draw(st.integers(1, 4))):
            data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
        if draw.draw(st.booleans()) and len(data) > 61:
            length = int.from_bytes(data[8:12], "big", signed=True)
            if 49 <= length <= len(data) - 12:
                patch_crc(data, 0, length + 12)
        chunks = [Chunk(memoryview(data))]
        with contextlib.suppress(BadBatch):
            for batch in record_batches(chunks, AT, ALL, draw.draw(st.integers(0, 20)), EVERYTHING):
                batch.validate(full=True)
