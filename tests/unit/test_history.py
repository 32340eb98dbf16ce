"""The history checker: silent on what is right, and every wrong named by its name."""

import random
from collections.abc import Callable

import msgspec
import pytest
from history_model import GROUP, RC, RU, Model, correct_history
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.testing.history.anomalies import Label
from ottla.testing.history.check import check
from ottla.testing.history.events import (
    AnyEvent,
    Assign,
    CommitOffset,
    End,
    FetchOffset,
    Leader,
    Phase,
    Poll,
    Replica,
    Send,
    Watermark,
    read_lines,
    to_line,
)
from ottla.testing.history.liveness import Liveness

randoms = st.integers(0, 2**32).map(random.Random)
bounded = settings(max_examples=40, deadline=None)
WITHIN = Liveness(within_ns=10**6, rate_share=0)


def labels(events: list[AnyEvent], liveness: Liveness | None = None) -> set[Label]:
    return {each.label for each in check(events, liveness)}


# -- tools for mutations -------------------------------------------------------


def replaced(
    events: list[AnyEvent], change: Callable[[AnyEvent], AnyEvent | None]
) -> list[AnyEvent]:
    changed = (change(event) for event in events)
    return [event for event in changed if event is not None]


def acked(model: Model, partition: str = "a-0") -> list[Send]:
    """Acknowledged values of the plain producer, in order."""
    return [
        each
        for each in model.events
        if isinstance(each, Send)
        and each.phase is Phase.OK
        and each.txn is None
        and each.partition == partition
    ]


def unread(events: list[AnyEvent], value: str, reader: str | None = None) -> list[AnyEvent]:
    """Take a value out of what consumers were given."""

    def change(event: AnyEvent) -> AnyEvent:
        if isinstance(event, Poll) and reader in (None, event.process):
            kept = tuple(each for each in event.records if each[1] != value)
            return msgspec.structs.replace(event, records=kept)
        return event

    return replaced(events, change)


def extra_read(
    model: Model, partition: str, records: tuple[tuple[int, str], ...], **fields
) -> list[AnyEvent]:
    """One more consumer, that is given what it should not be."""
    time = fields.pop("time", model.events[-1].time + 1)
    isolation = fields.pop("isolation", RU)
    process = fields.pop("process", "extra")
    return [
        *model.events,
        Assign(time=time, process=process, partition=partition, isolation=isolation),
        Poll(time=time, process=process, partition=partition, records=records, **fields),
    ]


def offset_of(model: Model, partition: str, value: str) -> int:
    return next(at for at, each in enumerate(model.logs[partition]) if each.value == value)


def txn_value(model: Model, state: str, which: int = 0) -> tuple[str, str, str]:
    """Partition, value and transaction of something written in a transaction."""
    found = [txn for txn in model.txns if txn.state == state][which]
    return (*found.values[0], found.name)


# -- one mutation for each label -----------------------------------------------


def inconsistent_offset(model: Model) -> list[AnyEvent]:
    one, other, *_ = acked(model)
    return replaced(
        model.events,
        lambda e: msgspec.structs.replace(e, offset=other.offset) if e is one else e,
    )


def duplicate(model: Model) -> list[AnyEvent]:
    beyond = len(model.logs["a-0"]) + 5
    return extra_read(model, "a-0", ((beyond, acked(model)[0].value),))


def lost_write(model: Model) -> list[AnyEvent]:
    return unread(model.events, acked(model)[1].value)


def lost_tail(model: Model) -> list[AnyEvent]:
    """The last value: nothing was read after it, but the final read is complete."""
    return unread(model.events, acked(model)[-1].value)


def lost_without_offset(model: Model) -> list[AnyEvent]:
    target = acked(model)[-1]
    events = replaced(
        model.events, lambda e: msgspec.structs.replace(e, offset=None) if e is target else e
    )
    return unread(events, target.value)


def failed_but_seen(model: Model) -> list[AnyEvent]:
    target = acked(model)[0]
    return replaced(
        model.events,
        lambda e: msgspec.structs.replace(e, offset=None, phase=Phase.FAIL) if e is target else e,
    )


def phantom(model: Model) -> list[AnyEvent]:
    return extra_read(model, "a-0", ((len(model.logs["a-0"]) + 5, "never-sent"),))


def phantom_of_another_partition(model: Model) -> list[AnyEvent]:
    value = acked(model, "b-0")[0].value
    return extra_read(model, "a-0", ((acked(model, "b-0")[0].offset + 10**6, value),))


def reorder(model: Model) -> list[AnyEvent]:
    one, other, *_ = acked(model)
    swap = {one.value: other.value, other.value: one.value}

    def change(event: AnyEvent) -> AnyEvent:
        if isinstance(event, Poll):
            records = tuple((at, swap.get(value, value)) for at, value in event.records)
            return msgspec.structs.replace(event, records=records)
        if event is one:
            return msgspec.structs.replace(event, offset=other.offset)
        if event is other:
            return msgspec.structs.replace(event, offset=one.offset)
        return event

    return replaced(model.events, change)


