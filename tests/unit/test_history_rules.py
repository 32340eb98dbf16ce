"""The history checker's borders: what is no anomaly although it looks like one, and liveness."""

import time

import pytest

from ottla.testing.history.anomalies import Anomaly, Label
from ottla.testing.history.check import check
from ottla.testing.history.events import (
    AnyEvent,
    Assign,
    CommitOffset,
    End,
    Fault,
    FetchOffset,
    Final,
    Heal,
    HistoryMalformed,
    Isolation,
    Phase,
    Poll,
    Replica,
    Send,
    Trim,
    Watermark,
    read_lines,
)
from ottla.testing.history.liveness import Liveness
from ottla.testing.history.transactions import strongly_connected

P = "t-0"
RC = Isolation.READ_COMMITTED


def sent(at: int, value: str, offset: int | None = None, **fields) -> list[AnyEvent]:
    """A send that took one tick; without a phase, acknowledged."""
    phase = fields.pop("phase", Phase.OK)
    what = {"process": "p", "partition": P, "value": value, **fields}
    return [
        Send(time=at, phase=Phase.INVOKE, **what),
        Send(time=at + 1, phase=phase, offset=offset, **what),
    ]


def read(at: int, *records: tuple[int, str], position: int | None = 0, **fields) -> list[AnyEvent]:
    """A consumer of its own, that is given some records."""
    what = {"process": f"c{at}", "partition": P}
    return [
        Assign(time=at, position=position, **fields, **what),
        Poll(time=at, records=records, **what),
    ]


def labels(*events: AnyEvent, liveness: Liveness | None = None) -> list[Label]:
    return [each.label for each in check(events, liveness)]


def test_an_anomaly_says_what_and_where() -> None:
    [found] = check([*sent(0, "a", 0), *read(5, (0, "a"), (1, "b"))])
    assert str(found) == "phantom t-0: value 'b' at offset 1 was never sent there"
    assert found == Anomaly(Label.PHANTOM, P, "value 'b' at offset 1 was never sent there")


def test_one_who_starts_late_misses_nothing() -> None:
    events = [*sent(0, "a", 0), *sent(2, "b", 1)]
    assert labels(*events, *read(9, (1, "b"), position=1)) == []
    assert labels(*events, *read(9, (1, "b"), position=None)) == []
    assert labels(*events, *read(9, (1, "b"), position=0)) == [Label.LOST_WRITE, Label.POLL_SKIP]


def test_a_new_assignment_may_go_back() -> None:
    events = [*sent(0, "a", 0), *sent(2, "b", 1)]
    again = [
        Assign(time=7, process="c5", partition=P, position=0),
        Poll(time=8, process="c5", partition=P, records=((0, "a"),)),
    ]
    assert labels(*events, *read(5, (0, "a"), (1, "b")), *again) == []


def test_what_was_acknowledged_after_the_last_look_is_not_due() -> None:
    events = [*sent(0, "a", 0), *sent(20, "b", 1), *read(5, (0, "a"))]
    final = {"process": "c5", "partition": P}
    assert labels(*events, Final(time=10, **final)) == []
    assert labels(*events, Final(time=30, **final)) == [Label.LOST_WRITE]


def test_what_was_deleted_by_right_is_not_lost() -> None:
    events = [*sent(0, "a", 0), *sent(2, "b", 1), *sent(4, "c", 2), *read(9, (2, "c"))]
    trim = {"time": 8, "process": "admin", "partition": P}
    assert labels(*events, Trim(below=2, **trim)) == []
    assert labels(*events, Trim(below=1, **trim)) == [Label.LOST_WRITE, Label.POLL_SKIP]


def test_a_producer_without_idempotence_may_repeat_and_reorder() -> None:
    events = [*sent(0, "a", 1, idempotent=False), *sent(2, "b", 0, idempotent=False)]
    assert labels(*events, *read(9, (0, "b"), (1, "a"), (2, "a"))) == []


def test_an_unknown_outcome_allows_both() -> None:
    unknown = sent(0, "a", phase=Phase.INFO)
    assert labels(*unknown, *read(9, (0, "a"))) == []
    assert labels(*unknown, *sent(3, "b", 0), *read(9, (0, "b"))) == []


def test_questions_open_together_say_nothing_about_each_other() -> None:
    def mark(at: int, process: str, high: int | None = None) -> Watermark:
        phase = Phase.INVOKE if high is None else Phase.OK
        return Watermark(time=at, process=process, partition=P, phase=phase, high=high)

    together = [mark(0, "x"), mark(1, "y"), mark(2, "x", 9), mark(3, "y", 5)]
    assert labels(*together) == []
    assert labels(*together, mark(4, "y"), mark(5, "y", 8)) == [Label.HW_REGRESS]
    failed = Watermark(time=5, process="y", partition=P, phase=Phase.FAIL, high=1)
    assert labels(*together, mark(4, "y"), failed) == []


