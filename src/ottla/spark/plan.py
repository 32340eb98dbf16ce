"""Plans reads: which partitions, which offsets, in how many pieces. Pure.

    choose      the selected partitions that exist
    resolve     "earliest", a time, an offset: one offset per partition
    advance     the start of the next batch of a stream, and losses since the last one
    limit       the end of the batch, by rows and by bytes
    check       the part of a planned batch that can still be read
    divide      the number of pieces of each range
    cut         the Spark partitions of the batch: its pieces, with stable numbers

Lost offsets are never skipped silently: they are returned as a `Loss` with the partition, the
offsets and the likely cause. The caller decides whether a loss is an error.
"""

import enum
import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import structs

from ottla.client.offset_spec import Range
from ottla.protocol.types import TopicPartition
from ottla.spark.option_values import OptionError
from ottla.spark.options import (
    SPARK_PARTITIONS_MAX,
    Choice,
    Limits,
    Pattern,
    Splitting,
    Subscribe,
)
from ottla.spark.stream_offsets import (
    EARLIEST,
    LATEST,
    Ago,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Boundary,
    Edge,
    Positions,
    StreamOffset,
)

_LOSSES_SHOWN_MAX: Final = 8


class Topic(msgspec.Struct, frozen=True):
    """An existing topic. A recreated topic has another id."""

    id: str
    partitions: int
    internal: bool = False


class View(msgspec.Struct, frozen=True):
    """The readable offsets at one moment: ids by topic, start and end of every partition."""

    ids: dict[str, str]
    earliest: Positions
    latest: Positions


# -- which partitions --------------------------------------------------------


def choose(choice: Choice, found: Mapping[str, Topic]) -> list[TopicPartition]:
    """Return the selected partitions that exist, in order."""
    if not isinstance(choice, Subscribe | Pattern):
        return [each for each in choice.partitions if _is_there(each, found)]
    if isinstance(choice, Subscribe):
        topics = [each for each in choice.topics if each in found]
    else:
        topics = [name for name, topic in found.items() if not topic.internal]
        topics = [each for each in topics if choice.matches(each)]
    return [
        TopicPartition(each, number)
        for each in sorted(topics)
        for number in range(found[each].partitions)
    ]


def missing(choice: Choice, found: Mapping[str, Topic]) -> list[str]:
    """Return the topics or partitions selected by name that do not exist (none for a pattern)."""
    if isinstance(choice, Pattern):
        return []
    if isinstance(choice, Subscribe):
        return [each for each in choice.topics if each not in found]
    return [str(each) for each in choice.partitions if not _is_there(each, found)]


def _is_there(partition: TopicPartition, found: Mapping[str, Topic]) -> bool:
    topic = found.get(partition.topic)
    return topic is not None and partition.partition < topic.partitions


# -- boundaries -------------------------------------------------------------


def offset_queries(
    boundary: Boundary, option: str, partitions: Sequence[TopicPartition], now_ms: int
) -> Positions:
    """Return the timestamps for ListOffsets: ms, or -1 and -2 for the end and start of the log.

    Raises:
        OptionError: the option names offsets or times, but not for exactly these partitions.
    """
    match boundary:
        case Edge():
            timestamp = LATEST if boundary is Edge.LATEST else EARLIEST
            return dict.fromkeys(partitions, timestamp)
        case AtTimestamp():
            return dict.fromkeys(partitions, boundary.time)
        case Ago():
            return dict.fromkeys(partitions, max(now_ms - boundary.ms, 0))
        case AtTimestamps():
            _check_names_all(option, boundary.times, partitions)
            return dict(boundary.times)
        case AtOffsets():
            _check_names_all(option, boundary.offsets, partitions)
            return {each: offset for each, offset in boundary.offsets.items() if offset < 0}


def resolve(
    boundary: Boundary, option: str, queries: Positions, answers: Positions, latest: Positions
) -> Positions:
    """Return the offset of each partition from the ``answers`` of ListOffsets.

    Raises:
        OptionError: no record is at or after the timestamp, and the strategy is ``error``.
    """
    found = dict(boundary.offsets) if isinstance(boundary, AtOffsets) else {}
    by_time = isinstance(boundary, AtTimestamp | AtTimestamps)
    for partition, answer in answers.items():
        if answer >= 0:
            found[partition] = answer
        elif by_time and not boundary.latest_if_none:  # type: ignore[union-attr]
            raise OptionError(
                f"option {option!r}: {partition} has no record of {queries[partition]} ms or "
                "later; startingOffsetsByTimestampStrategy=latest starts at its end instead"
            )
        else:
            found[partition] = latest[partition]
    return found


