"""The listeners of a node, their security protocols, and which one brokers use.

Brokers advertise their own listeners and never those of the controller; the host of an advertised
listener may be empty and then stands for the host name of the machine.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ottla.config.addresses import (
    BadAddress,
    HostPort,
    ListenerAddress,
    SecurityProtocol,
    parse_http_url,
    parse_listener,
    parse_protocol_map,
)
from ottla.config.generated import BrokerConfig
from ottla.config.problems import ConfigError, Problem

REGISTRY_LISTENER: Final = "SCHEMA_REGISTRY"
"""The name of the schema registry among the listeners that a broker registers."""


class Listener(msgspec.Struct, frozen=True):
    """One listener of this node."""

    name: str
    bind: HostPort
    protocol: SecurityProtocol
    advertised: HostPort | None
    """The address that clients are given; None for a listener that is not advertised."""
    is_controller: bool


class Listeners(msgspec.Struct, frozen=True):
    """All listeners of this node, in configuration order."""

    all: tuple[Listener, ...]
    inter_broker: str | None
    """The name of the listener between brokers; None on a node that is not a broker."""
    protocols: Mapping[str, SecurityProtocol]
    """The protocol of every known name, including controller listeners of other nodes."""

    def named(self, name: str) -> Listener:
        """Return the listener with this name, which must exist."""
        return next(listener for listener in self.all if listener.name == name.upper())


def registry_listener(config: BrokerConfig) -> Listener | None:
    """Return ``schema.registry.listeners`` of a broker as a listener; None if it is not set.

    It is none of `Listeners`: it speaks HTTP. Its protocol says how clients log in.
    """
    if config.schema_registry_listeners is None or "broker" not in config.process_roles:
        return None
    bind = parse_http_url(config.schema_registry_listeners)
    advertised = bind
    if config.schema_registry_advertised_listeners is not None:
        advertised = parse_http_url(config.schema_registry_advertised_listeners)
    names = {
        (False, False): SecurityProtocol.PLAINTEXT,
        (True, False): SecurityProtocol.SSL,
        (False, True): SecurityProtocol.SASL_PLAINTEXT,
        (True, True): SecurityProtocol.SASL_SSL,
    }
    protocol = names[bind.is_tls, config.schema_registry_authentication_required]
    return Listener(REGISTRY_LISTENER, bind.address, protocol, advertised.address, False)


def resolve(config: BrokerConfig, explicit: frozenset[str]) -> Listeners:
    """Combine the listener keys. ``explicit`` are the keys that were set.

    Raises `ConfigError` if an address, a name or a protocol is invalid.
    """
    problems: list[Problem] = []
    bound = _addresses("listeners", config.listeners, problems)
    advertised = _addresses("advertised.listeners", config.advertised_listeners or (), problems)
    protocols = _protocols(config, bound, explicit, problems)
    _check_bound(bound, protocols, problems)
    _check_names("advertised.listeners", advertised, problems)
    if problems:
        raise ConfigError(problems)
    controllers = {name.upper() for name in config.controller_listener_names}
    advertised_by_name = {listener.name: listener.address for listener in advertised}
    listeners = tuple(
        Listener(
            listener.name,
            listener.address,
            protocols[listener.name],
            advertised_by_name.get(
                listener.name,
                None if advertised_by_name and not is_controller else listener.address,
            ),
            is_controller,
        )
        for listener in bound
        for is_controller in (listener.name in controllers,)
    )
    _check_advertised(listeners, advertised, problems)
    inter_broker = _inter_broker(config, listeners, explicit, problems)
    if problems:
        raise ConfigError(problems)
    return Listeners(listeners, inter_broker, protocols)


def _addresses(
    key: str, texts: Iterable[str], problems: list[Problem]
) -> tuple[ListenerAddress, ...]:
    found = []
    for text in texts:
        try:
            found.append(parse_listener(text))
        except BadAddress as error:
            problems.append(Problem(key, text, str(error)))
    return tuple(found)


def _protocols(
    config: BrokerConfig,
    bound: tuple[ListenerAddress, ...],
    explicit: frozenset[str],
    problems: list[Problem],
) -> dict[str, SecurityProtocol]:
    """Parse the map; if none was given, controller listeners with any name use PLAINTEXT.

    That default does not apply if any listener is secured: a missing entry must not open an
    unencrypted listener beside it.
    """
    text = config.listener_security_protocol_map
    try:
        protocols = parse_protocol_map(text)
    except BadAddress as error:
        problems.append(Problem("listener.security.protocol.map", text, str(error)))
        return {}
    controllers = [name.upper() for name in config.controller_listener_names]
    names = [*controllers, *(listener.name for listener in bound)]
    if "listener.security.protocol.map" in explicit or any(map(_is_secured, names)):
        return protocols
    defaults = {name: SecurityProtocol.PLAINTEXT for name in controllers}
    return defaults | protocols


def _is_secured(name: str) -> bool:
    return name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


def _check_bound(
    bound: tuple[ListenerAddress, ...],
    protocols: Mapping[str, SecurityProtocol],
    problems: list[Problem],
) -> None:
    _check_names("listeners", bound, problems)
    for listener in bound:
        if listener.name not in protocols:
            rule = "must have an entry in listener.security.protocol.map"
            problems.append(Problem("listeners", listener.name, rule))
    by_port: dict[int, list[str]] = {}
    for listener in bound:
        if listener.address.port:
            by_port.setdefault(listener.address.port, []).append(listener.address.host)
    for port, hosts in by_port.items():
        # A port may be used twice if once for IPv4 and once for IPv6, as in Kafka.
        if len(hosts) > 2 or (len(hosts) == 2 and (":" in hosts[0]) == (":" in hosts[1])):
            problems.append(Problem("listeners", str(port), "must not use a port twice"))


def _check_names(key: str, found: tuple[ListenerAddress, ...], problems: list[Problem]) -> None:
    names = [listener.name for listener in found]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.append(Problem(key, name, "must not use a name twice"))


def _check_advertised(
    listeners: tuple[Listener, ...],
    advertised: tuple[ListenerAddress, ...],
    problems: list[Problem],
) -> None:
    names = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.name not in names:
            rule = "must be one of listeners"
            problems.append(Problem("advertised.listeners", listener.name, rule))
    for each in listeners:
        if each.advertised is not None and each.advertised.host == "0.0.0.0":  # noqa: S104
            rule = "must be a reachable address"
            problems.append(Problem("advertised.listeners", str(each.advertised), rule))


def _inter_broker(
    config: BrokerConfig,
    listeners: tuple[Listener, ...],
    explicit: frozenset[str],
    problems: list[Problem],
) -> str | None:
    if "broker" not in config.process_roles:
        return None
    both = {"inter.broker.listener.name", "security.inter.broker.protocol"}
    if both <= explicit:
        rule = "must not be set together with security.inter.broker.protocol"
        problems.append(Problem("inter.broker.listener.name", None, rule))
        return None
    configured = config.inter_broker_listener_name
    name = (configured or config.security_inter_broker_protocol).upper()
    usable = [item.name for item in listeners if item.advertised and not item.is_controller]
    if name not in usable:
        rule = f"must be an advertised listener of this broker: {', '.join(usable) or 'none'}"
        problems.append(Problem("inter.broker.listener.name", name, rule))
        return None
    return name
