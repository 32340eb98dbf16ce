"""Metrics in OTLP's protobuf encoding, as clients push them (KIP-714). Pure.

    MetricsData      1 ResourceMetrics*
    ResourceMetrics  1 Resource   2 ScopeMetrics*
    Resource         1 KeyValue*
    ScopeMetrics     2 Metric*
    Metric           1 name   5 Gauge   7 Sum   9 Histogram
    Gauge            1 NumberDataPoint*
    Sum              1 NumberDataPoint*   2 temporality (1 delta, 2 cumulative)   3 is monotonic
    Histogram        1 HistogramDataPoint*   2 temporality
    NumberDataPoint  7 KeyValue*   4 as double   6 as sfixed64
    HistogramDataPoint  9 KeyValue*   4 count   5 sum
    KeyValue         1 key   2 AnyValue
    AnyValue         1 string   2 bool   3 int64   4 double

Other fields are skipped. The bytes are untrusted, and a few compressed kilobytes may be megabytes
of them: every length is checked against the bytes that remain, nesting is fixed by the layout, a
push has at most `FIELDS_MAX` fields, texts and labels are cut, and no more than ``points_max``
points are returned. So work and memory of a push are bounded by these numbers, not by its bytes.
"""

import enum
from collections.abc import Iterator
from struct import Struct
from typing import Final

import msgspec

from ottla.protocol.types import Buffer

_DOUBLE: Final = Struct("<d")
_INT64: Final = Struct("<q")
_VARINT_BYTES_MAX: Final = 10
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_DELTA: Final = 1

FIELDS_MAX: Final = 200_000
"""Fields of one push, at all levels: a point with ten labels has about 45."""
LABELS_MAX: Final = 10
"""Labels of a point; further ones are left out."""
TEXT_BYTES_MAX: Final = 1000
"""Names, keys and values of labels are cut there."""

Labels = tuple[tuple[str, str], ...]


class BadMetrics(ValueError):
    """Bytes that are not OTLP metrics."""


class PointKind(enum.Enum):
    """How a value is to be read."""

    GAUGE = "gauge"
    DELTA = "delta"
    """What was added since the previous push."""
    TOTAL = "total"
    """A sum since the client's start."""


class Point(msgspec.Struct, frozen=True):
    """One value. A histogram is two of them, with ``_count`` and ``_sum`` behind its name."""

    name: str
    kind: PointKind
    labels: Labels
    value: float


Value = int | memoryview
Fields = Iterator[tuple[int, int, Value]]


class FieldBudget(msgspec.Struct):
    """The fields that may still be read of one push."""

    left: int = FIELDS_MAX

    def spend(self) -> None:
        """Count one field. Raises `BadMetrics` if there were too many."""
        self.left -= 1
        if self.left < 0:
            raise BadMetrics("too many fields in one push")


def parse_points(data: Buffer, points_max: int) -> list[Point]:
    """Return the points of a push; those behind ``points_max`` are left out.

    Raises:
        BadMetrics: the bytes are not OTLP metrics.
    """
    found: list[Point] = []
    budget = FieldBudget()
    for resource in _messages(memoryview(data), 1, budget):
        for scope in _messages(resource, 2, budget):
            for metric in _messages(scope, 2, budget):
                for point in _points(metric, budget):
                    if len(found) == points_max:
                        return found
                    found.append(point)
    return found


def _points(metric: memoryview, budget: FieldBudget) -> Iterator[Point]:
    name, bodies = "", []
    for number, wire, value in message_fields(metric, budget):
        if number == 1 and wire == _LENGTH:
            name = _text(value)
        elif number in (5, 7, 9) and wire == _LENGTH:
            bodies.append((number, _view(value)))
    for number, body in bodies:
        match number:
            case 5:
                yield from _numbers(name, PointKind.GAUGE, body, budget)
            case 7:
                yield from _numbers(name, _sum_kind(body, budget), body, budget)
            case _:
                yield from _histogram(name, body, budget)