def ranges(starts: Positions, ends: Positions, ids: Mapping[str, str]) -> list[Range]:
    """Return the non-empty ranges between two positions of each partition.

    Raises:
        OptionError: a partition would end before it starts.
    """
    found: list[Range] = []
    for partition, end in sorted(ends.items()):
        start = starts[partition]
        if start > end:
            raise OptionError(
                f"{partition}: the end offset {end} is before the start offset {start}"
            )
        if start < end:
            found.append(Range(partition, start, end, ids.get(partition.topic, "")))
    return found


def _check_names_all(option: str, named: Positions, partitions: Iterable[TopicPartition]) -> None:
    there = set(partitions)
    if named.keys() == there:
        return
    lacking = ", ".join(str(each) for each in sorted(there - named.keys()))
    unknown = ", ".join(str(each) for each in sorted(named.keys() - there))
    problems = [f"it lacks {lacking}"] if lacking else []
    problems += [f"{unknown} is not read"] if unknown else []
    raise OptionError(
        f"option {option!r} must name every partition that is read: {'; '.join(problems)}"
    )


# -- losses ------------------------------------------------------------------


class Cause(enum.Enum):
    """Why offsets cannot be read any more."""

    EXPIRED = "expired"
    TRUNCATED = "truncated"
    DELETED = "deleted"
    RECREATED = "recreated"


class Loss(msgspec.Struct, frozen=True):
    """The lost offsets ``[first, last)`` of a partition; ``last`` None: all from ``first`` on."""

    partition: TopicPartition
    cause: Cause
    first: int
    last: int | None
    note: str

    def __str__(self) -> str:
        if self.last is None:
            return f"{self.partition}: everything from offset {self.first} on: {self.note}"
        return f"{self.partition}: offsets {self.first} to {self.last - 1}: {self.note}"


def explain(losses: Sequence[Loss]) -> str:
    """Return one text for all losses, with the first few in full."""
    shown = "; ".join(str(each) for each in losses[:_LOSSES_SHOWN_MAX])
    rest = len(losses) - _LOSSES_SHOWN_MAX
    return f"{shown}; and {rest} more" if rest > 0 else shown


def _expired(partition: TopicPartition, first: int, last: int, log_start: int) -> Loss:
    note = f"the log starts at {log_start} (records were removed by retention or DeleteRecords)"
    return Loss(partition, Cause.EXPIRED, first, last, note)


def _truncated(partition: TopicPartition, first: int, last: int) -> Loss:
    note = f"the log ends at {first} (truncated, e.g. by an unclean election, or never written)"
    return Loss(partition, Cause.TRUNCATED, first, last, note)


def _replaced(
    partition: TopicPartition, first: int, last: int | None, ids: tuple[str, str]
) -> Loss:
    note = f"topic {ids[0]} was deleted and recreated ({ids[1]})"
    return Loss(partition, Cause.RECREATED, first, last, note)


def _deleted(partition: TopicPartition, first: int, last: int | None) -> Loss:
    return Loss(partition, Cause.DELETED, first, last, "it was deleted, or is no longer selected")


# -- the next batch of a stream ----------------------------------------------


def advance(previous: StreamOffset, view: View) -> tuple[Positions, list[Loss]]:
    """Return the start of the next batch, and the losses since the last one.

    New partitions and recreated topics begin at their first record. Deleted partitions are left
    out. A partition whose records expired continues at the log start offset; one whose log was
    truncated, at the log end offset.
    """
    ends, ids = previous.ends, previous.ids
    starts: Positions = {}
    losses: list[Loss] = []
    for partition in sorted(view.latest):
        known, earliest = ids.get(partition.topic), view.earliest[partition]
        if known is None or _is_other(known, view.ids[partition.topic]):
            starts[partition] = earliest
            continue
        end = ends.get(partition, 0)  # a partition added to a topic begins at 0
        starts[partition] = min(max(end, earliest), view.latest[partition])
        if end < earliest:
            losses.append(_expired(partition, end, earliest, earliest))
        elif end > starts[partition]:
            losses.append(_truncated(partition, starts[partition], end))
    return starts, losses + _vanished(ends, ids, view)


