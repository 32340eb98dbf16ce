"""A TLS listener for a broker of a benchmark, and the settings of its clients."""

from dataclasses import dataclass

import trustme
from cryptography.hazmat.primitives import serialization
from tests.free_ports import free_ports

from benchmarks.broker.brokers import Broker


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where the TLS listener is, and the certificate that clients trust."""

    bootstrap: str
    trusted: str


def add_tls(broker: Broker) -> Credentials:
    """Add a listener to the settings of a broker that is not formatted yet."""
    authority = trustme.CA()
    trusted, store = broker.root / "ca.pem", broker.root / "node.pem"
    trusted.write_bytes(authority.cert_pem.bytes())
    leaf = authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA)
    # Kafka reads only PKCS#8.
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    store.write_bytes(key + b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    (port,) = free_ports(1)
    settings = broker.root / "server.properties"
    lines = [
        line + f",TLS://127.0.0.1:{port}" if line.startswith("listeners=") else line
        for line in settings.read_text().splitlines()
    ]
    lines += [
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL",
        "inter.broker.listener.name=PLAINTEXT",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={store}",
    ]
    settings.write_text("\n".join(lines) + "\n")
    return Credentials(f"127.0.0.1:{port}", str(trusted))
