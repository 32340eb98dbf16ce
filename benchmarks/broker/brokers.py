"""The two brokers that are compared, one node each.

Both run their defaults except for those of a single node: Kafka in KRaft's combined mode with a
heap of 1 GiB, as in its start script. Both are pinned to the first core.
"""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter, sleep

from tests.free_ports import free_ports

ROOT = Path(__file__).parents[2]
JARS = ROOT / "build" / "kafka"
POM = ROOT / "tests" / "conformance" / "pom.xml"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
WAIT_S_MAX = 120.0
TICKS = os.sysconf("SC_CLK_TCK")
# ApiVersions v0: correlation id 1, client id "b".
HELLO = struct.pack(">ihhih1s", 11, 18, 0, 1, 1, b"b")
BROKER_CORE = 0
CLIENT_CORE = 1


class Missing(Exception):
    """Something that the comparison needs is missing on this machine; the text names it."""


def pinned(core: int) -> list[str]:
    """Return the command prefix that pins to a core, if there are two cores and a tool."""
    is_possible = (os.cpu_count() or 1) >= 2 and shutil.which("taskset") is not None
    return ["taskset", "-c", str(core)] if is_possible else []


@contextmanager
def on_client_core() -> Iterator[None]:
    """Pin a client in this thread, and the threads that it starts, to the clients' core."""
    if not pinned(CLIENT_CORE):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CLIENT_CORE})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(slots=True)
class Broker:
    """One broker. ``command`` starts it; ``format_command`` makes its directory."""

    name: str
    root: Path
    port: int
    format_command: list[str]
    command: list[str]
    process: "subprocess.Popen[bytes] | None" = None
    core: int | None = BROKER_CORE

    @property
    def bootstrap(self) -> str:
        """Where it serves."""
        return f"127.0.0.1:{self.port}"

    def format(self) -> None:
        """Format its directory."""
        subprocess.run(self.format_command, check=True, capture_output=True, env=_environment())

    def start(self) -> float:
        """Start it; return the seconds until it gave its first reply."""
        began = perf_counter()
        self.begin()
        self.wait()
        return perf_counter() - began

    def begin(self) -> None:
        """Start it; returns before it replies."""
        pins = [] if self.core is None else pinned(self.core)
        with (self.root / "output").open("ab") as output:
            self.process = subprocess.Popen(
                [*pins, *self.command], stdout=output, stderr=output, env=_environment()
            )

    def wait(self) -> None:
        """Wait until it replies. Raises RuntimeError."""
        assert self.process is not None
        deadline = monotonic() + WAIT_S_MAX
        while not self._replies():
            if self.process.poll() is not None or monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start: {self.said()[-2000:]}")
            sleep(0.001)

    def _replies(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as line:
                line.sendall(HELLO)
                return len(line.recv(4)) == 4
        except OSError:
            return False

    def said(self) -> str:
        """Return its output so far."""
        return (self.root / "output").read_text(errors="replace")

    def stop(self) -> None:
        """Stop it; kill it if it does not stop in time."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Stop it from running; sessions expire meanwhile unless they are long enough."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """Return the CPU time it has used since its start."""
        assert self.process is not None
        return cpu_seconds_of(self.process.pid)

    def rss_bytes(self) -> int:
        """Return its resident memory."""
        assert self.process is not None
        text = Path(f"/proc/{self.process.pid}/statm").read_text()
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU time that a process has used, without that of its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _environment() -> dict[str, str]:
    """Return our environment, with the bytecode cache kept as it is for users."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def _settings(root: Path, port: int, controller_port: int) -> Path:
    path = root / "server.properties"
    path.write_text(
        f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
log.dirs={root / "data"}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
    )
    return path


def ottla(root: Path) -> Broker:
    """Return a node of ours, not formatted yet; with cached bytecode, as after a first start."""
    root.mkdir(parents=True)
    source = ROOT / "src" / "ottla"
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(source)], check=True)
    port, controller_port = free_ports(2)
    settings = str(_settings(root, port, controller_port))
    command, running = ottla_command()
    formatting = [*command, "format", "-t", CLUSTER_ID, "-c", settings]
    return Broker("Ottla", root, port, formatting, [*running, settings])


def ottla_command() -> tuple[list[str], list[str]]:
    """Return the commands that format and run a node of ours, without the settings file."""
    command = [sys.executable, "-m", "ottla.cli.main"]
    return command, [*command, "server"]


def kafka(root: Path) -> Broker:
    """Return an Apache Kafka, not formatted yet. Raises Missing."""
    fetch_jars()
    root.mkdir(parents=True)
    port, controller_port = free_ports(2)
    settings = str(_settings(root, port, controller_port))
    command, running = kafka_java(root)
    formatting = [*command, "format", "-t", CLUSTER_ID, "-c", settings]
    return Broker("Kafka", root, port, formatting, [*running, settings])


def kafka_java(root: Path) -> tuple[list[str], list[str]]:
    """Return the commands that format and run Apache Kafka, without its settings.

    Raises Missing.
    """
    fetch_jars()
    logging = root / "log4j2.properties"
    logging.write_text(
        "status=error\nrootLogger.level=warn\nappender.c.type=Console\nappender.c.name=c\n"
        "appender.c.layout.type=PatternLayout\nrootLogger.appenderRef.c.ref=c\n"
    )
    java = ["java", f"-Dlog4j2.configurationFile={logging}", "-cp", f"{JARS}/*"]
    # The options of Kafka's own start script.
    heap = ["-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
    heap += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]
    return [*java, "kafka.tools.StorageTool"], [java[0], *heap, *java[1:], "kafka.Kafka"]


def fetch_jars() -> None:
    """Download Apache Kafka's jars unless they are there. Raises Missing."""
    if shutil.which("java") is None:
        raise Missing("java is not installed")
    if list(JARS.glob("kafka_2.13-*.jar")):
        return
    if shutil.which("mvn") is None:
        raise Missing("mvn is not installed, and Apache Kafka's jars are not there")
    command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
    if subprocess.run([*command, f"-DoutputDirectory={JARS}"], check=False).returncode:
        raise Missing("Maven could not fetch Apache Kafka")


def exit_on_sigterm() -> None:
    """Make SIGTERM, as `timeout` sends it, an exit that stops the brokers first."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


@contextmanager
def stopped_after(*brokers: Broker) -> Iterator[None]:
    """Stop the brokers at the end, also after an error."""
    with ExitStack() as stack:
        for broker in brokers:
            stack.callback(broker.stop)
        yield
