"""Client quotas of a node: from the image to what its servers and handlers enforce."""

import msgspec

from ottla.config.generated import BrokerConfig
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.node.ports import NodePorts
from ottla.quotas.client_quotas import ClientQuotas
from ottla.server.throttling import Throttling


def build_throttling(config: BrokerConfig, ports: NodePorts) -> Throttling:
    """Return the throttling of a node, without quotas until an image has some."""
    quotas = ClientQuotas(saved_s_max=float(config.quota_window_size_seconds))
    return Throttling(quotas, ports.clock.monotonic, ports.stopwatch)


class QuotaPublisher(msgspec.Struct, frozen=True):
    """Publisher: keeps the quotas of the node as the cluster configures them."""

    quotas: ClientQuotas
    name: str = "client-quotas"

    def on_image(self, delta: Delta, image: Image) -> None:
        """Apply changed quotas; what clients have used so far stays charged."""
        if delta.old.client_quotas is not image.client_quotas:
            self.quotas.update(image.client_quotas.by_entity)
