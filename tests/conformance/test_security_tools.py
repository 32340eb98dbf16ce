"""Apache Kafka's own security tools, unchanged, over SASL_SSL against a node with an authorizer."""

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from secure_node import SecureNode

from conftest import Kafka

pytestmark = pytest.mark.jvm

TOPICS = "org.apache.kafka.tools.TopicCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Tools:
    """Runs tools as a user; `admin` has the arguments that every tool takes."""

    def __init__(self, kafka: Kafka, secure: SecureNode) -> None:
        self._kafka = kafka
        self._secure = secure

    def run(
        self, tool: str, *arguments: str, user: str = "node", token: tuple[str, str] | None = None
    ) -> str:
        name, password = token or (user, f"{user}-secret")
        file = self._secure.root / f"{user}.properties"
        file.write_text(
            "security.protocol=SASL_SSL\n"
            "sasl.mechanism=SCRAM-SHA-512\n"
            f'sasl.jaas.config={SCRAM} username="{name}" password="{password}" '
            f'tokenauth="{str(token is not None).lower()}";\n'
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self._secure.ca_file}\n"
        )
        bootstrap = ("--bootstrap-server", self._secure.bootstrap("SECURE"))
        return self._kafka.run(tool, *bootstrap, "--command-config", str(file), *arguments)

    def client(
        self, user: str, password: str | None = None, mechanism: str = "SCRAM-SHA-512"
    ) -> AdminClient:
        return AdminClient(
            {
                "bootstrap.servers": self._secure.bootstrap("SECURE"),
                "security.protocol": "sasl_ssl",
                "ssl.ca.location": str(self._secure.ca_file),
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password": password or f"{user}-secret",
                "log_level": 0,
            }
        )


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    extra = (
        f"authorizer.class.name={AUTHORIZER}",
        "super.users=User:node",
        "delegation.token.secret.key=a-secret-of-this-test",
    )
    found = SecureNode(tmp_path_factory.mktemp("tools"), extra)
    running = found.start()
    try:
        yield found
    finally:
        running.stop()


@pytest.fixture
def tools(kafka: Kafka, secure: SecureNode) -> Tools:
    return Tools(kafka, secure)


def test_kafka_acls_adds_lists_and_removes_entries(tools: Tools) -> None:
    entry = ("--allow-principal", "User:alice", "--allow-host", "10.0.0.1", "--operation", "Read")
    deny = ("--deny-principal", "User:alice", "--operation", "Write", "--topic", "acl-literal")
    output = tools.run(ACLS, "--add", *entry, "--topic", "acl-literal")
    assert (
        "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=acl-literal" in output
    )
    tools.run(ACLS, "--add", *deny)
    listed = tools.run(ACLS, "--list", "--topic", "acl-literal")
    assert "(principal=User:alice, host=10.0.0.1, operation=READ, permissionType=ALLOW)" in listed
    assert "(principal=User:alice, host=*, operation=WRITE, permissionType=DENY)" in listed
    tools.run(ACLS, "--remove", "--force", *deny)
    listed = tools.run(ACLS, "--list", "--topic", "acl-literal")
    assert "permissionType=ALLOW" in listed and "DENY" not in listed
    tools.run(ACLS, "--remove", "--force", "--topic", "acl-literal")
    assert "User:alice" not in tools.run(ACLS, "--list", "--topic", "acl-literal")


def test_kafka_acls_convenience_options_let_a_client_work(tools: Tools) -> None:
    """--producer and --consumer, prefixed; before them the client may do nothing."""
    alice, topic = tools.client("alice"), NewTopic("orders-1", 1)
    with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
        alice.create_topics([topic])["orders-1"].result(30)
    prefixed = ("--resource-pattern-type", "prefixed")
    tools.run(
        *(ACLS, "--add", "--allow-principal", "User:alice", "--producer", "--consumer"),
        *("--topic", "orders-", "--group", "orders-", *prefixed),
    )
    alice.create_topics([topic])["orders-1"].result(30)
    listed = tools.run(ACLS, "--list", "--topic", "orders-9", "--resource-pattern-type", "match")
    found = re.findall(
        r"principal=User:alice, host=\*, operation=(\w+), permissionType=ALLOW", listed
    )
    assert sorted(found) == ["CREATE", "DESCRIBE", "READ", "WRITE"]
    assert "patternType=PREFIXED" in listed
    everything = tools.run(ACLS, "--list", "--principal", "User:alice")
    assert "resourceType=GROUP, name=orders-, patternType=PREFIXED" in everything
    idempotent = ("--producer", "--idempotent", "--transactional-id", "orders")
    tools.run(ACLS, "--add", "--allow-principal", "User:bob", "--topic", "*", *idempotent)
    listed = tools.run(ACLS, "--list", "--principal", "User:bob")
    assert "resourceType=TRANSACTIONAL_ID, name=orders, patternType=LITERAL" in listed
    assert "operation=IDEMPOTENT_WRITE" in listed


