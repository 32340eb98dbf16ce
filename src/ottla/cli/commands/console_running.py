"""Constructs the console of a node. Loaded only where ``console.listeners`` is set."""

from typing import Final

from ottla.client.cluster import ClientOptions, ClientPorts
from ottla.client.connection import Options
from ottla.config.generated import BrokerConfig
from ottla.console.service import BadConsole, ConsoleService, ConsoleSettings, bind_console
from ottla.console.sessions import MECHANISMS, TOKEN, Upstream
from ottla.formats.registry_client import RegistrySettings
from ottla.node.handle import Node
from ottla.runtime.clock import SystemClock
from ottla.runtime.network import TcpNetwork
from ottla.runtime.randomness import SystemRandom

CLIENT_ID: Final = "ottla-console"


def console_of(node: Node, config: BrokerConfig) -> ConsoleService:
    """Return the console of a node, bound. Raises `BadConsole`, OSError."""
    assert config.console_listeners is not None
    listener = node.listener_of_users
    if listener is None:
        raise BadConsole("console.listeners: needs a listener of clients with SASL, or PLAINTEXT")
    settings = ConsoleSettings(
        config.console_listeners, config.console_advertised_listeners, config.console_read_only
    )
    bound = bind_console(settings, needs_login=listener.uses_sasl)
    registry = None
    if node.schema_registry_url is not None:
        registry = RegistrySettings(
            (node.schema_registry_url,), ca_file=config.ssl_truststore_location
        )
    options = ClientOptions(client_id=CLIENT_ID, connection=Options(tls=listener.tls))
    upstream = Upstream(
        client_ports(),
        [listener.address],
        options,
        listener.uses_sasl,
        registry,
        mechanisms_of(config.sasl_enabled_mechanisms),
    )
    return ConsoleService(bound, upstream)


def client_ports() -> ClientPorts:
    """Return the real network, clock and randomness."""
    return ClientPorts(TcpNetwork(), SystemClock(), SystemRandom())


def mechanisms_of(enabled: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ways to log in by password that brokers offer, the preferred one first. Pure."""
    offered = [each for each in MECHANISMS if each in enabled]
    if any(each.startswith("SCRAM") for each in offered):
        offered.append(TOKEN)
    return tuple(offered) or MECHANISMS
