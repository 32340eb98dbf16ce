"""``ottla up``: run a local cluster, one process per node, in the foreground or detached."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec
import typer

from ottla.cli.connecting.connection_settings import options_of, read_properties
from ottla.cli.connecting.pairs import parse_pairs
from ottla.cli.options import OutputOption, answer, chosen, say
from ottla.cli.terminal.failures import INTERRUPTED, fail, reason_of
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.rendering import Row
from ottla.cli.up.arguments import (
    DATA,
    AdvertisedHostOption,
    ConfigOption,
    DataOption,
    DetachedOption,
    DetachOption,
    HostOption,
    NodesOption,
    PortOption,
    SecureOption,
    SettingsOption,
)
from ottla.cli.up.detached import (
    NOT_RUNNING,
    print_logs,
    read_given,
    start_detached,
    state_of,
    stop_cluster,
)
from ottla.cli.up.files import (
    Running,
    check_directory,
    lock_directory,
    private_files,
    read_options,
    read_running,
    write_options,
    write_running,
)
from ottla.cli.up.options import (
    GivenOptions,
    UpOptions,
    describe_options,
    merge_options,
)
from ottla.cli.up.plan import (
    CONTROLLERS,
    SECURE_LISTENER,
    BadPlan,
    PlannedNode,
    plan_nodes,
    settings_of,
)
from ottla.cli.up.processes import NodeDied, run_cluster
from ottla.cli.up.settings import client_config, client_settings
from ottla.client.connection import Options
from ottla.config.loading import load
from ottla.config.problems import ConfigError
from ottla.node.directories.format_plan import FormatOptions, plan_format
from ottla.node.directories.formatting import FormatRefused, format_node
from ottla.protocol.uuids import uuid_text
from ottla.runtime import system_calls
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.randomness import SystemRandom
from ottla.security.local_cluster import HOSTS, LocalSecurity, local_security
from ottla.security.private_files import PRIVATE, write_file
from ottla.storage.directory.meta_properties import MetaPropertiesRefused, read_meta_properties

SECURITY_NAME: Final = "security"
Greeting: TypeAlias = Callable[[Running, LocalSecurity | None], None]

app = typer.Typer(add_completion=False, invoke_without_command=True)


@app.callback()
def up(  # noqa: PLR0913 - one per option
    context: typer.Context,
    *,
    nodes: NodesOption = None,
    port: PortOption = None,
    data: DataOption = DATA,
    secure: SecureOption = False,
    settings: SettingsOption = None,
    config: ConfigOption = None,
    host: HostOption = None,
    advertised_host: AdvertisedHostOption = None,
    detach: DetachOption = False,
    detached: DetachedOption = False,
    output: OutputOption = None,
) -> None:
    """Run a local cluster; Ctrl-C or SIGTERM stops it. Data and options are kept."""
    if context.invoked_subcommand is not None:
        return
    given = GivenOptions(
        nodes=nodes,
        port=port,
        host=host,
        advertised_host=advertised_host,
        is_secure=secure,
        settings={
            **({} if config is None else read_properties(config, "--config")),
            **parse_pairs(settings, "-c"),
        },
    )
    root = data.absolute()
    signalled = None
    try:
        if detach:
            running = asyncio.run(start_detached(root, given))
            _show_detached(context, output, root, running)
        elif detached:
            signalled = _run_alone(root, read_given(), _greet_in_log)
        else:
            signalled = _run_alone(root, given, partial(_greet, context, output))
    except (
        BadPlan,
        ConfigError,
        FormatRefused,
        MetaPropertiesRefused,
        NodeDied,
        OSError,
        ValueError,
    ) as error:
        fail(reason_of(error))
    if signalled == signal.SIGINT:
        sys.exit(INTERRUPTED)


@app.command("status")
def status(context: typer.Context, *, data: DataOption = DATA, output: OutputOption = None) -> None:
    """Show whether the cluster of a directory runs, and where; exit 3 if it does not."""
    check_directory(data.absolute())
    show_state(context, output, data.absolute())
    if read_running(data.absolute()) is None:
        raise typer.Exit(NOT_RUNNING)


@app.command("stop")
def stop(context: typer.Context, *, data: DataOption = DATA, output: OutputOption = None) -> None:
    """Stop the cluster of a directory and wait until all its nodes have stopped."""
    check_directory(data.absolute())
    pid = asyncio.run(stop_cluster(data.absolute()))
    answer(context, output, [{"stopped": str(data), "pid": pid}])


@app.command("logs")
def logs(
    context: typer.Context,
    *,
    data: DataOption = DATA,
    node: Annotated[int | None, typer.Option("--node", help="Only this node.")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Last lines of each.")] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines until interrupted.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Print the logs of the nodes, each line with its node."""
    check_directory(data.absolute())
    printing = print_logs(data.absolute(), node, lines, follow, chosen(context, output))
    asyncio.run(printing)


def show_state(context: typer.Context, output: OutputOption, root: Path) -> None:
    """Print the state of a cluster."""
    answer(context, output, state_of(root))


# -- a start -----------------------------------------------------------------------


def _run_alone(root: Path, given: GivenOptions, greet: Greeting) -> int | None:
    """Run a cluster that no other process runs; all files that it creates are private."""
    with private_files(), lock_directory(root):
        return _run(root, given, greet)


