"""The records of a share partition: acquisition, locks, acknowledgements and deliveries."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis, Offset
from ottla.sharing.acquisition import (
    Ack,
    AckType,
    Acquire,
    Acquired,
    AcquireMode,
    Acquisition,
    Batch,
    Limits,
    StateBatch,
    check_acks,
)
from ottla.sharing.spans import RecordState

ACCEPT, RELEASE, REJECT = int(AckType.ACCEPT), int(AckType.RELEASE), int(AckType.REJECT)


def batches(*pairs: tuple[int, int]) -> list[Batch]:
    return [Batch(Offset(first), Offset(last)) for first, last in pairs]


def want(member: str = "m1", records_max: int = 500, **more: object) -> Acquire:
    return Acquire(member, Millis(more.pop("deadline", 1000)), records_max, **more)  # type: ignore


def ack(first: int, last: int, *types: int) -> Ack:
    return Ack(Offset(first), Offset(last), types)


def held(size: int = 10, **more: object) -> Acquisition:
    """Return a partition whose first ``size`` records, one batch, are acquired by m1."""
    acquisition = Acquisition(Offset(0), Limits(**more))  # type: ignore[arg-type]
    assert acquisition.acquire(want(), Offset(0), batches((0, size - 1)))
    return acquisition


def states(acquisition: Acquisition) -> list[tuple[int, int, str, int]]:
    return [(s.first, s.last, s.state.name, s.deliveries) for s in acquisition.spans()]


# -- acquire ---------------------------------------------------------------------


def test_partition_held_by_another_member_is_not_assigned() -> None:
    acquisition = held(10)

    assert acquisition.acquire(want("m2"), Offset(0), batches((0, 9), (10, 14))) == [
        Acquired(Offset(10), Offset(14), 1)
    ]


def test_the_same_member_is_not_given_the_same_records_again() -> None:
    acquisition = held(10)

    assert acquisition.acquire(want(), Offset(0), batches((0, 9))) == []


def test_soft_limit_acquires_whole_batches() -> None:
    acquisition = Acquisition(Offset(0))

    got = acquisition.acquire(want(records_max=3), Offset(0), batches((0, 4), (5, 9)))

    assert got == [Acquired(Offset(0), Offset(4), 1)]
    assert acquisition.next_offset() == 5


def test_a_strict_limit_cuts_batches() -> None:
    acquisition = Acquisition(Offset(0))
    strict = want(records_max=7, mode=AcquireMode.RECORD_LIMIT)

    got = acquisition.acquire(strict, Offset(0), batches((0, 4), (5, 9)))

    assert got == [Acquired(Offset(0), Offset(6), 1)]
    assert acquisition.next_offset() == acquisition.end == 7


def test_strict_limit_counts_redelivered_records() -> None:
    acquisition = held(10)
    acquisition.release("m1")
    strict = want("m2", records_max=4, mode=AcquireMode.RECORD_LIMIT)

    assert acquisition.acquire(strict, Offset(0), batches((0, 9))) == [
        Acquired(Offset(0), Offset(3), 2)
    ]


def test_acquired_records_are_split_by_batch_size() -> None:
    acquisition = Acquisition(Offset(0))

    got = acquisition.acquire(want(batch_size=4), Offset(0), batches((0, 2), (3, 5), (6, 8)))

    assert got == [Acquired(Offset(0), Offset(5), 1), Acquired(Offset(6), Offset(8), 1)]


def test_gaps_between_batches_come_along() -> None:
    acquisition = Acquisition(Offset(0))

    got = acquisition.acquire(want(), Offset(0), batches((0, 2), (7, 9)))

    assert got == [Acquired(Offset(0), Offset(9), 1)]


def test_an_empty_window_begins_where_the_log_has_records() -> None:
    acquisition = Acquisition(Offset(3))

    got = acquisition.acquire(want(), Offset(3), batches((7, 9)))

    assert got == [Acquired(Offset(7), Offset(9), 1)]
    assert acquisition.start == 7


def test_a_window_that_starts_inside_a_batch_gives_the_rest_of_it() -> None:
    acquisition = Acquisition(Offset(5))

    assert acquisition.acquire(want(), Offset(5), batches((0, 9))) == [
        Acquired(Offset(5), Offset(9), 1)
    ]


def test_records_compacted_away_are_archived() -> None:
    acquisition = held(10)
    acquisition.release("m1")

    got = acquisition.acquire(want("m2"), Offset(0), batches((6, 9)))

    assert got == [Acquired(Offset(6), Offset(9), 2)]
    assert acquisition.start == 6


def test_too_many_in_flight_give_nothing_new_but_what_was_released() -> None:
    acquisition = held(10, in_flight_max=10)
    assert not acquisition.may_acquire()
    assert acquisition.acquire(want("m2"), Offset(10), batches((10, 19))) == []

    acquisition.acknowledge("m1", [ack(4, 5, RELEASE)])

    assert acquisition.may_acquire()
    assert acquisition.next_offset() == 4
    got = acquisition.acquire(want("m2"), Offset(4), batches((0, 9), (10, 19)))
    assert got == [Acquired(Offset(4), Offset(5), 2)]


def test_ranges_with_different_delivery_counts_are_separate() -> None:
    acquisition = held(10)
    acquisition.acknowledge("m1", [ack(0, 4, RELEASE)])
    acquisition.acquire(want("m2"), Offset(0), batches((0, 9)))
    acquisition.release("m2")
    acquisition.release("m1")

    got = acquisition.acquire(want("m3"), Offset(0), batches((0, 9)))

    assert got == [Acquired(Offset(0), Offset(4), 3), Acquired(Offset(5), Offset(9), 2)]


# -- acknowledge -------------------------------------------------------------------


def test_accepted_records_move_the_start() -> None:
    acquisition = held(10)

    assert acquisition.acknowledge("m1", [ack(0, 3, ACCEPT)]) is ErrorCode.NONE

    assert acquisition.start == 4
    assert acquisition.in_flight == 6


def test_finished_records_behind_an_open_one_wait() -> None:
    acquisition = held(10)

    acquisition.acknowledge("m1", [ack(2, 3, ACCEPT)])

    assert acquisition.start == 0
    assert acquisition.finished_count == 2


def test_a_type_for_each_record() -> None:
    acquisition = held(5)

    acquisition.acknowledge("m1", [ack(0, 4, ACCEPT, RELEASE, REJECT, 0, ACCEPT)])

    assert states(acquisition) == [
        (1, 1, "AVAILABLE", 1),
        (2, 3, "ARCHIVED", 1),
        (4, 4, "ACKNOWLEDGED", 1),
    ]


def test_a_rejected_record_is_never_delivered_again() -> None:
    acquisition = held(3)
    acquisition.acknowledge("m1", [ack(1, 1, REJECT)])
    acquisition.release("m1")

    got = acquisition.acquire(want("m2"), Offset(0), batches((0, 2)))

    assert [(a.first, a.last) for a in got] == [(0, 0), (2, 2)]


def test_acknowledgements_are_applied_atomically() -> None:
    acquisition = held(10)
    acquisition.acknowledge("m1", [ack(5, 5, RELEASE)])
    before = states(acquisition)

    code = acquisition.acknowledge("m1", [ack(0, 1, ACCEPT), ack(5, 5, ACCEPT)])

    assert code is ErrorCode.INVALID_RECORD_STATE
    assert states(acquisition) == before


def test_only_the_acquiring_member_may_acknowledge() -> None:
    assert held().acknowledge("m2", [ack(0, 0, ACCEPT)]) is ErrorCode.INVALID_RECORD_STATE


def test_undelivered_records_cannot_be_acknowledged() -> None:
    assert held(10).acknowledge("m1", [ack(9, 10, ACCEPT)]) is ErrorCode.INVALID_REQUEST
    assert held(10).acknowledge("m1", [ack(10, 11, ACCEPT)]) is ErrorCode.INVALID_RECORD_STATE


def test_acknowledging_again_below_the_start_changes_nothing() -> None:
    acquisition = held(10)
    acquisition.acknowledge("m1", [ack(0, 3, ACCEPT)])

    assert acquisition.acknowledge("m1", [ack(0, 3, REJECT)]) is ErrorCode.NONE
    assert acquisition.acknowledge("m1", [ack(2, 4, ACCEPT)]) is ErrorCode.NONE
    assert acquisition.start == 5


def test_acknowledging_after_the_lock_expired_is_refused() -> None:
    acquisition = held(10)
    assert acquisition.expire(Millis(1000)) == 10

    code = acquisition.acknowledge("m1", [ack(0, 9, ACCEPT)])

    assert code is ErrorCode.INVALID_RECORD_STATE
    assert acquisition.next_offset() == 0


def test_a_renewed_lock_expires_later() -> None:
    acquisition = held(10)

    acquisition.acknowledge("m1", [ack(0, 4, int(AckType.RENEW))], Millis(2000))

    assert acquisition.expire(Millis(1500)) == 5
    assert acquisition.next_deadline() == 2000
    assert acquisition.acknowledge("m1", [ack(0, 4, ACCEPT)]) is ErrorCode.NONE


def test_record_is_archived_at_the_delivery_limit() -> None:
    acquisition = held(3, deliveries_max=2)
    acquisition.acknowledge("m1", [ack(0, 0, RELEASE)])
    acquisition.acquire(want("m2"), Offset(0), batches((0, 2)))

    acquisition.acknowledge("m2", [ack(0, 0, RELEASE)])

    assert acquisition.start == 1


def test_departing_member_releases_only_its_own_records() -> None:
    acquisition = held(5)
    acquisition.acquire(want("m2"), Offset(5), batches((5, 9)))

    assert acquisition.release("m1") == 5

    assert states(acquisition) == [(0, 4, "AVAILABLE", 1), (5, 9, "ACQUIRED", 1)]


def test_a_lock_is_kept_until_its_deadline() -> None:
    acquisition = held()

    assert acquisition.expire(Millis(999)) == 0
    assert acquisition.next_deadline() == 1000


def test_records_that_the_log_dropped_are_forgotten() -> None:
    acquisition = held(10)

    assert acquisition.move_start(Offset(4))
    assert acquisition.acknowledge("m1", [ack(0, 9, ACCEPT)]) is ErrorCode.NONE
    assert acquisition.start == acquisition.end == 10
    assert not acquisition.move_start(Offset(10))
    assert acquisition.move_start(Offset(50))
    assert acquisition.next_offset() == 50


def test_malformed_acknowledgements() -> None:
    good = [ack(0, 1, ACCEPT), ack(2, 3, ACCEPT, RELEASE)]
    assert check_acks(good, may_renew=False) is ErrorCode.NONE
    assert check_acks([ack(0, 0, 4)], may_renew=True) is ErrorCode.NONE
    for bad in (
        [ack(1, 0, ACCEPT)],
        [ack(0, 1)],
        [ack(0, 2, ACCEPT, ACCEPT)],
        [ack(0, 0, 4)],
        [ack(0, 0, -1)],
        [ack(0, 2, ACCEPT), ack(1, 3, ACCEPT)],
        [ack(0, 2, ACCEPT), ack(2, 3, ACCEPT), ack(1, 1, ACCEPT)],
        [ack(4, 5, ACCEPT), ack(0, 1, ACCEPT)],
        [ack(-2, -1, ACCEPT)],
    ):
        assert check_acks(bad, may_renew=False) is ErrorCode.INVALID_REQUEST, bad


def test_acknowledgements_that_share_one_record_are_an_invalid_record_state() -> None:
    touching = [ack(0, 2, ACCEPT), ack(2, 3, ACCEPT)]
    assert check_acks(touching, may_renew=False) is ErrorCode.INVALID_RECORD_STATE


# -- durability ---------------------------------------------------------------------


def test_acquiring_writes_nothing() -> None:
    assert held().take_dirty() is None


def test_only_what_changed_is_written() -> None:
    acquisition = held(10)
    acquisition.acknowledge("m1", [ack(2, 3, ACCEPT)])

    write = acquisition.take_dirty()

    assert write is not None
    assert (write.start, write.finished_count) == (0, 2)
    assert write.batches == (StateBatch(Offset(2), Offset(3), 2, 1),)
    assert acquisition.take_dirty() is None


def test_failed_write_is_retried_with_later_changes() -> None:
    acquisition = held(10)
    acquisition.acknowledge("m1", [ack(2, 3, ACCEPT)])
    write = acquisition.take_dirty()
    assert write is not None
    acquisition.acknowledge("m1", [ack(5, 5, RELEASE)])

    acquisition.on_failed(write)

    again = acquisition.take_dirty()
    assert again is not None
    assert [(b.first, b.last) for b in again.batches] == [(2, 3), (5, 5)]


def test_acquired_record_is_written_in_its_earlier_state() -> None:
    acquisition = held(1)
    acquisition.acknowledge("m1", [ack(0, 0, RELEASE)])
    acquisition.acquire(want("m2"), Offset(0), batches((0, 0)))

    write = acquisition.take_dirty()

    assert write is not None
    assert write.batches == (StateBatch(Offset(0), Offset(0), 0, 1),)


def test_a_moved_start_alone_is_written() -> None:
    acquisition = held(10)
    acquisition.acknowledge("m1", [ack(0, 9, ACCEPT)])

    write = acquisition.take_dirty()

    assert write is not None
    assert (write.start, write.batches) == (10, ())


def test_a_loaded_window_has_no_locks_and_no_holes() -> None:
    persisted = [
        StateBatch(Offset(5), Offset(6), 2, 1),
        StateBatch(Offset(8), Offset(9), 1, 3),
        StateBatch(Offset(10), Offset(10), 4, 5),
    ]

    acquisition = Acquisition.load(Offset(5), persisted)

    assert acquisition.start == 7
    assert states(acquisition) == [
        (7, 7, "AVAILABLE", 0),
        (8, 9, "AVAILABLE", 3),
        (10, 10, "ARCHIVED", 5),
    ]


def test_persisted_batches_below_the_start_are_stepped_over() -> None:
    acquisition = Acquisition.load(Offset(5), [StateBatch(Offset(0), Offset(6), 0, 1)])

    assert states(acquisition) == [(5, 6, "AVAILABLE", 1)]


# -- a small harness ------------------------------------------------------------------

MEMBERS = ("m1", "m2", "m3")
DELIVERIES = 3
LOG = 24  # offsets, in batches of four


class AcquisitionModel(RuleBasedStateMachine):
    """A share partition beside a model that keeps every offset by itself."""

    @initialize(has_dead_letters=st.booleans())
    def begin(self, has_dead_letters: bool) -> None:
        self.has_dead_letters = has_dead_letters
        self.dead: set[int] = set()
        self.limits = Limits(DELIVERIES, 16)
        self.acquisition = Acquisition(Offset(0), self.limits)
        self.acquisition.has_dead_letters = has_dead_letters
        self.now = 0
        self.holders: dict[int, tuple[str, int]] = {}
        self.counts: dict[int, int] = {}
        self.finished: set[int] = set()
        self.persisted: dict[int, tuple[int, int]] = {}
        self.persisted_start = 0
        self.start = 0

    @rule(member=st.sampled_from(MEMBERS), limit=st.integers(1, 9), strict=st.booleans())
    def acquire(self, member: str, limit: int, strict: bool) -> None:
        fetched = self.acquisition.next_offset()
        found = [
            Batch(Offset(first), Offset(first + 3)) for first in range(fetched // 4 * 4, LOG, 4)
        ][:2]
        mode = AcquireMode.RECORD_LIMIT if strict else AcquireMode.BATCH_OPTIMIZED
        asked = Acquire(member, Millis(self.now + 10), limit, 0, mode)
        got = self.acquisition.acquire(asked, fetched, found)
        offsets = [o for each in got for o in range(each.first, each.last + 1)]
        assert not strict or len(offsets) <= limit
        assert not offsets or offsets[0] == fetched
        for each in got:
            for offset in range(each.first, each.last + 1):
                assert offset not in self.holders
                assert offset not in self.finished | self.dead
                self.counts[offset] = self.counts.get(offset, 0) + 1
                assert self.counts[offset] == each.deliveries <= DELIVERIES
                self.holders[offset] = (member, self.now + 10)

    @rule(
        member=st.sampled_from(MEMBERS),
        first=st.integers(0, LOG),
        size=st.integers(1, 6),
        kind=st.sampled_from((0, ACCEPT, RELEASE, REJECT)),
    )
    def acknowledge(self, member: str, first: int, size: int, kind: int) -> None:
        last = first + size - 1
        code = self.acquisition.acknowledge(member, [ack(first, last, kind)])
        mine = [o for o in range(max(first, self.start), last + 1)]
        if all(self.holders.get(o, ("",))[0] == member for o in mine):
            assert code is ErrorCode.NONE
            for offset in mine:
                self.let_go(offset, kind)
        else:
            assert code in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)

    def let_go(self, offset: int, kind: int) -> None:
        del self.holders[offset]
        is_used_up = kind == RELEASE and self.counts[offset] >= DELIVERIES
        if self.has_dead_letters and (is_used_up or kind == REJECT):
            self.dead.add(offset)
        elif kind != RELEASE or is_used_up:
            self.finished.add(offset)

    @rule(first=st.integers(0, LOG), size=st.integers(1, 12))
    def archive_dead(self, first: int, size: int) -> None:
        """Some dead letters are written; others are unchanged."""
        self.acquisition.archive_dead(Offset(first), Offset(first + size - 1))
        written = {offset for offset in self.dead if first <= offset < first + size}
        self.finished |= written
        self.dead -= written

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        self.acquisition.release(member)
        for offset in [o for o, (who, _) in self.holders.items() if who == member]:
            self.let_go(offset, RELEASE)

    @rule(passed=st.integers(1, 8))
    def time_passes(self, passed: int) -> None:
        self.now += passed
        self.acquisition.expire(Millis(self.now))
        for offset in [o for o, (_, until) in self.holders.items() if until <= self.now]:
            self.let_go(offset, RELEASE)

    @rule(works=st.booleans())
    def write(self, works: bool) -> None:
        write = self.acquisition.take_dirty()
        if write is None:
            return
        if not works:
            self.acquisition.on_failed(write)
            return
        self.persisted_start = write.start
        for batch in write.batches:
            for offset in range(batch.first, batch.last + 1):
                self.persisted[offset] = (batch.state, batch.deliveries)

    @rule()
    def change_the_leader(self) -> None:
        """The next leader knows the durable state, including every whole write."""
        self.write(works=True)
        loaded = Acquisition.load(
            Offset(self.persisted_start),
            [
                StateBatch(Offset(o), Offset(o), *self.persisted[o])
                for o in sorted(self.persisted)
                if o >= self.persisted_start
            ],
            self.limits,
        )
        assert loaded.start == self.acquisition.start
        assert {o for o in self.finished if o >= loaded.start} == {
            offset
            for span in loaded.spans()
            if span.state.is_finished
            for offset in range(span.first, span.last + 1)
        }
        loaded.has_dead_letters = self.has_dead_letters
        self.acquisition = loaded
        self.holders.clear()
        self.counts = {
            offset: span.deliveries
            for span in loaded.spans()
            for offset in range(span.first, span.last + 1)
        }

    @invariant()
    def states_agree(self) -> None:
        start = self.acquisition.start
        assert start >= self.start
        self.start = start
        assert all(offset in self.finished for offset in range(start))
        assert start not in self.finished
        covered = start
        for span in self.acquisition.spans():
            assert span.first == covered
            covered = span.last + 1
            for offset in range(span.first, span.last + 1):
                assert (span.state is RecordState.ACQUIRED) == (offset in self.holders)
                assert span.state.is_finished == (offset in self.finished)
                assert (span.state is RecordState.ARCHIVING) == (offset in self.dead)
        replies = {o for each in self.acquisition.dead() for o in range(each.first, each.last + 1)}
        assert replies == self.dead
        assert covered == self.acquisition.end


AcquisitionModel.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None
)
TestAcquisitionModel = AcquisitionModel.TestCase
