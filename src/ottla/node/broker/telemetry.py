"""Client telemetry of a broker: subscriptions from the image, a receiver, eviction (KIP-714).

Its code is loaded with the first telemetry request; until then nothing is evicted or shown.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec
from immutables import Map

from ottla.config.layers import client_metrics_config
from ottla.metadata.configs import ConfigResourceType
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.node.context import NodeContext
from ottla.node.metrics.otlp_endpoints import forwards_client_metrics
from ottla.observability.exposition import Family
from ottla.protocol.api_keys import ApiKey
from ottla.runtime.lazy import Lazy
from ottla.runtime.worker import ThreadWorker

if TYPE_CHECKING:
    from ottla.api.cluster.telemetry import ClientInfo, TelemetryHandlers
    from ottla.observability.client_metrics import ClientMetrics
    from ottla.observability.client_telemetry import ClientTelemetry
    from ottla.observability.otlp_exporter import OtlpExporter
    from ottla.observability.telemetry_subscriptions import SubscriptionTable

EVICT_S: Final = 60.0
POINTS_MAX: Final = 4_000
"""The points of one push that are read; a client has a few hundred, and 2,000 series are kept."""


TELEMETRY_APIS: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""Advertised by a broker that has a receiver."""


class TelemetryParts(msgspec.Struct, frozen=True):
    """What serves telemetry once a client has asked for it."""

    telemetry: "ClientTelemetry"
    metrics: "ClientMetrics"
    handlers: "TelemetryHandlers"


class Telemetry:
    """`Service` that evicts silent clients, `Publisher` of subscriptions, `Source` of metrics."""

    name = "client-telemetry"

    def __init__(
        self,
        context: NodeContext,
        image: Callable[[], Image],
        otlp: "OtlpExporter | None" = None,
    ) -> None:
        self._context = context
        self._image = image
        self._forward = otlp if forwards_client_metrics(context.loaded.broker) else None
        self._parts = Lazy(self._build)

    @property
    def has_receiver(self) -> bool:
        """Whether pushed metrics go anywhere, so that clients should push them."""
        is_shown = self._context.loaded.broker.ottla_metrics_listener is not None
        return is_shown or self._forward is not None

    @property
    def handlers(self) -> "TelemetryHandlers":
        """The handlers of both APIs."""
        return self._parts.get().handlers

    def _build(self) -> TelemetryParts:
        from ottla.api.cluster.telemetry import TelemetryHandlers
        from ottla.observability.client_metrics import ClientMetrics
        from ottla.observability.client_telemetry import ClientTelemetry, Connection

        context = self._context
        bytes_max = context.loaded.broker.telemetry_max_bytes
        telemetry = ClientTelemetry(bytes_max, context.ports.random.uuid)
        telemetry.subscribe(subscriptions_of(self._image()))
        metrics = ClientMetrics()
        context.close_hooks.add(
            lambda listener, peer: telemetry.connection_closed(Connection(listener, peer))
        )
        receiver = MetricsReceiver(metrics, context.ports.clock.monotonic, self._forward)
        handlers = TelemetryHandlers(
            telemetry,
            receiver if self.has_receiver else None,
            context.ports.clock,
            ThreadWorker("telemetry"),
            bytes_max,
        )
        return TelemetryParts(telemetry, metrics, handlers)

    def on_image(self, delta: Delta, image: Image) -> None:
        """Apply changed subscriptions."""
        if not self._parts.is_made or delta.old.configs is image.configs:
            return
        if _rows(delta.old) != _rows(image):
            self._parts.get().telemetry.subscribe(subscriptions_of(image))

    async def run(self, ready: Callable[[], None]) -> None:
        """Evict silent clients every minute."""
        ready()
        while True:
            await asyncio.sleep(EVICT_S)
            if self._parts.is_made:
                now = self._context.ports.clock.monotonic()
                parts = self._parts.get()
                parts.telemetry.evict(now)
                parts.metrics.evict(now)

    def collect(self) -> Iterable[Family | None]:
        """Yield the metrics of clients."""
        return self._parts.get().metrics.collect() if self._parts.is_made else ()


class MetricsReceiver(msgspec.Struct, frozen=True):
    """Parses pushed metrics, shows them in /metrics and forwards them, if they are exported."""

    metrics: "ClientMetrics"
    now: Callable[[], int]
    exporter: "OtlpExporter | None" = None

    def read(self, client: "ClientInfo", data: bytes) -> Callable[[], None]:
        """Parse metrics; return what stores them. Raises `BadMetrics`."""
        from ottla.observability.otlp_points import parse_points

        points = parse_points(data, POINTS_MAX)
        forward = None if self.exporter is None else self.exporter.prepare(data, client.labels)

        def store() -> None:
            now, silent = self.now(), client.silent_ms_max
            self.metrics.record(client.instance, client.labels, points, now, silent)
            if forward is not None:
                forward()

        return store

    def failed(self) -> None:
        """Count a push that could not be read."""
        self.metrics.failures += 1


def _rows(image: Image) -> dict[str, Map[str, str]]:
    kind = ConfigResourceType.CLIENT_METRICS
    by_resource = image.configs.by_resource
    return {each.name: by_resource[each] for each in by_resource if each.type == kind}


def subscriptions_of(image: Image) -> "SubscriptionTable":
    """Return the subscriptions that the image configures, by name."""
    from ottla.observability.telemetry_subscriptions import Subscription, SubscriptionTable

    found = []
    for name, overrides in sorted(_rows(image).items()):
        config = client_metrics_config(overrides)
        found.append(Subscription(name, config.metrics, config.interval_ms, config.match))
    return SubscriptionTable(found)