def _vanished(ends: Positions, ids: Mapping[str, str], view: View) -> list[Loss]:
    """Return the losses of partitions whose topic was deleted or recreated."""
    losses: list[Loss] = []
    for partition, end in sorted(ends.items()):
        known, now = ids[partition.topic], view.ids.get(partition.topic)
        if now is not None and _is_other(known, now):
            losses.append(_replaced(partition, end, None, (known, now)))
        elif partition not in view.latest:
            losses.append(_deleted(partition, end, None))
    return losses


def _is_other(known: str | None, now: str) -> bool:
    return bool(known) and known != now


def within(positions: Positions, view: View) -> tuple[Positions, list[Loss]]:
    """Move a user's positions into the log; return the skipped offsets as losses."""
    found: Positions = {}
    losses: list[Loss] = []
    for partition, offset in sorted(positions.items()):
        earliest, latest = view.earliest[partition], view.latest[partition]
        found[partition] = min(max(offset, earliest), latest)
        if offset < earliest:
            losses.append(_expired(partition, offset, earliest, earliest))
        elif offset > latest:
            losses.append(_truncated(partition, latest, offset))
    return found, losses


def is_due(rows: int, limits: Limits, waited_ms: int) -> bool:
    """Return whether there are enough rows for a batch, or enough time has passed."""
    return rows >= (limits.rows_min or 0) or waited_ms >= limits.delay_ms_max


def limit(
    starts: Positions, latest: Positions, limits: Limits, density: Mapping[TopicPartition, float]
) -> Positions:
    """Return the end of a batch that begins at ``starts``: the latest offsets, or the limits.

    The row limit is exact, unless it is below the number of partitions: each partition with rows
    gets at least one, so that none starves. Bytes are estimated by ``density``, bytes per offset.
    """
    sizes = {each: latest[each] - start for each, start in starts.items()}
    if limits.rows_max is not None:
        sizes = share_rows(sizes, limits.rows_max)
    if limits.bytes_max is not None:
        sizes = share_bytes(sizes, limits.bytes_max, density)
    return {each: starts[each] + size for each, size in sizes.items()}


