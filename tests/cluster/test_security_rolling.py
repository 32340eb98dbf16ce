"""A cluster that becomes secure while clients run: listeners, certificates and passwords change.

Nodes are restarted one after the other, as an operator does it: first every node gets a SASL_SSL
listener, then brokers use it between each other, then the PLAINTEXT listener goes. Meanwhile
librdkafka clients produce and consume; none of them may lose a record or report a failed delivery.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX

from ottla.testing import Cluster, run_cluster
from ottla.testing.layout import CLIENTS, CONTROLLERS

TOPIC = "rolled"
PARTITIONS = 3
RATE = 50
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
MECHANISM = "SCRAM-SHA-512"


class Load:
    """A producer and a consumer that run until they are stopped, and what went wrong with them."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.name, self.problems = name, list[str]()
        self.sent, self.acknowledged, self.seen = 0, set[str](), set[str]()
        self._stopping = threading.Event()
        self._producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 5})
        self._consumer = Consumer({**settings, "group.id": name, "auto.offset.reset": "error"})
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        while not self._stopping.is_set():
            value = f"{self.name}-{self.sent}"
            self.sent += 1

            def done(error: object, message: object, value: str = value) -> None:
                if error is None:
                    self.acknowledged.add(value)
                else:
                    self.problems.append(f"{value}: {error}")

            self._producer.produce(TOPIC, value, partition=self.sent % PARTITIONS, on_delivery=done)
            self._producer.poll(1 / RATE)
        if left := self._producer.flush(SECONDS_MAX):
            self.problems.append(f"{left} records without an answer")

    def _consume(self) -> None:
        self._consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        while not (self._stopping.is_set() and self.acknowledged <= self.seen):
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                self.seen.add(message.value().decode())
            elif not message.error().retriable():
                self.problems.append(str(message.error()))
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(SECONDS_MAX)
            assert not thread.is_alive(), f"{self.name}: not all that was acknowledged is read"
        assert self.problems == []
        assert len(self.acknowledged) == self.sent > RATE


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Rolled:
    """The cluster, its certificates, and the settings of its nodes and clients."""

    def __init__(self, cluster: Cluster, root: Path) -> None:
        self.cluster, self.root = cluster, root
        self.ports = dict(zip(cluster.node_ids, free_ports(len(cluster.node_ids)), strict=True))
        self._first = {node_id: self._file(node_id).read_text() for node_id in cluster.node_ids}
        self.ca = trustme.CA()
        self.trust, self.store = root / "ca.pem", root / "node.pem"
        self.trust.write_bytes(self.ca.cert_pem.bytes())
        self.renew(self.ca)

    def _file(self, node_id: int) -> Path:
        return self.cluster.data(node_id).parent / "server.properties"

    def renew(self, ca: trustme.CA) -> None:
        """Replace the certificate of all nodes."""
        made = self.root / "new.pem"
        leaf = ca.issue_cert("127.0.0.1", "localhost")
        leaf.private_key_and_cert_chain_pem.write_to_path(str(made))
        made.replace(self.store)

    def roll(self, *, listeners: tuple[str, ...], inter_broker: str) -> None:
        """Restart every node in turn with other listeners, once all replicas are in sync."""
        for node_id in self.cluster.node_ids:
            ports = {
                CLIENTS: self.cluster.address(node_id).rpartition(":")[2],
                "SECURE": self.ports[node_id],
            }
            first = self._first[node_id]
            controller = next(
                part
                for line in first.splitlines()
                if line.startswith("listeners=")
                for part in line.partition("=")[2].split(",")
                if part.startswith(CONTROLLERS)
            )
            addresses = [f"{name}://127.0.0.1:{ports[name]}" for name in listeners]
            self._file(node_id).write_text(
                first
                + f"""
listeners={",".join([*addresses, controller])}
inter.broker.listener.name={inter_broker}
listener.security.protocol.map={CLIENTS}:PLAINTEXT,SECURE:SASL_SSL,{CONTROLLERS}:PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location={self.store}
ssl.truststore.type=PEM
ssl.truststore.location={self.trust}
ottla.tls.reload.interval.ms=100
sasl.enabled.mechanisms={MECHANISM}
sasl.mechanism.inter.broker.protocol={MECHANISM}
listener.name.secure.{MECHANISM.lower()}.sasl.jaas.config={SCRAM_MODULE} username="node" \
password="node-secret";
"""
            )
            self.cluster.restart(node_id)
            is_secure_only = CLIENTS not in listeners
            settings = self.secure() if is_secure_only else self.plain()
            wait_for(lambda settings=settings: in_sync(settings), f"in sync after node {node_id}")

    def plain(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.cluster.bootstrap, "log_level": 0}

    def secure(self, password: str = "alice-secret") -> dict[str, Any]:
        return {
            "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in self.ports.values()),
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.trust),
            "sasl.mechanism": MECHANISM,
            "sasl.username": "alice",
            "sasl.password": password,
            "log_level": 0,
        }


def in_sync(settings: dict[str, Any]) -> bool:
    try:
        found = AdminClient(settings).list_topics(TOPIC, timeout=2).topics[TOPIC].partitions
    except KafkaException:
        return False
    return all(len(each.isrs) == 3 and each.leader >= 0 for each in found.values())


def set_password(settings: dict[str, Any], user: str, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = UserScramCredentialUpsertion(user, info, password.encode())
    admin = AdminClient(settings)  # kept until the answer is there
    admin.alter_user_scram_credentials([wanted])[user].result(SECONDS_MAX)


def is_admitted(settings: dict[str, Any]) -> bool:
    try:
        AdminClient(settings).list_topics(timeout=3)
    except KafkaException:
        return False
    return True


@contextmanager
def rolled(root: Path) -> Iterator[Rolled]:
    with run_cluster(3, processes=True) as cluster:
        yield Rolled(cluster, root)


@pytest.mark.slow
def test_cluster_becomes_secure_while_clients_run(tmp_path: Path) -> None:
    with rolled(tmp_path) as found:
        admin = AdminClient(found.plain())
        new = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([new])[TOPIC].result(SECONDS_MAX)
        wait_for(lambda: in_sync(found.plain()), "in sync at the start")
        for user in ("node", "alice"):
            set_password(found.plain(), user, f"{user}-secret")
        plain = Load("plain", found.plain())
        found.roll(listeners=(CLIENTS, "SECURE"), inter_broker=CLIENTS)
        secure = Load("secure", found.secure())
        found.roll(listeners=(CLIENTS, "SECURE"), inter_broker="SECURE")
        plain.stop()
        found.roll(listeners=("SECURE",), inter_broker="SECURE")
        assert not is_admitted(found.plain())

        # Certificates of another authority: first it is trusted, then it signs.
        other = trustme.CA()
        found.trust.write_bytes(found.ca.cert_pem.bytes() + other.cert_pem.bytes())
        found.renew(other)
        only = tmp_path / "other.pem"
        only.write_bytes(other.cert_pem.bytes())
        wait_for(
            lambda: is_admitted({**found.secure(), "ssl.ca.location": str(only)}),
            "the new certificate",
        )

        # A password: new logins need the new one, and open connections go on.
        set_password(found.secure(), "alice", "changed")
        wait_for(lambda: is_admitted(found.secure("changed")), "the new password")
        wait_for(lambda: not is_admitted(found.secure()), "the old password is refused")
        sent = secure.sent
        wait_for(lambda: len(secure.acknowledged) > sent + RATE, "records after all changes")
        secure.stop()
