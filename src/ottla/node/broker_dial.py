"""The way from this node to a broker: by its registration, on the inter-broker listener."""

from collections.abc import Awaitable, Callable

from ottla.client.connection import Connection
from ottla.metadata.image import Image
from ottla.node.context import NodeContext
from ottla.runtime.ports import Address


def broker_dial(
    context: NodeContext, image: Callable[[], Image], client_id: str
) -> Callable[[int], Awaitable[Connection]]:
    """Return what opens a connection to a broker of the image at hand.

    It raises ConnectionRefusedError for a broker that is not registered on that listener. A node
    that is no broker has no such listener itself: it goes by what its settings call so, else to
    the broker's first by name.
    """
    config, own = context.loaded.broker, context.loaded.listeners.inter_broker
    listener = own or (config.inter_broker_listener_name or config.security_inter_broker_protocol)

    async def dial(broker_id: int) -> Connection:
        broker = image().cluster.brokers.get(broker_id)
        endpoints = {} if broker is None else broker.listeners
        endpoint = endpoints.get(listener.upper())
        if endpoint is None and own is None:
            endpoint = endpoints[min(endpoints)] if endpoints else None
        if endpoint is None:
            raise ConnectionRefusedError(f"broker {broker_id} has no listener {listener}")
        address = Address(endpoint.host, endpoint.port)
        return await Connection.open(context.ports.network, address, client_id=client_id)

    return dial
