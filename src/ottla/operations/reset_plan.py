"""Compute the new offsets of a group from the target that was requested. Pure.

    topic            all partitions of a topic
    topic:0,2        some of them

An offset out of range is moved into it, with a note. Nothing is changed here.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

from ottla.config.value_rules import duration_ms
from ottla.operations.counting import plural
from ottla.protocol.types import TopicPartition


class BadReset(ValueError):
    """The request is invalid; the message says why."""


class ToEarliest(msgspec.Struct, frozen=True):
    """The first record."""


class ToLatest(msgspec.Struct, frozen=True):
    """The end of the partition."""


class ToCurrent(msgspec.Struct, frozen=True):
    """The committed offset; if it is out of range, the nearest one within."""


class ToOffset(msgspec.Struct, frozen=True):
    """An offset."""

    offset: int


class ToTime(msgspec.Struct, frozen=True):
    """The first record at or after this time, in milliseconds since 1970."""

    timestamp: int


class ShiftBy(msgspec.Struct, frozen=True):
    """This many records forward, or backward if negative."""

    count: int


class FromFile(msgspec.Struct, frozen=True):
    """The offset that a file gives for each partition."""

    offsets: dict[TopicPartition, int]


Target: TypeAlias = ToEarliest | ToLatest | ToCurrent | ToOffset | ToTime | ShiftBy | FromFile


class Bounds(msgspec.Struct, frozen=True):
    """A partition's first and next offset, and the offset at the requested time."""

    first: int
    next: int
    at_time: int | None = None


class PlannedOffset(msgspec.Struct, frozen=True):
    """The new offset of a partition. ``note`` says why it differs from the requested one."""

    place: TopicPartition
    current: int | None
    new: int
    note: str = ""


# -- parsing the request -----------------------------------------------------------------


def parse_topics(items: Iterable[str]) -> dict[str, tuple[int, ...] | None]:
    """Parse ``topic`` or ``topic:0,2`` items; None is all partitions. Raises `BadReset`."""
    found: dict[str, tuple[int, ...] | None] = {}
    for item in items:
        name, separator, numbers = item.rpartition(":")
        if not separator:
            found[item] = None
            continue
        parts = numbers.split(",")
        if not name or not all(part.isascii() and part.isdigit() for part in parts):
            raise BadReset(f"{item!r} must be topic or topic:partition,...")
        before = found.get(name, ())
        if before is not None:
            found[name] = tuple(sorted({*before, *map(int, parts)}))
    return found


def parse_time(text: str) -> int:
    """Parse an ISO 8601 time, UTC by default; return milliseconds since 1970."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadReset(f"{text!r} must be a time such as 2026-11-16T08:30:00.000") from error
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    millis = round(aware.timestamp() * 1000)
    if millis < 0:
        raise BadReset(f"{text!r} is before 1970")
    return millis


def parse_duration(text: str) -> int:
    """Parse an ISO 8601 duration such as ``P1DT2H30M``; return milliseconds."""
    found = duration_ms(text)
    if found is None:
        raise BadReset(f"{text!r} must be a duration such as P7D or PT2H30M")
    return found


def parse_file(text: str) -> dict[TopicPartition, int]:
    """Parse lines ``topic,partition,offset``. Raises `BadReset` with the line number."""
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        if not row or not "".join(row).strip():
            continue
        cells = [cell.strip() for cell in row]
        is_row = len(cells) == 3 and bool(cells[0])
        if not is_row or not all(cell.isascii() and cell.isdigit() for cell in cells[1:]):
            raise BadReset(f"line {number}: {','.join(row)!r} must be topic,partition,offset")
        found[TopicPartition(cells[0], int(cells[1]))] = int(cells[2])
    if not found:
        raise BadReset("there is no line topic,partition,offset")
    return found


def written(planned: Iterable[PlannedOffset]) -> str:
    """Return a plan in the format that `parse_file` reads."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    for each in planned:
        rows.writerow([each.place.topic, each.place.partition, each.new])
    return out.getvalue()


# -- the plan ------------------------------------------------------------------------------


def plan_reset(
    target: Target,
    bounds: Mapping[TopicPartition, Bounds],
    current: Mapping[TopicPartition, int],
) -> list[PlannedOffset]:
    """Return the new offset of every partition in ``bounds``, by name.

    A partition without a committed offset is shifted from its first record, and is left out of
    `ToCurrent`.
    """
    planned = []
    for place in sorted(bounds):
        has = bounds[place]
        wanted, note = _wanted(target, place, has, current.get(place))
        if wanted is None:
            continue
        new = min(max(wanted, has.first), has.next)
        if new != wanted:
            note = f"{wanted} is out of range: {has.first} to {has.next}"
        planned.append(PlannedOffset(place, current.get(place), new, note))
    return planned


def _wanted(
    target: Target, place: TopicPartition, has: Bounds, current: int | None
) -> tuple[int | None, str]:
    wanted, note = current, ""  # which is what `ToCurrent` keeps
    match target:
        case ToEarliest():
            wanted = has.first
        case ToLatest():
            wanted = has.next
        case ToOffset(offset):
            wanted = offset
        case ToTime():
            wanted = has.next if has.at_time is None else has.at_time
            note = "" if has.at_time is not None else "no record is that recent: using the end"
        case ShiftBy(count):
            wanted = (has.first if current is None else current) + count
            note = (
                ""
                if current is not None
                else "nothing is committed: counting from the first record"
            )
        case FromFile(offsets):
            wanted = offsets.get(place)
    return wanted, note


def reset_summary(group_id: str, planned: Sequence[PlannedOffset], *, is_done: bool) -> str:
    """Return what a plan changes, in a line, and whether it was carried out."""
    steps = [each.new - each.current for each in planned if each.current is not None]
    back = [-each for each in steps if each < 0]
    forward = [each for each in steps if each > 0]
    parts = [
        f"{len(found):,} {text}{f' by {sum(found):,} offsets' if sum(found) else ''}"
        for text, found in (
            ("back", back),
            ("forward", forward),
            ("unchanged", [each for each in steps if each == 0]),
            ("without an offset before", [0 for each in planned if each.current is None]),
        )
        if found
    ]
    count = plural(len(planned), "partition")
    text = f"{group_id}: {count} {'set' if is_done else 'to set'}: {', '.join(parts) or 'none'}"
    if is_done:
        return text
    return f"{text}\nthis is only the plan, nothing was changed; use --execute to apply it"
