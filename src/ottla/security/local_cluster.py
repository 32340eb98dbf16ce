"""Security of a cluster on one machine: SASL_SSL on every listener, with what it generates.

    DIRECTORY/ca.pem, ca.key          a development authority
    DIRECTORY/node.pem                the key store that all nodes share
    DIRECTORY/credentials.json        passwords of the user and the nodes, the key of tokens

The user may do everything; other users only what ACLs allow.
Clients log in by SCRAM or PLAIN, brokers to each other by SCRAM-SHA-512, and to controllers by
PLAIN: SCRAM users are known to a controller only once it has read the metadata log. Files are made
at the first start and kept; all but the certificates have mode 0600.
"""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from ottla.runtime.ports import Clock, Random
from ottla.security.certificate_files import create_certificate
from ottla.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from ottla.security.private_files import PRIVATE, write_file

AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
USER: Final = "admin"
NODE_USER: Final = "node"
PROTOCOL: Final = "SASL_SSL"
CLIENT_MECHANISM: Final = "SCRAM-SHA-512"
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_PASSWORD_BYTES: Final = 18


class LocalSecurity(msgspec.Struct, frozen=True):
    """Credentials and files of one cluster. Its text hides the passwords."""

    directory: str
    user: str
    password: str
    node_password: str
    token_secret: str

    def __repr__(self) -> str:
        return f"LocalSecurity({self.directory}, hidden)"

    @property
    def ca(self) -> str:
        """The authority's certificate, which clients trust."""
        return f"{self.directory}/ca.pem"

    @property
    def key_store(self) -> str:
        """The nodes' key and certificate."""
        return f"{self.directory}/node.pem"

    @property
    def scram(self) -> tuple[str, ...]:
        """The users to format the cluster with, as ``ottla format --add-scram`` takes them."""
        return tuple(
            f"{mechanism}=[name={user},password={password}]"
            for user, password in ((self.user, self.password), (NODE_USER, self.node_password))
            for mechanism in MECHANISMS
            if mechanism.startswith("SCRAM")
        )

    def server_settings(self, clients: str, controllers: str) -> dict[str, str]:
        """Return what a node's settings need; the arguments are names of listeners."""
        own = f'username="{NODE_USER}" password="{self.node_password}"'
        of_clients = f"listener.name.{clients.lower()}"
        of_controllers = f"listener.name.{controllers.lower()}"
        plain = f'{PLAIN_MODULE} required user_{self.user}="{self.password}";'
        return {
            "listener.security.protocol.map": f"{clients}:{PROTOCOL},{controllers}:{PROTOCOL}",
            "inter.broker.listener.name": clients,
            "delegation.token.secret.key": self.token_secret,
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{NODE_USER};User:{self.user}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.key_store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.mechanism.controller.protocol": "PLAIN",
            f"{of_clients}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required {own};",
            f"{of_clients}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            f"{of_clients}.plain.sasl.jaas.config": plain,
            f"{of_controllers}.sasl.enabled.mechanisms": "PLAIN",
            f"{of_controllers}.plain.sasl.jaas.config": (
                f'{PLAIN_MODULE} required {own} user_{NODE_USER}="{self.node_password}";'
            ),
        }

    def registry_settings(self) -> dict[str, str]:
        """Return what a schema registry needs so that clients log in to it as to a broker."""
        of_registry = "listener.name.schema_registry"
        return {
            "schema.registry.authentication.required": "true",
            f"{of_registry}.sasl.enabled.mechanisms": CLIENT_MECHANISM,
            f"{of_registry}.{CLIENT_MECHANISM.lower()}.sasl.jaas.config": (
                f"{SCRAM_MODULE} required;"
            ),
        }

    def client_config(self, bootstrap: str) -> dict[str, str]:
        """Return a client's settings by librdkafka's names."""
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": PROTOCOL,
            "sasl.mechanism": CLIENT_MECHANISM,
            "sasl.username": self.user,
            "sasl.password": self.password,
            "ssl.ca.location": self.ca,
        }

    def java_config(self, bootstrap: str) -> dict[str, str]:
        """Return a client's settings by the names of Kafka's Java clients."""
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": PROTOCOL,
            "sasl.mechanism": CLIENT_MECHANISM,
            "sasl.jaas.config": (
                f'{SCRAM_MODULE} required username="{self.user}" password="{self.password}";'
            ),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
        }


def local_security(
    directory: Path, clock: Clock, random: Random, hosts: Sequence[str] = HOSTS
) -> LocalSecurity:
    """Return the security kept in a directory; make it first if there is none.

    Raises:
        OSError: the directory cannot be read or written. ValueError: its files are damaged.
    """
    kept = directory / "credentials.json"
    if not kept.exists():
        create_certificate(directory, "node", hosts, clock.now())
        secrets = ("password", "node_password", "token_secret")
        made = {"user": USER, **{name: _password(random) for name in secrets}}
        write_file(kept, msgspec.json.encode(made), PRIVATE)
    try:
        found = msgspec.json.decode(kept.read_bytes(), type=dict[str, str])
        return LocalSecurity(directory=str(directory), **found)
    except (msgspec.DecodeError, TypeError) as error:
        raise ValueError(f"{kept}: is damaged; remove {directory} to make it anew") from error


def _password(random: Random) -> str:
    """Return a password of letters, digits, - and _, which needs no escaping anywhere."""
    return base64.urlsafe_b64encode(random.bytes(_PASSWORD_BYTES)).decode()
