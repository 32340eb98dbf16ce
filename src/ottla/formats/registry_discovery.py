"""Finds the schema registry of a cluster by the settings that its brokers publish.

A broker of Ottla lists ``schema.registry.listeners`` and ``schema.registry.advertised.listeners``
among its settings. `registry_url` makes an address of them, and says why if it cannot. An address
that is found so is used without credentials: they are sent only to an address that the user gives.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from ottla.client.blocking.broker_client import BrokerClient
from ottla.client.cluster import Refused
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import UnsupportedVersion
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

BROKERS_MAX: Final = 10
"""Brokers that are asked for their settings."""
URLS_MAX: Final = 3
"""Addresses that are used: one answers as good as another."""
LISTENERS: Final = "schema.registry.listeners"
ADVERTISED: Final = "schema.registry.advertised.listeners"
_BROKER: Final = 4  # the type of the resource


class RegistryNotFound(Exception):
    """The brokers do not say where a registry is; the message says why, and what to do."""


class FoundRegistry(NamedTuple):
    """A registry that brokers publish. ``is_local``: all of them are on this machine."""

    urls: tuple[str, ...]
    is_local: bool


def registry_url(settings: Mapping[str, str], host: str) -> str | None:
    """Return the address of a broker's registry; ``host`` is where clients reach the broker.

    None if it serves no registry.

    Raises:
        RegistryNotFound: it serves one at an address that cannot be used from here.
    """
    if advertised := settings.get(ADVERTISED):
        return advertised.rstrip("/")
    listener = settings.get(LISTENERS)
    if not listener:
        return None
    place = urlsplit(listener)
    bind, port = place.hostname or "", place.port
    if not port:
        raise RegistryNotFound(f"its port is not known from {LISTENERS}={listener}")
    if not bind or _address(bind, "is_unspecified"):
        shown = f"[{host}]" if ":" in host else host
        return urlunsplit((place.scheme, f"{shown}:{port}", "", "", ""))
    if is_loopback(bind) and not is_loopback(host):
        raise RegistryNotFound(
            f"it listens on {bind}, which only its own machine reaches; set {ADVERTISED} on the "
            "brokers"
        )
    return listener.rstrip("/")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine by its name or address."""
    return host.lower() == "localhost" or _address(host, "is_loopback")


def _address(host: str, test: str) -> bool:
    try:
        return bool(getattr(ipaddress.ip_address(host), test))
    except ValueError:
        return False


def find_registry(client: BrokerClient) -> FoundRegistry:
    """Ask brokers where their registries are.

    Raises:
        RegistryNotFound: none says so. NoBroker, LoginFailed: the cluster does not answer.
    """
    urls: list[str] = []
    reasons: list[str] = []
    is_local = True
    for node, host in list(client.node_hosts().items())[:BROKERS_MAX]:
        try:
            url = registry_url(_settings_of(client, node), host)
        except (RegistryNotFound, Refused, UnsupportedVersion) as error:
            reasons.append(f"broker {node}: {error}")
            continue
        if url is not None and url not in urls:
            urls.append(url)
            is_local = is_local and is_loopback(host)
        if len(urls) >= URLS_MAX:
            break
    if not urls:
        why = reasons[0] if reasons else "no broker of the cluster publishes one"
        raise RegistryNotFound(
            f"the schema registry of the cluster cannot be found: {why}; set schema.registry.url"
        )
    return FoundRegistry(tuple(urls), is_local)


def _settings_of(client: BrokerClient, node: int) -> dict[str, str]:
    """Return the two settings of a broker. Raises Refused if they may not be read."""
    resource = DescribeConfigsResource(_BROKER, str(node), [LISTENERS, ADVERTISED])
    reply = client.call(DescribeConfigsRequest([resource]), node=node)
    assert isinstance(reply, DescribeConfigsResponse)
    return dict(_entries(reply))


def _entries(reply: DescribeConfigsResponse) -> Iterator[tuple[str, str]]:
    for result in reply.results:
        if result.error_code:
            why = result.error_message or ErrorCode(result.error_code).name
            raise Refused(result.error_code, result.resource_name, f"its settings: {why}")
        for entry in result.configs:
            if entry.value:
                yield entry.name, entry.value
