"""The pure rules of the client: partitioning, batches, sequences, offsets, filtering."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.accumulator import (
    Accumulator,
    AccumulatorLimits,
    Batch,
    ProducerRecord,
    RecordMetadata,
)
from ottla.client.backoff import Backoff
from ottla.client.fetched import Aborted, read_fetched
from ottla.client.offset_spec import (
    BEGINNING,
    END,
    AtOffset,
    AtTime,
    BadOffset,
    BeforeEnd,
    before_end,
    parse_offset,
)
from ottla.client.partitioner import StickyPartitioner, murmur2, partition_of_key
from ottla.protocol.faults import CorruptBatch, RecordTooLarge
from ottla.protocol.records.batch import SEQUENCE_MAX
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.records.writer import NO_PRODUCER, Producer, build_batch, encode_records
from ottla.protocol.types import LeaderEpoch, Millis, Offset, TopicPartition
from record_tools import patch_offset

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
ME = Producer(7, 0)


# -- partitions --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "hashed", "of_seven"),
    [  # what org.apache.kafka.common.utils.Utils says
        ("", 275646681, 2),
        ("a", -1563381124, 5),
        ("ab", 316155434, 0),
        ("abc", 479470107, 4),
        ("21", -973932308, 3),
        ("foobar", -790332482, 0),
        ("a-little-bit-long-string", -985981536, 1),
        ("å sån", 2060094479, 2),
    ],
)
def test_key_is_partitioned_as_by_the_java_client(key: str, hashed: int, of_seven: int) -> None:
    assert murmur2(key.encode()) == hashed & 0xFFFFFFFF
    assert partition_of_key(key.encode(), 7) == of_seven


def test_records_without_a_key_stay_in_a_partition_until_a_batch_is_full() -> None:
    drawn = iter([2, 0, 1, 3])
    sticky = StickyPartitioner(lambda limit: next(drawn))
    assert [sticky.choose("t", 4) for _ in range(3)] == [2, 2, 2]
    sticky.move_on("t", 4)
    assert sticky.choose("t", 4) == 3, "another one, whatever is drawn"
    sticky.move_on("t", 1)
    assert sticky.choose("t", 3) == 1, "the one it had is gone"


def test_backoff_grows_with_jitter() -> None:
    backoff = Backoff(first_ms=100, longest_ms=1000, jitter=0.2)
    assert [backoff.wait_ms(n, 0.5) for n in (0, 1, 2, 3, 4, 1000)] == [
        100, 200, 400, 800, 1000, 1000,
    ]  # fmt: skip
    assert backoff.wait_ms(0, 0.0) == 80
    assert backoff.wait_ms(0, 0.999999) == 119


# -- offsets -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("beginning", BEGINNING),
        ("earliest", BEGINNING),
        ("end", END),
        ("latest", END),
        ("0", AtOffset(0)),
        ("42", AtOffset(42)),
        ("-5", BeforeEnd(5)),
        ("@1700000000000", AtTime(1700000000000)),
    ],
)
def test_parse_offset_accepts_every_form(text: str, spec: object) -> None:
    assert parse_offset(text) == spec


@pytest.mark.parametrize("text", ["", "first", "--5", "@", "1.5", "9" * 19, "1" * 20, "+1", "٣"])
def test_parse_offset_rejects_other_texts(text: str) -> None:
    with pytest.raises(BadOffset):
        parse_offset(text)


def test_offset_before_the_end_is_never_before_the_beginning() -> None:
    assert before_end(3, 0, 10) == 7
    assert before_end(30, 4, 10) == 4


# -- batches on their way ----------------------------------------------------------


def record_of(value: bytes = b"v", received: list[object] | None = None) -> ProducerRecord:
    received = [] if received is None else received
    return ProducerRecord(b"k", value, [Header("h", b"x")], Millis(5), received.append)


def at(time: int) -> Millis:
    return Millis(time)


def test_batch_is_due_after_linger_ms() -> None:
    accumulator = Accumulator(AccumulatorLimits(linger_ms=5))
    accumulator.append(P0, record_of(), at(100))
    accumulator.append(P0, record_of(), at(104))
    assert accumulator.drain(at(104)) == []
    assert accumulator.next_due() == 105
    (batch,) = accumulator.drain(at(105))
    assert len(batch.pending) == 2
    assert accumulator.next_due() is None


def test_full_batch_is_due_at_once_and_starts_the_next() -> None:
    size = record_of().size
    accumulator = Accumulator(AccumulatorLimits(batch_bytes_max=61 + 2 * size, linger_ms=1000))
    assert [accumulator.append(P0, record_of(), at(0)) for _ in range(3)] == [False, False, True]
    assert accumulator.next_due() == 0
    (batch,) = accumulator.drain(at(0))
    assert len(batch.pending) == 2
    assert accumulator.drain(at(0)) == [], "one of a partition is under way"
    accumulator.done(batch)
    assert accumulator.drain(at(0)) == [], "and the next one lingers"
    assert len(accumulator.drain(at(0), is_flushing=True)) == 1


def test_retried_batch_keeps_its_position_and_sequence() -> None:
    accumulator = Accumulator(AccumulatorLimits(linger_ms=0))
    accumulator.begin_as(ME)
    accumulator.append(P0, record_of(b"1"), at(0))
    (first,) = accumulator.drain(at(0))
    accumulator.append(P0, record_of(b"2"), at(1))
    accumulator.retry(first, at(10))
    assert accumulator.drain(at(9)) == []
    assert accumulator.next_due() == 10
    accumulator.append(P0, record_of(b"3"), at(9))
    (again,) = accumulator.drain(at(10))
    assert again is first and len(first.pending) == 1, "nothing is added to what was sent once"
    assert first.producer == Producer(7, 0, 0)
    accumulator.done(first)
    (second,) = accumulator.drain(at(10))
    assert [each.value for each in second.pending] == [b"2", b"3"]
    assert second.producer == Producer(7, 0, 1)


def test_sequence_is_reused_only_after_a_rejected_batch() -> None:
    accumulator = Accumulator(AccumulatorLimits(linger_ms=0))
    accumulator.begin_as(ME)

    def one(partition: TopicPartition) -> Batch:
        accumulator.append(partition, record_of(), at(0))
        (batch,) = accumulator.drain(at(0))
        accumulator.done(batch)
        return batch

    first, second = one(P0), one(P0)
    assert second.producer == Producer(7, 0, 1)
    accumulator.rewind(second)
    assert one(P0).producer == Producer(7, 0, 1)
    assert one(P1).producer == Producer(7, 0, 0), "partitions count on their own"
    accumulator.begin_as(Producer(8, 0))
    accumulator.rewind(first)
    assert one(P0).producer == Producer(8, 0, 0)


def test_sequences_wrap_around() -> None:
    accumulator = Accumulator(AccumulatorLimits(linger_ms=0))
    accumulator.begin_as(ME)
    accumulator._next_sequence[P0] = SEQUENCE_MAX
    for want in (SEQUENCE_MAX, 0):
        accumulator.append(P0, record_of(), at(0))
        (batch,) = accumulator.drain(at(0))
        accumulator.done(batch)
        assert batch.producer is not None and batch.producer.base_sequence == want


def test_batches_without_idempotence_have_no_producer_id() -> None:
    accumulator = Accumulator(AccumulatorLimits(linger_ms=0))
    accumulator.append(P0, record_of(), at(0))
    (batch,) = accumulator.drain(at(0))
    assert batch.producer is NO_PRODUCER


def test_buffer_memory_is_limited_and_freed() -> None:
    size = record_of().size
    accumulator = Accumulator(AccumulatorLimits(linger_ms=0, buffer_bytes_max=2 * size))
    assert accumulator.has_room(10 * size), "one that is alone always fits"
    accumulator.append(P0, record_of(), at(0))
    assert accumulator.has_room(size)
    accumulator.append(P1, record_of(), at(0))
    assert not accumulator.has_room(size)
    for batch in accumulator.drain(at(0)):
        assert not accumulator.is_empty
        accumulator.done(batch)
    assert accumulator.buffered_bytes == 0 and accumulator.is_empty


def test_each_record_is_reported_with_its_offset() -> None:
    received: list[object] = []
    batch = Batch(P0, at(0), [record_of(received=received), record_of(received=received)])
    batch.complete(10)
    batch.complete(10, 99)
    batch.complete(-1)
    assert received == [
        RecordMetadata(P0, 10, at(5)), RecordMetadata(P0, 11, at(5)),
        RecordMetadata(P0, 10, at(99)), RecordMetadata(P0, 11, at(99)),
        RecordMetadata(P0, -1, at(5)), RecordMetadata(P0, -1, at(5)),
    ]  # fmt: skip


@settings(max_examples=50)
@given(st.binary(max_size=300), st.none() | st.binary(max_size=9), st.lists(st.text(max_size=5)))
def test_record_size_is_never_underestimated(
    value: bytes, key: bytes | None, headers: Sequence[str]
) -> None:
    record = ProducerRecord(
        key, value, [Header(name, b"") for name in headers], Millis(2**40), print
    )
    encoded = encode_records(Batch(P0, at(0), [record]).records(), 0, 0)
    assert len(encoded) <= record.size


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["append", "append", "drain", "done", "retry"]), max_size=40))
def test_records_stay_in_order_with_retries(steps: list[str]) -> None:
    """Completed batches have sequences 0, 1, 2 ... and values in the order of `append`."""
    accumulator = Accumulator(
        AccumulatorLimits(linger_ms=0, batch_bytes_max=61 + 2 * record_of().size)
    )
    accumulator.begin_as(ME)
    under_way: list[Batch] = []
    done: list[bytes | None] = []
    appended = 0

    def finish() -> None:
        batch = under_way.pop()
        assert batch.producer is not None and batch.producer.base_sequence == len(done)
        done.extend(each.value for each in batch.pending)
        accumulator.done(batch)

    for step in steps:
        if step == "append":
            accumulator.append(P0, record_of(b"%d" % appended), at(0))
            appended += 1
        elif step == "drain":
            under_way += accumulator.drain(at(0))
            assert len(under_way) <= 1
        elif step == "done" and under_way:
            finish()
        elif step == "retry" and under_way:
            accumulator.retry(under_way.pop(), at(0))
    while not accumulator.is_empty:
        under_way += accumulator.drain(at(0))
        finish()
    assert done == [b"%d" % n for n in range(appended)]


# -- what a reader sees ------------------------------------------------------------


def batch_at(offset: int, values: Sequence[bytes], **fields: object) -> bytearray:
    records = [Record(Offset(i), Millis(0), None, value) for i, value in enumerate(values)]
    batch = build_batch(records, **fields)  # type: ignore[arg-type]
    patch_offset(batch, 0, Offset(offset), LeaderEpoch(0))
    return batch


def transactional(offset: int, producer_id: int, *values: bytes) -> bytearray:
    return batch_at(offset, values, producer=Producer(producer_id, 0, 0), is_transactional=True)


def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytearray:
    return build_end_txn_marker(
        EndTxnMarker(is_commit, 0), Producer(producer_id, 0), 0, base_offset=offset
    )


def seen(data: bytes, offset: int = 0, aborted: Sequence[Aborted] | None = None) -> list[bytes]:
    found = read_fetched(P0, Offset(offset), data, end_offset=Offset(99), aborted=aborted)
    return [record.value or b"" for record in found.records()]


def test_fetch_inside_a_batch_returns_records_from_the_offset() -> None:
    data = bytes(batch_at(0, [b"a", b"b", b"c"]) + batch_at(3, [b"d"]))
    assert seen(data, 1) == [b"b", b"c", b"d"]
    assert seen(data, 3) == [b"d"], "what lies before is not shown at all"
    assert seen(data + data[:40], 3) == [b"d"], "a batch that is cut off counts for nothing"


def test_aborted_records_and_markers_are_skipped() -> None:
    log = bytes(
        transactional(0, 1, b"x", b"x")
        + transactional(2, 2, b"a")
        + marker(3, 1, is_commit=False)
        + transactional(4, 1, b"b")
        + marker(5, 2, is_commit=True)
        + marker(6, 1, is_commit=True)
    )
    assert seen(log, aborted=[Aborted(1, 0)]) == [b"a", b"b"]
    assert seen(log, aborted=[]) == [b"x", b"x", b"a", b"b"]
    assert seen(log) == [b"x", b"x", b"a", b"b"], "markers are never shown"
    found = read_fetched(P0, Offset(0), log, end_offset=Offset(7), aborted=[Aborted(1, 0)])
    assert found.next_offset == 7


def test_aborted_transaction_is_skipped_from_its_first_offset() -> None:
    log = bytes(
        transactional(0, 1, b"a") + marker(1, 1, is_commit=True)
        + transactional(2, 1, b"x") + marker(3, 1, is_commit=False)
    )  # fmt: skip
    assert seen(log, aborted=[Aborted(1, 2)]) == [b"a"]


def test_corrupt_batch_raises() -> None:
    data = batch_at(0, [b"abc"])
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        seen(bytes(data))


def test_fetch_without_a_complete_batch_raises_record_too_large() -> None:
    with pytest.raises(RecordTooLarge):
        seen(bytes(batch_at(0, [b"abc" * 100])[:90]))
    assert seen(b"") == []
