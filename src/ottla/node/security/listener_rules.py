"""Which listeners and super users a node refuses, and which listeners it warns about.

A client that reaches a controller listener without authentication can change the metadata of the
cluster. On a loopback address that is warned about; on any other the node does not start, unless
``ottla.allow.insecure.controller.listener`` allows it. A client listener without authentication on
an address that other machines reach is warned about in one line.

A super user without a type (``super.users=admin``) would match nobody: the node does not start, as
Kafka does not.
"""

import ipaddress
from collections.abc import Iterator, Mapping

from ottla.config.addresses import SecurityProtocol
from ottla.config.generated import BrokerConfig
from ottla.config.listeners import Listener, Listeners, registry_listener
from ottla.config.loading import Loaded, for_listener
from ottla.config.problems import ConfigError, Problem
from ottla.config.unenforced import SUPER_USERS, unenforced_problems

ALLOW_KEY = "ottla.allow.insecure.controller.listener"
REQUIRED = "required"


def check_listeners(loaded: Loaded) -> list[str]:
    """Return warnings for the operator.

    Raises:
        ConfigError: a listener may not be opened so, or a security setting cannot be enforced.
    """
    problems = [
        *unenforced_problems(loaded.static),
        *_super_user_problems(loaded.static),
        *(
            problem
            for listener in loaded.listeners.all
            if (problem := _problem(listener, for_listener(loaded, listener.name))) is not None
        ),
    ]
    if problems:
        raise ConfigError(problems)
    return list(_warnings(loaded))


def listener_security_problems(listeners: Listeners, config: BrokerConfig) -> list[Problem]:
    """Return which listeners may not be opened, and why; ``config`` is the node's."""
    found = (_problem(listener, config) for listener in listeners.all)
    return [problem for problem in found if problem is not None]


def _problem(listener: Listener, config: BrokerConfig) -> Problem | None:
    if not listener.is_controller or is_loopback(listener) or authenticates(listener, config):
        return None
    if config.ottla_allow_insecure_controller_listener:
        return None
    rule = (
        f"is a {listener.protocol.name} controller listener without authentication that other "
        "machines can reach; use SASL or ssl.client.auth=required, bind it to a loopback address, "
        f"or set {ALLOW_KEY}=true"
    )
    return Problem("listeners", f"{listener.name}://{listener.bind}", rule)


def super_users_of(settings: Mapping[str, str]) -> list[str]:
    """Return the principals of ``super.users``, which are separated by semicolons."""
    users = (user.strip() for user in settings.get(SUPER_USERS, "").split(";"))
    return [user for user in users if user]


def _super_user_problems(settings: Mapping[str, str]) -> Iterator[Problem]:
    for user in super_users_of(settings):
        if ":" not in user:
            yield Problem(SUPER_USERS, user, "must be a principal such as User:admin")


def authenticates(listener: Listener, config: BrokerConfig) -> bool:
    """Say whether a listener knows its clients; ``config`` is as the listener sees it."""
    if listener.protocol.uses_sasl:
        return True
    return listener.protocol.uses_tls and config.ssl_client_auth == REQUIRED


def _warnings(loaded: Loaded) -> Iterator[str]:
    registry = registry_listener(loaded.broker)
    for listener in (*loaded.listeners.all, *(() if registry is None else (registry,))):
        if authenticates(listener, for_listener(loaded, listener.name)):
            if listener.protocol is SecurityProtocol.SASL_PLAINTEXT and not is_loopback(listener):
                yield (
                    f"listener {listener.name} at {listener.bind} is SASL_PLAINTEXT: PASSWORDS AND "
                    "RECORDS CROSS THE NETWORK UNENCRYPTED"
                )
        elif listener.is_controller:
            yield (
                f"controller listener {listener.name} at {listener.bind} is "
                f"{listener.protocol.name}: ANYBODY WHO REACHES IT CAN CHANGE THE CLUSTER'S "
                "METADATA"
            )
        elif not is_loopback(listener):
            yield (
                f"listener {listener.name} at {listener.bind} is {listener.protocol.name} without "
                "authentication: ANYBODY WHO REACHES IT CAN READ, WRITE AND DELETE EVERYTHING"
            )


def is_loopback(listener: Listener) -> bool:
    """Say whether only this machine can reach a listener."""
    host = listener.bind.host
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
