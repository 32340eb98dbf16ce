"""Run a node of any role until a signal stops it, for ``ottla server``."""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress

from ottla.cli.commands.server_arguments import ServerArguments
from ottla.cli.connecting.settings_file import apply_log_settings, begin_log, load_settings
from ottla.cli.terminal.failures import INTERRUPTED, fail
from ottla.cli.terminal.output import Output
from ottla.cli.warming import warm
from ottla.config.loading import Loaded
from ottla.config.problems import ConfigError, Problem
from ottla.node.directories.start_errors import START_FAULTS, start_error
from ottla.node.handle import Node, ShutdownTimeout, start_node
from ottla.protocol.types import Offset
from ottla.raft.repair import NO_REPAIR, Repair
from ottla.runtime import system_calls
from ottla.runtime.collector import settle
from ottla.runtime.event_loop import run
from ottla.runtime.service_manager import READY, STOPPING, ServiceManager
from ottla.runtime.system_calls import close_to_others
from ottla.storage.directory.meta_properties import NotFormatted

log = logging.getLogger(__name__)

# Kafka's brokers give up a controlled shutdown if the controller does not answer for this long.
CONTROLLED_SHUTDOWN_S = 30.0


def serve(arguments: ServerArguments) -> None:
    """Run a node; SIGTERM and SIGINT stop it cleanly.

    Exits with 0 after SIGTERM, with 130 after SIGINT, and with 1 and a message on a failure.
    """
    begin_log()
    close_to_others()
    loaded = load_settings(arguments.config, list(arguments.overrides))
    apply_log_settings(loaded.broker)

    def started(node: Node) -> None:
        if arguments.is_supervised:
            from ottla.cli.host.node_states import ready_line

            _say(ready_line(node.node_id, _found(node)))
        else:
            _say(_greeting(node, arguments.output))

    try:
        signalled = run(
            run_until_stopped(
                loaded,
                started,
                is_bound_to_input=arguments.is_bound_to_input,
                is_supervised=arguments.is_supervised,
                repair=_repair(arguments),
            )
        )
    except ConfigError as error:
        fail("\n".join(map(str, error.problems)))
    except NotFormatted as error:
        fail(f"{error}. Run `{_format_command(arguments.config, loaded)}` first.")
    except START_FAULTS as error:
        fail(start_error(error))
    if signalled == signal.SIGINT:
        sys.exit(INTERRUPTED)


def _format_command(path: str, loaded: Loaded) -> str:
    """Return the command that formats the directories of a new node."""
    config = loaded.broker
    is_dynamic = "controller" in config.process_roles and not config.controller_quorum_voters
    return f"ottla format --config {path}" + (" --standalone" if is_dynamic else "")


def _say(text: str) -> None:
    """Print on stdout. A node without one, or with a full one, serves all the same."""
    with suppress(OSError):
        sys.stdout.write(text)
        sys.stdout.flush()


def _repair(arguments: ServerArguments) -> Repair:
    at = arguments.truncate_metadata_at
    return Repair(arguments.is_rejoining, None if at is None else Offset(at))


async def run_until_stopped(
    loaded: Loaded,
    started: Callable[[Node], None],
    *,
    is_bound_to_input: bool = False,
    is_supervised: bool = False,
    repair: Repair = NO_REPAIR,
) -> int | None:
    """Run a node until it ends or a signal arrives; return the signal's number.

    A signal during the start gives the start up.
    """
    stop, manager = _Stop(), ServiceManager()
    for number in (signal.SIGTERM, signal.SIGINT):
        system_calls.on_signal(number, stop.take, number)
    if is_bound_to_input:
        await system_calls.on_end_of_input(stop.take)
    _load_console(loaded)
    node = await _start(loaded, repair, stop)
    if node is not None:
        console = await _console(node, loaded)
        started(node)
        manager.notify(READY, f"STATUS=node {node.node_id} serves")
        reporting = _report_settled(node) if is_supervised else None
        await _run_node(node, loaded, stop, manager, [reporting, console])
    return stop.number


