"""What a log accepts from producers, and how far read_committed may read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.faults import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from ottla.protocol.records.batch import BatchHeader
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.storage.log.producer_state import CompletedTxn, Duplicate, ProducerState

PID = 7
SEQUENCE_MAX = 2**31 - 1
TRANSACTIONAL, CONTROL = 0x10, 0x20


def header(
    sequence: int = 0,
    *,
    pid: int = PID,
    epoch: int = 0,
    records: int = 1,
    txn: bool = False,
    timestamp: int = 1000,
) -> BatchHeader:
    return BatchHeader(
        Offset(0),
        100,
        LeaderEpoch(0),
        2,
        0,
        TRANSACTIONAL if txn else 0,
        records - 1,
        Millis(timestamp),
        Millis(timestamp),
        pid,
        epoch,
        sequence,
        records,
    )


def marker_header(*, pid: int = PID, epoch: int = 0, timestamp: int = 1000) -> BatchHeader:
    plain = header(-1, pid=pid, epoch=epoch, timestamp=timestamp)
    return plain._replace(attributes=TRANSACTIONAL | CONTROL)


def commit(coordinator_epoch: int = 0) -> EndTxnMarker:
    return EndTxnMarker(is_commit=True, coordinator_epoch=coordinator_epoch)


def abort(coordinator_epoch: int = 0) -> EndTxnMarker:
    return EndTxnMarker(is_commit=False, coordinator_epoch=coordinator_epoch)


class Written:
    """A producer state with its offsets: each append starts where the last one ended."""

    def __init__(self, **kwargs: Any) -> None:
        self.state = ProducerState(**kwargs)
        self.end = 0

    def append(self, batch: BatchHeader, now: int = -1) -> Duplicate | None:
        duplicate = self.state.check(batch, from_client=True)
        if duplicate is None:
            self.replay(batch, now)
        return duplicate

    def replay(self, batch: BatchHeader, now: int = -1) -> None:
        last = self.end + batch.last_offset_delta
        self.state.apply(
            batch,
            first_offset=Offset(self.end),
            last_offset=Offset(last),
            timestamp=batch.max_timestamp,
            now=Millis(now),
        )
        self.end = last + 1

    def end_txn(self, marker: EndTxnMarker, **kwargs: int) -> CompletedTxn | None:
        completed = self.state.apply_marker(marker_header(**kwargs), marker, Offset(self.end))
        self.end += 1
        return completed


# -- sequences -----------------------------------------------------------------


def test_unknown_producer_may_start_at_any_sequence() -> None:
    assert ProducerState().check(header(12345), from_client=True) is None


def test_next_sequence_is_accepted_and_a_gap_is_not() -> None:
    log = Written()
    log.append(header(0, records=3))
    assert log.state.check(header(3), from_client=True) is None
    with pytest.raises(OutOfOrderSequence, match="sent sequence 4, expected 3"):
        log.state.check(header(4), from_client=True)


def test_after_the_largest_sequence_comes_zero() -> None:
    log = Written()
    log.append(header(SEQUENCE_MAX - 1, records=2))
    assert log.state.check(header(0), from_client=True) is None
    with pytest.raises(OutOfOrderSequence):
        log.state.check(header(1), from_client=True)


def test_batch_across_the_sequence_wrap_is_continued_and_recognized_as_a_duplicate() -> None:
    log = Written()
    across = header(SEQUENCE_MAX - 1, records=4)
    log.append(across)
    assert log.append(across) == Duplicate(Offset(0), Offset(3), Millis(1000))
    assert log.state.check(header(2), from_client=True) is None


@pytest.mark.parametrize("back", [1, 2, 3, 4, 5])
def test_each_of_the_last_five_batches_is_recognized_as_a_duplicate(back: int) -> None:
    log = Written()
    for number in range(8):
        log.append(header(number * 2, records=2, timestamp=number))
    number = 8 - back
    expected = Duplicate(Offset(number * 2), Offset(number * 2 + 1), Millis(number))
    assert log.append(header(number * 2, records=2)) == expected


def test_sixth_last_batch_is_out_of_order() -> None:
    log = Written()
    for number in range(8):
        log.append(header(number * 2, records=2))
    with pytest.raises(OutOfOrderSequence):
        log.append(header(4, records=2))


def test_duplicate_has_the_same_first_and_last_sequence() -> None:
    log = Written()
    log.append(header(0, records=3))
    with pytest.raises(OutOfOrderSequence):
        log.append(header(0, records=2))


def test_check_changes_nothing() -> None:
    log = Written()
    log.append(header(0))
    before = list(log.state.entries())
    log.state.check(header(1, txn=True), from_client=True)
    with pytest.raises(OutOfOrderSequence):
        log.state.check(header(5), from_client=True)
    assert list(log.state.entries()) == before
    assert log.state.first_unstable_offset is None


def test_coordinator_writes_without_sequences() -> None:
    log = Written()
    log.replay(header(-1))
    assert log.state.check(header(-1), from_client=False) is None


# -- epochs --------------------------------------------------------------------


def test_lower_producer_epoch_is_rejected() -> None:
    log = Written()
    log.append(header(0, epoch=2))
    with pytest.raises(InvalidProducerEpoch):
        log.state.check(header(1, epoch=1), from_client=True)
    with pytest.raises(InvalidProducerEpoch):
        log.state.check(header(-1, epoch=1), from_client=False)


def test_higher_epoch_starts_at_sequence_zero() -> None:
    log = Written()
    log.append(header(0, epoch=0))
    with pytest.raises(OutOfOrderSequence):
        log.append(header(1, epoch=1))
    assert log.append(header(0, epoch=1)) is None


def test_batch_of_another_epoch_is_not_a_duplicate() -> None:
    log = Written()
    log.append(header(0, epoch=0))
    log.append(header(0, epoch=1))
    log.append(header(1, epoch=1))
    with pytest.raises(InvalidProducerEpoch):
        log.append(header(0, epoch=0))


def test_replicated_batch_is_applied_whatever_its_epoch_and_sequence() -> None:
    log = Written()
    log.append(header(0, epoch=5))
    log.replay(header(90, epoch=3))
    assert log.state.last_sequence(PID) == 90


# -- transactions --------------------------------------------------------------


def test_non_transactional_batch_inside_a_transaction_is_rejected() -> None:
    log = Written()
    log.append(header(0, txn=True))
    with pytest.raises(InvalidTransactionState):
        log.append(header(1))


def test_first_unstable_offset_is_where_the_open_transaction_began() -> None:
    log = Written()
    log.append(header(0, pid=1))
    log.append(header(0, txn=True))
    log.append(header(1, txn=True))
    assert log.state.first_unstable_offset == 1
    assert log.state.first_undecided_offset == 1


def test_ended_transaction_is_unstable_until_its_marker_is_replicated() -> None:
    log = Written()
    log.append(header(0, txn=True))
    log.end_txn(commit())
    assert log.state.first_undecided_offset is None
    log.state.on_high_watermark(Offset(1))
    assert log.state.first_unstable_offset == 0
    log.state.on_high_watermark(Offset(2))
    assert log.state.first_unstable_offset is None


def test_read_committed_ends_at_the_first_open_transaction_or_the_high_watermark() -> None:
    log = Written()
    for sequence in range(3):
        log.append(header(sequence, pid=1))
    log.append(header(0, txn=True))
    assert log.state.last_stable_offset(Offset(2)) == 2
    assert log.state.last_stable_offset(Offset(4)) == 3


def test_ended_transaction_that_is_not_replicated_comes_before_a_newer_open_one() -> None:
    log = Written()
    log.append(header(0, pid=1, txn=True))
    log.append(header(0, pid=2, txn=True))
    log.end_txn(commit(), pid=1)
    log.state.on_high_watermark(Offset(2))
    assert log.state.first_unstable_offset == 0
    log.state.on_high_watermark(Offset(3))
    assert log.state.first_unstable_offset == 1


def test_older_transaction_ending_first_leaves_the_newer_one_open() -> None:
    log = Written()
    log.append(header(0, pid=1, txn=True))
    log.append(header(0, pid=2, txn=True))
    completed = log.end_txn(abort(), pid=1)
    assert completed == CompletedTxn(1, 0, 2, True, 1)  # type: ignore[arg-type]
    log.state.on_high_watermark(Offset(3))
    assert log.state.first_unstable_offset == 1


def test_newer_transaction_ending_first_leaves_the_older_one_open() -> None:
    log = Written()
    log.append(header(0, pid=1, txn=True))
    log.append(header(0, pid=2, txn=True))
    completed = log.end_txn(commit(), pid=2)
    assert completed == CompletedTxn(2, 1, 2, False, 0)  # type: ignore[arg-type]
    log.state.on_high_watermark(Offset(3))
    assert log.state.first_unstable_offset == 0


def test_only_transaction_ending_is_stable_behind_its_marker() -> None:
    log = Written()
    log.append(header(0, txn=True))
    completed = log.end_txn(abort())
    assert completed is not None
    assert completed.last_stable_offset == 2


def test_marker_without_a_transaction_ends_nothing_and_is_applied() -> None:
    log = Written()
    assert log.end_txn(commit(coordinator_epoch=4), epoch=3) is None
    assert PID in log.state
    with pytest.raises(TransactionCoordinatorFenced):
        log.state.check_marker(marker_header(epoch=3), commit(3), transaction_version=1)


def test_sequences_continue_after_a_marker_of_the_same_epoch() -> None:
    log = Written()
    log.append(header(0, txn=True))
    log.end_txn(commit())
    assert log.append(header(1, txn=True)) is None


def test_marker_with_a_bumped_epoch_makes_the_next_batch_start_at_zero() -> None:
    log = Written()
    log.append(header(0, txn=True))
    log.end_txn(commit(), epoch=1)
    with pytest.raises(OutOfOrderSequence):
        log.append(header(1, epoch=1, txn=True))
    with pytest.raises(InvalidProducerEpoch):
        log.append(header(1, epoch=0, txn=True))
    assert log.append(header(0, epoch=1, txn=True)) is None


def test_marker_of_an_older_epoch_is_rejected() -> None:
    log = Written()
    log.append(header(0, epoch=2, txn=True))
    with pytest.raises(InvalidProducerEpoch):
        log.state.check_marker(marker_header(epoch=1), abort(), transaction_version=1)


def test_marker_of_the_data_epoch_is_accepted_before_transaction_version_2() -> None:
    log = Written()
    log.append(header(0, epoch=2, txn=True))
    log.state.check_marker(marker_header(epoch=2), abort(), transaction_version=1)


def test_delayed_marker_cannot_end_the_next_transaction_under_version_2() -> None:
    log = Written()
    log.append(header(0, epoch=0, txn=True))
    log.end_txn(commit(), epoch=1)
    log.append(header(0, epoch=1, txn=True))
    with pytest.raises(InvalidProducerEpoch):
        log.state.check_marker(marker_header(epoch=1), commit(), transaction_version=2)


def test_repeated_marker_is_accepted_under_transaction_version_2() -> None:
    log = Written()
    log.append(header(0, epoch=0, txn=True))
    log.end_txn(commit(), epoch=1)
    log.state.check_marker(marker_header(epoch=1), commit(), transaction_version=2)
    with pytest.raises(InvalidProducerEpoch):
        log.state.check_marker(marker_header(epoch=0), commit(), transaction_version=2)


def test_marker_of_a_replaced_coordinator_is_rejected() -> None:
    log = Written()
    log.append(header(0, txn=True))
    log.end_txn(commit(coordinator_epoch=5))
    log.append(header(1, txn=True))
    with pytest.raises(TransactionCoordinatorFenced):
        log.state.check_marker(marker_header(), abort(4), transaction_version=1)
    log.state.check_marker(marker_header(), abort(5), transaction_version=1)


# -- expiry ----------------------------------------------------------------


def test_idle_producer_expires_and_may_then_send_any_sequence() -> None:
    log = Written(expiration_ms=100)
    log.append(header(0, timestamp=1000), now=1000)
    assert log.state.expire(Millis(1099)) == 0
    assert log.state.expire(Millis(1100)) == 1
    assert log.append(header(17)) is None


def test_producer_with_an_open_transaction_never_expires() -> None:
    log = Written(expiration_ms=100)
    log.append(header(0, txn=True, timestamp=1000))
    assert log.state.expire(Millis(10_000)) == 0
    log.end_txn(abort(), timestamp=1000)
    assert log.state.expire(Millis(10_000)) == 1


def test_active_producer_with_old_timestamps_does_not_expire() -> None:
    log = Written(expiration_ms=100)
    log.append(header(0, timestamp=5), now=1000)
    assert log.state.expire(Millis(1050)) == 0
    assert log.append(header(0)) is not None
    assert log.state.expire(Millis(1100)) == 1


def test_producers_outlive_the_records_they_wrote() -> None:
    log = Written()
    log.append(header(0, txn=True))
    log.end_txn(commit())
    log.state.on_log_start(Offset(9))
    assert log.state.first_unstable_offset is None
    assert log.state.map_end_offset == 9
    assert log.append(header(1)) is None


def test_clear_removes_all_state() -> None:
    log = Written()
    log.append(header(0, txn=True))
    log.state.clear(Offset(30))
    assert (len(log.state), log.state.first_unstable_offset) == (0, None)
    assert log.state.map_end_offset == 30


# -- snapshots -----------------------------------------------------------------


def test_loaded_snapshot_has_the_last_batch_and_the_open_transaction() -> None:
    log = Written()
    log.append(header(0, pid=3, txn=True))
    log.append(header(0, records=2))
    log.append(header(2, records=3))
    again = ProducerState()
    again.load(log.state.entries(), Offset(6), now=Millis(1000))
    assert again.check(header(2, records=3), from_client=True) == Duplicate(
        Offset(3), Offset(5), Millis(1000)
    )
    with pytest.raises(OutOfOrderSequence):
        again.check(header(0, records=2), from_client=True)
    assert (again.first_unstable_offset, again.map_end_offset) == (0, 6)


def test_batch_across_the_sequence_wrap_survives_a_snapshot() -> None:
    log = Written()
    across = header(SEQUENCE_MAX - 1, records=4)
    log.append(across)
    again = ProducerState()
    again.load(log.state.entries(), Offset(4), now=Millis(1000))
    assert again.check(across, from_client=True) == Duplicate(Offset(0), Offset(3), Millis(1000))


def test_expired_producers_are_not_loaded_unless_in_a_transaction() -> None:
    log = Written()
    log.append(header(0, pid=1))
    log.append(header(0, pid=2, txn=True))
    again = ProducerState(expiration_ms=100)
    again.load(log.state.entries(), Offset(2), now=Millis(5000))
    assert (1 in again, 2 in again) == (False, True)


def test_transactions_of_a_snapshot_are_in_offset_order() -> None:
    log = Written()
    log.append(header(0, pid=1))
    log.append(header(0, pid=2, txn=True))
    log.append(header(1, pid=1, txn=True))
    again = ProducerState()
    again.load(log.state.entries(), Offset(3), now=Millis(1000))
    assert again.first_unstable_offset == 1
    completed = again.apply_marker(marker_header(pid=2), commit(), Offset(3))
    assert completed is not None
    assert completed.last_stable_offset == 2


# -- a model -------------------------------------------------------------------

moves = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.integers(1, 2), st.booleans()),
        st.tuples(st.just("end"), st.integers(1, 2), st.booleans()),
        st.tuples(st.just("hw"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("reload"), st.just(0), st.booleans()),
    ),
    max_size=14,
)


@given(moves)
def test_nothing_undecided_or_unreplicated_lies_below_the_last_stable_offset(
    steps: list[tuple[str, int, bool]],
) -> None:
    """The model keeps each record's outcome; a reader must never pass an open one."""
    log, high_watermark = Written(), 0
    open_from: dict[int, int] = {}
    decided: list[tuple[int, int]] = []  # first offset, marker's offset
    sequences = {1: 0, 2: 0}
    for kind, value, flag in steps:
        if kind == "data":
            is_txn = flag or value in open_from
            if is_txn:
                open_from.setdefault(value, log.end)
            assert log.append(header(sequences[value], pid=value, txn=is_txn)) is None
            sequences[value] += 1
        elif kind == "end":
            completed = log.end_txn(commit() if flag else abort(), pid=value)
            first = open_from.pop(value, None)
            assert (completed is None) == (first is None)
            if completed is not None and first is not None:
                decided.append((first, completed.last_offset))
                others = min(open_from.values(), default=completed.last_offset + 1)
                assert completed.last_stable_offset == others
        elif kind == "hw":
            high_watermark = max(high_watermark, log.end - value)
            log.state.on_high_watermark(Offset(high_watermark))
        elif high_watermark == log.end:
            entries = list(log.state.entries())
            log.state.load(entries, Offset(log.end), now=Millis(0))
        unreplicated = [first for first, marker in decided if marker >= high_watermark]
        limit = min([*open_from.values(), *unreplicated, high_watermark])
        assert log.state.last_stable_offset(Offset(high_watermark)) == limit
