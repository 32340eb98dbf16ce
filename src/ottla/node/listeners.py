"""The listeners of a node: bound early, so that their ports are known, and served late."""

import ipaddress
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from ottla.api.surface.routes import Routes
from ottla.config.addresses import SecurityProtocol
from ottla.config.listeners import Listener, registry_listener
from ottla.config.loading import Loaded
from ottla.metadata.features import KRAFT_VERSION, supported_features
from ottla.metadata.image import Image
from ottla.metadata.image_watch import ImageWatch
from ottla.node.ports import NodePorts
from ottla.node.security.connection_limits import server_settings
from ottla.node.security.security_port import Security
from ottla.runtime.ports import Address
from ottla.server.api_versions import Features, NodeIdentity
from ottla.server.events import ServerEvents
from ottla.server.listener import ListenerSpec, Server, SharedResources

_ANY_ADDRESS: Final = ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound


class Bound(msgspec.Struct, frozen=True):
    """The bound sockets by listener name; empty where the configured ports are the real ones."""

    sockets: Mapping[str, socket.socket] = msgspec.field(default_factory=dict)

    def port(self, listener: Listener) -> int:
        """Return the bound port."""
        sock = self.sockets.get(listener.name)
        return listener.bind.port if sock is None else int(sock.getsockname()[1])

    def address(self, listener: Listener) -> Address:
        """Return the bound address."""
        sock = self.sockets.get(listener.name)
        host = listener.bind.host if sock is None else str(sock.getsockname()[0])
        return Address(host, self.port(listener))

    def close(self) -> None:
        """Close the sockets."""
        for sock in self.sockets.values():
            sock.close()


class UnmatchedSocket(Exception):
    """No listener has the address of a socket that was passed in."""


def sockets_by_listener(
    loaded: Loaded, controller: socket.socket | None, client: socket.socket | None
) -> dict[str, socket.socket]:
    """Return the sockets by listener name: each serves the listener of its kind with its address.

    Raises:
        UnmatchedSocket: there is no such listener.
    """
    found: dict[str, socket.socket] = {}
    for sock, is_controller in ((controller, True), (client, False)):
        if sock is None:
            continue
        host, port = sock.getsockname()[:2]
        name = next(
            (
                each.name
                for each in loaded.listeners.all
                if each.is_controller is is_controller and _is_at(each, host, port)
            ),
            None,
        )
        if name is None:
            kind = "controller" if is_controller else "client"
            raise UnmatchedSocket(f"no {kind} listener is at {Address(host, port)}")
        found[name] = sock
    return found


def _is_at(listener: Listener, host: str, port: int) -> bool:
    configured = listener.bind.host or "::"
    return listener.bind.port == port and _same_host(configured, host)


def _same_host(one: str, other: str) -> bool:
    try:
        return ipaddress.ip_address(one) == ipaddress.ip_address(other)
    except ValueError:
        return one == "localhost" and ipaddress.ip_address(other).is_loopback


async def bind_listeners(loaded: Loaded, ports: NodePorts) -> Bound:
    """Bind every listener, or use the sockets that were passed in.

    Raises:
        OSError: an address cannot be bound; all sockets are closed.
    """
    sockets: dict[str, socket.socket] = {}
    if ports.bind is None:
        return Bound()
    try:
        for listener in loaded.listeners.all:
            given = ports.sockets.get(listener.name)
            where = Address(listener.bind.host, listener.bind.port)
            sockets[listener.name] = await ports.bind(where) if given is None else given
        registry = registry_listener(loaded.broker)
        if registry is not None:
            given = ports.sockets.get(registry.name)
            where = Address(registry.bind.host, registry.bind.port)
            sockets[registry.name] = await ports.bind(where) if given is None else given
    except OSError:
        Bound(sockets).close()
        raise
    return Bound(sockets)


