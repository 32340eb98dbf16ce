"""The newest values of metrics that clients push, for /metrics (KIP-714).

A metric ``org.apache.kafka.producer.record.send.total`` becomes
``kafka_client_producer_record_send_total``, with labels of the client that pushed it. All names get
that prefix, so that a client cannot pose as the broker. Deltas are added up. Clients choose names
and labels, so everything is bounded; what exceeds a bound is dropped and counted.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ottla.observability.exposition import Family, Kind, Labels, Sample, counter, gauge
from ottla.observability.otlp_points import LABELS_MAX, Point, PointKind
from ottla.protocol.types import Uuid

CLIENTS_MAX: Final = 16_384
SERIES_MAX: Final = 100_000
SERIES_OF_CLIENT_MAX: Final = 2_000
SERIES_BYTES_MAX: Final = 32 << 20
"""Characters of the names and labels of all series: any client may push metrics."""
NAMES_MAX: Final = 2_000
_TEXT_MAX: Final = 200
_PREFIX: Final = "kafka_client_"
_KAFKA: Final = "org.apache.kafka."
_NOT_IN_A_NAME: Final = re.compile("[^a-zA-Z0-9_]")


class _Client(msgspec.Struct):
    """The series of one client instance: values by metric and labels."""

    labels: Labels
    seen_ms: int
    silent_ms_max: int
    values: dict[tuple[str, Labels], float] = msgspec.field(default_factory=dict)


class ClientMetrics:
    """The series of all clients; a source of metrics."""

    def __init__(self) -> None:
        self._clients: dict[Uuid, _Client] = {}
        self._kinds: dict[str, Kind] = {}
        self._series = 0
        self._bytes = 0
        self.pushes = 0
        self.failures = 0
        self.dropped = 0

    def record(
        self,
        instance: Uuid,
        labels: Mapping[str, str],
        points: Iterable[Point],
        now_ms: int,
        silent_ms_max: int,
    ) -> None:
        """Store the points of one push. ``labels`` describe the client."""
        self.pushes += 1
        client = self._clients.get(instance)
        if client is None:
            if len(self._clients) == CLIENTS_MAX:
                self.dropped += 1
                return
            pairs = tuple((name, value[:_TEXT_MAX]) for name, value in labels.items())
            client = self._clients[instance] = _Client(pairs, now_ms, silent_ms_max)
        client.seen_ms, client.silent_ms_max = now_ms, silent_ms_max
        taken = {name for name, _ in client.labels}
        for point in points:
            self._store(client, point, taken)

    def evict(self, now_ms: int) -> None:
        """Drop the series of clients that have been silent for longer than they may be."""
        for key, client in list(self._clients.items()):
            if now_ms - client.seen_ms >= client.silent_ms_max:
                del self._clients[key]
                self._series -= len(client.values)
                self._bytes -= sum(map(_size, client.values))
        if not self._clients:
            self._kinds.clear()

    def _store(self, client: _Client, point: Point, taken: set[str]) -> None:
        name, kind = _name(point), _kind(point)
        if self._kinds.get(name, kind) is not kind:
            self.dropped += 1  # another client pushes it as a different type
            return
        key = (name, _labels(point, taken))
        if key not in client.values:
            size = _size(key)
            is_full = (
                self._series >= SERIES_MAX
                or len(client.values) >= SERIES_OF_CLIENT_MAX
                or self._bytes + size > SERIES_BYTES_MAX
            )
            if is_full or (name not in self._kinds and len(self._kinds) >= NAMES_MAX):
                self.dropped += 1
                return
            self._kinds[name] = kind
            self._series += 1
            self._bytes += size
            client.values[key] = 0
        is_delta = point.kind is PointKind.DELTA
        client.values[key] = client.values[key] + point.value if is_delta else point.value

    def collect(self) -> Iterable[Family | None]:
        """Yield the series by metric, and the counts of pushes; None after each client."""
        samples: dict[str, list[Sample]] = {}
        kinds = dict(self._kinds)
        for client in list(self._clients.values()):
            for (name, labels), value in client.values.items():
                samples.setdefault(name, []).append(Sample(client.labels + labels, value))
            yield None
        for name, found in samples.items():
            kind = kinds.get(name) or self._kinds.get(name, Kind.UNTYPED)
            yield Family(name, kind, "Pushed by clients (KIP-714).", found)
        yield gauge("ottla_client_telemetry_clients", "Clients with metrics.", len(self._clients))
        yield counter("ottla_client_telemetry_pushes_total", "Pushes of clients.", self.pushes)
        failures = "Pushes whose metrics could not be read."
        yield counter("ottla_client_telemetry_failures_total", failures, self.failures)
        dropped = "Values beyond a bound, or of a conflicting type."
        yield counter("ottla_client_telemetry_dropped_total", dropped, self.dropped)


def _size(key: tuple[str, Labels]) -> int:
    """Return how many characters the name and the labels of a series have."""
    return len(key[0]) + sum(len(name) + len(value) for name, value in key[1])


def _name(point: Point) -> str:
    name = point.name.removeprefix(_KAFKA)[:_TEXT_MAX]
    name = _PREFIX + _NOT_IN_A_NAME.sub("_", name)
    is_sum = point.kind is not PointKind.GAUGE
    return f"{name}_total" if is_sum and not name.endswith(("_total", "_count", "_sum")) else name


def _kind(point: Point) -> Kind:
    return Kind.GAUGE if point.kind is PointKind.GAUGE else Kind.COUNTER


def _labels(point: Point, taken: set[str]) -> Labels:
    """Return the labels of a point, without those that describe the client already."""
    found: dict[str, str] = {}
    for name, value in point.labels[:LABELS_MAX]:
        name = _NOT_IN_A_NAME.sub("_", name[:_TEXT_MAX]) or "_"
        if name[0].isdigit() or name.startswith("__"):
            name = f"x_{name}"
        if name not in taken:
            found[name] = value[:_TEXT_MAX]
    return tuple(found.items())
