"""Rules for transactions: atomic, and invisible before they are decided.

The reply to its client decides a transaction; where the outcome is unknown (the commit's phase is
``info``), what was seen decides: one part received by a read_committed consumer makes it committed,
and the rest due. Offsets committed in a transaction are parts of it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ottla.testing.history.anomalies import Anomaly, Label
from ottla.testing.history.events import AnyEvent, CommitOffset, FetchOffset, Phase
from ottla.testing.history.facts import Coverage, Facts, Write


@dataclass(slots=True)
class OffsetPart:
    """An offset committed in a transaction. ``seen``: when a fetch first returned it."""

    commit: CommitOffset
    seen: int | None = None
    last_fetched: tuple[int, int | None] | None = None
    was_reset: bool = False


@dataclass(slots=True)
class Transactions:
    """The committed transactions, and the parts of each."""

    parts: dict[str, list[Write]] = field(default_factory=dict)
    offset_parts: dict[str, list[OffsetPart]] = field(default_factory=dict)
    seen_at: dict[str, int] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)

    def is_visible(self, write: Write | None) -> bool:
        """Whether a read_committed consumer has to receive a value."""
        return write is None or write.first.txn is None or write.first.txn in self.committed


def gather_transactions(facts: Facts, events: Iterable[AnyEvent]) -> Transactions:
    """Gather the parts of every transaction, and decide which are committed."""
    found = Transactions(offset_parts=_offset_parts(events))
    for value, write in facts.writes.items():
        if write.first.txn is not None:
            found.parts.setdefault(write.first.txn, []).append(write)
            seen = facts.first_seen_committed.get(value)
            if seen is not None:
                at = found.seen_at.get(write.first.txn, seen)
                found.seen_at[write.first.txn] = min(at, seen)
    for txn, parts in found.offset_parts.items():
        for part in parts:
            if part.seen is not None:
                found.seen_at[txn] = min(found.seen_at.get(txn, part.seen), part.seen)
    found.committed = {
        txn
        for txn, ending in facts.endings.items()
        if ending.committed_at is not None or (ending.may_be_committed and txn in found.seen_at)
    }
    return found


def _offset_parts(events: Iterable[AnyEvent]) -> dict[str, list[OffsetPart]]:
    """Gather acknowledged offsets of transactions, and the fetches that returned them.

    An offset committed by two transactions, or outside of one, proves nothing about either.
    """
    parts: dict[str, list[OffsetPart]] = {}
    by_place: dict[tuple[str, str, int], list[OffsetPart | None]] = {}
    by_group: dict[tuple[str, str], list[OffsetPart]] = {}
    fetches: list[FetchOffset] = []
    for event in events:
        if isinstance(event, FetchOffset) and event.phase is Phase.OK:
            fetches.append(event)
        if not isinstance(event, CommitOffset) or event.phase is Phase.FAIL:
            continue
        group, place = (event.group, event.partition), (event.group, event.partition, event.offset)
        if event.txn is None:
            by_place.setdefault(place, []).append(None)
            for part in by_group.get(group, ()) if event.is_reset else ():
                part.was_reset = True
        elif event.phase is Phase.OK:
            part = OffsetPart(event)
            parts.setdefault(event.txn, []).append(part)
            by_place.setdefault(place, []).append(part)
            by_group.setdefault(group, []).append(part)
    _note_fetches(fetches, by_place, by_group)
    return parts


def _note_fetches(
    fetches: list[FetchOffset],
    by_place: dict[tuple[str, str, int], list[OffsetPart | None]],
    by_group: dict[tuple[str, str], list[OffsetPart]],
) -> None:
    last: dict[tuple[str, str], tuple[int, int | None]] = {}
    for fetch in fetches:
        last[fetch.group, fetch.partition] = (fetch.time, fetch.offset)
        if fetch.offset is not None:
            match by_place.get((fetch.group, fetch.partition, fetch.offset)):
                case [OffsetPart() as only] if only.seen is None:
                    only.seen = fetch.time
    for group, parts in by_group.items():
        for part in parts:
            part.last_fetched = last.get(group)


def aborted_and_open_reads(facts: Facts, transactions: Transactions) -> Iterator[Anomaly]:
    """G1a and the last stable offset: no value of an aborted or open transaction is received."""
    for value, seen in facts.first_seen_committed.items():
        write = facts.writes.get(value)
        if write is None or write.first.txn is None:
            continue
        yield from _early(facts, write.first.txn, seen, f"value {value!r}")
    for txn, parts in transactions.offset_parts.items():
        for part in parts:
            if part.seen is not None:
                what = f"offset {part.commit.offset} of group {part.commit.group}"
                yield from _early(facts, txn, part.seen, what)


def _early(facts: Facts, txn: str, seen: int, what: str) -> Iterator[Anomaly]:
    ending = facts.endings.get(txn)
    if ending is None or seen < ending.invoked:
        yield Anomaly(Label.OPEN_READ, txn, f"{what} was read before its end was asked for")
    elif not ending.may_be_committed:
        yield Anomaly(Label.ABORTED_READ, txn, f"{what} was read, and it was aborted")


def torn(facts: Facts, transactions: Transactions) -> Iterator[Anomaly]:
    """Check that of a transaction of which a part was seen, every acknowledged part is seen."""
    coverage = {
        partition: Coverage(each for each in readings if each.is_committed)
        for partition, readings in facts.readings.items()
    }
    nothing = Coverage(())
    for txn in facts.endings:
        if txn not in transactions.committed or txn not in transactions.seen_at:
            continue
        for write in transactions.parts.get(txn, ()):
            sent = write.first
            if (
                write.is_acknowledged
                and sent.value not in facts.first_seen_committed
                and not facts.is_trimmed(sent.partition, sent.offset)
                and coverage.get(sent.partition, nothing).is_due(write)
            ):
                detail = f"value {sent.value!r} of {sent.partition} was not read, another part was"
                yield Anomaly(Label.TORN_TXN, txn, detail)
        yield from _torn_offsets(txn, transactions)


def _torn_offsets(txn: str, transactions: Transactions) -> Iterator[Anomaly]:
    for part in transactions.offset_parts.get(txn, ()):
        if part.last_fetched is None or part.was_reset:
            continue
        at, offset = part.last_fetched
        if at > transactions.seen_at[txn] and (offset is None or offset < part.commit.offset):
            detail = f"group {part.commit.group} is at {offset}, not at {part.commit.offset}"
            yield Anomaly(Label.TORN_TXN, txn, f"{detail}, and another part was read")


def cycles(facts: Facts, transactions: Transactions) -> Iterator[Anomaly]:
    """G1c: committed transactions that each read what the next one wrote, in a cycle."""
    readers: dict[str, dict[str, None]] = {}
    for _, seen in facts.all_seen():
        write = facts.writes.get(seen.value)
        writer = None if write is None else write.first.txn
        if seen.txn is None or writer is None or seen.txn == writer:
            continue
        if seen.txn in transactions.committed and writer in transactions.committed:
            readers.setdefault(writer, {})[seen.txn] = None
    for ring in strongly_connected(readers):
        if len(ring) > 1:
            yield Anomaly(Label.G1C, ring[0], "reads in a ring with " + ", ".join(ring[1:]))


def strongly_connected(edges: dict[str, dict[str, None]]) -> Iterator[list[str]]:
    """Return the strongly connected components of a graph (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        path.append(root)
        on_path.add(root)
        while work:
            node, successors = work[-1]
            step = next(successors, None)
            if step is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    yield _leave(path, on_path, node)
            elif step not in index:
                index[step] = low[step] = len(index)
                path.append(step)
                on_path.add(step)
                work.append((step, iter(edges.get(step, ()))))
            elif step in on_path:
                low[node] = min(low[node], index[step])


def _leave(path: list[str], on_path: set[str], first: str) -> list[str]:
    """Remove a component from the path, from its first node on."""
    ring = [path.pop()]
    while ring[-1] != first:
        ring.append(path.pop())
    on_path.difference_update(ring)
    return ring[::-1]
