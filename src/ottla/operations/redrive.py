"""Sends dead letters back, exactly once: records and the position of the redrive in a transaction.

The position is that of the group ``ottla-dlq.<topic>`` (`HandledLetters`). After a failure of a
broker the redrive begins a new transaction where the committed position says; after an interruption
the next command does.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Final

import msgspec

from ottla.client.cluster import Cluster, NoBroker, Refused
from ottla.client.connection import ConnectionLost
from ottla.client.consumer import open_reader
from ottla.client.coordinators import CoordinatorType, ask_coordinator
from ottla.client.offset_spec import EARLIEST, LATEST
from ottla.client.offsets import list_offsets
from ottla.client.partitioner import partition_of_key
from ottla.client.transaction import TransactionalWriter
from ottla.operations.dead_letter_headers import DeadLetter, redriven
from ottla.operations.handled_letters import HandledLetters
from ottla.protocol.errors import ErrorCode, is_retriable
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.types import NodeId, Offset, TopicPartition

GROUP_PREFIX: Final = "ottla-dlq."
LETTERS_PER_TRANSACTION: Final = 500
_FAILURES_MAX: Final = 20
_TRANSIENT: Final = (ConnectionLost, NoBroker, RequestTimedOut, OSError)


class Redrive(msgspec.Struct, frozen=True):
    """What to do with the letters of a topic. ``to`` None: back to their own topics.

    ``rate`` is letters per second, None for no limit. ``is_drop``: only mark them as handled.
    """

    topic: str
    selects: Callable[[DeadLetter], bool]
    read: Callable[[TopicPartition, Record], DeadLetter]
    to: str | None = None
    rate: float | None = None
    is_drop: bool = False
    is_dry_run: bool = False


class RedriveCounts(msgspec.Struct):
    """The result: letters handled, by target topic, and letters that could not be sent back."""

    handled: int = 0
    targets: Counter[str] = msgspec.field(default_factory=Counter)
    not_selected: int = 0
    without_record: int = 0
    """Letters with a position only, whose record is no longer in its topic."""


async def bounds(cluster: Cluster, topic: str) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first offset and the end of each partition. Raises `Refused`."""
    known = await cluster.topic(topic)
    places = [TopicPartition(topic, index) for index in sorted(known.partitions)]
    starts = await list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(places, LATEST), is_committed_only=True)
    return {place: (starts[place] or 0, ends[place] or 0) for place in places}


async def handled_letters(
    cluster: Cluster, topic: str, limits: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, HandledLetters]:
    """Return what was handled before, of each partition; waits for transactions that end."""
    known, group_id = await cluster.topic(topic), GROUP_PREFIX + topic
    indexes = [place.partition for place in limits]
    row = OffsetFetchRequestTopics(topic, known.topic_id, indexes)
    group = OffsetFetchRequestGroup(group_id, topics=[row])
    request = OffsetFetchRequest(groups=[group], require_stable=True)

    async def ask(node_id: NodeId) -> dict[int, tuple[int, str]]:
        response = await cluster.send_to(node_id, request, OffsetFetchResponse)
        return _positions_in(response, group_id)

    for attempt in range(_FAILURES_MAX):
        try:
            stored = await ask_coordinator(cluster, CoordinatorType.GROUP, group_id, ask)
            break
        except Refused as refused:
            if refused.code != ErrorCode.UNSTABLE_OFFSET_COMMIT or attempt + 1 == _FAILURES_MAX:
                raise
            await cluster.pause(attempt)
    handled = {}
    for place, (start, _) in limits.items():
        offset, metadata = stored.get(place.partition, (-1, ""))
        handled[place] = HandledLetters(Offset(max(offset, 0)), metadata)
        handled[place].skip_to(start)
    return handled


def _positions_in(response: OffsetFetchResponse, group_id: str) -> dict[int, tuple[int, str]]:
    """Return offset and metadata of each partition. Raises `Refused`."""
    positions = {}
    for group in response.groups:
        if group.error_code:
            raise Refused(group.error_code, group_id)
        for row in (row for topic in group.topics for row in topic.partitions):
            if row.error_code:
                raise Refused(row.error_code, group_id)
            positions[row.partition_index] = (row.committed_offset, row.metadata or "")
    return positions


async def run_redrive(
    cluster: Cluster, plan: Redrive, note: Callable[[RedriveCounts], None]
) -> RedriveCounts:
    """Handle every selected letter up to the end that the topic has now; return the counts.

    Raises `Refused` for an error that a retry does not help, and after too many failures.
    """
    counts = RedriveCounts()
    limits = await bounds(cluster, plan.topic)
    writer = TransactionalWriter(cluster, f"{GROUP_PREFIX}{plan.topic}")
    failures = 0
    while True:
        try:
            if not plan.is_dry_run:
                await writer.open()
            handled = await handled_letters(cluster, plan.topic, limits)
            counts.not_selected = 0
            async for batch in _batches(cluster, plan, limits, handled, counts):
                await _handle(cluster, plan, writer, batch, handled, counts)
                failures = 0
                note(counts)
        except (Refused, *_TRANSIENT) as error:
            failures += 1
            is_final = isinstance(error, Refused) and not is_retriable(error.code)
            if is_final or failures == _FAILURES_MAX:
                with contextlib.suppress(Refused, *_TRANSIENT):  # else it times out
                    await writer.abort()
                raise
            cluster.forget(plan.topic)
            await cluster.pause(failures)
        else:
            return counts


