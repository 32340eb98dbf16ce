"""From configuration to the limits of a node's servers, at start and while it runs.

Kafka's keys, and whether each can be set per listener (``listener.name.{name}.{key}``) or changed
while the node runs:

    max.connections                   listener, dynamic
    max.connections.per.ip, .overrides          dynamic
    max.connection.creation.rate      listener, dynamic
    socket.request.max.bytes, queued.max.request.bytes, connections.max.idle.ms     fixed
    quota connection_creation_rate of an address (KIP-612)                          the image

`ConnectionLimits` follows the image and keeps `Admission.limits` current. The limits for all
listeners together do not apply to the listeners between nodes.
"""

import logging
from typing import Final

import msgspec

from ottla.config.addresses import BadAddress, parse_host_counts
from ottla.config.dynamic import listeners_of
from ottla.config.key_definition import Scope
from ottla.config.key_table import KEYS, LISTENER_PREFIX
from ottla.config.layers import Layers, effective_broker_value, parse_checked
from ottla.config.listeners import Listeners
from ottla.config.loading import Loaded
from ottla.config.problems import ConfigError, Problem
from ottla.config.values import BadValue
from ottla.controller.config_rules import own_layers
from ottla.metadata.delta import Delta
from ottla.metadata.image import EMPTY, Image
from ottla.runtime.network import TcpSettings
from ottla.server.admission import Admission, AdmissionLimits, plain_ip
from ottla.server.deadlines import Deadlines
from ottla.server.held_replies import HeldReplies
from ottla.server.listener import ServerSettings
from ottla.server.listener_context import ConnectionLimits as PerConnection
from ottla.server.request_memory import RequestMemory

log = logging.getLogger(__name__)

NO_BOUND: Final = 2**31 - 1
"""Kafka's default where there is no limit."""

ANONYMOUS_MEMORY_DIVISOR: Final = 4
"""The part of the machine's memory that large requests of clients without a login may hold."""

HELD_DIVISOR: Final = 8
"""The part of the machine's memory that requests in flight and unsent replies of all connections
may hold before every connection is served one request at a time."""

CONNECTIONS: Final = "max.connections"
RATE: Final = "max.connection.creation.rate"
IP_RATE: Final = "connection_creation_rate"


def server_settings(loaded: Loaded) -> ServerSettings:
    """Return the limits that are fixed while a node runs."""
    config = loaded.broker
    return ServerSettings(
        connection=PerConnection(frame_bytes_max=config.socket_request_max_bytes),
        deadlines=Deadlines(
            idle_ms=config.connections_max_idle_ms,
            frame_ms=config.ottla_request_receive_timeout_ms,
            frame_bytes_per_second=config.ottla_request_receive_min_bytes_per_second,
            login_ms=config.ottla_login_timeout_ms,
        ),
    )


def tcp_settings(loaded: Loaded) -> TcpSettings:
    """Return the settings of sockets. Buffer sizes are left to the kernel unless configured."""
    config = loaded.broker

    def buffer(key: str, size: int) -> int | None:
        return size if key in loaded.static and size > 0 else None

    return TcpSettings(
        backlog=config.socket_listen_backlog_size,
        send_buffer=buffer("socket.send.buffer.bytes", config.socket_send_buffer_bytes),
        receive_buffer=buffer("socket.receive.buffer.bytes", config.socket_receive_buffer_bytes),
    )


def request_memory_max(loaded: Loaded) -> int | None:
    """Return ``queued.max.request.bytes``; None where there is no limit."""
    bytes_max = loaded.broker.queued_max_request_bytes
    return bytes_max if bytes_max > 0 else None


