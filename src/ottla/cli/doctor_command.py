"""``ottla doctor``: check for common problems and suggest fixes."""

import asyncio
import json
import os
import resource
import shutil
import socket
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.connection_settings import client_properties, options_of, resolve_bootstrap
from ottla.cli.doctor import (
    Checked,
    Directory,
    Loss,
    Port,
    State,
    check_advertised,
    check_damaged,
    check_directories,
    check_java,
    check_open_files,
    check_port,
    check_recovery,
    damaged_replicas,
)
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer
from ottla.cli.pages import get_page, page_address
from ottla.cli.session import client_ports, parse_bootstrap
from ottla.cli.settings_file import load_settings
from ottla.client.admin import describe_cluster
from ottla.client.cluster import ClientOptions, Cluster, NoBroker, Refused
from ottla.client.connection import Options
from ottla.node.directories import all_directories
from ottla.pipeline.runner import find_java
from ottla.protocol.faults import Fault
from ottla.protocol.types import NodeId
from ottla.replication.recovery_losses import FILE_NAME as LOSSES_NAME
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import Address
from ottla.storage.directory_data import find_data
from ottla.storage.meta_properties import MetaPropertiesRefused, read_meta_properties
from ottla.storage.set_aside import is_set_aside

_CONNECT_MS = 3000

app = typer.Typer(add_completion=False)


@app.command("doctor")
def doctor(
    context: typer.Context,
    *,
    data: Annotated[
        Path, typer.Option("--data", "-d", help="Data directory of `ottla up`, or a log directory.")
    ] = Path("ottla-data"),
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="A server.properties file, instead of --data."),
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Check for common problems and suggest fixes; exit 1 if one is found."""
    properties = client_properties()
    addresses = parse_bootstrap(resolve_bootstrap(bootstrap, properties))
    connection = options_of(properties, Options(connect_timeout_ms=_CONNECT_MS))
    node_id = None
    if config is not None:
        loaded = load_settings(config, [])
        node_id = loaded.broker.node_id
        paths = [Path(each) for each in all_directories(loaded.broker)]
    else:
        nodes = sorted(data.absolute().glob("node-*/data"))
        paths = nodes or [data.absolute()]
    found = asyncio.run(_examine(addresses, connection, paths, node_id))
    found += [
        check_java(find_java()),
        check_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE)),
    ]
    answer(
        context,
        output,
        [
            {"check": each.check, "state": each.state.value, "detail": each.detail, "fix": each.fix}
            for each in found
        ],
    )
    if any(each.state is State.PROBLEM for each in found):
        raise typer.Exit(1)


async def _examine(
    addresses: list[Address], connection: Options, paths: list[Path], node_id: int | None
) -> list[Checked]:
    options = ClientOptions(connection=connection)
    cluster_id, reached = None, dict[str, str | None]()
    damaged = dict[int, int | None]()
    try:
        async with await Cluster.open(client_ports(), addresses, options) as cluster:
            answers = True
            reached = {str(at): await _reach(cluster, at) for at in cluster.nodes.values()}
            cluster_id = await _cluster_id(cluster)
            damaged = {broker: await _damaged_replicas(cluster, broker) for broker in cluster.nodes}
    except (NoBroker, Fault, OSError):
        answers = False
    first = addresses[0]
    is_free = not answers and await _is_free(first)
    found = [check_port(Port(str(first), is_free, answers))]
    found += check_directories([_directory(path) for path in paths], cluster_id, node_id)
    for path in paths:
        found += check_recovery(str(path), _losses(path), _damaged_files(path))
    return found + check_damaged(damaged) + check_advertised(reached)


async def _cluster_id(cluster: Cluster) -> str | None:
    try:
        return (await describe_cluster(cluster)).cluster_id
    except (Refused, Fault, OSError):
        return None


async def _damaged_replicas(cluster: Cluster, broker: NodeId) -> int | None:
    """Read a broker's metrics page; None if it has none or does not answer."""
    try:
        address = await page_address(cluster, broker)
        page = b"" if address is None else await get_page(address, "/metrics")
    except (Refused, NoBroker, Fault, OSError, TimeoutError, ValueError):
        return None
    return damaged_replicas(page.decode(errors="replace"))


async def _reach(cluster: Cluster, at: Address) -> str | None:
    """Return why a broker is not reachable at its advertised address; None if it is."""
    try:
        async with await Cluster.open(cluster.ports, [at], cluster.options):
            return None
    except (NoBroker, Fault, OSError) as error:
        return str(error)


async def _is_free(at: Address) -> bool:
    """Return whether the port is free: a listener would accept a connection."""
    try:
        async with asyncio.timeout(_CONNECT_MS / 1000):
            _, writer = await asyncio.open_connection(at.host, at.port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError, socket.gaierror):
        return False
    writer.close()
    return False


def _losses(path: Path) -> list[Loss]:
    """Return the recovery report of the last start; nothing if it cannot be read."""
    try:
        rows = json.loads((path / LOSSES_NAME).read_text(encoding="utf-8"))
        return [Loss(row["severity"] == "error", str(row["text"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _damaged_files(path: Path) -> list[str]:
    """Return the files of damaged bytes below a log directory."""
    try:
        found = [each for each in path.glob("*/*.damaged-*") if is_set_aside(each.name)]
    except OSError:
        return []
    return sorted(str(each.relative_to(path)) for each in found)


def _directory(path: Path) -> Directory:
    """Inspect a log directory, or the place where it would be created."""
    there = path
    while not there.exists():
        there = there.parent
    is_writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    free = shutil.disk_usage(there).free
    try:
        meta = read_meta_properties(RealDisk(), str(path)) if path.is_dir() else None
        lost = find_data(RealDisk(), str(path)) if meta is None and path.is_dir() else None
    except (MetaPropertiesRefused, OSError) as error:
        return Directory(str(path), is_writable, free, refusal=str(error))
    if lost is not None:
        refusal = f"{path} has data ({lost}), but no meta.properties"
        return Directory(str(path), is_writable, free, refusal=refusal)
    if meta is None:
        return Directory(str(path), is_writable, free)
    return Directory(str(path), is_writable, free, meta.cluster_id, meta.node_id)
