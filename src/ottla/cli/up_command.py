"""``ottla up``: run a local cluster, one process per node, until it is stopped."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.connection_settings import options_of
from ottla.cli.failures import fail
from ottla.cli.options import OutputOption, answer, chosen, say
from ottla.cli.output import Output
from ottla.cli.session import client_ports
from ottla.cli.up_plan import (
    CONTROLLERS,
    HOST,
    SECURE_LISTENER,
    BadPlan,
    PlannedNode,
    plan_nodes,
    settings_of,
)
from ottla.cli.up_settings import client_settings
from ottla.client.cluster import ClientOptions, Cluster, NoBroker
from ottla.client.connection import Options
from ottla.config.loading import load
from ottla.node.format_plan import FormatOptions, plan_format
from ottla.node.formatting import FormatRefused, format_node
from ottla.protocol.faults import Fault
from ottla.protocol.uuids import uuid_text
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom
from ottla.security.certificate_files import PRIVATE, write_file
from ottla.security.local_cluster import LocalSecurity, local_security
from ottla.storage.meta_properties import MetaPropertiesRefused, read_meta_properties

PORT_DEFAULT: Final = 9092
SECURITY_NAME: Final = "security"
READY_S_MAX: Final = 120.0
STOP_S_MAX: Final = 20.0
"""A node that has not stopped after this time is killed."""
_LOOK_S: Final = 0.05
_TAIL_LINES: Final = 15


class NodeDied(Exception):
    """A node exited unexpectedly; the message contains the end of its output."""


app = typer.Typer(add_completion=False)


@app.command("up")
def up(
    context: typer.Context,
    *,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes", "-n", help="Number of nodes; default: those of an existing cluster, else 1."
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option("--port", "-p", help="Port of the first node; the others use the next ones."),
    ] = PORT_DEFAULT,
    data: Annotated[
        Path, typer.Option("--data", "-d", help="Data directory of the cluster.")
    ] = Path("ottla-data"),
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Use TLS and passwords on all listeners, and print client settings.",
        ),
    ] = False,
    output: OutputOption = None,
) -> None:
    """Run a local cluster; Ctrl-C or SIGTERM stops it. Its data is kept for the next run."""
    root = data.absolute()
    try:
        count = _count_nodes(root, nodes)
        _check_security(root, secure)
        planned = plan_nodes(count, port, str(root), _is_free)
        security = _security(root) if secure else None
        _prepare(planned, security)
    except (BadPlan, FormatRefused, MetaPropertiesRefused, OSError, ValueError) as error:
        fail(str(error))
    bootstrap = ",".join(each.address for each in planned)
    connection = Options()
    if security is not None:
        _write_client_file(security, bootstrap)
        connection = options_of(security.client_config(bootstrap))

    def ready() -> None:
        addresses = [each.address for each in planned]
        if chosen(context, output) is Output.TABLE:
            sys.stdout.write(f"ready {bootstrap}\n")
            sys.stdout.write("" if security is None else client_settings(security, bootstrap))
        else:
            config = None if security is None else security.client_config(bootstrap)
            more = {} if config is None else {"client_config": config}
            answer(context, output, {"ready": addresses, **more})
        sys.stdout.flush()

    try:
        asyncio.run(_run(planned, connection, ready))
    except NodeDied as error:
        fail(str(error))


# -- preparation -------------------------------------------------------------------


def _count_nodes(root: Path, wanted: int | None) -> int:
    """Return the number of nodes, which cannot change once a directory exists."""
    if (root / "meta.properties").exists():
        raise BadPlan(f"{root}: is the log directory of a single node; use another one with --data")
    there = sum((root / f"node-{n}" / "data" / "meta.properties").exists() for n in range(1, 100))
    if there and wanted is not None and wanted != there:
        raise BadPlan(
            f"{root}: contains a cluster of {there}; use another one with --data, or remove it"
        )
    return wanted or there or 1


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _check_security(root: Path, is_secure: bool) -> None:
    """Reject --secure for a cluster that was created without it, and the reverse."""
    was_secure = (root / SECURITY_NAME).exists()
    is_new = not (root / "node-1" / "data" / "meta.properties").exists()
    if was_secure and not is_secure:
        raise BadPlan(f"{root}: contains a secure cluster; start it with --secure")
    if is_secure and not was_secure and not is_new:
        raise BadPlan(
            f"{root}: contains a cluster without security; use another directory with --data"
        )


def _security(root: Path) -> LocalSecurity:
    return local_security(root / SECURITY_NAME, SystemClock(), SystemRandom())


def _write_client_file(security: LocalSecurity, bootstrap: str) -> None:
    config = security.client_config(bootstrap)
    text = "".join(f"{key}={value}\n" for key, value in config.items())
    write_file(Path(security.directory) / "client.properties", text.encode(), PRIVATE)


def _prepare(nodes: Sequence[PlannedNode], security: LocalSecurity | None) -> None:
    """Write every node's settings, and format new log directories."""
    disk, random, clock = RealDisk(), SystemRandom(), SystemClock()
    found = [read_meta_properties(disk, n.data) for n in nodes if disk.exists(n.data)]
    known = next((meta.cluster_id for meta in found if meta is not None), None)
    cluster_id = known or uuid_text(random.uuid())
    for node in nodes:
        disk.make_dirs(node.directory)
        own = None if security is None else security.server_settings(SECURE_LISTENER, CONTROLLERS)
        text = settings_of(node, nodes, own)
        # It may contain passwords.
        write_file(Path(node.settings_file), text.encode(), PRIVATE)
        options = FormatOptions(
            cluster_id=cluster_id,
            is_formatted_ignored=True,
            scram=() if security is None else security.scram,
        )
        format_node(disk, random, clock.now(), plan_format(load(text), options, random))


