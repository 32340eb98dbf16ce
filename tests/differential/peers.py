"""The two peers: Apache Kafka and a node of ours, each one process with the same settings."""

import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.differential.script import LOGIN_PORTS
from tests.free_ports import free_ports

ROOT = Path(__file__).parents[2]
JARS = ROOT / "build" / "kafka"
POM = ROOT / "tests" / "conformance" / "pom.xml"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
SECONDS_MAX = 120
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.streams.initial.rebalance.delay.ms=0
group.consumer.min.session.timeout.ms=6000
group.min.session.timeout.ms=100
"""
# With an authorizer: the peers and the set-up are ANONYMOUS, who may do everything; the requests
# come from a user whose rights are limited.
AUTHORIZED = """authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
inter.broker.listener.name=INTERNAL
listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.plaintext.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";
"""
LOGGING = """status=error
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m (%c)%n
rootLogger.level=info
rootLogger.appenderRef.console.ref=console
"""


class Ports(NamedTuple):
    """Where a peer listens; ``is_limited``: its clients log in, and an authorizer is on."""

    client: int
    controller: int
    internal: int
    is_limited: bool


class Missing(Exception):
    """Something this machine lacks; the run is skipped with this reason."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A running broker: where it listens, and its process."""

    name: str
    port: int
    controller_port: int
    internal_port: int | None
    """The listener of the set-up, where ``port`` asks for a login."""
    directory: Path
    process: "subprocess.Popen[bytes]"

    @property
    def log(self) -> Path:
        return self.directory / "server.out"

    def is_alive(self) -> bool:
        return self.process.poll() is None


def classpath() -> str:
    """Return Kafka's class path; fetch the jars once.

    Raises:
        Missing: no Java, or no jars and no way to fetch them.
    """
    if shutil.which("java") is None:
        raise Missing("java is not installed")
    if not list(JARS.glob("kafka-streams-*.jar")):
        if shutil.which("mvn") is None:
            raise Missing("Apache Kafka's jars are not in build/kafka, and mvn is not installed")
        command = ["mvn", "-q", "-B", "-f", str(POM)]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Missing(f"Maven could not fetch Apache Kafka: {done.stdout[-300:]}")
    return f"{JARS}/*"


@contextmanager
def both(directory: Path, *, is_limited: bool = False) -> Iterator[tuple[Peer, Peer]]:
    """Start both peers, each in a directory of its own; stop them at the end.

    With ``is_limited`` they have an authorizer, and clients log in as a user with limited rights.
    """
    jars = classpath()
    starts = {
        "kafka": lambda at, ports: _start_kafka(jars, at, ports),
        "ottla": _start_ottla,
    }
    peers: dict[str, Peer] = {}
    held = free_ports(6)
    if is_limited:
        LOGIN_PORTS.update((held[0], held[3]))

    def start(name: str, ports: Ports) -> None:
        at = directory / name
        at.mkdir(parents=True)
        peers[name] = starts[name](at, ports)

    threads = [
        threading.Thread(target=start, args=("kafka", Ports(*held[:3], is_limited))),
        threading.Thread(target=start, args=("ottla", Ports(*held[3:], is_limited))),
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(peers) != 2:
            raise RuntimeError("a peer did not start; see the error above")
        for peer in peers.values():
            _wait_listening(peer)
        yield peers["kafka"], peers["ottla"]
    finally:
        stop(*peers.values())


def stop(*peers: Peer) -> None:
    """End the processes of peers; one that has ended already is left alone."""
    for peer in peers:
        peer.process.kill()
        peer.process.wait(SECONDS_MAX)


def _properties(at: Path, ports: Ports) -> str:
    path = at / "server.properties"
    text = PROPERTIES.format(port=ports.client, controller_port=ports.controller, data=at / "data")
    if ports.is_limited:
        internal = f"listeners=INTERNAL://127.0.0.1:{ports.internal},"
        text = text.replace("listeners=", internal, 1) + AUTHORIZED
    path.write_text(text)
    return str(path)


def _start_kafka(jars: str, at: Path, ports: Ports) -> Peer:
    properties = _properties(at, ports)
    logging = at / "log4j2.properties"
    logging.write_text(LOGGING)
    java = ["java", "-Xmx768m", "-XX:TieredStopAtLevel=1", "-cp", jars]
    java.insert(1, f"-Dlog4j2.configurationFile={logging}")
    _run([*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties])
    return _spawn("kafka", [*java, "kafka.Kafka", properties], at, ports)


def _start_ottla(at: Path, ports: Ports) -> Peer:
    properties = _properties(at, ports)
    ottla = [sys.executable, "-m", "ottla.cli.main"]
    _run([*ottla, "format", "-t", CLUSTER_ID, "-c", properties])
    return _spawn("ottla", [*ottla, "server", properties], at, ports)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stdout}\n{done.stderr}")


def _spawn(name: str, command: list[str], at: Path, ports: Ports) -> Peer:
    with (at / "server.out").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    internal = ports.internal if ports.is_limited else None
    return Peer(name, ports.client, ports.controller, internal, at, process)


def _wait_listening(peer: Peer) -> None:
    for _ in range(SECONDS_MAX * 10):
        if not peer.is_alive():
            break
        with socket.socket() as probe:
            probe.settimeout(1)
            if not probe.connect_ex(("127.0.0.1", peer.port)):
                return
        try:
            peer.process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    raise RuntimeError(f"{peer.name} did not start: {peer.log.read_text()[-3000:]}")