def anonymous_memory(memory: RequestMemory, machine_bytes: int | None) -> RequestMemory:
    """Return the limit on large requests of clients that do not log in.

    It is ``queued.max.request.bytes`` where that is set, else a quarter of the machine's memory:
    without a login anybody can send the first megabytes of a frame on any number of connections.
    """
    if memory.bytes_max is not None or machine_bytes is None:
        return memory
    return RequestMemory(machine_bytes // ANONYMOUS_MEMORY_DIVISOR)


def held_replies(machine_bytes: int | None) -> HeldReplies:
    """Return the limit on requests in flight and unsent replies of all connections."""
    return HeldReplies() if machine_bytes is None else HeldReplies(machine_bytes // HELD_DIVISOR)


def limits_of(loaded: Loaded, image: Image = EMPTY) -> AdmissionLimits:
    """Return the limits on connections, as configured and as changed in the image.

    Raises:
        BadValue: a value that the controller should not have accepted.
    """
    layers = own_layers(image, loaded.broker.node_id, loaded.static)
    listeners = _listeners(loaded, layers)
    names = [listener.name for listener in listeners.all]
    rates = {name: _of_listener(layers, name, RATE) for name in names}
    counts = {name: _of_listener(layers, name, CONNECTIONS) for name in names}
    overrides = str(effective_broker_value(layers, "max.connections.per.ip.overrides") or "")
    ip_rates = _ip_rates(image)
    default = ip_rates.get(None)

    def rate_of_ip(ip: str) -> int | None:
        return ip_rates.get(ip, default)

    return AdmissionLimits(
        connections_max=_bound(effective_broker_value(layers, CONNECTIONS)),
        per_ip_max=_bound(effective_broker_value(layers, "max.connections.per.ip")),
        per_ip_overrides=ip_overrides(overrides),
        per_listener_max={name: most for name, most in counts.items() if most is not None},
        rate_of_ip=rate_of_ip,
        rate_of_listener=rates.get,
        rate_max=_bound(effective_broker_value(layers, RATE)),
        protected=_protected(listeners),
    )


def _ip_rates(image: Image) -> dict[str | None, int]:
    """Return the quotas of addresses in the form that `plain_ip` returns; None is the default."""
    found: dict[str | None, int] = {}
    for entity, limits in image.client_quotas.by_entity.items():
        if IP_RATE in limits and len(entity) == 1 and entity[0][0] == "ip":
            address = entity[0][1]
            key = None if address is None else plain_ip(address)
            rate = int(limits[IP_RATE])
            found[key] = min(rate, found.get(key, rate))  # two spellings of one address
    return found


def check_limits(loaded: Loaded) -> None:
    """Validate the limits in the configuration file.

    Raises:
        ConfigError: limits of single addresses that are not ``host:count``.
    """
    text = loaded.broker.max_connections_per_ip_overrides
    try:
        ip_overrides(text)
    except BadValue as error:
        problem = Problem("max.connections.per.ip.overrides", text, str(error))
        raise ConfigError([problem]) from None


def ip_overrides(text: str) -> dict[str, int]:
    """Parse ``host:count,...``; a host is an IP address, and an IPv6 address may be in brackets.

    Raises:
        BadValue: it is not of this form.
    """
    try:
        return {plain_ip(host): count for host, count in parse_host_counts(text)}
    except BadAddress as error:
        raise BadValue(str(error)) from None


def _listeners(loaded: Loaded, layers: Layers) -> Listeners:
    """Return the listeners as altered at run time; those of the file where these are invalid."""
    try:
        return listeners_of(layers)
    except ConfigError:
        return loaded.listeners


def _protected(listeners: Listeners) -> frozenset[str]:
    """Return the names of the listeners between nodes: those of controllers, and the inter-broker
    listener if there are others.
    """
    names = {each.name for each in listeners.all if each.is_controller}
    clients = [each.name for each in listeners.all if not each.is_controller]
    if listeners.inter_broker is not None and len(clients) > 1:
        names.add(listeners.inter_broker)
    return frozenset(names)


def _of_listener(layers: Layers, listener: str, name: str) -> int | None:
    """Return the limit of one listener; the limit for all of them is another one."""
    found = layers.find([f"{LISTENER_PREFIX}{listener.lower()}.{name}"])
    if found is None:
        return None
    return _bound(parse_checked(KEYS[Scope.BROKER][name], found[1]))


def _bound(value: object) -> int | None:
    return value if isinstance(value, int) and value < NO_BOUND else None


class ConnectionLimits(msgspec.Struct):
    """Publisher: keeps the limits of the node's servers as the cluster configures them."""

    loaded: Loaded
    admission: Admission
    name: str = "connection-limits"

    def on_image(self, delta: Delta, image: Image) -> None:
        """Apply changed limits; if one cannot be parsed, the old ones stay in force."""
        old = delta.old
        if old.configs is image.configs and old.client_quotas is image.client_quotas:
            return
        try:
            self.admission.limits = limits_of(self.loaded, image)
        except BadValue as error:
            log.warning("connection limits not changed reason=%s", error)
