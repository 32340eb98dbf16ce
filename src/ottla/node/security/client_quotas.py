"""Client quotas of a node: from the image to what its servers enforce, and their metrics."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ottla.config.generated import BrokerConfig
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.node.ports import NodePorts
from ottla.observability.exposition import Family, Kind, Sample
from ottla.protocol.types import Millis
from ottla.quotas.client_quotas import ClientQuotas, QuotaKind
from ottla.quotas.usage_metrics import Window
from ottla.server.throttling import Throttling


def build_throttling(config: BrokerConfig, ports: NodePorts) -> Throttling:
    """Return the throttling of a node, without quotas until an image has some."""
    window = Window(config.quota_window_size_seconds * 1000, config.quota_window_num)
    return Throttling(ClientQuotas(window), ports.clock.monotonic, ports.stopwatch)


CLIENTS_MAX: Final = 200
"""How many users and client ids each metric has: those that sent requests last."""
# kind -> Kafka's name of it, the name of its rate, and what the rate counts.
_METRICS: Final = {
    QuotaKind.PRODUCE: ("produce", "byte_rate", "Bytes produced per second."),
    QuotaKind.FETCH: ("fetch", "byte_rate", "Bytes fetched per second."),
    QuotaKind.REQUEST: ("request", "request_time", "Percent of the event loop's time."),
}


def quota_families(quotas: ClientQuotas, now: Callable[[], Millis]) -> Iterable[Family]:
    """Yield what clients with a quota use, and for how long they are throttled."""
    for kind, (name, rate, help_text) in _METRICS.items():
        used = quotas.usage(kind, now(), CLIENTS_MAX)
        labels = [(("client_id", each.client_id), ("user", each.user)) for each in used]
        rates = (each.rate / kind.per_second for each in used)
        times = (each.throttle_ms for each in used)
        samples = tuple(map(Sample, labels, rates))
        yield Family(f"kafka_server_{name}_{rate}", Kind.GAUGE, help_text, samples)
        samples = tuple(map(Sample, labels, times))
        help_text = "Average throttle time of replies that have one, in ms."
        yield Family(f"kafka_server_{name}_throttle_time", Kind.GAUGE, help_text, samples)


class QuotaPublisher(msgspec.Struct, frozen=True):
    """Publisher: keeps the quotas of the node as the cluster configures them."""

    quotas: ClientQuotas
    name: str = "client-quotas"

    def on_image(self, delta: Delta, image: Image) -> None:
        """Apply changed quotas; what clients have used so far stays charged."""
        if delta.old.client_quotas is not image.client_quotas:
            self.quotas.update(image.client_quotas.by_entity)
