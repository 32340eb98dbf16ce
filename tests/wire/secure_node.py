"""A node with a listener of every protocol, SASL_SSL between nodes, and credentials for it."""

import base64
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import trustme
from joserfc import jwt
from joserfc.jwk import RSAKey
from one_node import CLUSTER, OneNode
from tests.free_ports import free_ports

from ottla.config.loading import Loaded, load
from ottla.node.directories.format_plan import FormatOptions, Quorum, plan_format
from ottla.node.directories.formatting import format_node
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.randomness import SystemRandom

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# Listener names by what they ask of a client.
LISTENERS = ("OPEN", "TLS", "MUTUAL", "LOGIN", "SECURE")


@dataclass
class SecureNode:
    """Certificates, users and settings below ``root``; `start` runs the node."""

    root: Path
    extra: tuple[str, ...] = ()
    ca: trustme.CA = field(default_factory=trustme.CA)
    key: RSAKey = field(
        default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}, auto_kid=False)
    )
    release_version: str | None = None
    """The release whose level the node is formatted at; None for the default."""

    def __post_init__(self) -> None:
        self.ports = dict(zip((*LISTENERS, "CONTROLLER"), free_ports(6), strict=True))
        self.ca_file = self._write("ca.pem", self.ca.cert_pem.bytes())
        self.store = self.root / "node.pem"
        self.renew(self.ca)
        client = self.ca.issue_cert("client", common_name="carol")
        self.client_cert = self._write("carol.crt", *(b.bytes() for b in client.cert_chain_pems))
        self.client_key = self._write("carol.key", client.private_key_pem.bytes())
        keys = {"keys": [self.key.as_dict(private=False)]}
        self.jwks = self._write("jwks.json", json.dumps(keys).encode())

    def renew(self, ca: trustme.CA) -> None:
        """Give the node a new certificate of an authority."""
        leaf = ca.issue_cert("localhost", "127.0.0.1", common_name="node")
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        self._write("new.pem", leaf.private_key_pem.bytes(), chain).replace(self.store)

    def _write(self, name: str, *parts: bytes) -> Path:
        path = self.root / name
        path.write_bytes(b"".join(parts))
        return path

    def loaded(self) -> Loaded:
        return load(self.settings())

    def write_settings(self) -> Path:
        """Write the settings file of a node in its own process."""
        return self._write("server.properties", self.settings().encode())

    def settings(self) -> str:
        """Return the settings of the node, as a properties file."""
        listeners = ",".join(f"{name}://localhost:{port}" for name, port in self.ports.items())
        return f"""
process.roles=broker,controller
node.id=1
listeners={listeners}
controller.quorum.bootstrap.servers=localhost:{self.ports["CONTROLLER"]}
controller.listener.names=CONTROLLER
inter.broker.listener.name=SECURE
listener.security.protocol.map=OPEN:PLAINTEXT,TLS:SSL,MUTUAL:SSL,LOGIN:SASL_PLAINTEXT,\
SECURE:SASL_SSL,CONTROLLER:SASL_SSL
log.dirs={self.root / "data"}
broker.heartbeat.interval.ms=200
ssl.keystore.type=PEM
ssl.keystore.location={self.store}
ssl.truststore.type=PEM
ssl.truststore.location={self.ca_file}
ottla.tls.reload.interval.ms=100
listener.name.mutual.ssl.client.auth=required
listener.name.mutual.ssl.principal.mapping.rules=RULE:^CN=([^,]*).*$/$1/,DEFAULT
sasl.enabled.mechanisms={",".join(MECHANISMS)}
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
sasl.mechanism.controller.protocol=PLAIN
listener.name.controller.sasl.enabled.mechanisms=PLAIN
listener.name.controller.plain.sasl.jaas.config={PLAIN_MODULE} username="node" \
password="node-secret" user_node="node-secret";
listener.name.secure.scram-sha-512.sasl.jaas.config={SCRAM_MODULE} username="node" \
password="node-secret";
listener.name.secure.scram-sha-256.sasl.jaas.config={SCRAM_MODULE};
listener.name.secure.oauthbearer.sasl.jaas.config={OAUTH_MODULE};
listener.name.secure.plain.sasl.jaas.config={PLAIN_MODULE} user_alice="alice-secret";
listener.name.login.plain.sasl.jaas.config={PLAIN_MODULE} user_alice="alice-secret";
listener.name.login.scram-sha-256.sasl.jaas.config={SCRAM_MODULE};
listener.name.login.scram-sha-512.sasl.jaas.config={SCRAM_MODULE};
listener.name.login.oauthbearer.sasl.jaas.config={OAUTH_MODULE};
sasl.oauthbearer.jwks.endpoint.url={self.jwks.as_uri()}
sasl.oauthbearer.expected.audience=kafka
connection.failed.authentication.delay.ms=50
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
group.initial.rebalance.delay.ms=0
""" + "\n".join(self.extra)

    def start(self) -> OneNode:
        self.format()
        return OneNode(self.loaded())

    def format(self) -> None:
        """Format the data directory, with the users ``alice`` and ``node``, if it is new."""
        if (self.root / "data").exists():
            return
        users = [
            f"{mechanism}=[name={user},password={user}-secret]"
            for user in ("alice", "node")
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        ]
        options = FormatOptions(
            cluster_id=CLUSTER,
            quorum=Quorum(is_standalone=True),
            scram=tuple(users),
            release_version=self.release_version,
        )
        random = SystemRandom()
        plan = plan_format(self.loaded(), options, random)
        format_node(RealDisk(), random, SystemClock().now(), plan)

    def token(self, subject: str = "alice", *, seconds: int = 300, audience: str = "kafka") -> str:
        claims = {"sub": subject, "aud": audience, "exp": int(time.time()) + seconds}
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.key)

    def bootstrap(self, listener: str) -> str:
        return f"localhost:{self.ports[listener]}"


def unsigned(subject: str) -> str:
    """A token that anybody could have made."""
    parts = ({"alg": "none"}, {"sub": subject, "aud": "kafka", "exp": int(time.time()) + 300})
    texts = [base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts]
    return ".".join(texts) + "."
