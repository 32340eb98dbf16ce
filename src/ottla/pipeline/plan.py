"""What to read next: which partitions, from where to where, in how many pieces. Pure.

    choose      the topics asked for, among those that are there
    settle      "earliest", a time, an offset: as one offset for each partition
    advance     where the next batch of a stream begins, and what was lost since the last
    limit       where it ends, by rows and by bytes
    check       what of a planned batch is still there to be read
    divide      into how many pieces each of its ranges is cut
    cut         the Spark partitions that read it: the pieces, numbered for good

Nothing that was promised to be read is ever left out in silence: what is no longer there comes back
as a `Loss` that names the partition, the offsets and the likely cause. Whether that is an error is
not decided here.
"""

import enum
import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import structs

from ottla.pipeline.offsets import (
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
from ottla.pipeline.option_values import OptionError
from ottla.pipeline.options import (
    SPARK_PARTITIONS_MAX,
    Choice,
    Limits,
    Pattern,
    Splitting,
    Subscribe,
)
from ottla.protocol.types import TopicPartition

_LOSSES_SHOWN_MAX: Final = 8


class Topic(msgspec.Struct, frozen=True):
    """A topic that is there. Another id is another topic, whatever its name."""

    id: str
    partitions: int
    internal: bool = False


class View(msgspec.Struct, frozen=True):
    """What there is to read at one moment: ids by topic, and both ends of every partition."""

    ids: dict[str, str]
    earliest: Positions
    latest: Positions


class Range(msgspec.Struct, frozen=True):
    """Offsets of one partition, ``end`` not among them."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: str = ""

    @property
    def size(self) -> int:
        """How many offsets; compaction and markers may leave fewer records."""
        return self.end - self.start


# -- which partitions --------------------------------------------------------


def choose(choice: Choice, found: Mapping[str, Topic]) -> list[TopicPartition]:
    """Return the partitions asked for that are there, in order."""
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
    """Return what was asked for by name and is not there. A pattern asks for nothing by name."""
    if isinstance(choice, Pattern):
        return []
    if isinstance(choice, Subscribe):
        return [each for each in choice.topics if each not in found]
    return [str(each) for each in choice.partitions if not _is_there(each, found)]


def _is_there(partition: TopicPartition, found: Mapping[str, Topic]) -> bool:
    topic = found.get(partition.topic)
    return topic is not None and partition.partition < topic.partitions


# -- from where --------------------------------------------------------------


def questions(
    boundary: Boundary, option: str, partitions: Sequence[TopicPartition], now_ms: int
) -> Positions:
    """Return what to ask ListOffsets for: a time in ms, or -1 and -2 for the log's ends.

    Raises:
        OptionError: the option names offsets or times, but not for exactly these partitions.
    """
    match boundary:
        case Edge():
            asked = LATEST if boundary is Edge.LATEST else EARLIEST
            return dict.fromkeys(partitions, asked)
        case AtTimestamp():
            return dict.fromkeys(partitions, boundary.time)
        case Ago():
            return dict.fromkeys(partitions, max(now_ms - boundary.ms, 0))
        case AtTimestamps():
            _check_names_all(option, boundary.times, partitions)
            return dict(boundary.times)
        case AtOffsets():
            _check_names_all(option, boundary.offsets, partitions)
            return {each: given for each, given in boundary.offsets.items() if given < 0}


def settle(
    boundary: Boundary, option: str, asked: Positions, answers: Positions, latest: Positions
) -> Positions:
    """Return the offset of each partition, given what ListOffsets ``answered``.

    Raises:
        OptionError: no record is as late as the time asked for, and that is to be an error.
    """
    found = dict(boundary.offsets) if isinstance(boundary, AtOffsets) else {}
    by_time = isinstance(boundary, AtTimestamp | AtTimestamps)
    for partition, answer in answers.items():
        if answer >= 0:
            found[partition] = answer
        elif by_time and not boundary.latest_if_none:  # type: ignore[union-attr]
            raise OptionError(
                f"option {option!r}: {partition} has no record of {asked[partition]} ms or later; "
                "startingOffsetsByTimestampStrategy=latest would start at its end"
            )
        else:
            found[partition] = latest[partition]
    return found


def ranges(starts: Positions, ends: Positions, ids: Mapping[str, str]) -> list[Range]:
    """Return what lies between two positions, partition by partition; empty ranges are left out.

    Raises:
        OptionError: a partition would end before it starts.
    """
    found: list[Range] = []
    for partition, end in sorted(ends.items()):
        start = starts[partition]
        if start > end:
            raise OptionError(f"{partition} would start at {start} and end at {end}, before that")
        if start < end:
            found.append(Range(partition, start, end, ids.get(partition.topic, "")))
    return found


def _check_names_all(option: str, given: Positions, partitions: Iterable[TopicPartition]) -> None:
    there = set(partitions)
    if given.keys() == there:
        return
    lacking = ", ".join(str(each) for each in sorted(there - given.keys()))
    unknown = ", ".join(str(each) for each in sorted(given.keys() - there))
    said = [f"it lacks {lacking}"] if lacking else []
    said += [f"{unknown} is not read"] if unknown else []
    raise OptionError(
        f"option {option!r} must name every partition that is read: {'; '.join(said)}"
    )


# -- what was lost -----------------------------------------------------------


class Cause(enum.Enum):
    """Why something cannot be read any more."""

    EXPIRED = "expired"
    TRUNCATED = "truncated"
    DELETED = "deleted"
    RECREATED = "recreated"


class Loss(msgspec.Struct, frozen=True):
    """Offsets ``first`` up to, not including, ``last`` of a partition; None: all that came then."""

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
    """Return one text on all losses, the first few in full."""
    shown = "; ".join(str(each) for each in losses[:_LOSSES_SHOWN_MAX])
    rest = len(losses) - _LOSSES_SHOWN_MAX
    return f"{shown}; and {rest} more" if rest > 0 else shown


def _expired(partition: TopicPartition, first: int, last: int, log_start: int) -> Loss:
    note = f"the log starts at {log_start} (retention, or records were deleted)"
    return Loss(partition, Cause.EXPIRED, first, last, note)


def _truncated(partition: TopicPartition, first: int, last: int) -> Loss:
    note = f"the log ends at {first} (its end was lost, as by an unclean election, or never was)"
    return Loss(partition, Cause.TRUNCATED, first, last, note)


def _replaced(
    partition: TopicPartition, first: int, last: int | None, ids: tuple[str, str]
) -> Loss:
    note = f"topic {ids[0]} was deleted, and another of its name made ({ids[1]})"
    return Loss(partition, Cause.RECREATED, first, last, note)


def _deleted(partition: TopicPartition, first: int, last: int | None) -> Loss:
    return Loss(partition, Cause.DELETED, first, last, "it is no longer there, or not asked for")


# -- the next batch of a stream ----------------------------------------------


def advance(previous: StreamOffset, view: View) -> tuple[Positions, list[Loss]]:
    """Return where the next batch begins, and what cannot be read that came after the last one.

    A partition that is new begins at its first record; so does a topic that was made anew. One that
    is gone is left out. One whose records expired, or whose log lost its end, goes on where the log
    begins, or ends.
    """
    ends, ids = previous.ends, previous.ids
    starts: Positions = {}
    losses: list[Loss] = []
    for partition in sorted(view.latest):
        known, earliest = ids.get(partition.topic), view.earliest[partition]
        if known is None or _is_other(known, view.ids[partition.topic]):
            starts[partition] = earliest
            continue
        end = ends.get(partition, 0)  # a partition that was added to a topic began at 0
        starts[partition] = min(max(end, earliest), view.latest[partition])
        if end < earliest:
            losses.append(_expired(partition, end, earliest, earliest))
        elif end > starts[partition]:
            losses.append(_truncated(partition, starts[partition], end))
    return starts, losses + _vanished(ends, ids, view)


def _vanished(ends: Positions, ids: Mapping[str, str], view: View) -> list[Loss]:
    """Return the losses of partitions whose topic is gone, or is another one now."""
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
    """Move positions that a user has named into the log, and say what was passed over."""
    found: Positions = {}
    losses: list[Loss] = []
    for partition, asked in sorted(positions.items()):
        earliest, latest = view.earliest[partition], view.latest[partition]
        found[partition] = min(max(asked, earliest), latest)
        if asked < earliest:
            losses.append(_expired(partition, asked, earliest, earliest))
        elif asked > latest:
            losses.append(_truncated(partition, latest, asked))
    return found, losses


def is_due(rows: int, limits: Limits, waited_ms: int) -> bool:
    """Say whether enough rows have come, or enough time has passed, for a batch."""
    return rows >= (limits.rows_min or 0) or waited_ms >= limits.delay_ms_max


def limit(
    starts: Positions, latest: Positions, limits: Limits, density: Mapping[TopicPartition, float]
) -> Positions:
    """Return where a batch ends that begins at ``starts``: everything, or what the limits let in.

    Rows are exact, unless there are fewer of them than partitions: each partition that has any
    gets one, so that none waits for ever. Bytes are an estimate by ``density``, bytes per offset.
    """
    sizes = {each: latest[each] - start for each, start in starts.items()}
    if limits.rows_max is not None:
        sizes = share_rows(sizes, limits.rows_max)
    if limits.bytes_max is not None:
        sizes = share_bytes(sizes, limits.bytes_max, density)
    return {each: starts[each] + size for each, size in sizes.items()}


def share_rows(sizes: Mapping[TopicPartition, int], rows_max: int) -> dict[TopicPartition, int]:
    """Cut sizes in proportion so that together they are ``rows_max``, none of them to nothing."""
    total = sum(sizes.values())
    if total <= rows_max:
        return dict(sizes)
    filled = [each for each, size in sizes.items() if size]
    spare, weight = max(rows_max - len(filled), 0), total - len(filled)
    found = dict.fromkeys(sizes, 0)
    for each in filled:
        found[each] = 1 + (spare * (sizes[each] - 1) // weight if weight else 0)
    left = rows_max - sum(found.values())
    for each in filled:  # what rounding left over, one row each
        if left > 0 and found[each] < sizes[each]:
            found[each] += 1
            left -= 1
    return found


def share_bytes(
    sizes: Mapping[TopicPartition, int], bytes_max: int, density: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Cut sizes in proportion so that together they are about ``bytes_max``, none to nothing."""
    total = sum(size * density.get(each, 0.0) for each, size in sizes.items())
    if total <= bytes_max:
        return dict(sizes)
    return {
        each: max(int(size * (bytes_max / total)), 1) if size else 0 for each, size in sizes.items()
    }


def density_of(view: View, sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
    """Return bytes per offset of each partition whose size on disk is known."""
    found: dict[TopicPartition, float] = {}
    for partition, latest in view.latest.items():
        offsets = latest - view.earliest[partition]
        if partition in sizes and offsets > 0:
            found[partition] = sizes[partition] / offsets
    return found


# -- the tasks of a batch ----------------------------------------------------


def check(planned: Iterable[Range], view: View) -> tuple[list[Range], list[Loss]]:
    """Return what of a batch is still there, and what is not: it may be replayed days later."""
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
    """Return into how many Spark partitions each range is cut.

    Each piece has at most ``records_max`` offsets and about ``bytes_max`` bytes, and there are at
    least ``partitions_min`` where there are as many offsets: the largest pieces are cut first.

    Raises:
        OptionError: that would be more tasks than anybody wants.
    """
    pieces = [_pieces_of(each, splitting, density) for each in whole]
    total = sum(pieces)
    if total > SPARK_PARTITIONS_MAX:
        raise OptionError(
            "options 'maxRecordsPerPartition' and 'maxBytesPerPartition' would cut this batch "
            f"into {total} Spark partitions; at most {SPARK_PARTITIONS_MAX} are made"
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
    """Cut each range into so many even pieces, in order, that cover it exactly.

    The result depends on nothing but the arguments: piece ``i`` of a replayed batch has the rows
    that piece ``i`` had before.
    """
    return [
        part
        for each, count in zip(whole, pieces, strict=True)
        for part in _even(each, min(count, each.size))
    ]


def trim(pieces: Sequence[Range], kept: Sequence[Range]) -> list[Range | None]:
    """Return what is left of each piece of a batch when only ``kept`` of it can still be read.

    A piece of which nothing is left is None: those behind it keep their numbers. ``kept`` has at
    most one range for each partition, as `check` returns them.
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
    """Yield even pieces; the sizes of two differ by one at most."""
    for index in range(pieces):
        start = whole.start + whole.size * index // pieces
        end = whole.start + whole.size * (index + 1) // pieces
        yield Range(whole.partition, start, end, whole.topic_id)
