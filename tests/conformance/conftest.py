"""Apache Kafka as a peer: its jars through Maven, its tools, and a real broker to talk to.

Every test here is skipped with a reason where Java or Maven is missing. Jars are kept in
``build/kafka`` between runs.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.free_ports import free_ports
from tests.kafka_jars import client_classpath

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests" / "wire"), str(ROOT / "tests" / "clients")]  # their helpers
JARS = ROOT / "build" / "kafka"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
STARTED = "Kafka Server started"
SECONDS_MAX = 120


@dataclass(frozen=True, slots=True)
class Kafka:
    """Apache Kafka's classes on this machine."""

    classpath: str

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """Run a Java main class (or source file); return its output, fail on a bad exit."""
        done = subprocess.run(
            ["java", "-Xmx512m", "-cp", self.classpath, *arguments],
            input=stdin,
            text=True,
            capture_output=True,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def dump(self, *arguments: str) -> str:
        return self.run("kafka.tools.DumpLogSegments", *arguments)


@dataclass(slots=True)
class Broker:
    """A single-node Kafka on a directory of its own; may be stopped and started again."""

    kafka: Kafka
    directory: Path
    port: int
    controller_port: int
    process: subprocess.Popen[bytes] | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.directory / "server.out"
        (self.directory / "log4j2.properties").write_text(
            "status=error\nappender.console.type=Console\nappender.console.name=console\n"
            "appender.console.layout.type=PatternLayout\n"
            "appender.console.layout.pattern=%p %m (%c)%n\n"
            "rootLogger.level=info\nrootLogger.appenderRef.console.ref=console\n"
        )

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def format(self) -> None:
        (self.directory / "server.properties").write_text(
            f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{self.controller_port}
listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}
controller.listener.names=CONTROLLER
log.dirs={self.data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
        )
        properties = str(self.directory / "server.properties")
        self.kafka.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties)

    def start(self) -> None:
        out = self.log.open("wb")
        configuration = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        properties = str(self.directory / "server.properties")
        self.process = subprocess.Popen(
            [
                "java",
                "-Xmx512m",
                configuration,
                "-cp",
                self.kafka.classpath,
                "kafka.Kafka",
                properties,
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        out.close()
        self._wait_started(self.process)

    def _wait_started(self, process: subprocess.Popen[bytes]) -> None:
        # ``inotify`` would be exact; a probe of the port every tenth of a second is enough.
        for _ in range(SECONDS_MAX * 10):
            assert process.poll() is None, self.log.read_text()
            with socket.socket() as probe:
                probe.settimeout(0.1)
                if STARTED in self.log.read_text() or not probe.connect_ex(
                    ("127.0.0.1", self.port)
                ):
                    return
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        pytest.fail(f"Kafka did not start: {self.log.read_text()}")

    def stop(self, sig: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(sig)
            self.process.wait(SECONDS_MAX)
            self.process = None


@pytest.fixture(scope="session")
def kafka_clients() -> Kafka:
    """The classes of the newest client of Kafka, which may be newer than its newest server."""
    return Kafka(classpath=client_classpath())


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed; Apache Kafka's own tools cannot run")
    if not list(JARS.glob("kafka-streams-*.jar")):
        command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml")]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
        if done.returncode != 0:
            pytest.skip(f"Maven could not fetch Apache Kafka: {done.stdout[-300:]}")
    return Kafka(classpath=f"{JARS}/*")


@pytest.fixture
def broker(kafka: Kafka, tmp_path: Path) -> Iterator[Broker]:
    port, controller_port = free_ports(2)
    broker = Broker(kafka, tmp_path, port, controller_port)
    broker.format()
    try:
        yield broker
    finally:
        broker.stop(signal.SIGKILL)