GROUP = {"process": "c", "group": "g", "partition": P}


def test_a_reset_lowers_a_groups_offset() -> None:
    events = [CommitOffset(time=0, offset=9, **GROUP)]
    fetch = [
        FetchOffset(time=6, phase=Phase.INVOKE, **GROUP),
        FetchOffset(time=7, offset=4, **GROUP),
    ]
    assert labels(*events, *fetch) == [Label.COMMITTED_OFFSET_REGRESS]
    reset = CommitOffset(time=3, offset=4, is_reset=True, phase=Phase.INFO, **GROUP)
    assert labels(*events, reset, *fetch) == []


def test_an_offset_of_a_transaction_counts_from_its_commit_on() -> None:
    events = [
        CommitOffset(time=0, offset=2, **GROUP),
        CommitOffset(time=1, offset=9, txn="x", **GROUP),
    ]
    fetch = [
        FetchOffset(time=6, phase=Phase.INVOKE, **GROUP),
        FetchOffset(time=7, offset=2, **GROUP),
    ]
    assert labels(*events, *fetch) == []
    ended = End(time=5, process="p", txn="x", commit=True)
    assert labels(*events, ended, *fetch) == [Label.COMMITTED_OFFSET_REGRESS]
    assert labels(*events, End(time=5, process="p", txn="x", commit=False), *fetch) == []


def transaction(end: Phase | None, *, commit: bool = True) -> list[AnyEvent]:
    what = {"process": "p", "txn": "x", "commit": commit}
    ended = (
        []
        if end is None
        else [End(time=6, phase=Phase.INVOKE, **what), End(time=7, phase=end, **what)]
    )
    return [*sent(0, "a", 0, txn="x"), *sent(2, "b", 1, txn="x"), *ended]


def test_a_commit_of_unknown_outcome_is_decided_by_what_is_seen() -> None:
    unknown = [*transaction(Phase.INFO), *sent(8, "c", 3)]
    assert labels(*unknown, *read(20, (3, "c"), isolation=RC)) == []
    assert labels(*unknown, *read(20, (0, "a"), (1, "b"), (3, "c"), isolation=RC)) == []
    half = labels(*unknown, *read(20, (0, "a"), (3, "c"), isolation=RC))
    assert half == [Label.LOST_WRITE, Label.POLL_SKIP, Label.TORN_TXN]


def test_a_commit_that_is_known_is_due_even_when_no_part_is_seen() -> None:
    events = [*transaction(Phase.OK), *sent(8, "c", 3), *read(20, (3, "c"), isolation=RC)]
    assert labels(*events).count(Label.LOST_WRITE) == 2


@pytest.mark.parametrize("end", [Phase.OK, Phase.INFO, Phase.FAIL])
def test_an_abort_hides_whatever_came_of_it(end: Phase) -> None:
    events = [*transaction(end, commit=False), *sent(8, "c", 3)]
    assert labels(*events, *read(20, (3, "c"), isolation=RC)) == []
    assert labels(*events, *read(20, (0, "a"), (1, "b"), (3, "c"))) == [], "read uncommitted"
    seen = labels(*events, *read(20, (0, "a"), (3, "c"), isolation=RC))
    assert seen == [Label.ABORTED_READ]


def test_a_refused_commit_is_an_abort() -> None:
    events = [*transaction(Phase.FAIL), *read(20, (0, "a"), (1, "b"), isolation=RC)]
    assert set(labels(*events)) == {Label.ABORTED_READ}


def test_an_offset_that_two_committed_tells_nothing() -> None:
    aborted = [
        CommitOffset(time=0, offset=9, txn="x", **GROUP),
        End(time=1, process="p", txn="x", commit=False),
    ]
    fetch = FetchOffset(time=9, offset=9, **GROUP)
    assert labels(*aborted, fetch) == [Label.ABORTED_READ]
    assert labels(*aborted, CommitOffset(time=2, offset=9, **GROUP), fetch) == []
    refused = CommitOffset(time=2, offset=9, phase=Phase.FAIL, **GROUP)
    assert labels(*aborted, refused, fetch) == [Label.ABORTED_READ]


