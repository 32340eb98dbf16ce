"""Incremental fetch sessions: epochs, changed partitions, and eviction."""

from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.api.fetch.reply import Row
from ottla.api.fetch.request import ITEMS_PER_READ, FetchBody, FetchPartition
from ottla.api.fetch.sessions import (
    EPOCH_MAX,
    Context,
    Finished,
    Full,
    Incremental,
    Sessionless,
    Sessions,
    next_epoch,
)
from ottla.api.surface.replies import Steps, finish
from ottla.protocol.errors import ErrorCode
from record_tools import FileRange

EVICTION_MS = 1000


def asked(partition: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(partition, -1, offset, -1, -1, 1000)


def ask(
    *partitions: int,
    session: int = 0,
    epoch: int = 0,
    forgotten: tuple[int, ...] = (),
    version: int = 12,
    replica: int = -1,
    offset: int = 0,
) -> FetchBody:
    topics = [("t", [asked(each, offset) for each in partitions])] if partitions else []
    gone = [("t", list(forgotten))] if forgotten else []
    return FetchBody(version, replica, -1, 0, 1, 1000, False, session, epoch, topics, gone, "")


def sessions(slots: int = 2, partitions_max: int = 1000) -> Sessions:
    ids = count(1)
    return Sessions(
        slots, lambda: next(ids), eviction_ms=EVICTION_MS, partitions_max=partitions_max
    )


def answer(
    cache: Sessions, request: FetchBody, now: int = 0, rows: dict[int, Row] | None = None
) -> Finished | ErrorCode:
    """Open a request and tell each partition what ``rows`` says, else a high watermark of 5."""
    context = cache.open(request, now)
    if isinstance(context, ErrorCode):
        return context
    replies = [
        (
            each,
            (rows or {}).get(each.requested.partition) or Row(each.requested.partition, 0, 5, 5, 0),
        )
        for each in context.fetched
    ]
    return context.finish(replies, now)


def begin(cache: Sessions, *partitions: int, now: int = 0, replica: int = -1) -> int:
    finished = answer(cache, ask(*partitions, replica=replica), now)
    assert isinstance(finished, Finished)
    return finished.session_id


def partitions_sent(finished: Finished | ErrorCode) -> list[int]:
    assert isinstance(finished, Finished)
    assert finished.error is ErrorCode.NONE
    return [row.index for _, row in finished.results]


def some_records(index: int) -> Row:
    return Row(index, 0, 5, 5, 0, FileRange(None, 0, 10))  # type: ignore[arg-type]


# -- epochs ----------------------------------------------------------------------


def test_full_request_creates_a_session() -> None:
    cache = sessions()
    session = begin(cache, 0, 1)
    assert session == 1
    context = cache.open(ask(session=session, epoch=1), 0)
    assert isinstance(context, Incremental)
    assert [each.requested.partition for each in context.fetched] == [0, 1]
    assert partitions_sent(answer(cache, ask(session=session, epoch=2))) == []


def test_versions_without_sessions_are_sessionless() -> None:
    cache = sessions()
    finished = answer(cache, ask(0, version=6, epoch=-1))
    assert partitions_sent(finished) == [0]
    assert len(cache) == 0


def test_final_epoch_closes_the_session() -> None:
    cache = sessions()
    session = begin(cache, 0)
    context = cache.open(ask(0, 1, session=session, epoch=-1), 0)
    assert isinstance(context, Sessionless)
    assert len(cache) == 0


def test_full_request_closes_the_session_it_names() -> None:
    cache = sessions()
    session = begin(cache, 0)
    assert isinstance(cache.open(ask(0, session=session, epoch=0), 0), Full)
    assert cache.get(session) is None


def test_unknown_session_id_is_an_error() -> None:
    cache = sessions()
    assert cache.open(ask(session=9, epoch=1), 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def update_in_steps(cache: Sessions, session: int, epoch: int = 1) -> Steps[Context | ErrorCode]:
    """Begin an incremental request that names many partitions; it has yielded once."""
    steps = cache.open_steps(ask(*range(2 * ITEMS_PER_READ), session=session, epoch=epoch), 0)
    next(steps)
    return steps


def test_session_that_ends_while_a_long_request_updates_it_stays_ended() -> None:
    cache = sessions()
    session = begin(cache, 0, 1, 2)
    steps = update_in_steps(cache, session)
    cache.remove(session)
    assert finish(steps) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == cache.partition_count == 0


def test_partitions_are_counted_right_although_long_requests_and_removals_cross() -> None:
    """Otherwise a client could lower the count as often as it likes, and fill the memory."""
    cache = sessions()
    for _ in range(3):
        session = begin(cache, *range(100))
        steps = update_in_steps(cache, session)
        assert isinstance(cache.open(ask(session=session, epoch=-1), 0), Sessionless)
        finish(steps)
    assert cache.partition_count == sum(
        len(session.partitions) for session in map(cache.get, range(9)) if session is not None
    )


def test_second_long_request_of_an_epoch_is_refused_when_the_first_is_served() -> None:
    cache = sessions(partitions_max=10_000)
    session = begin(cache, 0)
    first, second = update_in_steps(cache, session), update_in_steps(cache, session)
    assert isinstance(finish(first), Incremental)
    assert finish(second) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("epoch", [2, 7, EPOCH_MAX])
def test_wrong_session_epoch_is_refused_and_changes_nothing(epoch: int) -> None:
    cache = sessions()
    session = begin(cache, 0)
    error = cache.open(ask(1, session=session, epoch=epoch), 0)
    assert error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert partitions_sent(answer(cache, ask(session=session, epoch=1))) == []


def test_repeated_session_request_is_refused() -> None:
    cache = sessions()
    session = begin(cache, 0)
    answer(cache, ask(session=session, epoch=1))
    error = cache.open(ask(session=session, epoch=1), 0)
    assert error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize(("first", "then"), [(12, 13), (13, 12)])
def test_session_uses_either_names_or_ids(first: int, then: int) -> None:
    cache = sessions()
    finished = answer(cache, ask(0, version=first))
    assert isinstance(finished, Finished)
    error = cache.open(ask(session=finished.session_id, epoch=1, version=then), 0)
    assert error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_session_epochs_wrap_to_one() -> None:
    assert [next_epoch(each) for each in (-1, 0, 1, EPOCH_MAX)] == [-1, 1, 2, 1]


def test_overtaken_reply_has_only_an_error() -> None:
    cache = sessions()
    session = begin(cache, 0)
    waiting = cache.open(ask(session=session, epoch=1), 0)
    answer(cache, ask(session=session, epoch=2))
    assert isinstance(waiting, Incremental)
    finished = waiting.finish([(each, some_records(0)) for each in waiting.fetched], 0)
    assert finished == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session, ())


# -- partitions ------------------------------------------------------------------


def test_session_partitions_are_added_changed_and_forgotten() -> None:
    cache = sessions()
    session = begin(cache, 0, 1)
    answer(cache, ask(1, 2, session=session, epoch=1, forgotten=(0, 9), offset=7))
    held = cache.get(session)
    assert held is not None
    assert [(each.key[1], each.requested.offset) for each in held.partitions.awake] == [
        (1, 7),
        (2, 7),
    ]
    assert cache.partition_count == 2


def test_session_without_partitions_is_closed() -> None:
    cache = sessions()
    session = begin(cache, 0)
    finished = answer(cache, ask(session=session, epoch=1, forgotten=(0,)))
    assert finished == (ErrorCode.NONE, 0, [])
    assert (len(cache), cache.partition_count) == (0, 0)


def test_duplicate_partition_is_fetched_once_with_the_last_values() -> None:
    cache = sessions()
    twice = ask(0)._replace(topics=[("t", [asked(0, 1)]), ("t", [asked(0, 2)])])
    context = cache.open(twice, 0)
    assert isinstance(context, Full)
    assert [each.requested.offset for each in context.fetched] == [2]


@pytest.mark.parametrize(
    "row",
    [
        some_records(0),
        Row(0, 0, 6, 5, 0),
        Row(0, 0, 5, 5, 1),
        Row(0, 0, 5, 5, 0, preferred_replica=2),
        Row(0, 0, 5, 5, 0, diverging=(1, 2)),
        Row(0, 6),
    ],
    ids=["records", "high watermark", "log start", "replica", "diverging", "error"],
)
def test_session_returns_changed_partitions(row: Row) -> None:
    cache = sessions()
    session = begin(cache, 0, 1)
    assert partitions_sent(answer(cache, ask(session=session, epoch=1), rows={0: row})) == [0]


def test_session_returns_a_change_once() -> None:
    cache = sessions()
    session = begin(cache, 0)
    moved = {0: Row(0, 0, 6, 6, 1)}
    assert partitions_sent(answer(cache, ask(session=session, epoch=1), rows=moved)) == [0]
    assert partitions_sent(answer(cache, ask(session=session, epoch=2), rows=moved)) == []


def test_session_returns_a_partition_after_its_error_ends() -> None:
    cache = sessions()
    session = begin(cache, 0)
    assert partitions_sent(
        answer(cache, ask(session=session, epoch=1), rows={0: Row(0, 6, 5, 5, 0)})
    ) == [0]
    assert partitions_sent(answer(cache, ask(session=session, epoch=2))) == [0]


def test_session_returns_an_error_every_time() -> None:
    cache = sessions()
    session = begin(cache, 0)
    for epoch in (1, 2, 3):
        assert partitions_sent(
            answer(cache, ask(session=session, epoch=epoch), rows={0: Row(0, 6)})
        ) == [0]


def test_partition_with_records_is_last_in_the_next_fetch() -> None:
    cache = sessions()
    session = begin(cache, 0, 1, 2)
    answer(cache, ask(session=session, epoch=1), rows={0: some_records(0)})
    context = cache.open(ask(session=session, epoch=2), 0)
    assert isinstance(context, Incremental)
    assert [each.requested.partition for each in context.fetched] == [1, 2, 0]


# -- slots -----------------------------------------------------------------------


def test_client_without_a_session_slot_sends_full_requests() -> None:
    cache = sessions(slots=1)
    assert begin(cache, 0) == 1
    assert begin(cache, 0) == 0
    assert cache.get(1) is not None


def test_zero_slots_disable_sessions() -> None:
    assert begin(sessions(slots=0), 0) == 0


def test_unused_session_is_evicted() -> None:
    cache = sessions(slots=2)
    first, second = begin(cache, 0), begin(cache, 0)
    answer(cache, ask(session=first, epoch=1), 10)
    assert begin(cache, 0, now=EVICTION_MS) == 0
    assert begin(cache, 0, now=EVICTION_MS + 1) != 0
    assert cache.get(second) is None
    assert cache.get(first) is not None


def test_old_session_is_evicted_only_for_a_larger_one() -> None:
    cache = sessions(slots=1)
    old = begin(cache, 0, 1)
    answer(cache, ask(session=old, epoch=1), EVICTION_MS + 1)
    assert begin(cache, 0, now=EVICTION_MS + 2) == 0
    assert begin(cache, 0, 1, 2, now=EVICTION_MS + 2) != 0
    assert cache.get(old) is None


def test_young_session_is_not_evicted_for_a_larger_one() -> None:
    cache = sessions(slots=1)
    young = begin(cache, 0)
    answer(cache, ask(session=young, epoch=1), EVICTION_MS)
    assert begin(cache, *range(50), now=EVICTION_MS) == 0


def test_follower_evicts_a_young_client_session() -> None:
    cache = sessions(slots=1)
    young = begin(cache, *range(9))
    assert begin(cache, 0, now=1, replica=2) != 0
    assert cache.get(young) is None


def test_client_cannot_evict_an_active_follower() -> None:
    cache = sessions(slots=1)
    follower = begin(cache, 0, replica=2)
    answer(cache, ask(session=follower, epoch=1, replica=2), EVICTION_MS + 1)
    for flood in range(100):
        assert begin(cache, *range(20), now=EVICTION_MS + 2 + flood) == 0
    assert cache.get(follower) is not None


def test_young_follower_session_is_not_evicted_by_another() -> None:
    cache = sessions(slots=1)
    first = begin(cache, 0, replica=1)
    assert begin(cache, 0, 1, now=1, replica=2) == 0
    assert cache.get(first) is not None


def test_number_of_partitions_of_all_sessions_is_bounded() -> None:
    cache = sessions(slots=10, partitions_max=5)
    first = begin(cache, 0, 1, 2)
    assert begin(cache, 0, 1, 2) == 0
    error = cache.open(ask(*range(9), session=first, epoch=1), 0)
    assert error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partition_count) == (0, 0)