def nonmonotonic_poll(model: Model) -> list[AnyEvent]:
    first, second, *_ = acked(model)
    both = ((second.offset, second.value), (first.offset, first.value))
    return extra_read(model, "a-0", both)


def repeated_poll(model: Model) -> list[AnyEvent]:
    first = acked(model)[0]
    return extra_read(model, "a-0", ((first.offset, first.value),) * 2)


def poll_skip(model: Model) -> list[AnyEvent]:
    return unread(model.events, acked(model)[1].value, reader="last-rc")


def poll_skip_at_the_start(model: Model) -> list[AnyEvent]:
    first = next(each for each in model.logs["a-0"] if each.value is not None)
    return unread(model.events, first.value, reader="last-ru")


def aborted_read(model: Model) -> list[AnyEvent]:
    partition, value, _ = txn_value(model, "aborted")
    record = (offset_of(model, partition, value), value)
    return extra_read(model, partition, (record,), isolation=RC)


def aborted_offset_read(model: Model) -> list[AnyEvent]:
    aborted = next(txn for txn in model.txns if txn.state == "aborted")
    time = model.events[-1].time + 1
    offset = 10**6  # an offset of its own, so that seeing it tells
    events = replaced(
        model.events,
        lambda e: (
            msgspec.structs.replace(e, offset=offset)
            if isinstance(e, CommitOffset) and e.txn == aborted.name
            else e
        ),
    )
    fetch = FetchOffset(time=time, process="late", group=GROUP, partition="a-0", offset=offset)
    return [*events, fetch]


def open_read(model: Model) -> list[AnyEvent]:
    partition, value, txn = txn_value(model, "committed")
    ended = next(e for e in model.events if isinstance(e, End) and e.txn == txn)
    record = (offset_of(model, partition, value), value)
    return extra_read(model, partition, (record,), isolation=RC, time=ended.time - 1)


def never_ended_read(model: Model) -> list[AnyEvent]:
    _, _, txn = txn_value(model, "committed", 1)
    return replaced(model.events, lambda e: None if isinstance(e, End) and e.txn == txn else e)


def torn_txn(model: Model) -> list[AnyEvent]:
    _, value, _ = txn_value(model, "committed", 1)
    readers = {e.process for e in model.events if isinstance(e, Assign) and e.isolation is RC}
    events = model.events
    for reader in sorted(readers):
        events = unread(events, value, reader)
    return events


def torn_offsets(model: Model) -> list[AnyEvent]:
    """A value was read, and the offset is as before. No client knows whether it committed."""
    _, _, txn = txn_value(model, "committed", 1)
    events = replaced(
        model.events,
        lambda e: (
            msgspec.structs.replace(e, phase=Phase.INFO)
            if isinstance(e, End) and e.txn == txn and e.phase is Phase.OK
            else None
            if isinstance(e, FetchOffset)
            else e
        ),
    )
    before = max(
        e.offset for e in events if isinstance(e, CommitOffset) and e.txn == model.txns[0].name
    )
    time = events[-1].time + 1
    fetch = FetchOffset(time=time, process="late", group=GROUP, partition="a-0", offset=before)
    return [*events, fetch]


def g1c(model: Model) -> list[AnyEvent]:
    committed = [txn for txn in model.txns if txn.state == "committed"]
    events = model.events
    for reader, writer in (committed, committed[::-1]):
        partition, value = writer.values[0]
        record = (offset_of(model, partition, value), value)
        fields = {"process": reader.name, "txn": reader.name}
        more = extra_read(model, partition, (record,), **fields)
        events = [*events, *more[-2:]]
    return events


def lower_mark(which: str) -> Callable[[Model], list[AnyEvent]]:
    def mutate(model: Model) -> list[AnyEvent]:
        time = model.events[-1].time + 1
        what = {"process": "late", "partition": "a-0"}
        asked = Watermark(time=time, phase=Phase.INVOKE, **what)
        return [*model.events, asked, Watermark(time=time + 1, **{which: 0}, **what)]

    return mutate


def lower_mark_of_one_client(model: Model) -> list[AnyEvent]:
    """A client that never says when it asks has at least its own memory."""
    time = model.events[-1].time + 1
    what = {"process": "late", "partition": "a-0"}
    return [
        *model.events,
        Watermark(time=time, high=9, **what),
        Watermark(time=time, high=8, **what),
    ]


def lower_offset(offset: int | None) -> Callable[[Model], list[AnyEvent]]:
    def mutate(model: Model) -> list[AnyEvent]:
        time = model.events[-1].time + 1
        what = {"process": "late", "group": GROUP, "partition": "a-0"}
        asked = FetchOffset(time=time, phase=Phase.INVOKE, **what)
        return [*model.events, asked, FetchOffset(time=time + 1, offset=offset, **what)]

    return mutate


