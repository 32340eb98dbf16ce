"""Opens connections from this node to brokers, on their inter-broker listeners."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from ottla.client.connection import Connection
from ottla.metadata.image import Image
from ottla.node.context import NodeContext
from ottla.protocol.api_keys import ApiKey
from ottla.runtime.ports import Address


def listener_name(context: NodeContext) -> str:
    """Return the name of the inter-broker listener, from the settings if this is no broker."""
    config, own = context.loaded.broker, context.loaded.listeners.inter_broker
    return own or (config.inter_broker_listener_name or config.security_inter_broker_protocol)


def broker_address(context: NodeContext) -> Callable[[Image, int], Address | None]:
    """Return a function that finds the inter-broker listener of a broker; None if it has none.

    A node that is no broker has no such listener itself: if the broker has none of the name in its
    settings, it uses the broker's first listener by name.
    """
    own, name = context.loaded.listeners.inter_broker, listener_name(context).upper()

    def address(image: Image, broker_id: int) -> Address | None:
        broker = image.cluster.brokers.get(broker_id)
        endpoints = {} if broker is None else broker.listeners
        endpoint = endpoints.get(name)
        if endpoint is None and own is None:
            endpoint = endpoints[min(endpoints)] if endpoints else None
        return None if endpoint is None else Address(endpoint.host, endpoint.port)

    return address


def broker_dial(
    context: NodeContext, image: Callable[[], Image], client_id: str
) -> Callable[[int], Awaitable[Connection]]:
    """Return a function that opens a connection to a broker of the newest image.

    It raises ConnectionRefusedError for a broker that is not registered on that listener. A
    connection uses no version of Fetch and ListOffsets that the finalized metadata.version does not
    allow yet.
    """
    listener, address_of = listener_name(context), broker_address(context)
    options = replace(
        context.security.peer_options(listener), version_max=lambda key: version_max(image(), key)
    )

    async def dial(broker_id: int) -> Connection:
        address = address_of(image(), broker_id)
        if address is None:
            raise ConnectionRefusedError(f"broker {broker_id} has no listener {listener}")
        return await Connection.open(
            context.ports.network, address, client_id=client_id, options=options
        )

    return dial


def version_max(image: Image, key: ApiKey) -> int | None:
    """Return the newest version of an API between brokers; None if the level sets no limit."""
    level = image.features.metadata_version()
    if level is None:
        return None
    if key is ApiKey.FETCH:
        return level.fetch_request_version()
    return level.list_offsets_request_version() if key is ApiKey.LIST_OFFSETS else None
