"""Exports the metrics and traces of a node, and what its clients push, to an OTLP collector.

Metrics are collected, like a scrape of /metrics, and encoded in slices of `SLICE_S` with other work
of the node in between. Requests are sent on a worker thread (`Outbox`). If the
metrics of the last round still wait, a round is skipped and counted as dropped.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from ottla.observability.exposition import Family, Kind, Registry, Sample, gauge
from ottla.observability.otlp_encoding import (
    Attributes,
    MetricTimes,
    metric_pieces,
    request_of,
    scope_of,
    span_piece,
    with_attributes,
)
from ottla.observability.otlp_outbox import Export, Outbox
from ottla.observability.request_traces import RequestTracer, spans_of
from ottla.protocol.types import Buffer, Millis
from ottla.runtime.ports import Random

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
"""About the size of one request; collectors refuse more than some megabytes."""
SLICE_S: Final = 0.004
TRACES_S: Final = 1.0
FLUSH_S: Final = 3.0
"""How long a node that stops waits for its last exports."""
TRACES_PER_ROUND: Final = 512
METRICS, CLIENT_METRICS, TRACES = "metrics", "client_metrics", "traces"
_NANOS: Final = 1_000_000


class ExportTiming(msgspec.Struct, frozen=True):
    """When metrics are exported, in seconds; ``start_ms`` is when this node began to count."""

    interval_s: float
    start_ms: Millis
    now: Callable[[], Millis]


class OtlpExporter:
    """`Service` that exports, and `Source` of its own counters.

    ``metrics`` and ``traces`` are the outboxes by signal; None for a signal that is not exported.
    """

    name = "otlp-exporter"

    def __init__(
        self,
        resource: Attributes,
        version: str,
        timing: ExportTiming,
        random: Random,
        *,
        metrics: Outbox | None,
        traces: Outbox | None,
        tracer: RequestTracer | None,
    ) -> None:
        self._resource = resource
        self._scope = scope_of("ottla", version)
        self._timing = timing
        self._random = random
        self._metrics = metrics
        self._traces = traces
        self._tracer = tracer
        self._registry: Registry | None = None
        self._left_out: tuple[str, ...] = ()

    def export_registry(self, registry: Registry, left_out: tuple[str, ...] = ()) -> None:
        """Export these metrics, but none that begin with ``left_out``. Call it before `run`."""
        self._registry = registry
        self._left_out = left_out

    async def run(self, ready: Callable[[], None]) -> None:
        """Export until cancelled, and then the last values and traces within `FLUSH_S`."""
        ready()
        try:
            async with asyncio.TaskGroup() as tasks:
                for outbox in (self._metrics, self._traces):
                    if outbox is not None:
                        tasks.create_task(outbox.run())
                if self._metrics is not None and self._registry is not None:
                    tasks.create_task(self._export_metrics(self._metrics, self._registry))
                if self._traces is not None and self._tracer is not None:
                    tasks.create_task(self._export_traces(self._traces, self._tracer))
        except asyncio.CancelledError:
            await self._flush()
            raise

    async def _flush(self) -> None:
        """Export what has happened since the last round: the collector would never see it."""
        try:
            async with asyncio.timeout(FLUSH_S), asyncio.TaskGroup() as tasks:
                if self._metrics is not None and self._registry is not None:
                    await self._export_values(self._metrics, self._registry)
                if self._traces is not None and self._tracer is not None:
                    await self._export_taken(self._traces, self._tracer)
                for outbox in (self._metrics, self._traces):
                    if outbox is not None:
                        tasks.create_task(outbox.flush())
        except TimeoutError:
            log.warning("otlp export lost at stop: not sent within %.0f s", FLUSH_S)

    def prepare(self, data: Buffer, labels: Mapping[str, str]) -> Callable[[], None]:
        """Return what forwards metrics of a client, on the event loop. Runs on any thread.

        Raises:
            BadMetrics: the bytes are not OTLP metrics.
        """
        outbox = self._metrics
        assert outbox is not None, "clients push only what is forwarded"
        body = with_attributes(data, [*labels.items(), *self._resource])
        return lambda: outbox.offer(Export(CLIENT_METRICS, body))

    async def _export_metrics(self, outbox: Outbox, registry: Registry) -> None:
        timing = self._timing
        # Nodes that start together do not export together.
        await asyncio.sleep(timing.interval_s * self._random.fraction())
        while True:
            if outbox.has_queued(METRICS):
                outbox.of(METRICS).dropped += 1
            else:
                await self._export_values(outbox, registry)
            await asyncio.sleep(timing.interval_s)

    async def _export_values(self, outbox: Outbox, registry: Registry) -> None:
        timing = self._timing
        times = MetricTimes(timing.start_ms * _NANOS, timing.now() * _NANOS)
        families = await self._collect(registry)
        await self._pack(outbox, METRICS, metric_pieces(families, times))

    async def _collect(self, registry: Registry) -> list[Family]:
        """Return all families; pause after every slice."""
        loop = asyncio.get_running_loop()
        until, steps = loop.time() + SLICE_S, registry.collect()
        try:
            while True:
                next(steps)
                if loop.time() >= until:
                    await asyncio.sleep(0)
                    until = loop.time() + SLICE_S
        except StopIteration as end:
            return [each for each in end.value if not each.name.startswith(self._left_out)]

    async def _export_traces(self, outbox: Outbox, tracer: RequestTracer) -> None:
        while True:
            await asyncio.sleep(TRACES_S)
            await self._export_taken(outbox, tracer)

    async def _export_taken(self, outbox: Outbox, tracer: RequestTracer) -> None:
        while found := tracer.take(TRACES_PER_ROUND):
            spans = (span for each in found for span in spans_of(each, self._random))
            await self._pack(outbox, TRACES, map(span_piece, spans))

    async def _pack(self, outbox: Outbox, signal: str, pieces: Iterator[bytes]) -> None:
        """Queue requests that have all pieces; pause after every slice."""
        loop = asyncio.get_running_loop()
        until, packed, size = loop.time() + SLICE_S, list[bytes](), 0
        for piece in pieces:
            packed.append(piece)
            size += len(piece)
            if size >= REQUEST_BYTES_MAX:
                outbox.offer(Export(signal, request_of(self._resource, self._scope, packed)))
                packed, size = [], 0
            if loop.time() >= until:
                await asyncio.sleep(0)
                until = loop.time() + SLICE_S
        if packed:
            outbox.offer(Export(signal, request_of(self._resource, self._scope, packed)))

    # -- metrics ---------------------------------------------------------------

    def collect(self) -> Iterable[Family]:
        """Yield the counters of exports."""
        boxes = [box for box in (self._metrics, self._traces) if box is not None]
        counts = [(signal, each) for box in boxes for signal, each in box.counts.items()]
        for name, help_text, values in (
            ("delivered", "Exports accepted.", [(s, c.delivered) for s, c in counts]),
            ("retries", "Exports sent again.", [(s, c.retries) for s, c in counts]),
            ("dropped", "Exports given up or left out.", [(s, c.dropped) for s, c in counts]),
        ):
            samples = tuple(Sample((("signal", signal),), value) for signal, value in values)
            yield Family(f"ottla_otlp_{name}_total", Kind.COUNTER, help_text, samples)
        queued = sum(box.bytes for box in boxes)
        yield gauge("ottla_otlp_queue_bytes", "Bytes of exports that wait.", queued)
        if self._tracer is not None:
            dropped, help_text = self._tracer.dropped, "Sampled requests beyond the bound."
            sample = (Sample((), dropped),)
            yield Family("ottla_otlp_traces_dropped_total", Kind.COUNTER, help_text, sample)