def two_leaders(model: Model) -> list[AnyEvent]:
    return [*model.events, Leader(time=0, process="x", partition="a-0", epoch=3, node=2)]


def change_replica(change: Callable[[tuple], tuple]) -> Callable[[Model], list[AnyEvent]]:
    def mutate(model: Model) -> list[AnyEvent]:
        target = next(e for e in model.events if isinstance(e, Replica) and e.node == 2)
        wrong = msgspec.structs.replace(target, batches=change(target.batches))
        return replaced(model.events, lambda e: wrong if e is target else e)

    return mutate


MUTATIONS: dict[str, tuple[Label, Callable[[Model], list[AnyEvent]], set[Label]]] = {
    "two values at an offset": (
        Label.INCONSISTENT_OFFSET,
        inconsistent_offset,
        {Label.DUPLICATE, Label.REORDER},
    ),
    "a value twice": (Label.DUPLICATE, duplicate, set()),
    "a value gone": (Label.LOST_WRITE, lost_write, {Label.POLL_SKIP}),
    "the last value gone": (Label.LOST_WRITE, lost_tail, {Label.POLL_SKIP}),
    "a value gone, offset unknown": (Label.LOST_WRITE, lost_without_offset, set()),
    "refused and there": (Label.FAILED_BUT_SEEN, failed_but_seen, set()),
    "never sent": (Label.PHANTOM, phantom, set()),
    "sent elsewhere": (Label.PHANTOM, phantom_of_another_partition, {Label.DUPLICATE}),
    "two values change places": (Label.REORDER, reorder, set()),
    "a poll goes back": (Label.NONMONOTONIC_POLL, nonmonotonic_poll, set()),
    "a poll repeats": (Label.NONMONOTONIC_POLL, repeated_poll, set()),
    "a poll leaves out": (Label.POLL_SKIP, poll_skip, set()),
    "a poll starts late": (Label.POLL_SKIP, poll_skip_at_the_start, set()),
    "an aborted value": (Label.ABORTED_READ, aborted_read, set()),
    "an aborted offset": (Label.ABORTED_READ, aborted_offset_read, set()),
    "an open value": (Label.OPEN_READ, open_read, set()),
    "a value never decided": (Label.OPEN_READ, never_ended_read, set()),
    "half a transaction": (Label.TORN_TXN, torn_txn, {Label.POLL_SKIP}),
    "a transaction without its offset": (Label.TORN_TXN, torn_offsets, set()),
    "a ring": (Label.G1C, g1c, set()),
    "a lower high watermark": (Label.HW_REGRESS, lower_mark("high"), set()),
    "a lower one for one client": (Label.HW_REGRESS, lower_mark_of_one_client, set()),
    "a lower last stable offset": (Label.LSO_REGRESS, lower_mark("last_stable"), set()),
    "a lower offset": (Label.COMMITTED_OFFSET_REGRESS, lower_offset(0), set()),
    "an offset gone": (Label.COMMITTED_OFFSET_REGRESS, lower_offset(None), set()),
    "two leaders": (Label.TWO_LEADERS, two_leaders, set()),
    "another batch": (
        Label.REPLICAS_DIFFER,
        change_replica(lambda b: (b[0], (b[1][0], "other"), *b[2:])),
        set(),
    ),
    "a batch less": (Label.REPLICAS_DIFFER, change_replica(lambda b: b[:1] + b[2:]), set()),
    "batches missing at the end": (Label.REPLICAS_DIFFER, change_replica(lambda b: b[:2]), set()),
}
# An offset of a transaction is a part of it: a fall is both.
for name in ("a lower offset", "an offset gone"):
    MUTATIONS[name][2].add(Label.TORN_TXN)


@bounded
@given(randoms)
def test_a_right_history_is_clean(rng: random.Random) -> None:
    assert check(correct_history(rng).events, WITHIN) == []


@pytest.mark.parametrize("name", MUTATIONS)
@settings(parent=bounded, max_examples=6)
@given(rng=randoms)
def test_every_wrong_is_named(name: str, rng: random.Random) -> None:
    label, mutate, also = MUTATIONS[name]
    found = labels(mutate(correct_history(rng, steps=5)))
    assert label in found
    assert found <= {label, *also}


def test_every_label_has_a_mutation() -> None:
    tried = {label for label, _, _ in MUTATIONS.values()}
    assert tried | {Label.UNSEEN_AFTER_HEAL, Label.SLOW_AFTER_HEAL} == set(Label)


@bounded
@given(randoms)
def test_lines_carry_a_history(rng: random.Random) -> None:
    events = correct_history(rng).events
    lines = [to_line(each) for each in events]
    assert read_lines([b"\n", *lines]) == events
    rng.shuffle(lines)
    assert check(read_lines(lines)) == []