def _run(root: Path, given: GivenOptions, greet: Greeting) -> int | None:
    """Prepare and run a cluster; return the signal that ended it."""
    options = merge_options(given, _kept(root), str(root), socket.gethostname())
    planned = plan_nodes(
        options.nodes,
        options.port,
        str(root),
        lambda port: _is_free(options.host, port),
        (options.host, options.advertised_host),
        has_registry=_has_registry_extra(),
        has_console=_has_console_extra() and "console.listeners" not in options.settings,
        is_secure=options.is_secure,
    )
    security = _security(root, options) if options.is_secure else None
    _prepare(planned, security, options)
    write_options(root, options)
    if kept := describe_options(options):
        say(f"options of this cluster: {' '.join(kept)}")
    bootstrap = ",".join(each.address for each in planned)
    connection = Options()
    if security is not None:
        _write_client_file(security, bootstrap)
        connection = options_of(security.client_config(bootstrap))
    running = Running(
        pid=os.getpid(),
        bootstrap=bootstrap,
        metrics=tuple(each.metrics_url for each in planned if each.metrics_url is not None),
        registries=tuple(each.registry_url for each in planned if each.registry_url is not None),
        consoles=tuple(each.console_url for each in planned if each.console_url is not None),
        logs={str(each.node_id): each.log_file for each in planned},
    )
    write_running(root, running)

    def ready() -> None:
        write_running(root, msgspec.structs.replace(running, is_ready=True))
        greet(running, security)

    return asyncio.run(run_cluster(planned, connection, ready))


def _has_registry_extra() -> bool:
    """Say whether the libraries of the schema registry are installed."""
    return all(find_spec(name) is not None for name in ("starlette", "uvicorn", "jsonschema"))


def _has_console_extra() -> bool:
    """Say whether the libraries of the console are installed."""
    return all(find_spec(name) is not None for name in ("starlette", "uvicorn", "jinja2"))


def _greet(
    context: typer.Context,
    output: OutputOption,
    running: Running,
    security: LocalSecurity | None,
) -> None:
    """Print the addresses and the client settings."""
    bootstrap = running.bootstrap
    if chosen(context, output) is Output.TABLE:
        sys.stdout.write(_addresses(running) + client_settings(security, bootstrap))
    else:
        found: Row = {
            "ready": bootstrap.split(","),
            "metrics": list(running.metrics),
            "schema_registry": list(running.registries),
            "console": list(running.consoles),
            "client_config": client_config(security, bootstrap),
        }
        answer(context, output, found)
    sys.stdout.flush()


def _greet_in_log(running: Running, _security: LocalSecurity | None) -> None:
    """Write the addresses into the log of a detached cluster, and no password."""
    sys.stdout.write(_addresses(running))
    sys.stdout.flush()


def _addresses(running: Running) -> str:
    urls = "".join(f"metrics {url}\n" for url in running.metrics)
    urls += "".join(f"schema registry {url}\n" for url in running.registries)
    urls += "".join(f"console {url}\n" for url in running.consoles)
    return f"ready {running.bootstrap}\n{urls}"


def _show_detached(
    context: typer.Context, output: OutputOption, root: Path, running: Running
) -> None:
    """Print the state of a cluster that runs in another process, and its client settings."""
    options = read_options(root) or UpOptions()
    security = _security(root, options) if options.is_secure else None
    state = state_of(root)
    if chosen(context, output) is Output.TABLE:
        answer(context, output, state)
        sys.stdout.write(client_settings(security, running.bootstrap))
    else:
        config = client_config(security, running.bootstrap)
        answer(context, output, {**state, "client_config": config})


def _kept(root: Path) -> UpOptions | None:
    """Return the options of the existing cluster, also of one that did not keep them yet."""
    if (root / "meta.properties").exists():
        raise BadPlan(f"{root}: is the log directory of a single node; use another one with --data")
    kept = read_options(root)
    there = sum((root / f"node-{n}" / "data" / "meta.properties").exists() for n in range(1, 100))
    if kept is not None or not there:
        return kept if there else None
    return UpOptions(nodes=there, is_secure=(root / SECURITY_NAME).exists())


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        system_calls.allow_rebinding(probe)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _security(root: Path, options: UpOptions) -> LocalSecurity:
    names = dict.fromkeys((*HOSTS, options.advertised_host))
    return local_security(root / SECURITY_NAME, SystemClock(), SystemRandom(), tuple(names))


def _write_client_file(security: LocalSecurity, bootstrap: str) -> None:
    config = security.client_config(bootstrap)
    text = "".join(f"{key}={value}\n" for key, value in config.items())
    write_file(Path(security.directory) / "client.properties", text.encode(), PRIVATE)


def _server_settings(security: LocalSecurity, node: PlannedNode) -> dict[str, str]:
    settings = security.server_settings(SECURE_LISTENER, CONTROLLERS)
    return settings if node.registry_port is None else {**settings, **security.registry_settings()}


def _prepare(
    nodes: tuple[PlannedNode, ...], security: LocalSecurity | None, options: UpOptions
) -> None:
    """Write every node's settings, and format new log directories."""
    disk, random, clock = RealDisk(), SystemRandom(), SystemClock()
    found = [read_meta_properties(disk, n.data) for n in nodes if disk.exists(n.data)]
    known = next((meta.cluster_id for meta in found if meta is not None), None)
    cluster_id = known or uuid_text(random.uuid())
    for node in nodes:
        disk.make_dirs(node.directory)
        own = None if security is None else _server_settings(security, node)
        text = settings_of(node, nodes, own, options.settings)
        loaded = load(text)
        # It may contain passwords.
        write_file(Path(node.settings_file), text.encode(), PRIVATE)
        wanted = FormatOptions(
            cluster_id=cluster_id,
            is_formatted_ignored=True,
            scram=() if security is None else security.scram,
        )
        format_node(disk, random, clock.now(), plan_format(loaded, wanted, random))
