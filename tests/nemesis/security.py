"""How the cluster of a run authenticates: not at all, or by SASL_SSL on every listener."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from ottla.client.connection import Options
from ottla.runtime.randomness import SystemRandom
from ottla.security.sasl.client import password_credentials
from ottla.security.tls import TlsContexts, client_context
from ottla.security.tls_settings import StoreSettings, TlsSettings
from ottla.testing.access import ClusterAccess
from ottla.testing.layout import CLIENTS, CONTROLLERS

PLAINTEXT = "plaintext"
SASL_SSL = "sasl_ssl"
MODES = (PLAINTEXT, SASL_SSL)
MECHANISM = "SCRAM-SHA-512"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@dataclass(frozen=True)
class TrialSecurity:
    """``settings`` are those of a librdkafka client."""

    access: ClusterAccess = field(default_factory=ClusterAccess)
    settings: dict[str, Any] = field(default_factory=dict)

    def client_settings(self, bootstrap: str) -> dict[str, Any]:
        return {"bootstrap.servers": bootstrap, **self.settings}


def secure(mode: str, root: Path, hosts: Sequence[str], session_ms: int = 0) -> TrialSecurity:
    """Write certificates for nodes at ``hosts`` below ``root``, and return how to use them.

    Clients and nodes have to log in again within ``session_ms``; 0: never.
    """
    if mode == PLAINTEXT:
        return TrialSecurity()
    authority = trustme.CA()
    trust, store = root / "ca.pem", root / "node.pem"
    trust.write_bytes(authority.cert_pem.bytes())
    leaf = authority.issue_cert("localhost", *hosts)
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    store.write_bytes(leaf.private_key_pem.bytes() + chain)
    contexts = TlsContexts(
        TlsSettings(trust_store=StoreSettings(type="PEM", location=str(trust))), client_context
    )
    login = password_credentials(MECHANISM, "nemesis", "nemesis-secret", SystemRandom())
    access = ClusterAccess(
        config={
            **_node_settings(store, trust),
            "connections.max.reauth.ms": str(session_ms),
        },
        scram=tuple(
            f"{MECHANISM}=[name={user},password={user}-secret]" for user in ("node", "nemesis")
        ),
        options=Options(tls=contexts.get, login=login),
    )
    return TrialSecurity(
        access,
        {
            "security.protocol": SASL_SSL,
            "ssl.ca.location": str(trust),
            "sasl.mechanism": MECHANISM,
            "sasl.username": "nemesis",
            "sasl.password": "nemesis-secret",
        },
    )


# The clients of the load have names such as p1, and librdkafka's own.
CLIENT_OF_THE_LOAD = re.compile(r"client_id='?(?:rdkafka|[a-z]+\d+')")


def sessions_that_ended(output: str) -> list[str]:
    """Return the lines of a node's log about connections of nodes whose session had ended.

    librdkafka's clients may lose a connection so, and retry; a request of a node must not be lost.
    """
    return [
        line
        for line in output.splitlines()
        if "before authentication" in line and not CLIENT_OF_THE_LOAD.search(line)
    ]


def _node_settings(store: Path, trust: Path) -> dict[str, str]:
    """Brokers log in to each other by SCRAM, controllers by PLAIN: a quorum that starts has no
    users yet.
    """
    brokers, controllers = CLIENTS.lower(), CONTROLLERS.lower()
    return {
        # The name of the listener is only a name.
        "listener.security.protocol.map": f"{CLIENTS}:SASL_SSL,{CONTROLLERS}:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"listener.name.{controllers}.sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{controllers}.plain.sasl.jaas.config": (
            f'{_PLAIN} username="node" password="node-secret" user_node="node-secret";'
        ),
        f"listener.name.{brokers}.{MECHANISM.lower()}.sasl.jaas.config": (
            f'{_SCRAM} username="node" password="node-secret";'
        ),
    }