class SlotsModel(RuleBasedStateMachine):
    """Whatever is asked: never more than the slots, and the books agree with the sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = sessions(slots=2, partitions_max=12)
        self.now = 0
        self.epochs: dict[int, int] = {}

    @rule(size=st.integers(1, 5), replica=st.sampled_from([-1, 2]))
    def new(self, size: int, replica: int) -> None:
        young = {
            each: self.cache.get(each)
            for each in self.epochs
            if (held := self.cache.get(each)) and self.now - held.used <= EVICTION_MS
        }
        session = begin(self.cache, *range(size), now=self.now, replica=replica)
        if session:
            self.epochs[session] = 1
        for each, held in young.items():
            if self.cache.get(each) is None and held is not None:
                assert replica >= 0 or not held.is_follower, "a client threw out a follower"
                is_old = held.used - held.created > EVICTION_MS
                assert is_old or (replica >= 0 and not held.is_follower)

    @rule(add=st.integers(0, 6), drop=st.integers(0, 6), which=st.integers(0, 5))
    def use(self, add: int, drop: int, which: int) -> None:
        if not self.epochs:
            return
        session = sorted(self.epochs)[which % len(self.epochs)]
        epoch = self.epochs[session]
        request = ask(add, session=session, epoch=epoch, forgotten=(drop,))
        result = answer(self.cache, request, self.now)
        if isinstance(result, ErrorCode):
            assert result is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if isinstance(result, ErrorCode) or result.session_id == 0:
            del self.epochs[session]
        else:
            self.epochs[session] = next_epoch(epoch)

    @rule(ms=st.sampled_from([1, 400, EVICTION_MS + 1]))
    def wait(self, ms: int) -> None:
        self.now += ms

    @invariant()
    def books_agree(self) -> None:
        held = [each for each in map(self.cache.get, self.epochs) if each is not None]
        assert len(self.cache) == len(held) <= 2
        assert self.cache.partition_count == sum(len(each.partitions) for each in held) <= 12
        ranked = self.cache._evictable._values + self.cache._by_followers._values
        assert {each.session_id for each in ranked} <= {each.id for each in held}


TestSlots = SlotsModel.TestCase
TestSlots.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