def share_rows(sizes: Mapping[TopicPartition, int], rows_max: int) -> dict[TopicPartition, int]:
    """Scale sizes in proportion so that their sum is ``rows_max`` and none becomes 0."""
    total = sum(sizes.values())
    if total <= rows_max:
        return dict(sizes)
    filled = [each for each, size in sizes.items() if size]
    spare, weight = max(rows_max - len(filled), 0), total - len(filled)
    found = dict.fromkeys(sizes, 0)
    for each in filled:
        found[each] = 1 + (spare * (sizes[each] - 1) // weight if weight else 0)
    left = rows_max - sum(found.values())
    for each in filled:  # distribute the remainder, one row each
        if left > 0 and found[each] < sizes[each]:
            found[each] += 1
            left -= 1
    return found


def share_bytes(
    sizes: Mapping[TopicPartition, int], bytes_max: int, density: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Scale sizes in proportion so that their sum is about ``bytes_max`` and none becomes 0."""
    total = sum(size * density.get(each, 0.0) for each, size in sizes.items())
    if total <= bytes_max:
        return dict(sizes)
    return {
        each: max(int(size * (bytes_max / total)), 1) if size else 0 for each, size in sizes.items()
    }


def density_of(
    view: View, sizes: Mapping[TopicPartition, int], local: Mapping[TopicPartition, int]
) -> dict[TopicPartition, float]:
    """Return bytes per offset of each partition whose size on disk is known.

    ``local`` are the first offsets on disk: older records are in remote storage, and the sizes do
    not count them. A partition without records on disk has the density of its topic.
    """
    found: dict[TopicPartition, float] = {}
    topics: dict[str, list[int]] = {}
    for partition, latest in view.latest.items():
        offsets = latest - local.get(partition, view.earliest[partition])
        if partition in sizes and offsets > 0:
            found[partition] = sizes[partition] / offsets
            totals = topics.setdefault(partition.topic, [0, 0])
            totals[0] += sizes[partition]
            totals[1] += offsets
    for partition, latest in view.latest.items():
        if (
            partition not in found
            and partition.topic in topics
            and latest > view.earliest[partition]
        ):
            size, offsets = topics[partition.topic]
            found[partition] = size / offsets
    return found


# -- the tasks of a batch ----------------------------------------------------


def check(planned: Iterable[Range], view: View) -> tuple[list[Range], list[Loss]]:
    """Return the readable ranges of a batch, and its losses: it may be replayed days later."""
    kept: list[Range] = []
    losses: list[Loss] = []
    for each in planned:
        partition, now = each.partition, view.ids.get(each.partition.topic)
        if now is not None and _is_other(each.topic_id, now):
            losses.append(_replaced(partition, each.start, each.end, (each.topic_id, now)))
            continue
        if partition not in view.latest:
            losses.append(_deleted(partition, each.start, each.end))
            continue
        start = max(each.start, min(view.earliest[partition], each.end))
        end = min(each.end, max(view.latest[partition], start))
        if start > each.start:
            losses.append(_expired(partition, each.start, start, view.earliest[partition]))
        if end < each.end:
            losses.append(_truncated(partition, end, each.end))
        if start < end:
            kept.append(Range(partition, start, end, each.topic_id))
    return kept, losses


def divide(
    whole: Sequence[Range], splitting: Splitting, density: Mapping[TopicPartition, float]
) -> list[int]:
    """Return the number of Spark partitions of each range.

    Each piece has at most ``records_max`` offsets and about ``bytes_max`` bytes, and there are at
    least ``partitions_min`` if there are as many offsets: the largest pieces are cut first.

    Raises:
        OptionError: there would be more than `SPARK_PARTITIONS_MAX` pieces.
    """
    pieces = [_pieces_of(each, splitting, density) for each in whole]
    total = sum(pieces)
    if total > SPARK_PARTITIONS_MAX:
        raise OptionError(
            "options 'maxRecordsPerPartition' and 'maxBytesPerPartition' would cut this batch "
            f"into {total} Spark partitions; at most {SPARK_PARTITIONS_MAX} are allowed"
        )
    largest = [(-each.size / pieces[index], index) for index, each in enumerate(whole)]
    heapq.heapify(largest)
    for _ in range((splitting.partitions_min or 0) - total):
        if not largest or largest[0][0] >= -1.0:
            break  # nothing is left to cut
        index = largest[0][1]
        pieces[index] += 1
        heapq.heapreplace(largest, (-whole[index].size / pieces[index], index))
    return pieces


def cut(whole: Sequence[Range], pieces: Sequence[int]) -> list[Range]:
    """Cut each range into its number of even pieces, in order, that cover it exactly.

    The result depends only on the arguments: piece ``i`` of a replayed batch has the same rows as
    before.
    """
    return [
        part
        for each, count in zip(whole, pieces, strict=True)
        for part in _even(each, min(count, each.size))
    ]


def trim(pieces: Sequence[Range], kept: Sequence[Range]) -> list[Range | None]:
    """Return the readable part of each piece if only ``kept`` of a batch can still be read.

    A piece without readable offsets is None, so that later pieces keep their numbers. ``kept`` has
    at most one range per partition, as `check` returns them.
    """
    left = {each.partition: each for each in kept}
    found: list[Range | None] = []
    for piece in pieces:
        rest = left.get(piece.partition)
        start = piece.end if rest is None else max(piece.start, rest.start)
        end = piece.end if rest is None else min(piece.end, rest.end)
        found.append(structs.replace(piece, start=start, end=end) if start < end else None)
    return found


def _pieces_of(whole: Range, splitting: Splitting, density: Mapping[TopicPartition, float]) -> int:
    pieces = 1
    if splitting.records_max is not None:
        pieces = -(-whole.size // splitting.records_max)
    if splitting.bytes_max is not None:
        weight = whole.size * density.get(whole.partition, 0.0)
        pieces = max(pieces, -int(-weight // splitting.bytes_max))
    return min(pieces, whole.size)


def _even(whole: Range, pieces: int) -> Iterable[Range]:
    """Yield pieces whose sizes differ by at most one."""
    for index in range(pieces):
        start = whole.start + whole.size * index // pieces
        end = whole.start + whole.size * (index + 1) // pieces
        yield Range(whole.partition, start, end, whole.topic_id)
