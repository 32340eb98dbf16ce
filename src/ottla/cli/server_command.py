"""``ottla server``: runs a node of any role until it is told to stop."""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.options import OutputOption, answer, chosen
from ottla.cli.rendering import Output
from ottla.cli.settings_file import fail, load_settings
from ottla.config.errors import ConfigError
from ottla.config.settings import Loaded
from ottla.node.handle import Node, ShutdownTimeout, StartFailed, start_node
from ottla.protocol.faults import Fault
from ottla.runtime.collector import settle
from ottla.storage.log_dir import DirectoryInUse
from ottla.storage.meta_properties import MetaPropertiesRefused

log = logging.getLogger(__name__)

# Kafka's brokers give up a controlled shutdown when the controller stays silent for as long.
CONTROLLED_SHUTDOWN_S = 30.0
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


app = typer.Typer(add_completion=False)


@app.command("server")
def serve(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(help="The server.properties.")],
    *,
    override: Annotated[
        list[str] | None, typer.Option("--override", help="A setting of its own: key=value.")
    ] = None,
    stop_at_end_of_input: Annotated[
        bool,
        typer.Option("--stop-at-end-of-input", help="Stop when whoever holds stdin is gone."),
    ] = False,
    output: OutputOption = None,
) -> None:
    """Run a node; SIGTERM and SIGINT stop it in order."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    loaded = load_settings(config, override or [])

    def started(node: Node) -> None:
        settle()
        if chosen(context, output) is Output.TABLE:
            typer.echo(f"started node {node.node_id} {_addresses(node)}")
        else:
            answer(context, output, {"node": node.node_id, **_found(node)})
        sys.stdout.flush()

    try:
        asyncio.run(run_until_stopped(loaded, started, is_bound_to_input=stop_at_end_of_input))
    except ConfigError as error:
        fail("\n".join(map(str, error.problems)))
    except (DirectoryInUse, MetaPropertiesRefused, StartFailed, Fault, OSError) as error:
        fail(f"{type(error).__name__}: {error}")


async def run_until_stopped(
    loaded: Loaded, started: Callable[[Node], None], *, is_bound_to_input: bool = False
) -> None:
    """Start a node and wait for a signal, or for its own end; a second signal is not waited for."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if is_bound_to_input:
        await loop.connect_read_pipe(lambda: _EndOfInput(stop), sys.stdin)
    node = await start_node(loaded)
    started(node)
    try:
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(_end_with(node, stop))
            await stop.wait()
            await _stop(node, loaded)
            ended.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        await node.shutdown()


async def _end_with(node: Node, stop: asyncio.Event) -> None:
    """Wake the main task when the node ends by itself."""
    try:
        await node.wait_stopped()
    finally:
        stop.set()


async def _stop(node: Node, loaded: Loaded) -> None:
    if loaded.broker.controlled_shutdown_enable:
        try:
            await node.controlled_shutdown(CONTROLLED_SHUTDOWN_S)
        except ShutdownTimeout as error:
            log.warning("stopping without leave: %s", error)


class _EndOfInput(asyncio.Protocol):
    """Sets ``stop`` when standard input ends."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def eof_received(self) -> None:
        self._stop.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop.set()


def _addresses(node: Node) -> str:
    return " ".join(f"{name}={at}" for name, at in _found(node).items())


def _found(node: Node) -> dict[str, str]:
    found = {"clients": node.listen_addr, "controller": node.controller_addr}
    return {name: str(at) for name, at in found.items() if at is not None}
