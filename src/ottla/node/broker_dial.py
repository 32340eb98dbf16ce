"""The way from this broker to another: by its registration, on the inter-broker listener."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla.client.connection import Connection
from ottla.metadata.image import Image
from ottla.runtime.ports import Address

if TYPE_CHECKING:
    from ottla.node.build import Ground


def broker_dial(
    ground: "Ground", image: Callable[[], Image], client_id: str
) -> Callable[[int], Awaitable[Connection]]:
    """Return what opens a connection to a broker of the image at hand.

    It raises ConnectionRefusedError for a broker that is not registered on that listener.
    """
    listener = ground.loaded.listeners.inter_broker

    async def dial(broker_id: int) -> Connection:
        broker = image().cluster.brokers.get(broker_id)
        endpoint = None if broker is None or listener is None else broker.listeners.get(listener)
        if endpoint is None:
            raise ConnectionRefusedError(f"broker {broker_id} has no listener {listener}")
        address = Address(endpoint.host, endpoint.port)
        return await Connection.open(ground.ports.network, address, client_id=client_id)

    return dial
