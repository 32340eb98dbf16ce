"""Rules for one partition's log, as producers and consumers saw it."""

from collections.abc import Iterator

from ottla.testing.history.anomalies import Anomaly, Label
from ottla.testing.history.events import Phase
from ottla.testing.history.facts import Coverage, Facts, Reading, first_between
from ottla.testing.history.transactions import Transactions


def inconsistent_offsets(facts: Facts) -> Iterator[Anomaly]:
    """Check that one offset always holds one value."""
    for partition, places in facts.places.items():
        for offset, values in places.items():
            if len(values) > 1:
                detail = f"offset {offset} held " + " and ".join(map(repr, values))
                yield Anomaly(Label.INCONSISTENT_OFFSET, partition, detail)


def duplicates(facts: Facts) -> Iterator[Anomaly]:
    """Check that a value of an idempotent producer occurs once."""
    for value, write in facts.writes.items():
        offsets = facts.offsets.get(value, [])
        if write.first.idempotent and len(offsets) > 1:
            detail = f"value {value!r} stands at offsets {sorted(offsets)}"
            yield Anomaly(Label.DUPLICATE, write.first.partition, detail)


def strangers(facts: Facts) -> Iterator[Anomaly]:
    """Check that a received value was sent to that partition, and not rejected."""
    replies = set()
    for reading, seen in facts.all_seen():
        write, partition = facts.writes.get(seen.value), reading.assigned.partition
        if (partition, seen.value) in replies:
            continue
        if write is None or write.first.partition != partition:
            detail = f"value {seen.value!r} at offset {seen.offset} was never sent there"
            replies.add((partition, seen.value))
            yield Anomaly(Label.PHANTOM, partition, detail)
        elif write.phase is Phase.FAIL:
            detail = f"value {seen.value!r} at offset {seen.offset} had been refused"
            replies.add((partition, seen.value))
            yield Anomaly(Label.FAILED_BUT_SEEN, partition, detail)


def reordered(facts: Facts) -> Iterator[Anomaly]:
    """Check that values of one idempotent producer are in the order in which it sent them."""
    last: dict[tuple[str, str], tuple[int, str]] = {}
    for value, write in facts.writes.items():
        sent, offsets = write.first, facts.offsets.get(value)
        if not sent.idempotent or not offsets:
            continue
        before = last.get((sent.process, sent.partition))
        if before is not None and offsets[0] < before[0]:
            detail = f"{sent.process} sent {value!r} after {before[1]!r}, and it stands before"
            yield Anomaly(Label.REORDER, sent.partition, detail)
        else:
            last[sent.process, sent.partition] = (offsets[0], value)


def lost_writes(facts: Facts, transactions: Transactions) -> Iterator[Anomaly]:
    """Check that what was acknowledged, and read past, was received by a consumer."""
    coverage = {partition: Coverage(each) for partition, each in facts.readings.items()}
    nothing = Coverage(())
    for value, write in facts.writes.items():
        sent = write.first
        if (
            write.is_acknowledged
            and value not in facts.first_seen
            and (sent.txn is None or sent.txn in transactions.committed)
            and not facts.is_trimmed(sent.partition, sent.offset)
            and coverage.get(sent.partition, nothing).is_due(write)
        ):
            detail = f"value {value!r} was acknowledged at offset {sent.offset} and is not there"
            yield Anomaly(Label.LOST_WRITE, sent.partition, detail)


def polls(facts: Facts, transactions: Transactions) -> Iterator[Anomaly]:
    """Check that a consumer moves forward, and skips no value known to be there."""
    for partition, readings in facts.readings.items():
        places = facts.places.get(partition, {})
        known = sorted(each for each in places if not facts.is_trimmed(partition, each))
        visible = [
            each
            for each in known
            if any(transactions.is_visible(facts.writes.get(value)) for value in places[each])
        ]
        for reading in readings:
            yield from _poll(reading, visible if reading.is_committed else known)


def _poll(reading: Reading, known: list[int]) -> Iterator[Anomaly]:
    partition, process = reading.assigned.partition, reading.assigned.process
    position = reading.assigned.position
    last = None if position is None else position - 1
    for seen in reading.seen:
        if last is not None and seen.offset <= last:
            detail = f"{process} was given offset {seen.offset} when it was past {last}"
            yield Anomaly(Label.NONMONOTONIC_POLL, partition, detail)
        elif last is not None:
            skipped = first_between(known, last, seen.offset)
            if skipped is not None:
                detail = f"{process} was given offset {seen.offset} after {last}, and not {skipped}"
                yield Anomaly(Label.POLL_SKIP, partition, detail)
        last = seen.offset
