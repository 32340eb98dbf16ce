"""Checks that a node does not open listeners that would let any client change the cluster.

A client that reaches a controller listener without encryption and authentication can change the
metadata. On a loopback address the node logs a warning; on any other address it does not start,
unless ``ottla.allow.insecure.controller.listener`` is set.

Settings for security features that this version does not have are rejected as well: TLS, SASL,
delegation tokens and an authorizer. A node that accepted them would be open to every client while
its configuration says otherwise.
"""

import ipaddress
from collections.abc import Iterator

from ottla.config.addresses import SecurityProtocol
from ottla.config.generated import BrokerConfig
from ottla.config.listeners import Listener, Listeners
from ottla.config.loading import Loaded
from ottla.config.problems import ConfigError, Problem
from ottla.config.unenforced import unenforced_problems

ALLOW_KEY = "ottla.allow.insecure.controller.listener"


def check_listeners(loaded: Loaded) -> list[str]:
    """Return warnings for the operator.

    Raises:
        ConfigError: a listener may not be opened as configured.
    """
    problems = [
        *unenforced_problems(loaded.static),
        *listener_security_problems(loaded.listeners, loaded.broker),
    ]
    if problems:
        raise ConfigError(problems)
    return [
        f"controller listener {listener.name} at {listener.bind} is {listener.protocol.name}: "
        "ANYBODY WHO REACHES IT CAN CHANGE THE CLUSTER'S METADATA"
        for listener in loaded.listeners.all
        if listener.is_controller and not listener.protocol.uses_tls
    ]


def listener_security_problems(listeners: Listeners, config: BrokerConfig) -> list[Problem]:
    """Return which listeners may not be opened, and why."""
    return list(_protocols(listeners, config))


def _protocols(listeners: Listeners, config: BrokerConfig) -> Iterator[Problem]:
    known = {listener.name for listener in listeners.all}
    for name in map(str.upper, config.controller_listener_names):
        protocol = listeners.protocols.get(name, SecurityProtocol.PLAINTEXT)
        if name not in known and protocol is not SecurityProtocol.PLAINTEXT:
            rule = f"{protocol.name} is not spoken yet; only PLAINTEXT is"
            yield Problem("controller.listener.names", name, rule)
    is_allowed = config.ottla_allow_insecure_controller_listener
    for listener in listeners.all:
        if listener.protocol is not SecurityProtocol.PLAINTEXT:
            rule = f"{listener.protocol.name} is not served yet; only PLAINTEXT is"
            yield Problem("listeners", listener.name, rule)
        elif listener.is_controller and not is_allowed and not is_loopback(listener):
            rule = (
                f"is a PLAINTEXT controller listener that other machines can reach; secure it, "
                f"bind it to a loopback address, or set {ALLOW_KEY}=true"
            )
            yield Problem("listeners", f"{listener.name}://{listener.bind}", rule)


def is_loopback(listener: Listener) -> bool:
    """Say whether only this machine can reach a listener."""
    host = listener.bind.host
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
