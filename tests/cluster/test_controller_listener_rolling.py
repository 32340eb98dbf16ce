"""The controller listener goes from PLAINTEXT to SASL_SSL while the quorum works.

Every node is restarted three times, one after the other: first it gets a second controller
listener, then it uses that one to reach the quorum, then the PLAINTEXT listener goes. After each
restart a topic is created, which needs a controller, and clients produce and consume all the time.
"""

from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import AdminClient, NewTopic
from test_security_rolling import PARTITIONS, SECONDS_MAX, TOPIC, Load, in_sync, wait_for
from tests.free_ports import free_ports

from ottla.testing import Cluster, run_cluster
from ottla.testing.layout import CLIENTS, CONTROLLERS

SECURE = "SECURE_CONTROLLER"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class RolledControllers:
    """The cluster and the settings of its controllers."""

    def __init__(self, cluster: Cluster, root: Path) -> None:
        self.cluster = cluster
        self.ports = dict(zip(cluster.node_ids, free_ports(len(cluster.node_ids)), strict=True))
        self._first = {node_id: self._file(node_id).read_text() for node_id in cluster.node_ids}
        self._trust, self._store = root / "ca.pem", root / "node.pem"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self._trust))
        leaf = authority.issue_cert("127.0.0.1", "localhost")
        leaf.private_key_and_cert_chain_pem.write_to_path(str(self._store))
        self.clients = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}

    def _file(self, node_id: int) -> Path:
        return self.cluster.data(node_id).parent / "server.properties"

    def roll(self, *names: str, listens: tuple[str, ...]) -> None:
        """Restart every node in turn; ``names`` are its controller listeners, the first is used."""
        for node_id in self.cluster.node_ids:
            self._file(node_id).write_text(self._settings(node_id, names, listens))
            self.cluster.restart(node_id)
            wait_for(lambda: in_sync(self.clients), f"in sync after node {node_id} of {names}")
            topic = f"after-{node_id}-{'-'.join(names)}"
            admin = AdminClient(self.clients)
            admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(SECONDS_MAX)

    def _settings(self, node_id: int, names: tuple[str, ...], listens: tuple[str, ...]) -> str:
        first = self._first[node_id]
        line = next(each for each in first.splitlines() if each.startswith("listeners="))
        bound = dict(part.split("://") for part in line.partition("=")[2].split(","))
        bound[SECURE] = f"127.0.0.1:{self.ports[node_id]}"
        listeners = ",".join(f"{name}://{bound[name]}" for name in (CLIENTS, *listens))
        extra = ""
        if names[0] == SECURE:
            servers = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
            extra = f"controller.quorum.bootstrap.servers={servers}\n"
        return f"""{first}
listeners={listeners}
controller.listener.names={",".join(names)}
listener.security.protocol.map={CLIENTS}:PLAINTEXT,{CONTROLLERS}:PLAINTEXT,{SECURE}:SASL_SSL
{extra}ssl.keystore.type=PEM
ssl.keystore.location={self._store}
ssl.truststore.type=PEM
ssl.truststore.location={self._trust}
sasl.mechanism.controller.protocol=PLAIN
listener.name.{SECURE.lower()}.sasl.enabled.mechanisms=PLAIN
listener.name.{SECURE.lower()}.plain.sasl.jaas.config={PLAIN_MODULE} username="node" \
password="node-secret" user_node="node-secret";
"""


@pytest.mark.nightly
def test_controller_listener_becomes_secure_without_an_interruption(tmp_path: Path) -> None:
    with run_cluster(3, processes=True) as cluster:
        rolled = RolledControllers(cluster, tmp_path)
        admin = AdminClient(rolled.clients)
        new = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([new])[TOPIC].result(SECONDS_MAX)
        wait_for(lambda: in_sync(rolled.clients), "in sync at the start")
        load = Load("steady", rolled.clients)
        rolled.roll(CONTROLLERS, SECURE, listens=(CONTROLLERS, SECURE))
        rolled.roll(SECURE, CONTROLLERS, listens=(CONTROLLERS, SECURE))
        rolled.roll(SECURE, listens=(SECURE,))
        load.stop()
