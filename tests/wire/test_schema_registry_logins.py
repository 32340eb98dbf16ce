"""HTTPS, passwords, tokens and certificates of the schema registry, with real clients."""

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from one_node import OneNode
from secure_node import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, SecureNode, unsigned
from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX
from up_process import Up

REGISTRY = "listener.name.schema_registry"
LOGINS = (
    "schema.registry.authentication.required=true",
    f"{REGISTRY}.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    f'{REGISTRY}.plain.sasl.jaas.config={PLAIN_MODULE} user_paula="paula-secret";',
    f"{REGISTRY}.scram-sha-256.sasl.jaas.config={SCRAM_MODULE};",
    f"{REGISTRY}.oauthbearer.sasl.jaas.config={OAUTH_MODULE};",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:node;User:alice;User:paula;User:ANONYMOUS",
)
CERTIFICATES = (
    f"{REGISTRY}.ssl.client.auth=required",
    f"{REGISTRY}.ssl.principal.mapping.rules=RULE:^CN=([^,]*).*$/$1/,DEFAULT",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:node;User:carol;User:ANONYMOUS",
)


class SecureRegistry:
    """A node with a schema registry by HTTPS."""

    def __init__(self, root: Path, *settings: str) -> None:
        self.port = free_ports(1)[0]
        listener = f"schema.registry.listeners=https://localhost:{self.port}"
        replicas = "schema.registry.kafkastore.topic.replication.factor=1"
        self.node = SecureNode(root, (listener, replicas, *settings))
        self.running: OneNode = self.node.start()

    def ask(self, authorization: str | None = None, *, certificate: bool = False) -> int:
        """Return the status of a request for the subjects."""
        context = ssl.create_default_context(cafile=str(self.node.ca_file))
        if certificate:
            context.load_cert_chain(self.node.client_cert, self.node.client_key)
        connection = http.client.HTTPSConnection(
            "localhost", self.port, timeout=SECONDS_MAX, context=context
        )
        try:
            headers = {} if authorization is None else {"Authorization": authorization}
            connection.request("GET", "/subjects", headers=headers)
            with connection.getresponse() as reply:
                reply.read()
                return reply.status
        finally:
            connection.close()

    def client(self, **settings: str) -> SchemaRegistryClient:
        url = {"url": f"https://localhost:{self.port}", "ssl.ca.location": str(self.node.ca_file)}
        return SchemaRegistryClient({**url, **{key.replace("_", "."): value
                                               for key, value in settings.items()}})  # fmt: skip


def basic(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


@pytest.fixture(scope="module")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureRegistry]:
    registry = SecureRegistry(tmp_path_factory.mktemp("logins"), *LOGINS)
    try:
        yield registry
    finally:
        registry.running.stop()


@pytest.mark.parametrize("user", ["alice", "paula"])
def test_password_of_scram_and_of_plain_opens_the_registry(
    logins: SecureRegistry, user: str
) -> None:
    with logins.client(basic_auth_user_info=f"{user}:{user}-secret") as client:
        schema_id = client.register_schema(f"of-{user}", Schema(f'{{"type":"enum","name":'
                                           f'"{user}","symbols":["A"]}}', "AVRO"))  # fmt: skip
        assert client.get_schema(schema_id).schema_type == "AVRO"


def test_wrong_credentials_are_refused(logins: SecureRegistry) -> None:
    assert logins.ask(basic("alice:alice-secret")) == 200
    for bad in (
        None,
        basic("alice:wrong"),
        basic("alice:paula-secret"),
        basic("nobody:alice-secret"),
        "Basic !",
        "Digest x",
        f"Bearer {unsigned('alice')}",
        f"Bearer {logins.node.token(seconds=-60)}",
        f"Bearer {logins.node.token(audience='other')}",
        "Bearer x",
        "Bearer ",
    ):
        assert logins.ask(bad) == 401


def test_token_opens_the_registry(logins: SecureRegistry) -> None:
    assert logins.ask(f"Bearer {logins.node.token()}") == 200
    settings = {
        "bearer.auth.credentials.source": "STATIC_TOKEN",
        "bearer.auth.token": logins.node.token(),
        "bearer.auth.logical.cluster": "lsrc",
        "bearer.auth.identity.pool.id": "pool",
    }
    with logins.client(**settings) as client:
        assert isinstance(client.get_subjects(), list)


def test_clear_text_does_not_reach_a_registry_with_tls(logins: SecureRegistry) -> None:
    connection = http.client.HTTPConnection("localhost", logins.port, timeout=SECONDS_MAX)
    try:
        connection.request("GET", "/subjects")
        with pytest.raises((http.client.HTTPException, OSError)):
            connection.getresponse()
    finally:
        connection.close()


def test_certificate_names_the_user(tmp_path: Path) -> None:
    registry = SecureRegistry(tmp_path, *CERTIFICATES)
    try:
        assert registry.ask(certificate=True) == 200
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            registry.ask()
        node = registry.node
        with registry.client(
            ssl_certificate_location=str(node.client_cert), ssl_key_location=str(node.client_key)
        ) as client:
            assert client.register_schema("of-carol", Schema('"int"', "AVRO")) == 1
    finally:
        registry.running.stop()


@pytest.mark.slow
def test_secure_local_cluster_has_a_registry_that_requires_a_login(tmp_path: Path) -> None:
    data = tmp_path / "data"
    up = Up(data, free_ports(4)[0], "--secure")
    try:
        up.wait_ready()
        (url,) = json.loads((data / "running.json").read_bytes())["registries"]
        assert url.startswith("https://")
        users = json.loads((data / "security/credentials.json").read_bytes())
        trusted = {"url": url, "ssl.ca.location": str(data / "security/ca.pem")}
        login = {"basic.auth.user.info": f"{users['user']}:{users['password']}"}
        with SchemaRegistryClient({**trusted, **login}) as client:
            assert client.register_schema("s", Schema('"int"', "AVRO")) == 1
        context = ssl.create_default_context(cafile=trusted["ssl.ca.location"])
        host = url.removeprefix("https://")
        connection = http.client.HTTPSConnection(host, timeout=SECONDS_MAX, context=context)
        connection.request("GET", "/subjects")
        with connection.getresponse() as reply:
            assert reply.status == 401
        connection.close()
    finally:
        code, errors = up.end()
    assert code == 0, errors
