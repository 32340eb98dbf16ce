"""`ottla acl check` says what a node decides."""

import asyncio
import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from authorized_session import authorized_node, logged_in
from secure_node import SecureNode
from typer.testing import CliRunner, Result

from ottla.cli.app import app
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.types import ZERO_UUID
from ottla.security.acl import AclOperation

TOPIC_OPERATIONS = [
    *("read", "write", "create", "delete", "alter", "describe"),
    *("describe_configs", "alter_configs"),
]
CLUSTER_OPERATIONS = [
    *("create", "alter", "describe", "cluster_action"),
    *("describe_configs", "alter_configs", "idempotent_write"),
]


@pytest.fixture(scope="module", params=[False, True], ids=["deny", "allow-everyone"])
def secure(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureNode]:
    node = authorized_node(tmp_path_factory.mktemp("check"))
    if request.param:
        node.extra += ("allow.everyone.if.no.acl.found=true",)
    running = node.start()
    try:
        assert invoke(node, "node", "topic create orders -p 1").exit_code == 0
        yield node
    finally:
        running.stop()


def invoke(secure: SecureNode, user: str, command: str) -> Result:
    own = (
        f" -b {secure.bootstrap('LOGIN')} -X security.protocol=SASL_PLAINTEXT"
        f" -X sasl.mechanism=SCRAM-SHA-256"
        f" -X sasl.username={user} -X sasl.password={user}-secret"
    )
    return CliRunner().invoke(app, shlex.split(command + own))


async def decisions(secure: SecureNode, user: str) -> tuple[int, int]:
    """Return what a node allows a user on the topic and the cluster; 0: not even DESCRIBE."""
    async with logged_in(secure, user) as connection:
        request = MetadataRequest([MetadataRequestTopic(ZERO_UUID, "orders")])
        request.include_topic_authorized_operations = True
        reply: Any = await connection.send(request)
        cluster: Any = await connection.send(
            DescribeClusterRequest(include_cluster_authorized_operations=True)
        )
    (topic,) = reply.topics
    on_topic = 0 if topic.error_code else topic.topic_authorized_operations
    return on_topic, cluster.cluster_authorized_operations


def check(secure: SecureNode, principal: str, operation: str, resource: str) -> dict[str, Any]:
    words = f"acl check -o json --principal {principal} --operation {operation} {resource}"
    done = invoke(secure, "node", words)
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (0 if found["allowed"] else 1)
    return found


def assert_same(explained: dict[str, Any], is_allowed: bool) -> None:
    """Compare an answer with the decision of a node."""
    assert explained["allowed"] is is_allowed, explained


@pytest.mark.parametrize(
    "entries",
    [
        [],
        ["--allow-principal User:alice --operation write --topic orders"],
        ["--allow-principal User:* --operation all --topic ord --prefixed"],
        [
            "--allow-principal User:alice --operation all --topic *",
            "--deny-principal User:alice --operation write --topic orders",
        ],
        [
            "--allow-principal User:alice --operation all --topic orders",
            "--deny-principal User:* --deny-host 10.1.1.1 --operation read --topic orders",
        ],
        [
            "--allow-principal User:alice --operation alter_configs --cluster",
            "--allow-principal User:alice --operation describe --cluster",
        ],
        ["--allow-principal User:carol --operation all --cluster --topic orders"],
    ],
    ids=["none", "write", "prefix", "deny", "deny-host", "cluster", "other"],
)
def test_answers_are_the_decisions_of_the_node(secure: SecureNode, entries: list[str]) -> None:
    assert invoke(secure, "node", "acl remove --force").exit_code == 0
    for entry in entries:
        assert invoke(secure, "node", f"acl add {entry}").exit_code == 0
    on_topic, on_cluster = asyncio.run(decisions(secure, "alice"))
    for name in CLUSTER_OPERATIONS if on_cluster else ["describe"]:
        is_allowed = bool(on_cluster & 1 << AclOperation[name.upper()])
        assert_same(check(secure, "User:alice", name, "--cluster"), is_allowed)
    for name in TOPIC_OPERATIONS if on_topic else ["describe"]:
        is_allowed = bool(on_topic & 1 << AclOperation[name.upper()])
        assert_same(check(secure, "User:alice", name, "--topic orders"), is_allowed)


def test_super_user_is_allowed_whatever_the_entries_say(secure: SecureNode) -> None:
    assert invoke(secure, "node", "acl remove --force").exit_code == 0
    deny = "acl add --deny-principal User:node --operation write --topic orders"
    assert invoke(secure, "node", deny).exit_code == 0
    found = check(secure, "User:node", "write", "--topic orders")
    assert found["allowed"] and "is in super.users" in found["reason"]


@pytest.mark.parametrize("command", ["migrate status", "migrate check", "migrate plan"])
def test_migrate_names_the_right_that_is_missing(secure: SecureNode, command: str) -> None:
    assert invoke(secure, "node", "acl remove --force").exit_code == 0
    deny = "acl add --deny-principal User:alice --operation all --cluster"
    assert invoke(secure, "node", deny).exit_code == 0
    done = invoke(secure, "alice", command)
    assert done.exit_code == 1
    text = " ".join(done.output.split())
    assert "User:alice lacks the right DESCRIBE on the cluster" in text
    assert "ottla acl add --allow-principal User:alice --operation describe --cluster" in text


def test_migrate_names_the_right_to_know_the_software_of_nodes(secure: SecureNode) -> None:
    assert invoke(secure, "node", "acl remove --force").exit_code == 0
    for entry in (
        "--allow-principal User:alice --operation describe --cluster",
        "--deny-principal User:alice --operation describe_configs --cluster",
    ):
        assert invoke(secure, "node", f"acl add {entry}").exit_code == 0
    text = " ".join(invoke(secure, "alice", "migrate status -o json").output.split())
    assert "--operation describe_configs --cluster" in text


def test_right_to_read_the_settings_is_named(secure: SecureNode) -> None:
    assert invoke(secure, "node", "acl remove --force").exit_code == 0
    describe = "acl add --allow-principal User:alice --operation describe --cluster"
    assert invoke(secure, "node", describe).exit_code == 0
    words = "acl check --principal User:bob --operation write --topic orders"
    done = invoke(secure, "alice", words)
    assert done.exit_code == 1
    text = " ".join(done.stdout.split())
    assert "--operation describe_configs --cluster" in text