class AdvertisedEndpoint(msgspec.Struct, frozen=True):
    """Where other nodes and clients reach a listener. ``protocol`` is Kafka's number."""

    name: str
    host: str
    port: int
    protocol: int


def advertised_endpoints(
    loaded: Loaded, bound: Bound, *, is_controller: bool
) -> Iterator[AdvertisedEndpoint]:
    """Yield the advertised endpoints of one kind of listener, with the bound ports."""
    for listener in loaded.listeners.all:
        reply = listener.advertised
        if listener.is_controller is not is_controller or (reply is None and not is_controller):
            continue
        at = reply or listener.bind
        host = at.host or socket.getfqdn()
        yield AdvertisedEndpoint(
            listener.name, host, at.port or bound.port(listener), listener.protocol.value
        )
    registry = registry_listener(loaded.broker)
    if registry is not None and not is_controller and registry.name in bound.sockets:
        yield _registry_endpoint(loaded, bound, registry)


def _registry_endpoint(loaded: Loaded, bound: Bound, registry: Listener) -> AdvertisedEndpoint:
    """Return where other nodes reach the schema registry; they know http from https by it."""
    at = registry.advertised or registry.bind
    host = at.host
    if host in _ANY_ADDRESS:
        name = loaded.listeners.inter_broker
        brokers = None if name is None else loaded.listeners.named(name).advertised
        host = (None if brokers is None else brokers.host) or socket.getfqdn()
    protocol = SecurityProtocol.SSL if registry.protocol.uses_tls else SecurityProtocol.PLAINTEXT
    return AdvertisedEndpoint(registry.name, host, at.port or bound.port(registry), protocol.value)


SpecOf = Callable[[Listener], ListenerSpec]
"""Returns the specification of a listener."""


class SpecInputs(msgspec.Struct, frozen=True):
    """What the specifications of all listeners of one kind are made from."""

    bound: Bound
    routes: Routes
    features: Callable[[], Features]
    security: Security
    image: Callable[[], Image]
    events: ServerEvents
    identity: NodeIdentity

    def spec(self, listener: Listener) -> ListenerSpec:
        """Return a listener's specification; its socket is taken over where it is bound.

        Raises:
            ConfigError: the listener's security settings cannot be used.
        """
        security = self.security.of_listener(listener)
        return ListenerSpec(
            listener.name,
            Address(listener.bind.host, listener.bind.port),
            self.routes,
            tls=security.tls,
            authenticator=security.authenticator(self.image, self.events),
            certificate_login=security.certificate_login,
            features=self.features,
            identity=self.identity,
            handed_over=self.bound.sockets.get(listener.name),
        )


def listener_specs(loaded: Loaded, spec_of: SpecOf, *, is_controller: bool) -> list[ListenerSpec]:
    """Return the specifications of all listeners of one kind."""
    return [spec_of(each) for each in loaded.listeners.all if each.is_controller is is_controller]


def build_server(
    loaded: Loaded, ports: NodePorts, specs: list[ListenerSpec], shared: SharedResources
) -> Server:
    """Return the server of all listeners of one kind."""
    return Server(ports.network, ports.clock, specs, shared, server_settings(loaded))


class KRaftLevel(Protocol):
    """Returns the finalized kraft.version."""

    def kraft_version(self) -> int:
        """Return the level in force."""
        ...


def node_features(watch: ImageWatch, quorum: KRaftLevel) -> Callable[[], Features]:
    """Return the function that ApiVersions calls for the features, as of the newest image."""
    supported = tuple(
        (name, levels.min, levels.max) for name, levels in sorted(supported_features().items())
    )

    def features() -> Features:
        image = watch.image
        finalized = dict(image.features.levels)
        if (kraft := quorum.kraft_version()) > 0:
            finalized[KRAFT_VERSION] = kraft
        if image.features.metadata_version() is None:
            return Features(supported)
        return Features(supported, tuple(sorted(finalized.items())), image.provenance.offset)

    return features
