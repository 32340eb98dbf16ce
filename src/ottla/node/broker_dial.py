"""Opens connections from this node to brokers, on their inter-broker listeners."""

from collections.abc import Awaitable, Callable

from ottla.client.connection import Connection
from ottla.metadata.image import Image
from ottla.node.context import NodeContext
from ottla.runtime.ports import Address


def broker_dial(
    context: NodeContext, image: Callable[[], Image], client_id: str
) -> Callable[[int], Awaitable[Connection]]:
    """Return a function that opens a connection to a broker of the newest image.

    It raises ConnectionRefusedError for a broker that is not registered on that listener. A node
    that is no broker has no such listener itself: it uses the name from its settings, else the
    broker's first listener by name.
    """
    config, own = context.loaded.broker, context.loaded.listeners.inter_broker
    listener = own or (config.inter_broker_listener_name or config.security_inter_broker_protocol)

    options = context.security.peer_options(listener)

    async def dial(broker_id: int) -> Connection:
        broker = image().cluster.brokers.get(broker_id)
        endpoints = {} if broker is None else broker.listeners
        endpoint = endpoints.get(listener.upper())
        if endpoint is None and own is None:
            endpoint = endpoints[min(endpoints)] if endpoints else None
        if endpoint is None:
            raise ConnectionRefusedError(f"broker {broker_id} has no listener {listener}")
        address = Address(endpoint.host, endpoint.port)
        return await Connection.open(
            context.ports.network, address, client_id=client_id, options=options
        )

    return dial