# -- running -----------------------------------------------------------------------


async def _run(
    nodes: Sequence[PlannedNode], connection: Options, ready: Callable[[], None]
) -> None:
    """Start the nodes, report when all are ready, wait for a signal, and stop every process.

    Raises:
        NodeDied: a node exited unexpectedly.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    running: list[asyncio.subprocess.Process] = []
    try:
        for node in nodes:
            running.append(await _start(node))
        say(f"starting {len(nodes)} node{'s'[: len(nodes) > 1]}; logs in {nodes[0].log_file}")
        async with asyncio.TaskGroup() as tasks:
            watches = [
                tasks.create_task(_watch(node, process, stop))
                for node, process in zip(nodes, running, strict=True)
            ]
            if await _wait_ready(nodes, connection, stop):
                ready()
            await stop.wait()
            for watch in watches:
                watch.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        await _stop(running)


async def _start(node: PlannedNode) -> asyncio.subprocess.Process:
    """Start a node. Its standard input is a pipe that closes when this process exits."""
    log = os.open(node.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
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


async def _watch(
    node: PlannedNode, process: asyncio.subprocess.Process, stop: asyncio.Event
) -> None:
    code = await process.wait()
    if stop.is_set():
        return
    raise NodeDied(
        f"node {node.node_id} exited with code {code}; the end of {node.log_file}:\n"
        f"{_tail(node.log_file)}"
    )


async def _wait_ready(
    nodes: Sequence[PlannedNode], connection: Options, stop: asyncio.Event
) -> bool:
    """Wait until every node is ready and knows all others; False if the wait was interrupted."""
    try:
        async with asyncio.timeout(READY_S_MAX):
            for node in nodes:
                await _wait_serving(node, len(nodes), connection, stop)
    except TimeoutError:
        raise NodeDied(f"not ready within {READY_S_MAX:.0f} s; see {nodes[0].log_file}") from None
    return not stop.is_set()


async def _wait_serving(
    node: PlannedNode, count: int, connection: Options, stop: asyncio.Event
) -> None:
    while not stop.is_set():
        if await _serves(node, count, connection):
            return
        await asyncio.sleep(_LOOK_S)


async def _serves(node: PlannedNode, count: int, connection: Options) -> bool:
    options = ClientOptions(connection=connection)
    try:
        cluster = await Cluster.open(client_ports(), [Address(HOST, node.port)], options)
    except (NoBroker, Fault, OSError):
        return False
    async with cluster:
        return len(cluster.nodes) == count


async def _stop(running: Sequence[asyncio.subprocess.Process]) -> None:
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
