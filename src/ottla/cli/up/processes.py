"""The processes of a local cluster: start them, restart those that die, stop them all."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ottla.cli.connecting.session import client_ports
from ottla.cli.host.supervision import BackOff
from ottla.cli.options import say
from ottla.cli.up.options import ANY_HOSTS
from ottla.cli.up.plan import HOST, PlannedNode
from ottla.client.cluster import ClientOptions, Cluster, NoBroker
from ottla.client.connection import Options
from ottla.operations.counting import plural
from ottla.protocol.faults import Fault
from ottla.runtime import system_calls
from ottla.runtime.clock import SystemClock
from ottla.runtime.ports import Address, Clock
from ottla.security.private_files import open_private

READY_S_MAX: Final = 120.0
STOP_S_MAX: Final = 20.0
"""A node that has not stopped after this time is killed."""
_LOOK_S: Final = 0.05
_TAIL_LINES: Final = 15


class NodeDied(Exception):
    """A node exited before the cluster was ready; the message contains the end of its output."""


class Processes:
    """The nodes of one cluster and their processes."""

    def __init__(
        self,
        nodes: Sequence[PlannedNode],
        connection: Options,
        ready: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._nodes = nodes
        self._connection = connection
        self._ready = ready
        self._clock = clock
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stop = asyncio.Event()
        self._is_ready = False
        self.signal: int | None = None

    def stop(self, number: int | None = None) -> None:
        """Ask for the stop of all nodes; ``number`` is the signal that asked for it."""
        self.signal = self.signal or number
        self._stop.set()

    async def run(self) -> None:
        """Start the nodes, report when all are ready, wait for `stop`, and stop every process.

        Raises:
            NodeDied: a node exited before all were ready.
        """
        try:
            for node in self._nodes:
                self._running[node.node_id] = await _start(node)
            count = len(self._nodes)
            say(f"starting {plural(count, 'node')}; logs in {self._nodes[0].log_file}")
            async with asyncio.TaskGroup() as tasks:
                watches = [tasks.create_task(self._keep(node)) for node in self._nodes]
                if await self._wait_ready():
                    self._is_ready = True
                    self._ready()
                await self._stop.wait()
                for watch in watches:
                    watch.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            await _stop_all(list(self._running.values()))

    async def _keep(self, node: PlannedNode) -> None:
        """Start a node again whenever it exits, after the back-off of `host.supervision`."""
        back_off = BackOff()
        while True:
            started_ms = self._clock.monotonic()
            code = await self._running[node.node_id].wait()
            if self._stop.is_set():
                return
            ending = (
                f"node {node.node_id} exited with code {code}; the end of {node.log_file}:\n"
                f"{_tail(node.log_file)}"
            )
            if not self._is_ready:
                raise NodeDied(ending)
            delay_s = back_off.next_delay_s((self._clock.monotonic() - started_ms) / 1000)
            say(f"{ending}\nstarting node {node.node_id} again in {delay_s:g} s")
            await asyncio.sleep(delay_s)
            self._running[node.node_id] = await _start(node)

    async def _wait_ready(self) -> bool:
        """Wait until every node is ready and knows all others; False if interrupted."""
        try:
            async with asyncio.timeout(READY_S_MAX):
                for node in self._nodes:
                    await self._wait_serving(node)
        except TimeoutError:
            text = f"not ready within {READY_S_MAX:.0f} s; see {self._nodes[0].log_file}"
            raise NodeDied(text) from None
        return not self._stop.is_set()

    async def _wait_serving(self, node: PlannedNode) -> None:
        while not self._stop.is_set():
            if await _serves(node, len(self._nodes), self._connection):
                return
            await asyncio.sleep(_LOOK_S)


async def run_cluster(
    nodes: Sequence[PlannedNode], connection: Options, ready: Callable[[], None]
) -> int | None:
    """Run a cluster until a signal arrives, and return the signal.

    Raises:
        NodeDied: a node exited before all were ready.
    """
    processes = Processes(nodes, connection, ready, SystemClock())
    for number in (signal.SIGINT, signal.SIGTERM):
        system_calls.on_signal(number, processes.stop, number)
    await processes.run()
    return processes.signal


async def _start(node: PlannedNode) -> asyncio.subprocess.Process:
    """Start a node. Its standard input is a pipe that closes when this process exits."""
    log = open_private(Path(node.log_file), is_appended=True)
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ottla.cli.main",
            "server",
            node.settings_file,
            "--stop-at-end-of-input",
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,  # this process forwards Ctrl-C
        )
    finally:
        os.close(log)


async def _serves(node: PlannedNode, count: int, connection: Options) -> bool:
    options = ClientOptions(connection=connection)
    try:
        cluster = await Cluster.open(client_ports(), [Address(_dialled(node), node.port)], options)
    except (NoBroker, Fault, OSError):
        return False
    async with cluster:
        return len(cluster.nodes) == count


def _dialled(node: PlannedNode) -> str:
    """Return the host at which this machine reaches the node."""
    return HOST if node.host in ANY_HOSTS else node.host


async def _stop_all(running: Sequence[asyncio.subprocess.Process]) -> None:
    """Terminate every node, and kill those that do not stop in time."""
    left = [process for process in running if process.returncode is None]
    for process in left:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_S_MAX):
            for process in left:
                await process.wait()
    except TimeoutError:
        for process in left:
            if process.returncode is None:
                say(f"process {process.pid} did not stop; killed")
                process.kill()
                await process.wait()


def _tail(path: str) -> str:
    with Path(path).open("rb") as log:
        log.seek(max(0, os.path.getsize(path) - 16_384))
        lines = log.read().decode("utf-8", "replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:])
