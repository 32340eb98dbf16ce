"""Users, ACLs, quotas, settings and tokens written by one kind and honoured by the other."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.mixed.clients import ANSWER_S_MAX, Clients
from tests.mixed.cluster import BROKER, CONTROLLER, MixedCluster, Shape, run_mixed, wait_until
from tests.mixed.hosts import ask
from tests.mixed.kinds import KAFKA, OTTLA, Kind, need
from tests.mixed.settings import TWO
from tests.nemesis.load import LOGGER

from ottla.client.connection import Options
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.runtime.randomness import SystemRandom
from ottla.security.sasl.client import password_credentials
from ottla.testing.access import ClusterAccess

pytestmark = pytest.mark.jvm

MECHANISM = "SCRAM-SHA-512"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": MECHANISM,
    "sasl.mechanism.inter.broker.protocol": MECHANISM,
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": (
        f'{PLAIN} username="node" password="node-secret" user_node="node-secret";'
    ),
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": (
        f'{SCRAM} username="node" password="node-secret";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node;User:root",
    "delegation.token.secret.key": "a-secret-of-all-nodes",
}


def options_of(user: str) -> Options:
    login = password_credentials(MECHANISM, user, f"{user}-secret", SystemRandom())
    return Options(connect_timeout_ms=5000, login=login)


def settings_of(user: str, bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


@pytest.fixture(params=[KAFKA, OTTLA], ids=["kafka-controls", "ottla-controls"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MixedCluster]:
    need()
    controller: Kind = request.param
    access = ClusterAccess(
        config=SETTINGS,
        scram=tuple(f"{MECHANISM}=[name={u},password={u}-secret]" for u in ("node", "root")),
        options=options_of("root"),
    )
    roles = {1: BROKER, 2: BROKER, 3: CONTROLLER}
    shape = Shape(roles=roles, config=TWO, access=access)
    with run_mixed({1: KAFKA, 2: OTTLA, 3: controller}, tmp_path, shape) as running:
        yield running


def test_records_of_one_kind_are_honoured_by_the_other(
    cluster: MixedCluster, tmp_path: Path
) -> None:
    clients = Clients(cluster, settings_of("root", cluster.bootstrap))
    clients.create_at("open", [[1, 2], [2, 1]])
    add_alice(clients.admin)
    for node_id in (1, 2):
        wait_until(
            lambda node_id=node_id: created(cluster, node_id, f"mine-{node_id}") == ErrorCode.NONE,
            ANSWER_S_MAX,
            f"broker {node_id} forwards for alice, who may create this topic",
        )
        denied = created(cluster, node_id, f"closed-{node_id}")
        assert denied == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    check_quota(cluster)
    check_settings(cluster, clients)
    for node_id, other in ((1, 2), (2, 1)):
        check_token(cluster, node_id, other, tmp_path)


def add_alice(admin: AdminClient) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    user = UserScramCredentialUpsertion("alice", credential, b"alice-secret")
    for future in admin.alter_user_scram_credentials([user]).values():
        future.result(ANSWER_S_MAX)
    allowed = [
        ("open", ResourcePatternType.LITERAL, AclOperation.WRITE),
        ("mine-", ResourcePatternType.PREFIXED, AclOperation.CREATE),
    ]
    bindings = [
        AclBinding(
            ResourceType.TOPIC, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW
        )
        for name, pattern, operation in allowed
    ]
    for future in admin.create_acls(bindings).values():
        future.result(ANSWER_S_MAX)


def created(cluster: MixedCluster, node_id: int, topic: str) -> int | None:
    """Create a topic as alice through one broker; return the error code of the controller."""
    request = CreateTopicsRequest(
        topics=[CreatableTopic(topic, num_partitions=1, replication_factor=2)], timeout_ms=10_000
    )
    reply = ask(cluster.address(node_id), request, options_of("alice"))
    return None if reply is None else int(reply.topics[0].error_code)  # type: ignore[attr-defined]


def check_quota(cluster: MixedCluster) -> None:
    """A quota is enforced by both brokers."""
    where = ("--bootstrap-server", cluster.bootstrap, "--command-config", client_file(cluster))
    what = ("--alter", "--add-config", "producer_byte_rate=20000")
    cluster.tool(
        "kafka.admin.ConfigCommand", *where, *what, "--entity-type", "users",
        "--entity-name", "alice",
    )  # fmt: skip
    throttled: set[int] = set()
    settings = settings_of("alice", cluster.bootstrap)
    producer = Producer(
        {**settings, "throttle_cb": lambda event: throttled.add(event.broker_id)}, logger=LOGGER
    )

    def is_throttled() -> bool:
        for partition in (0, 1):
            producer.produce("open", bytes(30_000), partition=partition)
        producer.poll(0.5)
        return throttled == {1, 2}

    wait_until(is_throttled, ANSWER_S_MAX, "both brokers throttle alice")


def check_settings(cluster: MixedCluster, clients: Clients) -> None:
    """A dynamic setting of a topic and one of all brokers are shown by both brokers."""
    where = ("--bootstrap-server", cluster.bootstrap, "--command-config", client_file(cluster))
    for entity, change in (
        (("topics", "--entity-name", "open"), "retention.ms=123456"),
        (("brokers", "--entity-default"), "log.cleaner.threads=2"),
    ):
        alter = ("--alter", "--add-config", change, "--entity-type", *entity)
        cluster.tool("kafka.admin.ConfigCommand", *where, *alter)
    for node_id in (1, 2):
        settings = settings_of("root", cluster.address(node_id))
        admin = AdminClient(settings, logger=LOGGER)
        topic = ConfigResource(ResourceType.TOPIC, "open")
        broker = ConfigResource(ResourceType.BROKER, str(node_id))

        def shown(
            admin: AdminClient = admin, topic: Any = topic, broker: Any = broker
        ) -> tuple[str, str]:
            of_topic = admin.describe_configs([topic])[topic].result(ANSWER_S_MAX)
            of_broker = admin.describe_configs([broker])[broker].result(ANSWER_S_MAX)
            return of_topic["retention.ms"].value, of_broker["log.cleaner.threads"].value

        wait_until(
            lambda shown=shown: shown() == ("123456", "2"), ANSWER_S_MAX, f"settings at {node_id}"
        )


def check_token(cluster: MixedCluster, issuer: int, other: int, directory: Path) -> None:
    """A delegation token of one broker is a login at the other."""
    made = cluster.tool(
        "org.apache.kafka.tools.DelegationTokenCommand",
        *("--bootstrap-server", cluster.address(issuer), "--command-config", client_file(cluster)),
        *("--create", "--max-life-time-period", "-1"),
    )
    row = re.search(r"^(\S{22})\s+(\S+)\s+User:root", made, re.M)
    assert row is not None, made
    token = directory / f"token-{issuer}.properties"
    token.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config="
        f'{SCRAM} username="{row[1]}" password="{row[2]}" tokenauth="true";\n'
    )
    where = ("--bootstrap-server", cluster.address(other), "--command-config", str(token))
    assert "open" in cluster.tool("org.apache.kafka.tools.TopicCommand", *where, "--list").split()


def client_file(cluster: MixedCluster) -> str:
    """Return a file with the settings of root for Kafka's tools."""
    path = cluster.settings(1).with_name("root.properties")
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config="
        f'{SCRAM} username="root" password="root-secret";\n'
    )
    return str(path)
