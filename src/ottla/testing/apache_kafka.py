"""One node of Apache Kafka, for tests that run against both brokers.

It needs Java, and Kafka's jars: ``KAFKA_HOME`` (an unpacked release) or ``OTTLA_KAFKA_JARS`` (a
directory of jars).
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socket import socket

from ottla.protocol.uuids import uuid_text
from ottla.runtime.randomness import SystemRandom
from ottla.testing.hosts import NodeFailed
from ottla.testing.ports import HeldPort
from ottla.testing.settings import settings_texts

START_S_MAX = 60.0
STOP_S_MAX = 30.0
_LOOK_S = 0.1


class NoApacheKafka(Exception):
    """Java or the jars are missing; the message says which."""


def find_jars(environment: Mapping[str, str] | None = None) -> Path:
    """Return the directory of Apache Kafka's jars.

    Raises:
        NoApacheKafka: Java or the jars are missing.
    """
    variables = os.environ if environment is None else environment
    if shutil.which("java", path=variables.get("PATH")) is None:
        raise NoApacheKafka("Java is not installed")
    for name, below in (("OTTLA_KAFKA_JARS", "."), ("KAFKA_HOME", "libs")):
        if variables.get(name):
            directory = Path(variables[name]) / below
            if any(directory.glob("kafka_2.1*.jar")):
                return directory
            raise NoApacheKafka(f"{name}: there are no jars of Apache Kafka in {directory}")
    raise NoApacheKafka("set KAFKA_HOME, or OTTLA_KAFKA_JARS to a directory of Kafka's jars")


class ApacheKafka:
    """A running node of Apache Kafka."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        self.bootstrap = bootstrap
        self._log = log

    @property
    def client_config(self) -> dict[str, str]:
        """Everything that a client needs to connect."""
        return {"bootstrap.servers": self.bootstrap}

    def output(self, node_id: int = 1) -> str:
        """Return the output of its process so far."""
        return self._log.read_text(encoding="utf-8", errors="replace") if node_id == 1 else ""


@contextmanager
def run_apache_kafka(
    *, config: Mapping[str, object] | None = None, directory: Path | None = None
) -> Iterator[ApacheKafka]:
    """Run a node of Apache Kafka; at the end stop it. Data in a temporary directory is deleted.

    Raises:
        NoApacheKafka: Java or the jars are missing. NodeFailed: it did not start.
    """
    jars = find_jars().absolute()  # Kafka runs in another directory
    root = directory or Path(tempfile.mkdtemp(prefix="kafka-"))
    root.mkdir(parents=True, exist_ok=True)
    clients, controllers = HeldPort(), HeldPort()
    port = clients.number
    address = f"127.0.0.1:{port}"
    settings = root / "server.properties"
    settings.write_text(_settings(address, f"127.0.0.1:{controllers.number}", root, config))
    log = root / "kafka.log"
    java = ["java", "-Xmx512m", "-cp", f"{jars}/*"]
    cluster_id = uuid_text(SystemRandom().uuid())
    clients.close()
    controllers.close()
    try:
        with log.open("wb") as output:
            _format(java, settings, cluster_id, log)
            process = subprocess.Popen(  # noqa: S603 - Kafka's own main class
                [*java, "kafka.Kafka", str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=root,
            )
        try:
            _wait(process, port, log)
            yield ApacheKafka(address, log)
        finally:
            _stop(process)
    finally:
        if directory is None:
            shutil.rmtree(root, ignore_errors=True)


def _settings(
    clients: str, controllers: str, root: Path, config: Mapping[str, object] | None
) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{clients},CONTROLLER://{controllers}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{controllers}",
        "log.dirs": str(root / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "3",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **settings_texts(config),
    }
    # Ottla's own settings mean nothing there.
    return "".join(f"{k}={v}\n" for k, v in settings.items() if not k.startswith("ottla."))


def _format(java: list[str], settings: Path, cluster_id: str, log: Path) -> None:
    command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S_MAX)  # noqa: S603
    if done.returncode:
        raise NodeFailed(f"Apache Kafka was not formatted: {done.stdout}{done.stderr} ({log})")


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    """Wait until its port accepts connections."""
    for _ in range(int(START_S_MAX / _LOOK_S)):
        with socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        try:
            process.wait(_LOOK_S)
            break
        except subprocess.TimeoutExpired:
            continue
    raise NodeFailed(f"Apache Kafka did not start:\n{log.read_text(errors='replace')[-4000:]}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