def _sum_kind(body: memoryview, budget: FieldBudget) -> PointKind:
    temporality, is_monotonic = 0, False
    for number, wire, value in message_fields(body, budget):
        if number == 2 and wire == _VARINT:
            temporality = int(value)
        elif number == 3 and wire == _VARINT:
            is_monotonic = bool(value)
    if temporality == _DELTA:
        return PointKind.DELTA
    return PointKind.TOTAL if is_monotonic else PointKind.GAUGE


def _numbers(name: str, kind: PointKind, body: memoryview, budget: FieldBudget) -> Iterator[Point]:
    for point in _messages(body, 1, budget):
        value: float = 0
        labels: list[tuple[str, str]] = []
        for number, wire, field in message_fields(point, budget):
            if number == 4 and wire == _FIXED64:
                (value,) = _DOUBLE.unpack(_view(field))
            elif number == 6 and wire == _FIXED64:
                (value,) = _INT64.unpack(_view(field))
            elif number == 7 and wire == _LENGTH and len(labels) < LABELS_MAX:
                labels.append(_label(_view(field), budget))
        yield Point(name, kind, tuple(labels), value)


def _histogram(name: str, body: memoryview, budget: FieldBudget) -> Iterator[Point]:
    kind = PointKind.DELTA if _sum_kind(body, budget) is PointKind.DELTA else PointKind.TOTAL
    for point in _messages(body, 1, budget):
        count, total = 0, 0.0
        labels: list[tuple[str, str]] = []
        for number, wire, field in message_fields(point, budget):
            if number == 4 and wire == _FIXED64:
                (count,) = _INT64.unpack(_view(field))
            elif number == 5 and wire == _FIXED64:
                (total,) = _DOUBLE.unpack(_view(field))
            elif number == 9 and wire == _LENGTH and len(labels) < LABELS_MAX:
                labels.append(_label(_view(field), budget))
        yield Point(f"{name}_count", kind, tuple(labels), count)
        yield Point(f"{name}_sum", kind, tuple(labels), total)


def _label(pair: memoryview, budget: FieldBudget) -> tuple[str, str]:
    key, value = "", ""
    for number, wire, field in message_fields(pair, budget):
        if number == 1 and wire == _LENGTH:
            key = _text(field)
        elif number == 2 and wire == _LENGTH:
            value = _any_text(_view(field), budget)
    return key, value


def _any_text(message: memoryview, budget: FieldBudget) -> str:
    for number, wire, value in message_fields(message, budget):
        match number, wire:
            case 1, 2:
                return _text(value)
            case 2, 0:
                return "true" if value else "false"
            case 3, 0:
                whole = int(value)
                return str(whole - (1 << 64) if whole >= 1 << 63 else whole)
            case 4, 1:
                return repr(_DOUBLE.unpack(_view(value))[0])
            case _:
                continue
    return ""


# -- the wire format of protobuf -----------------------------------------------------


def _messages(data: memoryview, field: int, budget: FieldBudget) -> Iterator[memoryview]:
    for number, wire, value in message_fields(data, budget):
        if number == field and wire == _LENGTH:
            yield _view(value)


def message_fields(data: memoryview, budget: FieldBudget) -> Fields:
    """Yield number, wire type and value of each field: an integer, or a view of its bytes."""
    at, end = 0, len(data)
    while at < end:
        budget.spend()
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        if wire == _LENGTH:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise BadMetrics(f"wire type {wire}")
        if size > end - at:
            raise BadMetrics(f"a field of {size} bytes with {end - at} left")
        yield number, wire, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(_VARINT_BYTES_MAX):
        if at >= len(data):
            raise BadMetrics("the bytes end within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise BadMetrics("a number of more than 10 bytes")


def _view(value: Value) -> memoryview:
    assert isinstance(value, memoryview)
    return value


def _text(value: Value) -> str:
    view = _view(value)
    if len(view) > TEXT_BYTES_MAX:
        # The cut may be within a character.
        return str(view[:TEXT_BYTES_MAX], "utf-8", "ignore")
    try:
        return str(view, "utf-8")
    except UnicodeDecodeError as error:
        raise BadMetrics("text that is not UTF-8") from error
