"""Appending to a log: what is accepted, what is rejected, and the resulting file."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_fixtures import (
    EPOCH,
    NOW,
    SMALL,
    append,
    append_in_txn,
    batch_of,
    contents,
    end_txn,
    fill,
    open_log,
    raw_batches,
    replicate,
    segment_bases,
    values,
)

from ottla.protocol.faults import (
    BatchTooLargeForSegment,
    CorruptBatch,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTransactionState,
    OutOfOrderSequence,
    RecordTooLarge,
    UnexpectedAppendOffset,
    UnsupportedMagic,
)
from ottla.protocol.records.batch import Compression, is_crc_valid, read_header
from ottla.protocol.records.reader import read_records
from ottla.protocol.records.writer import NO_PRODUCER, Producer
from ottla.storage.log.log_config import LogConfig
from simulation.disk import SimDisk

LARGE = LogConfig()


def lead(log, batch, **more):
    return log.append_as_leader(batch, leader_epoch=EPOCH, now=NOW, **more)


# -- as a leader ------------------------------------------------------------------------------


def test_offsets_and_epoch_are_patched_in_place_and_the_crc_stays_valid() -> None:
    log = open_log(SimDisk(), LARGE)
    append(log, b"a", b"b")
    batch = batch_of(b"c", b"d", b"e")
    assert log.append_as_leader(batch, leader_epoch=7, now=NOW) == (2, 4, NOW, -1, False)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (2, 7)
    assert is_crc_valid(batch, 0, header)
    assert raw_batches(log)[1] == (header, bytes(batch))
    assert contents(log) == list(enumerate([b"a", b"b", b"c", b"d", b"e"]))


def test_memoryview_is_patched_in_place_too() -> None:
    log = open_log(SimDisk(), LARGE)
    append(log, b"a")
    frame = bytearray(b"head") + batch_of(b"b") + b"tail"
    assert lead(log, memoryview(frame)[4:-4]).first_offset == 1
    assert read_header(frame, 4).base_offset == 1


def test_log_append_time_replaces_timestamps_and_updates_the_crc() -> None:
    log = open_log(SimDisk(), LogConfig(is_log_append_time=True))
    batch = batch_of(b"a", timestamp=5)
    done = log.append_as_leader(batch, leader_epoch=EPOCH, now=NOW)
    assert (done.max_timestamp, done.log_append_time) == (NOW, NOW)
    assert is_crc_valid(batch, 0, read_header(batch))
    assert read_records(batch)[0].timestamp == NOW
    assert log.max_timestamp() == (NOW, 0, EPOCH)


@pytest.mark.parametrize("codec", Compression)
def test_batches_of_every_codec_are_opaque(codec) -> None:
    log = open_log(SimDisk(), LARGE)
    append(log, b"x" * 100, b"y", compression=codec)
    assert values(log) == [b"x" * 100, b"y"]


def refusals():
    broken = batch_of(b"a")
    broken[-1] ^= 1
    yield "29 crc", broken, CorruptBatch
    old = batch_of(b"a")
    old[16] = 1
    yield "30 magic 1", old, UnsupportedMagic
    longer = batch_of(b"a")
    longer[11] += 1
    yield "31 length too large", longer, CorruptBatch
    shorter = batch_of(b"a")
    shorter[11] -= 1
    yield "31 length too small", shorter, CorruptBatch
    yield "31 trailing bytes", batch_of(b"a") + b"\0" * 5, CorruptBatch
    yield "31 cut off", batch_of(b"a")[:-1], CorruptBatch
    yield "empty", bytearray(), CorruptBatch
    yield "32 count and delta", batch_of(b"a", last_offset_delta=4), InvalidRecord
    yield "32 negative delta", batch_of(b"a", last_offset_delta=-5), InvalidRecord
    yield "33 two batches", batch_of(b"a") + batch_of(b"b"), InvalidRecord
    yield "37 too large", batch_of(b"x" * 300), RecordTooLarge
    yield "41 control", batch_of(b"a", is_control=True), InvalidRecord
    yield "base offset", batch_of(b"a", base_offset=3), InvalidRecord
    yield "no sequence", batch_of(b"a", producer=Producer(1, 0)), InvalidRecord
    yield "no producer", batch_of(b"a", is_transactional=True), InvalidRecord


@pytest.mark.parametrize(("batch", "fault"), [pytest.param(b, f, id=i) for i, b, f in refusals()])
def test_invalid_client_batch_is_rejected_and_nothing_changes(batch, fault) -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(max_message_bytes=300, segment_bytes=1000))
    append(log, b"first")
    before = (disk.operations, log.log_end_offset, bytes(batch))
    with pytest.raises(fault):
        lead(log, batch)
    assert (disk.operations, log.log_end_offset, bytes(batch)) == before
    assert not log.is_failed
    append(log, b"second")
    assert values(log) == [b"first", b"second"]


def test_batch_larger_than_a_segment_is_rejected() -> None:
    log = open_log(SimDisk(), LogConfig(segment_bytes=200))
    with pytest.raises(BatchTooLargeForSegment) as raised:
        append(log, b"x" * 300)
    assert raised.value.code.name == "RECORD_LIST_TOO_LARGE"
    assert log.log_end_offset == 0


def test_coordinator_may_append_several_batches_at_once() -> None:
    log = open_log(SimDisk(), LARGE)
    append(log, b"0")
    done = lead(log, batch_of(b"a", b"b") + batch_of(b"c", timestamp=NOW + 5), from_client=False)
    assert (done.first_offset, done.last_offset, done.max_timestamp) == (1, 3, NOW + 5)
    assert contents(log) == list(enumerate([b"0", b"a", b"b", b"c"]))


def test_of_several_batches_all_or_none_are_appended() -> None:
    log = open_log(SimDisk(), LARGE)
    second = batch_of(b"c")
    second[-1] ^= 1
    with pytest.raises(CorruptBatch):
        lead(log, batch_of(b"a") + second, from_client=False)
    assert log.log_end_offset == 0


def test_new_epoch_is_on_disk_before_its_first_batch() -> None:
    disk = SimDisk()
    log = open_log(disk, LARGE)
    append(log, b"a", epoch=3)
    disk.fail("write", path_contains=".log")
    with pytest.raises(Exception, match="orders"):
        append(log, b"b", epoch=4)
    assert disk.read("/data/orders-0/leader-epoch-checkpoint") == b"0\n2\n3 0\n4 1\n"


def test_epochs_are_durable_with_the_batches_of_a_flush() -> None:
    disk = SimDisk()
    log = open_log(disk, LARGE)
    append(log, b"a", epoch=3)
    log.start_epoch(4)
    append(log, b"b", epoch=4)
    log.flush()
    assert disk.durable("/data/orders-0/leader-epoch-checkpoint") == b"0\n2\n3 0\n4 1\n"


def test_epoch_without_a_batch_is_not_written() -> None:
    disk = SimDisk()
    log = open_log(disk, LARGE)
    append(log, b"a", epoch=3)
    before = disk.operations
    log.start_epoch(7)
    assert disk.operations == before
    assert log.epochs.entries == ((3, 0), (7, 1))


# -- producers --------------------------------------------------------------------------------


def test_duplicate_returns_the_old_offsets_and_is_not_written_again() -> None:
    log = open_log(SimDisk(), LARGE)
    append(log, b"x")
    first = append(log, b"a", b"b", producer=Producer(9, 0, 0))
    append(log, b"c", producer=Producer(9, 0, 2))
    again = append(log, b"a", b"b", producer=Producer(9, 0, 0))
    assert again.is_duplicate
    assert again[:2] == first[:2] == (1, 2)
    assert values(log) == [b"x", b"a", b"b", b"c"]


def test_sequence_gap_and_old_epoch_are_rejected() -> None:
    log = open_log(SimDisk(), LARGE)
    append(log, b"a", producer=Producer(9, 1, 0))
    with pytest.raises(OutOfOrderSequence):
        append(log, b"b", producer=Producer(9, 1, 2))
    with pytest.raises(InvalidProducerEpoch):
        append(log, b"b", producer=Producer(9, 0, 1))
    assert values(log) == [b"a"]


def test_abort_marker_is_indexed_and_bounds_read_committed() -> None:
    log = open_log(SimDisk(), LARGE)
    append_in_txn(log, 5, 0, b"a")
    append(log, b"plain")
    log.set_high_watermark(2)
    assert (log.high_watermark, log.last_stable_offset) == (2, 0)
    with pytest.raises(InvalidTransactionState):
        append(log, b"outside", producer=Producer(5, 0, 1))
    end_txn(log, 5, commit=False)
    assert log.last_stable_offset == 0
    log.set_high_watermark(3)
    assert log.last_stable_offset == 3
    assert log.collect_aborted(0, 3) == [(5, 0, 2, 3)]
    assert log.collect_aborted(0, 0) == []


def test_commit_marker_is_not_indexed() -> None:
    log = open_log(SimDisk(), LARGE)
    append_in_txn(log, 5, 0, b"a")
    end_txn(log, 5, commit=True)
    assert log.collect_aborted(0, 10) == []


def test_aborted_transactions_are_found_over_several_segments() -> None:
    log = open_log(SimDisk())
    for at in range(12):
        append_in_txn(log, 1, 2 * at, b"a")
        append_in_txn(log, 2, at, b"b")
        append_in_txn(log, 1, 2 * at + 1, b"c")
        end_txn(log, 1, commit=False)
        end_txn(log, 2, commit=True)
    assert len(log.segments) > 5
    everything = log.collect_aborted(0, log.log_end_offset)
    assert [t.first_offset for t in everything] == list(range(0, 60, 5))
    assert [t.last_offset for t in everything] == list(range(3, 63, 5))
    some = log.collect_aborted(11, 22)
    assert [t.first_offset for t in some] == [10, 15, 20]


# -- as a follower ----------------------------------------------------------------------------


def test_follower_keeps_offsets_and_epochs_and_accepts_gaps() -> None:
    log = open_log(SimDisk(), LARGE)
    replicate(log, 5, b"a", b"b", epoch=2)
    done = replicate(log, 20, b"c", epoch=4)
    assert done == (20, 20, NOW, -1, False)
    assert log.log_end_offset == 21
    assert contents(log) == [(5, b"a"), (6, b"b"), (20, b"c")]
    assert log.epochs.entries == ((2, 5), (4, 20))


def test_follower_writes_exactly_what_the_leader_sent() -> None:
    leader, follower = open_log(SimDisk(), LARGE), open_log(SimDisk(), LARGE)
    fill(leader, 20)
    part = leader.read(0, 1 << 20, upto=20)
    follower.append_at(part.file.pread(part.length, part.position), now=NOW)
    assert raw_batches(follower) == raw_batches(leader)


def test_incomplete_batch_at_the_end_of_a_fetch_is_ignored() -> None:
    log = open_log(SimDisk(), LARGE)
    data = batch_of(b"a") + batch_of(b"b", base_offset=1)
    assert log.append_at(bytes(data[:-1]), now=NOW).last_offset == 0
    assert log.append_at(bytes(data[:30]), now=NOW) is None
    assert values(log) == [b"a"]


@pytest.mark.parametrize("second", [0, 1, 2])
def test_replicated_batch_before_the_log_end_is_rejected(second) -> None:
    log = open_log(SimDisk(), LARGE)
    replicate(log, 0, b"a", b"b", b"c")
    with pytest.raises(UnexpectedAppendOffset):
        replicate(log, second, b"x")
    with pytest.raises(UnexpectedAppendOffset):
        log.append_at(
            bytes(batch_of(b"x", b"y", base_offset=3) + batch_of(b"z", base_offset=4)), now=NOW
        )
    assert values(log) == [b"a", b"b", b"c"]


def test_damaged_replicated_batch_rejects_the_whole_append() -> None:
    log = open_log(SimDisk(), LARGE)
    data = batch_of(b"a") + batch_of(b"b", base_offset=1)
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        log.append_at(bytes(data), now=NOW)
    assert log.log_end_offset == 0


def test_one_fetch_that_fills_several_segments_is_spread_over_them() -> None:
    log = open_log(SimDisk(), SMALL)
    data = b"".join(bytes(batch_of(b"%04d" % at, base_offset=at)) for at in range(40))
    log.append_at(data, now=NOW)
    assert len(log.segments) >= 7
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
    assert contents(log) == [(at, b"%04d" % at) for at in range(40)]
    assert segment_bases(log) == sorted(set(segment_bases(log)))


def test_follower_accepts_a_batch_larger_than_its_own_limits() -> None:
    """Its leader accepted it; rejecting it would stop replication for good."""
    log = open_log(SimDisk(), LogConfig(segment_bytes=200, max_message_bytes=100))
    replicate(log, 0, b"x" * 500)
    replicate(log, 1, b"y" * 500)
    assert values(log) == [b"x" * 500, b"y" * 500]


def test_follower_rolls_when_a_batch_is_too_new_for_the_segment() -> None:
    log = open_log(SimDisk(), LogConfig(segment_ms=1000))
    replicate(log, 0, b"x")
    times = [NOW, NOW + 1001, NOW]
    sent = [batch_of(b"x", base_offset=at, timestamp=time) for at, time in enumerate(times, 1)]
    log.append_at(b"".join(sent), now=NOW)
    assert segment_bases(log) == [0, 2]
    assert len(values(log)) == 4


SENT = st.lists(
    st.tuples(
        st.integers(0, 2),  # offsets left out before it
        st.lists(st.binary(max_size=90), min_size=1, max_size=3),
        st.integers(0, 2),  # leader epochs after the last one
        st.sampled_from([NOW, NOW + 1, NOW + 2000]),
        st.booleans(),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(sent=SENT)
def test_single_batches_are_replicated_alike_in_any_buffer(sent) -> None:
    # A read-only buffer takes the path of several batches.
    config = LogConfig(segment_bytes=400, index_interval_bytes=100, segment_ms=1500)
    logs = [open_log(SimDisk(), config) for _ in range(2)]
    offset = epoch = 0
    for number, (gap, items, step, timestamp, has_producer) in enumerate(sent):
        offset, epoch = offset + gap, epoch + step
        producer = Producer(5, number, 0) if has_producer else NO_PRODUCER
        batch = batch_of(
            *items, base_offset=offset, timestamp=timestamp, leader_epoch=epoch, producer=producer
        )
        before = bytes(batch)
        assert logs[0].append_at(batch, now=NOW) == logs[1].append_at(bytes(batch), now=NOW)
        assert bytes(batch) == before
        offset += len(items)
    found, expected = ([
        log.log_end_offset, log.epochs.entries, segment_bases(log), raw_batches(log),
        log.producers.map_end_offset, list(log.producers.entries()),
        [(each.size, each.first_timestamp, each.largest) for each in log.segments],
    ] for log in logs)  # fmt: skip
    assert found == expected


def test_follower_updates_producers_and_transactions() -> None:
    leader, follower = open_log(SimDisk(), LARGE), open_log(SimDisk(), LARGE)
    append_in_txn(leader, 5, 0, b"a", b"b")
    end_txn(leader, 5, commit=False)
    append(leader, b"c", producer=Producer(6, 0, 0))
    part = leader.read(0, 1 << 20, upto=4)
    follower.append_at(part.file.pread(part.length, part.position), now=NOW)
    assert follower.collect_aborted(0, 4) == leader.collect_aborted(0, 4) != []
    assert append(follower, b"c", producer=Producer(6, 0, 0)).is_duplicate
