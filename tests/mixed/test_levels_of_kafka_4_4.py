"""Features of Kafka 4.4 in a cluster with nodes of Kafka 4.3: off, with a clear message."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.cluster.test_share_cluster import Member
from tests.mixed.clients import ANSWER_S_MAX, Clients
from tests.mixed.cluster import BROKER, CONTROLLER, MixedCluster, Shape, run_mixed, wait_until
from tests.mixed.kinds import OTTLA, kafka, need
from tests.mixed.settings import ONE
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.cli.connecting.session import client_ports, parse_bootstrap
from ottla.client.cluster import Cluster as Client

pytestmark = pytest.mark.jvm

OLDER = "4.3.1"
LEVEL = "4.3-IV0"
ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def ottla(cluster: MixedCluster, *arguments: str, code: int = 0) -> str:
    environment = {"OTTLA_BOOTSTRAP": cluster.address(1)}
    done = CliRunner().invoke(app, list(arguments), env=environment)
    assert done.exit_code == code, done.output
    return done.output


def test_dead_letters_are_off_while_a_broker_of_kafka_4_3_is_there(tmp_path: Path) -> None:
    need(OLDER)
    shape = Shape(roles={2: BROKER}, config=ONE, release=LEVEL)
    with run_mixed({1: OTTLA, 2: kafka(OLDER)}, tmp_path, shape) as cluster:
        upgrade = ("cluster", "features", "upgrade", "-f", "share.version=2")
        refused = ottla(cluster, *upgrade, code=1)
        assert "INVALID_UPDATE_VERSION" in refused and "2" in refused, refused
        rows = json.loads(ottla(cluster, "cluster", "features", "describe", "-o", "json"))
        assert {row["feature"]: row["level"] for row in rows}["share.version"] == "1"

        clients = Clients(cluster)
        clients.create_at("orders", [[1]])
        clients.create_at("dlq.orders", [[1]])
        clients.write("orders", ["a", "b"])
        name = "errors.deadletterqueue.topic.name=dlq.orders"
        reset = "share.auto.offset.reset=earliest"
        ottla(cluster, "config", "set", "group", "queue", name, reset)
        asyncio.run(accept(cluster, 2))
        reason = "dead letters are off: errors.deadletterqueue.topic.name needs share.version 2"
        wait_until(lambda: reason in cluster.output(1), ANSWER_S_MAX, "the reason in the log")


async def accept(cluster: MixedCluster, count: int) -> None:
    """Read and accept so many records as a member of the share group."""
    async with await Client.open(client_ports(), parse_bootstrap(cluster.address(1))) as client:
        member = Member(client)
        await member.work(lambda: len(member.acknowledged) == count)


def test_cidr_acl_is_rejected_while_a_controller_of_kafka_4_3_is_there(tmp_path: Path) -> None:
    need(OLDER)
    shape = Shape(roles={2: CONTROLLER, 3: CONTROLLER}, config=ONE | ACLS, release=LEVEL)
    kinds = {1: OTTLA, 2: kafka(OLDER), 3: OTTLA}
    with run_mixed(kinds, tmp_path, shape) as cluster:
        if cluster.wait_leader() == 2:
            cluster.kill(2)
            cluster.wait_leader(other_than=2)
            cluster.start(2)
        upgrade = ("cluster", "features", "upgrade", "-f", "metadata.version=4.4-IV1")
        refused = ottla(cluster, *upgrade, code=1)
        assert "INVALID_UPDATE_VERSION" in refused, refused
        add = (
            "acl",
            "add",
            "--allow-principal",
            "User:alice",
            "--operation",
            "read",
            "--topic",
            "t",
        )
        refused = ottla(cluster, *add, "--allow-host", "10.0.0.0/8", code=1)
        assert "CIDR-based ACL host patterns require metadata version 4.4-IV1" in refused
        ottla(cluster, *add, "--allow-host", "10.0.0.1")
