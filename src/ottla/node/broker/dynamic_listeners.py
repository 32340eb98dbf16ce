"""Opens and closes client listeners while a broker runs, when ``listeners`` is altered.

The broker's registration stays unchanged until the next start, as in Kafka 4.2: an added listener
serves every request, but the cluster does not advertise it until it is in the broker's file.
Listeners between nodes are never changed here.
"""

import logging
from collections.abc import Iterable, Iterator

from ottla.config.dynamic import listener_problems, listeners_of
from ottla.config.generated import BrokerConfig
from ottla.config.layers import Layers
from ottla.config.listeners import Listener, Listeners
from ottla.config.loading import Loaded
from ottla.config.problems import ConfigError, Problem
from ottla.node.listeners import SpecOf
from ottla.node.ports import NodePorts
from ottla.node.security.listener_rules import listener_security_problems
from ottla.node.security.security_port import Security
from ottla.runtime.ports import Address
from ottla.server.listener import Server

log = logging.getLogger(__name__)


class OpenListeners:
    """The listeners that are open now, shared by `DynamicListeners` and `ListenerChecks`."""

    def __init__(self, listeners: Listeners) -> None:
        self.current = listeners


class DynamicListeners:
    """Opens and closes the listeners of the client server as they are configured."""

    def __init__(
        self, loaded: Loaded, open_listeners: OpenListeners, server: Server, spec_of: SpecOf
    ) -> None:
        self._loaded = loaded
        self._open = open_listeners
        self._server = server
        self._spec_of = spec_of

    def apply(self, config: BrokerConfig, layers: Layers) -> None:
        """Open and close listeners as configured; follows `DynamicConfig`.

        An invalid configuration is logged, and the listeners stay as they are.
        """
        try:
            wanted = listeners_of(layers)
        except ConfigError as error:
            log.warning("listeners not changed reason=%s", error)
            return
        problems = listener_problems(self._loaded.listeners, wanted)
        problems += listener_security_problems(wanted, config)
        if problems:
            log.warning("listeners not changed reason=%s", "; ".join(map(str, problems)))
            return
        if wanted == self._open.current:
            return
        try:
            specs = list(map(self._spec_of, _of_clients(wanted)))
        except ConfigError as error:
            log.warning("listeners not changed reason=%s", error)
            return
        self._open.current = wanted
        self._server.serve(specs)


class ListenerChecks:
    """Checks whether listeners could be opened, before a change of them is accepted."""

    def __init__(
        self, loaded: Loaded, ports: NodePorts, security: Security, open_listeners: OpenListeners
    ) -> None:
        self._loaded = loaded
        self._ports = ports
        self._security = security
        self._open = open_listeners

    async def problems(self, wanted: Listeners, layers: Layers) -> list[Problem]:
        """Return why ``wanted`` cannot be opened: missing certificates, addresses in use."""
        found = listener_security_problems(wanted, self._loaded.broker)
        found += self._security_problems(wanted, layers)
        if found or self._ports.bind is None:
            return found
        names = {each.name for each in _of_clients(self._open.current)}
        for listener in _of_clients(wanted):
            if listener.name in names:
                continue
            try:
                sock = await self._ports.bind(Address(listener.bind.host, listener.bind.port))
            except OSError as error:
                rule = f"cannot be opened: {error}"
                found.append(Problem("listeners", f"{listener.name}://{listener.bind}", rule))
            else:
                sock.close()
        return found

    def store_problems(self, names: Iterable[str], layers: Layers) -> list[Problem]:
        """Return why listeners, named in lower case, cannot use the TLS stores of ``layers``."""
        return [
            problem for name in names for problem in self._security.store_problems(name, layers)
        ]

    def login_problems(self, names: Iterable[str], layers: Layers) -> list[Problem]:
        """Return why listeners, named in lower case, cannot use the SASL settings of ``layers``."""
        return [
            problem for name in names for problem in self._security.login_problems(name, layers)
        ]

    def _security_problems(self, wanted: Listeners, layers: Layers) -> Iterator[Problem]:
        for listener in _of_clients(wanted):
            try:
                self._security.of_listener(listener, layers)
            except ConfigError as error:
                yield from error.problems


def _of_clients(listeners: Listeners) -> list[Listener]:
    return [each for each in listeners.all if not each.is_controller]
