"""``ottla mcp``: the console's JSON API as tools for assistants, over stdin and stdout."""

import asyncio
import sys
from typing import Annotated

import typer

from ottla.cli.commands.registry_option import registry_settings
from ottla.cli.connecting.session import client_ports, with_cluster
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, RegistryOption
from ottla.cli.terminal.failures import fail
from ottla.client.cluster import Cluster
from ottla.runtime.worker import ThreadWorker

app = typer.Typer(add_completion=False)


@app.command("mcp")
def mcp(
    *,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Offer tools that change the cluster, too.")
    ] = False,
    registry: RegistryOption = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Serve tools for assistants (Model Context Protocol) on stdin and stdout, read-only.

    Requests have the identity of the client settings; the brokers' ACLs decide what they may do.
    """
    try:
        from ottla.console.endpoints import Context, User
        from ottla.console.mcp import LINE_BYTES_MAX, McpServer
        from ottla.console.search import SearchJobs
    except ImportError:
        fail("assistants need `pip install 'ottla[console]'`")
    settings = registry_settings(registry)

    async def work(cluster: Cluster) -> None:
        ports, worker = client_ports(), ThreadWorker("mcp")
        jobs = SearchJobs(ports.random, worker)
        context = Context(ports.clock, ports.random, worker, jobs, not allow_changes)
        server = McpServer(User("", cluster, settings), context, may_change=allow_changes)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(jobs.run(lambda: None))
            reading = ThreadWorker("stdin")
            while line := await reading.run(lambda: sys.stdin.buffer.readline(LINE_BYTES_MAX)):
                reply = await server.answer(line)
                if reply is not None:
                    sys.stdout.buffer.write(reply + b"\n")
                    sys.stdout.buffer.flush()
            running.cancel()

    with_cluster(bootstrap, work)
