"""Counters of connections and requests: the `ServerEvents` of a node.

Latency is recorded per API (`ottla.observability.latency`) and exposed as a summary, with quantiles
over the last 30 to 60 seconds.
"""

from collections.abc import Iterable

import msgspec

from ottla.observability.exposition import Family, Kind, Labels, Sample
from ottla.observability.latency import Latency
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_KEYS = max(ApiKey) + 1
REASONS_MAX = 64
"""Distinct reasons of closed connections; further ones are counted as ``other``."""


class _Listener(msgspec.Struct):
    connections: int = 0
    opened: int = 0
    refused: dict[str, int] = msgspec.field(default_factory=dict)
    closed: dict[str, int] = msgspec.field(default_factory=dict)
    bad_bytes: int = 0
    logins: int = 0
    failed_logins: int = 0


class RequestMeter:
    """Counts events of one node's servers. Bounded by listeners, APIs and error codes."""

    def __init__(self) -> None:
        self._listeners: dict[str, _Listener] = {}
        # Lists by key: `Enum` hashes in Python code, which would slow down every lookup.
        self._requests = [0] * _KEYS
        self._latencies: list[Latency | None] = [None] * _KEYS
        self._errors: dict[tuple[ApiKey, ErrorCode], int] = {}

    # -- ServerEvents ----------------------------------------------------------

    def connection_opened(self, listener: str) -> None:
        """Count a connection that was admitted."""
        counts = self._listener(listener)
        counts.opened += 1
        counts.connections += 1

    def connection_refused(self, listener: str, reason: str) -> None:
        """Count a connection that was rejected."""
        _count(self._listener(listener).refused, reason)

    def connection_closed(self, listener: str, reason: str) -> None:
        """Count a closed connection by the part of ``reason`` before a colon: the rest varies."""
        counts = self._listener(listener)
        counts.connections -= 1
        _count(counts.closed, reason.partition(":")[0])

    def requested(self, listener: str, key: ApiKey) -> None:
        """Count a request."""
        self._requests[key] += 1

    def request_failed(self, listener: str, key: ApiKey, code: ErrorCode) -> None:
        """Count a request whose handler raised."""
        self._errors[key, code] = self._errors.get((key, code), 0) + 1

    def bad_bytes(self, listener: str) -> None:
        """Count a connection that sent an invalid request."""
        self._listener(listener).bad_bytes += 1

    def logged_in(self, listener: str, mechanism: str) -> None:
        """Count a login by SASL."""
        self._listener(listener).logins += 1

    def login_failed(self, listener: str, mechanism: str) -> None:
        """Count a login by SASL that failed."""
        self._listener(listener).failed_logins += 1

    def answered(self, listener: str, key: ApiKey, micros: int) -> None:
        """Record the time from the last byte of a request until its reply is ready."""
        self._latency(key).add(micros)

    def answered_at_once(self, listener: str, key: ApiKey) -> None:
        """Count a request with a time of zero."""
        self._requests[key] += 1
        latency = self._latencies[key] or self._latency(key)
        latency.count += 1
        latency.buckets[0] += 1

    def slide(self) -> None:
        """Begin a new window of all latencies."""
        for latency in self._latencies:
            if latency is not None:
                latency.slide()

    def _latency(self, key: ApiKey) -> Latency:
        found = self._latencies[key]
        if found is None:
            found = self._latencies[key] = Latency()
        return found

    def _listener(self, name: str) -> _Listener:
        found = self._listeners.get(name)
        if found is None:
            found = self._listeners[name] = _Listener()
        return found

    # -- metrics ---------------------------------------------------------------

    def collect(self) -> Iterable[Family]:
        """Yield all metrics."""
        yield from self._connection_families()
        yield Family(
            "kafka_network_requestmetrics_requests_total",
            Kind.COUNTER,
            "Requests that were passed to their handler.",
            tuple(
                Sample(_of(key), self._requests[key])
                for key in sorted(ApiKey)
                if self._requests[key]
            ),
        )
        yield Family(
            "kafka_network_requestmetrics_errors_total",
            Kind.COUNTER,
            "Requests whose handler failed, by error code.",
            tuple(
                Sample((*_of(key), ("error", code.name)), count)
                for (key, code), count in sorted(self._errors.items())
            ),
        )
        yield Family(
            "kafka_network_requestmetrics_totaltimems",
            Kind.SUMMARY,
            "Milliseconds from the last byte of a request until its reply is ready.",
            tuple(
                sample
                for key in sorted(ApiKey)
                if (latency := self._latencies[key]) is not None
                for sample in _summary(_of(key), latency)
            ),
        )

    def _connection_families(self) -> Iterable[Family]:
        listeners = sorted(self._listeners.items())

        def family(name: str, kind: Kind, help_text: str, *samples: Sample) -> Family:
            return Family(name, kind, help_text, samples)

        yield family(
            "kafka_server_socket_server_metrics_connection_count",
            Kind.GAUGE,
            "Open connections.",
            *(
                Sample((("listener", name), ("networkProcessor", "0")), each.connections)
                for name, each in listeners
            ),
        )
        yield family(
            "kafka_server_socket_server_metrics_connection_creation_total",
            Kind.COUNTER,
            "Connections admitted.",
            *(Sample((("listener", name),), each.opened) for name, each in listeners),
        )
        yield family(
            "kafka_server_socket_server_metrics_connection_close_total",
            Kind.COUNTER,
            "Closed connections, by reason.",
            *_by_reason((name, each.closed) for name, each in listeners),
        )
        yield family(
            "ottla_server_connections_refused_total",
            Kind.COUNTER,
            "Rejected connections, by the limit that they exceeded.",
            *_by_reason((name, each.refused) for name, each in listeners),
        )
        yield family(
            "ottla_server_bad_bytes_total",
            Kind.COUNTER,
            "Connections closed because they sent an invalid request.",
            *(Sample((("listener", name),), each.bad_bytes) for name, each in listeners),
        )
        yield family(
            "kafka_server_socket_server_metrics_successful_authentication_total",
            Kind.COUNTER,
            "Logins by SASL that succeeded.",
            *(Sample((("listener", name),), each.logins) for name, each in listeners),
        )
        yield family(
            "kafka_server_socket_server_metrics_failed_authentication_total",
            Kind.COUNTER,
            "Logins by SASL that failed.",
            *(Sample((("listener", name),), each.failed_logins) for name, each in listeners),
        )


def _count(counts: dict[str, int], reason: str) -> None:
    if reason not in counts and len(counts) >= REASONS_MAX:
        reason = "other"
    counts[reason] = counts.get(reason, 0) + 1


def _of(key: ApiKey) -> Labels:
    return (("request", key.title),)


def _summary(labels: Labels, latency: Latency) -> Iterable[Sample]:
    for fraction, micros in zip(QUANTILES, latency.quantiles(QUANTILES), strict=True):
        yield Sample((*labels, ("quantile", str(fraction))), micros / 1000)
    yield Sample(labels, latency.total / 1000, "_sum")
    yield Sample(labels, latency.count, "_count")


def _by_reason(counts: Iterable[tuple[str, dict[str, int]]]) -> Iterable[Sample]:
    for name, reasons in counts:
        for reason, count in sorted(reasons.items()):
            yield Sample((("listener", name), ("reason", reason)), count)
