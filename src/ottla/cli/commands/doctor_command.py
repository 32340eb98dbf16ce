"""``ottla doctor``: check for common problems and suggest fixes."""

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.commands.doctor import (
    Checked,
    Dial,
    Directory,
    Loss,
    Place,
    State,
    check_addresses,
    check_advertised,
    check_cluster,
    check_damaged,
    check_directories,
    check_java,
    check_open_files,
    check_quorum,
    check_recovery,
    check_strays,
    check_waiting,
    damaged_replicas,
    waiting_partitions,
)
from ottla.cli.connecting.connection_settings import (
    BOOTSTRAP,
    client_properties,
    options_of,
    resolve_bootstrap,
)
from ottla.cli.connecting.session import client_ports, parse_bootstrap, permission_hint
from ottla.cli.connecting.settings_file import load_settings
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer
from ottla.client.cluster import ClientOptions, ClientPorts, Cluster, NoBroker, Refused
from ottla.node.directories.node_directories import all_directories
from ottla.operations.cluster_state import ANSWER_MS, ClusterState, observe, reach_all
from ottla.operations.health import QUORUM, find_problems
from ottla.operations.pages import get_page, page_address
from ottla.protocol.faults import Fault
from ottla.protocol.types import NodeId
from ottla.replication.repair.recovery_losses import FILE_NAME as LOSSES_NAME
from ottla.runtime import system_calls
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import Address
from ottla.spark.runner import find_java
from ottla.storage.directory.directory_data import find_data
from ottla.storage.directory.meta_properties import MetaPropertiesRefused, read_meta_properties
from ottla.storage.directory.partition_names import DirectoryKind, parse_name
from ottla.storage.log.set_aside import is_set_aside

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
    """Check this host, the cluster and its quorum; suggest fixes; exit 1 if there is a problem."""
    properties = client_properties()
    named = bootstrap or properties.get(BOOTSTRAP)
    places = _Places(
        parse_bootstrap(resolve_bootstrap(bootstrap, properties)),
        ClientOptions(connection=options_of(properties)),
        is_named=bool(named),
    )
    node_id = None
    if config is not None:
        loaded = load_settings(config, [])
        node_id = loaded.broker.node_id
        paths = [Path(each) for each in all_directories(loaded.broker)]
    else:
        nodes = sorted(data.absolute().glob("node-*/data"))
        paths = nodes or [data.absolute()]
    found = asyncio.run(_examine(places, paths, node_id))
    found.append(check_java(find_java()))
    limits = system_calls.open_files_limit()
    if limits is not None:
        found.append(check_open_files(*limits))
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


@dataclass(frozen=True, slots=True)
class _Places:
    """Where brokers are expected, and how to connect; ``is_named`` if the user said so."""

    addresses: list[Address]
    options: ClientOptions
    is_named: bool


async def _examine(places: _Places, paths: list[Path], node_id: int | None) -> list[Checked]:
    ports = client_ports()
    directories = [_directory(path) for path in paths]
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(
            reach_all(ports, places.options, {each: each for each in places.addresses})
        )
        seen = tasks.create_task(_observe(ports, places))
    reasons, cluster = asked.result(), seen.result()
    found = check_addresses(
        [
            Place(str(at), reason, Dial.ACCEPTED if reason is None else await _dial(at))
            for at, reason in reasons.items()
        ],
        is_named=places.is_named,
        is_formatted=any(each.cluster_id is not None for each in directories),
    )
    found += check_directories(directories, cluster.cluster_id, node_id)
    for path in paths:
        found += check_recovery(str(path), _losses(path), _damaged_files(path))
        found += check_strays(str(path), _strays(path))
    return [*found, *cluster.checked]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was found out about the cluster."""

    cluster_id: str | None = None
    checked: Sequence[Checked] = ()


async def _observe(ports: ClientPorts, places: _Places) -> _Seen:
    """Check the cluster; nothing if no broker answers."""
    try:
        async with await Cluster.open(ports, places.addresses, places.options) as cluster:
            state = await observe(cluster, permission_hint)
            pages = await _metrics_pages(cluster, state)
            problems = find_problems(state, ports.clock.now())
    except Refused as error:
        fix = "Use credentials that may describe the cluster."
        return _Seen(checked=[Checked("cluster", State.PROBLEM, str(error), fix)])
    except (NoBroker, Fault, OSError):
        return _Seen()
    # What does not answer at an address of --bootstrap is reported there.
    named = {str(address) for address in places.addresses}
    reached = {
        f"{each.host}:{each.port}": state.unreachable.get(each.broker_id)
        for each in state.brokers
        if each.broker_id not in state.unreachable or f"{each.host}:{each.port}" not in named
    }
    others = [each for each in problems if each.subject != QUORUM]
    checked = [
        *check_advertised(reached),
        check_quorum(state),
        *check_cluster(state, others),
        *check_damaged({broker: damaged_replicas(page) for broker, page in pages.items()}),
        *check_waiting({broker: waiting_partitions(page) for broker, page in pages.items()}),
    ]
    return _Seen(state.cluster_id, checked)


async def _metrics_pages(cluster: Cluster, state: ClusterState) -> dict[int, str]:
    """Read the metrics page of each broker that is reachable."""
    brokers = [NodeId(each) for each in cluster.nodes if each not in state.unreachable]
    async with asyncio.TaskGroup() as tasks:
        pages = {broker: tasks.create_task(_read_metrics(cluster, broker)) for broker in brokers}
    return {broker: page.result() for broker, page in pages.items()}


async def _read_metrics(cluster: Cluster, broker: NodeId) -> str:
    """Read a broker's metrics page; it is empty if the broker has none or does not answer."""
    try:
        async with asyncio.timeout(ANSWER_MS / 1000):
            address = await page_address(cluster, broker)
            page = b"" if address is None else await get_page(address, "/metrics")
    except (Refused, NoBroker, Fault, OSError, TimeoutError, ValueError):
        return ""
    return page.decode(errors="replace")


async def _dial(at: Address) -> Dial:
    """Return whether anything accepts connections at an address."""
    try:
        async with asyncio.timeout(ANSWER_MS / 1000):
            _, writer = await asyncio.open_connection(at.host, at.port)
    except ConnectionRefusedError:
        return Dial.REFUSED
    except (OSError, TimeoutError):
        return Dial.FAILED
    writer.close()
    return Dial.ACCEPTED


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


def _strays(path: Path) -> list[str]:
    """Return the names of the stray logs in a log directory."""
    try:
        names = [entry.name for entry in path.iterdir()]
    except OSError:
        return []
    parsed = {name: parse_name(name) for name in names}
    return sorted(
        name for name, log in parsed.items() if log is not None and log.kind is DirectoryKind.STRAY
    )


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
