"""What the parts of a node need to know about security, and a node without any.

`ottla.node.security.node_security` is the other implementation, loaded only where a listener uses
TLS or SASL: its libraries would double the time to start.
"""

import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.client.connection import Options
from ottla.config.addresses import SecurityProtocol
from ottla.config.generated import BrokerConfig
from ottla.config.key_table import LISTENER_PREFIX
from ottla.config.layers import Layers
from ottla.config.listeners import Listener, registry_listener
from ottla.config.loading import Loaded
from ottla.config.problems import ConfigError, Problem
from ottla.metadata.image import Image
from ottla.runtime.ports import Clock, Random
from ottla.runtime.supervisor import Service
from ottla.server.authenticator import Authenticator
from ottla.server.events import ServerEvents

if TYPE_CHECKING:
    from ottla.security.certificate_login import LoginByCertificate
    from ottla.security.sasl.exchange import Mechanisms


class ListenerSecurity(Protocol):
    """How one listener encrypts, and how it identifies its clients."""

    @property
    def tls(self) -> Callable[[], ssl.SSLContext] | None:
        """Returns the context of a handshake that begins now; None without TLS."""
        ...

    @property
    def certificate_login(self) -> "LoginByCertificate | None":
        """Returns the login of a certificate; None where certificates have no say in it."""
        ...

    def authenticator(
        self, image: Callable[[], Image], events: ServerEvents
    ) -> Callable[[], Authenticator] | None:
        """Return what makes the authenticator of a connection; None without SASL."""
        ...

    def mechanisms(self, image: Callable[[], Image]) -> "Mechanisms | None":
        """Return the SASL mechanisms, for logins over another protocol; None without SASL."""
        ...

    @property
    def client_tls(self) -> Callable[[], ssl.SSLContext] | None:
        """Returns the context for connections to the same listener of other nodes."""
        ...


class Security(Protocol):
    """The security of a node's listeners, and of its connections to other nodes."""

    @property
    def services(self) -> Sequence[Service]:
        """What runs as long as the node does, such as the refresh of keys."""
        ...

    @property
    def metrics_tls(self) -> Callable[[], ssl.SSLContext] | None:
        """As `ListenerSecurity.tls`, for ``ottla.metrics.listener``."""
        ...

    def of_listener(self, listener: Listener, layers: Layers | None = None) -> ListenerSecurity:
        """Return the security of a listener, by the settings in ``layers``. Raises ConfigError."""
        ...

    def peer_options(self, listener: str) -> Options:
        """Return how to connect to the listener of this name on another node."""
        ...

    def apply(self, config: BrokerConfig, layers: Layers) -> None:
        """Use TLS stores and logins of listeners as altered; follows `DynamicConfig`."""
        ...

    def login_problems(self, listener: str, layers: Layers) -> list[Problem]:
        """Return why a listener, named in any case, cannot use the SASL settings of ``layers``."""
        ...

    def store_problems(self, listener: str, layers: Layers) -> list[Problem]:
        """Return why a listener, named in any case, cannot use the TLS stores of ``layers``."""
        ...

    def reload_tls(self) -> None:
        """Make every TLS context anew from its files.

        Raises:
            BadTls: the old contexts stay. ConfigError: no listener uses TLS.
        """
        ...


class _NoListenerSecurity:
    tls = None
    client_tls = None
    certificate_login = None

    def authenticator(
        self, image: Callable[[], Image], events: ServerEvents
    ) -> Callable[[], Authenticator] | None:
        return None

    def mechanisms(self, image: Callable[[], Image]) -> "Mechanisms | None":
        return None


class NoSecurity:
    """Every listener is PLAINTEXT and serves all clients as ``User:ANONYMOUS``."""

    services: Sequence[Service] = ()
    metrics_tls = None

    def of_listener(self, listener: Listener, layers: Layers | None = None) -> ListenerSecurity:
        """Return no security; a listener of another protocol cannot be added at run time."""
        if listener.protocol is not SecurityProtocol.PLAINTEXT:
            rule = f"{listener.protocol.name} needs a restart of a node that had PLAINTEXT only"
            raise ConfigError([Problem("listeners", listener.name, rule)])
        return _NoListenerSecurity()

    def peer_options(self, listener: str) -> Options:
        """Return plain connections."""
        return Options()

    def apply(self, config: BrokerConfig, layers: Layers) -> None:
        """Change nothing: there are no stores and no logins."""

    def login_problems(self, listener: str, layers: Layers) -> list[Problem]:
        """Refuse: no listener has SASL."""
        return [no_sasl(listener)]

    def store_problems(self, listener: str, layers: Layers) -> list[Problem]:
        """Accept: as in Kafka, stores of a listener without TLS are stored and not used."""
        return []

    def reload_tls(self) -> None:
        """Refuse: there is nothing to reload."""
        raise ConfigError([Problem("listeners", None, "no listener uses TLS")])


def no_sasl(listener: str) -> Problem:
    """Return the problem of SASL settings of a listener without SASL."""
    rule = "has no SASL; set it up in the configuration file of the node"
    return Problem(f"{LISTENER_PREFIX}{listener.lower()}.sasl.", None, rule)


def build_security(loaded: Loaded, clock: Clock, random: Random) -> Security:
    """Return the security that the settings ask for.

    Raises:
        ConfigError: settings, certificates or credentials that cannot be used.
    """
    used = {listener.protocol for listener in loaded.listeners.all}
    config = loaded.broker
    registry = registry_listener(config)
    if registry is not None:
        used.add(registry.protocol)
    names = [*config.controller_listener_names, config.inter_broker_listener_name or ""]
    used |= {
        loaded.listeners.protocols[name.upper()]
        for name in names
        if name.upper() in loaded.listeners.protocols
    }
    if used <= {SecurityProtocol.PLAINTEXT} and not config.ottla_metrics_ssl_enable:
        return NoSecurity()
    from ottla.node.security.node_security import NodeSecurity  # loads cryptography

    return NodeSecurity(loaded, clock, random)