def test_kafka_acls_of_a_user_without_rights_fails(tools: Tools) -> None:
    with pytest.raises(AssertionError, match="ClusterAuthorizationException"):
        tools.run(ACLS, "--list", user="alice")


@pytest.mark.parametrize(
    ("entity", "config", "shown"),
    [
        (("users", "alice"), "producer_byte_rate=1024", "user-principal 'alice'"),
        (("users", None), "consumer_byte_rate=2048", "the default user-principal"),
        (("clients", "loader"), "request_percentage=75", "client-id 'loader'"),
        (("clients", None), "controller_mutation_rate=5", "the default client-id"),
        (("ips", "127.9.9.9"), "connection_creation_rate=7", "IP '127.9.9.9'"),
        (("ips", None), "connection_creation_rate=700", "the default IP"),
    ],
)
def test_kafka_configs_alters_quotas(
    tools: Tools, entity: tuple[str, str | None], config: str, shown: str
) -> None:
    kind, name = entity
    named = ("--entity-default",) if name is None else ("--entity-name", name)
    where = ("--entity-type", kind, *named)
    output = tools.run(CONFIGS, "--alter", *where, "--add-config", config)
    assert output.startswith("Completed updating ")
    output = tools.run(CONFIGS, "--describe", *where)
    key, value = config.split("=")
    assert f"{key}={value}.0" in output and shown.lower() in output.lower()
    tools.run(CONFIGS, "--alter", *where, "--delete-config", key)
    assert key not in tools.run(CONFIGS, "--describe", *where)


def test_kafka_configs_alters_quotas_of_user_and_client_together(tools: Tools) -> None:
    where = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients")
    config = "producer_byte_rate=4096,consumer_byte_rate=8192"
    tools.run(CONFIGS, "--alter", *where, "--entity-default", "--add-config", config)
    output = tools.run(CONFIGS, "--describe", "--entity-type", "users", "--entity-type", "clients")
    assert "user-principal 'alice', the default client-id" in output
    assert "producer_byte_rate=4096.0" in output and "consumer_byte_rate=8192.0" in output


def test_kafka_configs_sets_and_deletes_scram_credentials(tools: Tools) -> None:
    where = ("--entity-type", "users", "--entity-name", "dora")
    for mechanism, iterations in (("SCRAM-SHA-256", 8192), ("SCRAM-SHA-512", 4096)):
        config = f"{mechanism}=[iterations={iterations},password=dora-secret]"
        tools.run(CONFIGS, "--alter", *where, "--add-config", config)
        assert tools.client("dora", mechanism=mechanism).list_topics(timeout=30) is not None
    output = tools.run(CONFIGS, "--describe", *where)
    assert "SCRAM-SHA-256=iterations=8192" in output and "SCRAM-SHA-512=iterations=4096" in output
    tools.run(CONFIGS, "--alter", *where, "--delete-config", "SCRAM-SHA-512")
    assert "SCRAM-SHA-512" not in tools.run(CONFIGS, "--describe", *where)
    with pytest.raises(KafkaException):
        tools.client("dora").list_topics(timeout=2)
    bad = "SCRAM-SHA-256=[iterations=100,password=x]"
    with pytest.raises(AssertionError, match="iterations"):
        tools.run(CONFIGS, "--alter", *where, "--add-config", bad)


def test_kafka_delegation_tokens_creates_describes_renews_and_expires(tools: Tools) -> None:
    output = tools.run(
        TOKENS,
        "--create",
        "--max-life-time-period",
        "-1",
        "--renewer-principal",
        "User:node",
        user="alice",
    )
    found = re.search(r"^(\S{20,})\s+(\S{20,})\s+User:alice", output, re.MULTILINE)
    assert found, output
    token_id, hmac = found[1], found[2]
    described = tools.run(TOKENS, "--describe", "--owner-principal", "User:alice", user="alice")
    assert token_id in described and "User:node" in described
    tools.run(ACLS, "--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    tools.run(TOPICS, "--create", "--topic", "orders")
    assert "orders" in tools.run(TOPICS, "--list", token=(token_id, hmac), user="alice")
    with pytest.raises(AssertionError, match="Delegation Token requests are not allowed"):
        tools.run(
            TOKENS, "--create", "--max-life-time-period", "-1", user="alice", token=(token_id, hmac)
        )
    assert token_id not in tools.run(TOKENS, "--describe", "--owner-principal", "User:bob")
    renewed = tools.run(TOKENS, "--renew", "--renew-time-period", "3600000", "--hmac", hmac)
    assert "Completed renew operation" in renewed
    with pytest.raises(AssertionError, match="DelegationTokenNotFound"):
        tools.run(TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", "A" * 86 + "==")
    expired = tools.run(TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation" in expired
    assert token_id not in tools.run(TOKENS, "--describe", user="alice")
