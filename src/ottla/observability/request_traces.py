"""Traces of requests: which are sampled, and the spans of each. Pure.

    request  |--queue--|--local--|--------remote--------|--response--|
             received  began     called                 replied      ended

``queue`` is the wait for a turn of the connection, ``local`` decoding and the handler's own work,
``remote`` what the handler waits for (Produce with acks=all: that followers replicate; Fetch: that
records arrive), ``response`` encoding and the wait for replies of earlier requests.

Every request is sampled with the same probability and independently of others. The next request to
sample is drawn in advance, so that one that is not sampled costs a subtraction. Finished traces
wait for their export, at most `TRACES_MAX` of them; more are dropped and counted.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from ottla.observability.otlp_encoding import Attribute, Span, SpanKind
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis
from ottla.runtime.ports import Address, Random

TRACES_MAX: Final = 4096
_SKIPS_MAX: Final = 1 << 40
_TRACE_ID_BYTES, _SPAN_ID_BYTES = 16, 8
_WAITS: Final = {ApiKey.PRODUCE: "replicate", ApiKey.FETCH: "wait for records"}


class RequestTrace(msgspec.Struct, kw_only=True):
    """One sampled request. Times are seconds of the event loop's clock, sizes bytes."""

    key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    principal: str
    listener: str
    peer: Address
    request_bytes: int
    received_s: float
    began_s: float
    called_s: float = 0.0
    replied_s: float = 0.0
    ended_s: float = 0.0
    response_bytes: int = 0
    error: ErrorCode = ErrorCode.NONE


class Finished(msgspec.Struct, frozen=True):
    """A trace whose reply is on its way, and the wall-clock time then."""

    trace: RequestTrace
    ended_ms: Millis


class RequestTracer:
    """Samples requests and keeps their traces until they are exported.

    ``skips``: how many requests follow before the next sampled one.
    """

    __slots__ = ("_finished", "_now", "_random", "_ratio", "dropped", "skips")

    def __init__(self, ratio: float, random: Random, now: Callable[[], Millis]) -> None:
        assert 0 < ratio <= 1
        self._ratio = ratio
        self._random = random
        self._now = now
        self._finished: deque[Finished] = deque()
        self.dropped = 0
        self.skips = 0
        self._draw()

    def is_due(self) -> bool:
        """Count a request; say whether it is to be traced."""
        if self.skips:
            self.skips -= 1
            return False
        self._draw()
        return True

    def _draw(self) -> None:
        """Draw the number of requests up to the next sample (a geometric distribution)."""
        if self._ratio >= 1:
            return
        uniform = 1 - self._random.fraction()  # in (0, 1]
        self.skips = min(int(math.log(uniform) / math.log1p(-self._ratio)), _SKIPS_MAX)

    def finish(self, trace: RequestTrace) -> None:
        """Keep a trace whose times are known."""
        if len(self._finished) >= TRACES_MAX:
            self.dropped += 1
            return
        self._finished.append(Finished(trace, self._now()))

    def take(self, count: int) -> list[Finished]:
        """Remove and return the oldest traces, at most ``count``."""
        return [self._finished.popleft() for _ in range(min(count, len(self._finished)))]


def spans_of(finished: Finished, random: Random) -> Iterator[Span]:
    """Yield the span of a request, and one of what its handler waited for."""
    trace = finished.trace
    ended_ns = finished.ended_ms * 1_000_000

    def at(seconds: float) -> int:
        return ended_ns - int((trace.ended_s - seconds) * 1e9)

    trace_id, span_id = random.bytes(_TRACE_ID_BYTES), random.bytes(_SPAN_ID_BYTES)
    yield Span(
        trace_id=trace_id,
        span_id=span_id,
        name=trace.key.title,
        kind=SpanKind.SERVER,
        start_ns=at(trace.received_s),
        end_ns=ended_ns,
        attributes=tuple(_attributes(trace)),
        error=trace.error.name if trace.error else "",
    )
    if trace.replied_s > trace.called_s:
        yield Span(
            trace_id=trace_id,
            span_id=random.bytes(_SPAN_ID_BYTES),
            parent_id=span_id,
            name=f"{trace.key.title} {_WAITS.get(trace.key, 'wait')}",
            kind=SpanKind.INTERNAL,
            start_ns=at(trace.called_s),
            end_ns=at(trace.replied_s),
        )


def _attributes(trace: RequestTrace) -> Iterator[tuple[str, Attribute]]:
    yield "messaging.system", "kafka"
    if trace.client_id is not None:
        yield "messaging.client.id", trace.client_id
    yield "network.peer.address", trace.peer.host
    yield "network.peer.port", trace.peer.port
    yield "user.name", trace.principal.removeprefix("User:")
    yield "kafka.listener", trace.listener
    yield "kafka.api.key", int(trace.key)
    yield "kafka.api.version", trace.version
    yield "kafka.correlation_id", trace.correlation_id
    yield "kafka.error_code", int(trace.error)
    if trace.error:
        yield "error.type", trace.error.name
    yield "kafka.request.size", trace.request_bytes
    yield "kafka.response.size", trace.response_bytes
    yield "kafka.queue_time_ms", _ms(trace.received_s, trace.began_s)
    yield "kafka.local_time_ms", _ms(trace.began_s, trace.called_s)
    yield "kafka.remote_time_ms", _ms(trace.called_s, trace.replied_s)
    yield "kafka.response_time_ms", _ms(trace.replied_s, trace.ended_s)


def _ms(start_s: float, end_s: float) -> float:
    return round(max(end_s - start_s, 0.0) * 1000, 3)
