"""A node that runs Apache Kafka or Ottla on the same ``server.properties`` and directories.

Both are started as users start them: ``kafka.Kafka server.properties`` and ``ottla server
server.properties``. What a node runs may change while it is stopped.
"""

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.mixed.kinds import Kind, classpath, logging_path

from ottla.client.connection import Connection, Options
from ottla.protocol.faults import Fault
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.schema import Message
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.testing.hosts import NodeFailed, Site

START_S_MAX = 120.0
STOP_S_MAX = 90.0
ASK_MS_MAX = 3000
TAIL_CHARACTERS = 4000
JAVA = (
    "java",
    "-Xmx384m",
    "-Xms96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
)
LOGGING = """status=error
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m (%c)%n
rootLogger.level=info
rootLogger.appenderRef.console.ref=console
"""


def java(version: str, *arguments: str, logging: Path | None = None) -> list[str]:
    """Return the command line of a class of Kafka. Raises Missing without Java or the jars."""
    if logging is None:
        return [*JAVA, "-cp", classpath(version), *arguments]
    option = f"-Dlog4j2.configurationFile={logging}"
    return [*JAVA, option, "-cp", f"{classpath(version)}:{logging_path()}", *arguments]


def ottla(*arguments: str) -> list[str]:
    """Return the command line of an ``ottla`` command."""
    return [sys.executable, "-m", "ottla.cli.main", *arguments]


def format_command(kind: Kind, settings: Path, cluster_id: str, options: list[str]) -> list[str]:
    """Return the command that formats a node's directories, by the tool of its kind."""
    shared = ["-t", cluster_id, "-c", str(settings), *options]
    if kind.kafka is None:
        return ottla("format", *shared)
    return java(kind.kafka, "kafka.tools.StorageTool", "format", *shared)


def server_command(kind: Kind, site: Site) -> list[str]:
    """Return the command that runs a node."""
    if kind.kafka is None:
        return ottla("server", str(site.settings))
    logging = site.root / "log4j2.properties"
    logging.write_text(LOGGING)
    return java(kind.kafka, "kafka.Kafka", str(site.settings), logging=logging)


async def _ask(address: str, request: Message | None, options: Options) -> Message | None:
    host, _, port = address.rpartition(":")
    connection = await Connection.open(TcpNetwork(), Address(host, int(port)), options=options)
    try:
        if request is None:
            return None
        return await connection.send(request, timeout_ms=ASK_MS_MAX)
    finally:
        await connection.close()


def ask(address: str, request: Message, options: Options | None = None) -> Message | None:
    """Send a request to a node; None when it does not answer."""
    try:
        return asyncio.run(
            _ask(address, request, options or Options(connect_timeout_ms=ASK_MS_MAX))
        )
    except (OSError, Fault):
        return None


def is_answering(address: str) -> bool:
    """Return whether a node answers ApiVersions."""
    try:
        asyncio.run(_ask(address, None, Options(connect_timeout_ms=ASK_MS_MAX)))
    except (OSError, Fault):
        return False
    return True


def brokers_of(address: str, options: Options | None = None) -> set[int]:
    """Return the unfenced brokers that a broker knows; empty when it does not answer."""
    reply = ask(address, MetadataRequest(topics=[]), options)
    return set() if reply is None else {int(each.node_id) for each in reply.brokers}


class MixedHost:
    """One node, as `ottla.testing.hosts.Host` has it; ``kind`` may be set while it is stopped.

    ``broker`` and ``controller`` are the addresses of its listeners, None without the role.
    """

    def __init__(
        self,
        site: Site,
        kind: Kind,
        broker: str | None,
        controller: str | None,
        options: Options | None = None,
    ) -> None:
        self.site, self.kind = site, kind
        self._broker, self._controller, self._options = broker, controller, options
        self._process: subprocess.Popen[bytes] | None = None
        self._expected: set[int] = set()
        self._is_paused = False

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether its process has neither been ended nor ended by itself."""
        return self._process is not None and self._process.poll() is None

    def begin(self, brokers: list[int]) -> None:
        """Start its process; it is ready when it sees that ``brokers`` serve."""
        assert self._process is None, f"node {self.site.node_id} runs already"
        self._expected = set(brokers)
        command = [*self.site.command, *bound_to_us(), *server_command(self.kind, self.site)]
        with self.site.log.open("ab") as log:
            log.write(f"--- {self.kind} ---\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.site.root
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        while not self._is_ready():
            if not self.is_alive or time.monotonic() > deadline:
                self.discard()
                raise NodeFailed(f"node {self.site.node_id} did not start:\n{self.tail()}")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        if self._broker is not None:
            return self._expected <= brokers_of(self._broker, self._options)
        assert self._controller is not None
        return is_answering(self._controller)

    def stop(self) -> None:
        """Stop it by controlled shutdown. Raises NodeFailed."""
        assert self._process is not None
        self.resume()
        self._process.terminate()
        try:
            code = self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            code = None
        kind = self.kind
        self.discard()
        # Kafka exits by the signal, after its shutdown hook; Ottla with 0.
        if code not in ((143, -signal.SIGTERM) if kind.is_kafka else (0,)):
            raise NodeFailed(f"node {self.site.node_id} did not stop, code {code}:\n{self.tail()}")

    def kill(self) -> None:
        self.discard()

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        if self._is_paused and self._process is not None:
            self._process.send_signal(signal.SIGCONT)
        self._is_paused = False

    def discard(self) -> None:
        process, self._process = self._process, None
        self._is_paused = False
        if process is not None:
            process.kill()
            process.wait()

    def tail(self) -> str:
        """Return the last output of its processes."""
        if not self.site.log.exists():
            return ""
        return self.site.log.read_text(errors="replace")[-TAIL_CHARACTERS:]


def bound_to_us() -> tuple[str, ...]:
    """Return a prefix by which the kernel kills the process when this one ends."""
    return ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
