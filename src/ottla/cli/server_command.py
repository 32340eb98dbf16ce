"""``ottla server``: runs a node of any role until it is told to stop."""

import asyncio
import logging
import signal
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.settings_file import fail, load_settings
from ottla.config.errors import ConfigError
from ottla.config.settings import Loaded
from ottla.node.handle import Node, ShutdownTimeout, StartFailed, start_node
from ottla.protocol.faults import Fault
from ottla.storage.log_dir import DirectoryInUse
from ottla.storage.meta_properties import MetaPropertiesRefused

log = logging.getLogger(__name__)

# Kafka's brokers give up a controlled shutdown when the controller stays silent for as long.
CONTROLLED_SHUTDOWN_S = 30.0
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def serve(
    config: Annotated[Path, typer.Argument(help="The server.properties.")],
    override: Annotated[
        list[str] | None, typer.Option("--override", help="A setting of its own: key=value.")
    ] = None,
) -> None:
    """Run a node; SIGTERM and SIGINT stop it in order."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    loaded = load_settings(config, override or [])
    try:
        asyncio.run(run_until_stopped(loaded))
    except ConfigError as error:
        fail("\n".join(map(str, error.problems)))
    except (DirectoryInUse, MetaPropertiesRefused, StartFailed, Fault, OSError) as error:
        fail(f"{type(error).__name__}: {error}")


async def run_until_stopped(loaded: Loaded) -> None:
    """Start a node and wait for a signal, or for its own end; a second signal is not waited for."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = await start_node(loaded)
    typer.echo(f"started node {node.node_id} {_addresses(node)}")
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


def _addresses(node: Node) -> str:
    found = {"clients": node.listen_addr, "controller": node.controller_addr}
    return " ".join(f"{name}={at}" for name, at in found.items() if at is not None)