def test_rings_of_any_length_are_found_and_chains_are_none() -> None:
    chain = {str(n): {str(n + 1): None} for n in range(5000)}
    assert max(map(len, strongly_connected(chain))) == 1
    ring = {**chain, "5000": {"17": None}}
    assert sorted(len(each) for each in strongly_connected(ring))[-1] == 5000 - 16
    two = {"a": {"b": None}, "b": {"a": None, "c": None}, "c": {"d": None}, "d": {"c": None}}
    assert sorted(map(sorted, strongly_connected(two))) == [["a", "b"], ["c", "d"]]


def test_replicas_are_compared_where_all_of_them_hold() -> None:
    def replica(node: int, high: int, *batches: tuple[int, str]) -> Replica:
        return Replica(
            time=0, process="d", partition=P, node=node, high_watermark=high, batches=batches
        )

    one = replica(1, 4, (0, "a"), (2, "b"), (4, "c"))
    assert labels(one, replica(2, 5, (2, "b"), (4, "other"))) == []
    assert labels(one, replica(2, 5, (2, "x"), (4, "c"))) == [Label.REPLICAS_DIFFER]
    assert labels(one, replica(2, 0)) == []


# -- liveness ------------------------------------------------------------------

NEMESIS = {"process": "nemesis"}


def test_everything_acknowledged_is_seen_in_time_after_a_heal() -> None:
    events = [*sent(0, "a", 0), Fault(time=5, name="cut", **NEMESIS), Heal(time=10, **NEMESIS)]
    wanted = Liveness(within_ns=20, rate_share=0)
    later = sent(99, "z", phase=Phase.INFO)
    assert labels(*events, *read(25, (0, "a")), *later, liveness=wanted) == []
    late = labels(*events, *read(35, (0, "a")), *later, liveness=wanted)
    assert late == [Label.UNSEEN_AFTER_HEAL]
    assert labels(*events, *read(35, (0, "a")), liveness=wanted) == [Label.UNSEEN_AFTER_HEAL]
    another = Fault(time=20, name="cut", **NEMESIS)
    assert labels(*events, another, *read(35, (0, "a")), *later, liveness=wanted) == []


def test_one_moment_without_debts_is_enough() -> None:
    events = [*sent(0, "a", 0), Heal(time=10, **NEMESIS), *read(12, (0, "a"))]
    busy = [*sent(13, "b", 1), *sent(99, "z", phase=Phase.INFO)]
    assert labels(*events, *busy, liveness=Liveness(within_ns=20, rate_share=0)) == []


def test_acknowledgements_come_as_fast_as_before() -> None:
    before = [each for n in range(10) for each in sent(10 * n, f"a{n}", n)]
    broken = [Fault(time=100, name="cut", **NEMESIS), Heal(time=200, **NEMESIS)]

    def after(every: int) -> list[AnyEvent]:
        times = range(300, 400, every)
        return [each for n, at in enumerate(times) for each in sent(at, f"b{n}", 10 + n)]

    end = sent(400, "z", phase=Phase.INFO)
    wanted = Liveness(within_ns=100)
    assert labels(*before, *broken, *after(12), *end, liveness=wanted) == []
    slow = labels(*before, *broken, *after(20), *end, liveness=wanted)
    assert slow == [Label.SLOW_AFTER_HEAL]


# -- what is no history --------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([*sent(0, "a", 0), *sent(5, "a", 1)], "sent twice"),
        ([*sent(0, "a", 0), sent(5, "a", 0)[1]], "sent twice"),
        ([sent(0, "a")[0], sent(0, "a", 0, process="q")[1]], "by two"),
        ([Poll(time=0, process="c", partition=P, records=())], "without having been assigned"),
        ([Final(time=0, process="c", partition=P)], "without having been assigned"),
    ],
)
def test_what_contradicts_itself_is_not_judged(events: list[AnyEvent], why: str) -> None:
    with pytest.raises(HistoryMalformed, match=why):
        check(events)


@pytest.mark.parametrize("line", [b"{", b'{"f": "who", "time": 0, "process": "p"}', b"[]"])
def test_a_line_that_is_no_event_has_its_number(line: bytes) -> None:
    with pytest.raises(HistoryMalformed, match="line 2"):
        read_lines([b"\n", line])


@pytest.mark.slow
def test_a_long_history_takes_no_longer_than_its_length() -> None:
    """A rule that compared all with all would need 10^9 steps here."""
    count = 30_000
    events = [each for n in range(count) for each in sent(2 * n, f"v{n}", n)]
    for reader in range(3):
        what = {"process": f"c{reader}", "partition": P}
        events.append(Assign(time=0, position=0, **what))
        events += [Poll(time=3 * n, records=((n, f"v{n}"),), **what) for n in range(count)]
    started = time.process_time()
    assert check(events) == []
    assert time.process_time() - started < 20