async def _batches(
    cluster: Cluster,
    plan: Redrive,
    limits: Mapping[TopicPartition, tuple[int, int]],
    handled: Mapping[TopicPartition, HandledLetters],
    counts: RedriveCounts,
) -> AsyncIterator[list[DeadLetter]]:
    """Yield the selected letters of a topic that are not handled yet, some at a time."""
    async for letters in read_letters(cluster, plan.read, limits, handled):
        selected = [each for each in letters if plan.selects(each)]
        counts.not_selected += len(letters) - len(selected)
        size = LETTERS_PER_TRANSACTION
        if plan.rate is not None:
            size = max(1, min(size, int(plan.rate)))  # at most a second's worth at once
        for start in range(0, len(selected), size):
            yield selected[start : start + size]


async def read_letters(
    cluster: Cluster,
    read: Callable[[TopicPartition, Record], DeadLetter],
    limits: Mapping[TopicPartition, tuple[int, int]],
    handled: Mapping[TopicPartition, HandledLetters],
) -> AsyncIterator[list[DeadLetter]]:
    """Yield the letters within limits that are not handled, as they are fetched.

    Offsets without a letter count as handled from then on: transaction markers, letters of aborted
    transactions, and those that compaction removed.
    """
    starts = {place: handled[place].position for place, (_, end) in limits.items()}
    starts = {place: start for place, start in starts.items() if start < limits[place][1]}
    if not starts:
        return
    async with open_reader(cluster, starts) as reader:
        while any(reader.positions[place] < limits[place][1] for place in reader.positions):
            for fetched in await reader.poll():
                place, end = fetched.partition, limits[fetched.partition][1]
                records = [each for each in fetched.records() if each.offset < end]
                gaps = _gaps(starts[place], records, min(fetched.next_offset, end))
                starts[place] = fetched.next_offset
                letters = [
                    read(place, each) for each in records if each.offset not in handled[place]
                ]
                handled[place].add_all(gaps)
                yield letters


def _gaps(start: int, records: Iterable[Record], end: int) -> list[tuple[int, int]]:
    """Return the ranges, inclusive, from ``start`` to ``end``, exclusive, without a record."""
    gaps: list[tuple[int, int]] = []
    following = start
    for offset in (*(record.offset for record in records), end):
        if offset > following:
            gaps.append((following, offset - 1))
        following = offset + 1
    return gaps


async def _handle(
    cluster: Cluster,
    plan: Redrive,
    writer: TransactionalWriter,
    letters: list[DeadLetter],
    handled: Mapping[TopicPartition, HandledLetters],
    counts: RedriveCounts,
) -> None:
    """Send letters back, and note that they are handled, in one transaction."""
    records: dict[TopicPartition, list[Record]] = {}
    done: list[DeadLetter] = []
    lacking = 0
    for letter in letters:
        if not plan.is_drop:
            content = await _content(cluster, letter)
            if content is None:
                lacking += 1
                continue
            target = await _target(cluster, plan, letter, content)
            rows = records.setdefault(target, [])
            rows.append(redriven(letter, content, Offset(len(rows))))
        done.append(letter)
    if done and not plan.is_dry_run:
        places = {letter.at for letter in done}
        for letter in done:
            handled[letter.at].add(letter.record.offset)
        marks = {each: (handled[each].position, handled[each].metadata) for each in places}
        if records:
            await writer.write(records)
        await writer.commit_offsets(GROUP_PREFIX + plan.topic, marks)
        await writer.commit()
    counts.handled += len(done)
    counts.without_record += lacking
    for place, rows in records.items():
        counts.targets[place.topic] += len(rows)
    if plan.rate is not None and not plan.is_dry_run:
        await asyncio.sleep(len(done) / plan.rate)


async def _content(cluster: Cluster, letter: DeadLetter) -> Record | None:
    """Return the record of a letter: its copy, or the original where it has a position only."""
    if letter.has_content or letter.convention is None or letter.convention.name != "kafka":
        return letter.record
    if letter.topic is None or letter.partition is None or letter.offset is None:
        return None
    place = TopicPartition(letter.topic, letter.partition)
    try:
        start, end = (await bounds(cluster, letter.topic))[place]
    except (Refused, KeyError):
        return None
    if not start <= letter.offset < end:
        return None
    async with open_reader(cluster, {place: letter.offset}) as reader:
        while reader.positions[place] <= letter.offset:
            for fetched in await reader.poll():
                for record in fetched.records():
                    if record.offset == letter.offset:
                        return record
    return None


async def _target(
    cluster: Cluster, plan: Redrive, letter: DeadLetter, content: Record
) -> TopicPartition:
    """Return where a record goes: to its own partition, or in another topic by its key."""
    topic = plan.to or letter.topic
    if topic is None:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            str(letter.at),
            f"offset {letter.record.offset} does not name its topic; give --to or --convention",
        )
    count = len((await cluster.topic(topic)).partitions)
    if topic == letter.topic and letter.partition is not None and letter.partition < count:
        return TopicPartition(topic, letter.partition)
    if content.key is not None:
        return TopicPartition(topic, partition_of_key(content.key, count))
    return TopicPartition(topic, letter.record.offset % count)
