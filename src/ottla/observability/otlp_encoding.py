"""Metrics and spans in OTLP's protobuf encoding, as collectors accept them. Pure.

    ExportMetricsServiceRequest   1 ResourceMetrics*
    ResourceMetrics   1 Resource   2 ScopeMetrics*
    ScopeMetrics      1 Scope   2 Metric*
    Metric            1 name   2 description   5 Gauge   7 Sum   11 Summary
    Gauge, Sum        1 NumberDataPoint*;  a Sum also 2 temporality (2 cumulative)   3 is monotonic
    Summary           1 SummaryDataPoint*
    NumberDataPoint   7 KeyValue*   2 start   3 time   4 as double
    SummaryDataPoint  7 KeyValue*   2 start   3 time   4 count   5 sum   6 {1 quantile 2 value}*
    ExportTraceServiceRequest     1 ResourceSpans*
    ResourceSpans     1 Resource   2 ScopeSpans*
    ScopeSpans        1 Scope   2 Span*
    Span   1 trace id   2 span id   4 parent   5 name   6 kind   7 start   8 end   9 KeyValue*
           15 Status {2 message 3 code}
    Resource 1 KeyValue*;  Scope 1 name   2 version;  KeyValue 1 key 2 AnyValue

All values are doubles, as in Prometheus, so that a metric never changes its type. Times are
nanoseconds since 1970. Values that are not a number are left out. What clients push has the layout
of ExportMetricsServiceRequest already: `with_attributes` only adds to its resources.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final

import msgspec

from ottla.observability.exposition import Family, Kind, Labels, Sample
from ottla.observability.otlp_points import BadMetrics, FieldBudget, message_fields
from ottla.protocol.types import Buffer

RESOURCES_MAX: Final = 1000
"""Resources of one push; a client has one, and each gets all attributes of the client."""

POINTS_PER_PIECE: Final = 500
"""The points of one piece of metrics: about a millisecond of work."""

Attribute = str | bool | int | float
Attributes = Sequence[tuple[str, Attribute]]

_VALUE: Final = Struct("<Bd")
_TIME: Final = Struct("<BQ")
_TIMES: Final = Struct("<BQBQ")
_AS_DOUBLE: Final = 4 << 3 | 1
_START, _NOW = 2 << 3 | 1, 3 << 3 | 1
_COUNT, _SUM = 4 << 3 | 1, 5 << 3 | 1
_CUMULATIVE_AND_MONOTONIC: Final = b"\x10\x02\x18\x01"
_QUANTILE: Final = "quantile"
# A pair of `ottla.observability.exposition.label_text`.
_PAIR: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


class MetricTimes(msgspec.Struct, frozen=True):
    """When counting began, and the time of the values; nanoseconds since 1970."""

    start_ns: int
    now_ns: int


class SpanKind:
    """The kinds of spans that a broker has."""

    INTERNAL: Final = 1
    SERVER: Final = 2


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One span. ``error`` is empty if it succeeded; ``parent_id`` is empty for a root."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes = b""
    name: str
    kind: int
    start_ns: int
    end_ns: int
    attributes: Attributes = ()
    error: str = ""


# -- metrics -------------------------------------------------------------------------


def metric_pieces(families: Iterable[Family], times: MetricTimes) -> Iterator[bytes]:
    """Yield the metrics in pieces, each of at most about `POINTS_PER_PIECE` points.

    A piece is a field of ScopeMetrics; `request_of` joins them.
    """
    known: dict[Labels | str, bytes] = {}  # families share their labels
    for family in families:
        points: list[bytes] = []
        is_summary = family.kind is Kind.SUMMARY
        for point in (
            _summary_points(family.samples, times)
            if is_summary
            else _number_points(family.samples, times, known)
        ):
            points.append(point)
            if len(points) == POINTS_PER_PIECE:
                yield _metric(family, points)
                points = []
        if points:
            yield _metric(family, points)


def request_of(resource: Attributes, scope: bytes, pieces: Iterable[bytes]) -> bytes:
    """Return the body of one export, from pieces of metrics or from pieces of spans."""
    described = bytes_field(1, attributes_field(1, resource))
    return bytes_field(1, described + bytes_field(2, b"".join([bytes_field(1, scope), *pieces])))


def scope_of(name: str, version: str) -> bytes:
    """Return the scope of everything that one program exports."""
    return text_field(1, name) + text_field(2, version)


def with_attributes(data: Buffer, attributes: Attributes) -> bytes:
    """Return metrics of a client with attributes added to each of its resources.

    Raises:
        BadMetrics: the bytes are not OTLP metrics.
    """
    added = attributes_field(1, attributes)
    out: list[bytes] = []
    budget = FieldBudget()
    for number, wire, resource in message_fields(memoryview(data), budget):
        if len(out) == RESOURCES_MAX:
            raise BadMetrics(f"more than {RESOURCES_MAX} resources")
        if number != 1 or wire != 2 or isinstance(resource, int):
            raise BadMetrics(f"field {number} where resources are expected")
        own, rest = [], []
        for inner, inner_wire, value in message_fields(resource, budget):
            if inner_wire != 2 or isinstance(value, int):
                raise BadMetrics(f"field {inner} of a resource's metrics")
            if inner == 1:
                own.append(bytes(value))
            else:
                rest.append(bytes_field(inner, bytes(value)))
        out.append(bytes_field(1, b"".join([bytes_field(1, b"".join([*own, added])), *rest])))
    return b"".join(out)


def _metric(family: Family, points: Sequence[bytes]) -> bytes:
    body = b"".join(points)
    match family.kind:
        case Kind.COUNTER:
            data = bytes_field(7, body + _CUMULATIVE_AND_MONOTONIC)
        case Kind.SUMMARY:
            data = bytes_field(11, body)
        case Kind.GAUGE | Kind.UNTYPED:
            data = bytes_field(5, body)
    return bytes_field(2, text_field(1, family.name) + text_field(2, family.help) + data)


def _number_points(
    samples: Iterable[Sample], times: MetricTimes, known: dict[Labels | str, bytes]
) -> Iterator[bytes]:
    """Yield points. ``known`` has what points of the same labels begin with: all but the value."""
    for sample in samples:
        value = sample.value
        if math.isnan(value):
            continue
        start = known.get(sample.labels)
        if start is None:
            start = known[sample.labels] = _point_start(sample.labels, times)
        yield start + _VALUE.pack(_AS_DOUBLE, value)


def _point_start(labels: Labels | str, times: MetricTimes) -> bytes:
    both = _TIMES.pack(_START, times.start_ns, _NOW, times.now_ns)
    body = attributes_field(7, _pairs(labels)) + both
    return bytes((1 << 3 | 2,)) + _varint(len(body) + _VALUE.size) + body


def _summary_points(samples: Iterable[Sample], times: MetricTimes) -> Iterator[bytes]:
    """Yield a point for each set of labels: a family has a sample for each quantile."""
    found: dict[Labels, list[bytes]] = {}
    for sample in samples:
        pairs = _pairs(sample.labels)
        labels = tuple(pair for pair in pairs if pair[0] != _QUANTILE)
        quantile = next((value for name, value in pairs if name == _QUANTILE), None)
        fields = found.setdefault(labels, [])
        if sample.suffix == "_count":
            fields.append(_TIME.pack(_COUNT, int(sample.value)))
        elif sample.suffix == "_sum":
            fields.append(_VALUE.pack(_SUM, float(sample.value)))
        elif quantile is not None and not math.isnan(sample.value):
            at = _VALUE.pack(1 << 3 | 1, float(quantile)) + _VALUE.pack(2 << 3 | 1, sample.value)
            fields.append(bytes_field(6, at))
    both = _TIMES.pack(_START, times.start_ns, _NOW, times.now_ns)
    for labels, fields in found.items():
        yield bytes_field(1, b"".join([attributes_field(7, labels), both, *fields]))


def _pairs(labels: Labels | str) -> Labels:
    if not isinstance(labels, str):
        return labels
    return tuple(
        (name, _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value))
        for name, value in _PAIR.findall(labels)
    )


# -- spans ---------------------------------------------------------------------------


def span_piece(span: Span) -> bytes:
    """Return a span as a field of ScopeSpans; `request_of` joins them."""
    parts = [
        bytes_field(1, span.trace_id),
        bytes_field(2, span.span_id),
        bytes_field(4, span.parent_id) if span.parent_id else b"",
        text_field(5, span.name),
        bytes((6 << 3, span.kind)),
        _TIME.pack(7 << 3 | 1, span.start_ns),
        _TIME.pack(8 << 3 | 1, span.end_ns),
        attributes_field(9, span.attributes),
    ]
    if span.error:
        parts.append(bytes_field(15, text_field(2, span.error) + b"\x18\x02"))
    return bytes_field(2, b"".join(parts))


# -- the wire format of protobuf -----------------------------------------------------


def attributes_field(number: int, attributes: Attributes) -> bytes:
    """Return a KeyValue for each attribute."""
    return b"".join(
        bytes_field(number, text_field(1, name) + bytes_field(2, _any_value(value)))
        for name, value in attributes
    )


def _any_value(value: Attribute) -> bytes:
    match value:
        case bool():
            return bytes((2 << 3, value))
        case int():
            return bytes((3 << 3,)) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)
        case float():
            return _VALUE.pack(4 << 3 | 1, value)
        case _:
            return text_field(1, value)


def text_field(number: int, text: str) -> bytes:
    """Return a field of text; text that is not Unicode is replaced."""
    return bytes_field(number, text.encode("utf-8", "replace"))


def bytes_field(number: int, data: bytes) -> bytes:
    """Return a field with its tag and length."""
    return b"%b%b%b" % (_varint(number << 3 | 2), _varint(len(data)), data)


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL: Final = tuple(bytes((value,)) for value in range(0x80))
