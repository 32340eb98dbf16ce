"""How the nodes and clients of a test cluster authenticate. The default is plaintext."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.client.connection import Options
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandom
from ottla.testing.layout import CLIENTS, CONTROLLERS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """Settings of all nodes, users, and the options of a connection to a node.

    ``scram`` are users as ``ottla format --add-scram`` takes them. ``client_config`` are the
    settings of a client besides ``bootstrap.servers``, by librdkafka's names; ``java_config`` the
    same by those of Kafka's Java clients.
    """

    config: Mapping[str, str] = field(default_factory=dict)
    scram: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)
    client_config: Mapping[str, str] = field(default_factory=dict, repr=False)
    java_config: Mapping[str, str] = field(default_factory=dict, repr=False)


PLAINTEXT = ClusterAccess()

SECURITY: Final = ("plaintext", "sasl_ssl")
"""What ``security`` of `ottla.testing.run_cluster` may be."""


def access_named(security: str, directory: Path) -> ClusterAccess:
    """Return plaintext, or SASL_SSL on every listener with certificates made in ``directory``.

    Raises:
        ValueError: the name is neither.
    """
    name = security.lower()
    if name not in SECURITY:
        raise ValueError(f"security={security!r} must be one of {', '.join(SECURITY)}")
    if name == "plaintext":
        return PLAINTEXT
    # Loaded only here: it brings the library of certificates with it.
    from ottla.client.client_security import connection_options
    from ottla.security.local_cluster import local_security

    clock, random = SystemClock(), SystemRandom()
    made = local_security(directory, clock, random)
    config, java = made.client_config(""), made.java_config("")
    del config["bootstrap.servers"], java["bootstrap.servers"]
    return ClusterAccess(
        config=made.server_settings(CLIENTS, CONTROLLERS),
        scram=made.scram,
        options=connection_options(config, random, clock),
        client_config=config,
        java_config=java,
    )