def _load_console(loaded: Loaded) -> None:
    """Import the console before the node serves, which would wait for it. Raises ConfigError."""
    url = loaded.broker.console_listeners
    if url is None:
        return
    try:
        import ottla.cli.commands.console_running  # noqa: F401 - it is used once the node serves
    except ImportError:
        rule = "needs `pip install 'ottla[console]'`"
        raise ConfigError([Problem("console.listeners", url, rule)]) from None


async def _console(node: Node, loaded: Loaded) -> Coroutine[object, object, None] | None:
    """Return what serves the console; None without ``console.listeners``. Raises ConfigError."""
    url = loaded.broker.console_listeners
    if url is None or "broker" not in loaded.broker.process_roles:
        return None
    from ottla.cli.commands.console_running import console_of

    try:
        service = console_of(node, loaded.broker)
    except ValueError as error:
        await node.shutdown()
        raise ConfigError([Problem("console.listeners", url, str(error))]) from error
    except OSError as error:  # the node is worth more than its console
        log.error("console not served url=%s reason=%s", url, error)  # noqa: TRY400
        return None
    return service.run(lambda: None)


class _Stop:
    """Set once the node should stop. ``number`` is the signal; None without one."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._event = asyncio.Event()

    def take(self, number: int | None = None) -> None:
        """Ask for the stop; the first signal counts."""
        self.number = self.number or number
        self._event.set()

    async def wait(self) -> None:
        """Return once the stop was asked for."""
        await self._event.wait()


async def _start(loaded: Loaded, repair: Repair, stop: _Stop) -> Node | None:
    """Start a node; None if a signal arrives first, as while a quorum has no majority."""
    try:
        async with asyncio.TaskGroup() as tasks:
            starting = tasks.create_task(start_node(loaded, repair=repair))
            giving_up = tasks.create_task(_give_up(starting, stop))
            await asyncio.wait((starting,))
            giving_up.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return None if starting.cancelled() else starting.result()


async def _give_up(starting: asyncio.Task[Node], stop: _Stop) -> None:
    await stop.wait()
    starting.cancel()


async def _run_node(
    node: Node,
    loaded: Loaded,
    stop: _Stop,
    manager: ServiceManager,
    others: Sequence[Coroutine[object, object, None] | None],
) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(_end_with(node, stop))
            beside = [tasks.create_task(_warm_up())]
            beside += [tasks.create_task(other) for other in others if other is not None]
            keeping = tasks.create_task(manager.keep_alive())
            await stop.wait()
            manager.notify(STOPPING)
            for task in beside:
                task.cancel()
            await _stop(node, loaded)
            keeping.cancel()
            ended.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        await node.shutdown()


async def _warm_up() -> None:
    """Load lazy modules, then exclude all objects that exist now from garbage collection."""
    await warm()
    settle()


async def _report_settled(node: Node) -> None:
    from ottla.cli.host.node_states import report_settled

    await report_settled(lambda: node.image, node.node_id, _say)


async def _end_with(node: Node, stop: _Stop) -> None:
    """Wake the main task when the node stops on its own."""
    try:
        await node.wait_stopped()
    finally:
        stop.take()


async def _stop(node: Node, loaded: Loaded) -> None:
    if loaded.broker.controlled_shutdown_enable:
        try:
            await node.controlled_shutdown(CONTROLLED_SHUTDOWN_S)
        except ShutdownTimeout as error:
            log.warning("stopping without a controlled shutdown: %s", error)


def _greeting(node: Node, output: Output) -> str:
    """Return the line, or the JSON document, that lists the addresses of a node."""
    found = _found(node)
    if output is Output.TABLE:
        addresses = " ".join(f"{name}={at}" for name, at in found.items())
        return f"started node {node.node_id} {addresses}\n"
    from ottla.cli.terminal.rendering import render

    return render({"node": node.node_id, **found}, output)


def _found(node: Node) -> Mapping[str, str]:
    found = {
        "clients": node.listen_addr,
        "controller": node.controller_addr,
        "metrics": node.metrics_addr,
    }
    return {name: str(at) for name, at in found.items() if at is not None}
