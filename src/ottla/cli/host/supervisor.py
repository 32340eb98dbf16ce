"""The supervisor of the nodes of one machine: processes, signals, timers, and the combined log.

    SIGTERM, SIGINT    stop the nodes one after the other; again: all at once; again: kill them
    SIGHUP             read the settings again, and restart the nodes one after the other

The nodes run in sessions of their own, so Ctrl-C reaches them through the supervisor only. If the
supervisor ends without stopping them, the end of their standard input does.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from ottla.cli.commands.server_arguments import ServerArguments
from ottla.cli.connecting.settings_file import apply_log_settings, begin_log, load_settings
from ottla.cli.host.lines import LineSplitter, marked
from ottla.cli.host.node_states import NodeState, StateLine, parse_line
from ottla.cli.host.plan import BadHostPlan, HostNode, plan_host
from ottla.cli.host.supervision import (
    Effect,
    Finish,
    Kill,
    Report,
    Start,
    Supervision,
    Terminate,
)
from ottla.cli.terminal.failures import INTERRUPTED, fail
from ottla.cli.terminal.output import Output
from ottla.operations.counting import plural
from ottla.runtime import system_calls
from ottla.runtime.service_manager import READY, STOPPING, ServiceManager

log = logging.getLogger(__name__)

_READ_BYTES: Final = 65_536


def serve_host(arguments: ServerArguments) -> None:
    """Run the nodes until a signal stops them.

    Exits with 0 after SIGTERM, with 130 after SIGINT, and with 1 if a node did not start or had to
    be killed.
    """
    begin_log()
    nodes = _plan(arguments)
    apply_log_settings(load_settings(arguments.config, list(arguments.overrides)).broker)
    sys.exit(asyncio.run(Supervisor(arguments, nodes).run()))


def _plan(arguments: ServerArguments) -> tuple[HostNode, ...]:
    loaded = load_settings(arguments.config, list(arguments.overrides))
    try:
        return plan_host(loaded, arguments.nodes or 1, arguments.port_step)
    except BadHostPlan as error:
        fail(str(error))


class Supervisor:
    """Carries out the effects of `Supervision`."""

    def __init__(self, arguments: ServerArguments, nodes: Sequence[HostNode]) -> None:
        self._arguments = arguments
        self._nodes = {node.node_id: node for node in nodes}
        self._rules = Supervision([node.node_id for node in nodes])
        self._addresses: dict[int, dict[str, str]] = {}
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._to_signal: dict[int, signal.Signals] = {}
        self._wake = asyncio.Event()
        self._exit_code: int | None = None
        self._was_all_ready = False
        self._is_interrupted = False
        self._tasks: asyncio.TaskGroup | None = None
        self._manager = ServiceManager()

    async def run(self) -> int:
        """Run until all nodes have stopped; return the exit code."""
        self._handle_signals()
        async with asyncio.TaskGroup() as self._tasks:
            if self._arguments.is_bound_to_input:
                await self._watch_input()
            keeping = self._tasks.create_task(self._manager.keep_alive())
            self._carry_out(self._rules.begin(_now()))
            while self._exit_code is None:
                await self._wait_due()
                self._carry_out(self._rules.on_time(_now()))
            keeping.cancel()
        return self._exit_code or (INTERRUPTED if self._is_interrupted else 0)

    def _handle_signals(self) -> None:
        system_calls.on_signal(signal.SIGTERM, self._stop)
        system_calls.on_signal(signal.SIGINT, self._interrupt)
        if system_calls.RELOAD_SIGNAL is not None:
            system_calls.on_signal(system_calls.RELOAD_SIGNAL, self._roll)

    async def _watch_input(self) -> None:
        await system_calls.on_end_of_input(self._stop)

    def _interrupt(self) -> None:
        self._is_interrupted = True
        self._stop()

    def _stop(self) -> None:
        self._manager.notify(STOPPING)
        self._carry_out(self._rules.on_stop(_now()))

    def _roll(self) -> None:
        """Restart all nodes with the settings that are in the file now."""
        try:
            nodes = _plan(self._arguments)
        except SystemExit:
            log.error("no rolling restart: the settings cannot be used")  # noqa: TRY400 - reported
            return
        if {node.node_id for node in nodes} != set(self._nodes):
            log.error("no rolling restart: node.id has changed; stop the nodes first")
            return
        self._nodes = {node.node_id: node for node in nodes}
        self._carry_out(self._rules.on_roll(_now()))

    async def _wait_due(self) -> None:
        due = self._rules.next_due()
        try:
            async with asyncio.timeout(None if due is None else max(0.0, due - _now())):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    # -- effects ---------------------------------------------------------------------------

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Start(node_id):
                    assert self._tasks is not None
                    self._tasks.create_task(self._run_node(self._nodes[node_id]))
                case Terminate(node_id):
                    self._signal(node_id, signal.SIGTERM)
                case Kill(node_id):
                    self._signal(node_id, system_calls.KILL_SIGNAL)
                case Report(text, is_error):
                    log.log(logging.ERROR if is_error else logging.INFO, "%s", text)
                case Finish(code):
                    self._exit_code = code
        if effects:
            self._wake.set()

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        process = self._processes.get(node_id)
        if process is None:
            self._to_signal[node_id] = number  # its process is being created
        elif process.returncode is None:
            process.send_signal(number)

    # -- one node --------------------------------------------------------------------------

    async def _run_node(self, node: HostNode) -> None:
        """Run the process of a node to its end, and pass on what it writes."""
        process = await asyncio.create_subprocess_exec(
            *self._command(node),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=_environment(),
        )
        self._processes[node.node_id] = process
        if (number := self._to_signal.pop(node.node_id, None)) is not None:
            process.send_signal(number)
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.TaskGroup() as pumps:
            pumps.create_task(_pump(process.stdout, lambda line: self._on_state(node, line)))
            pumps.create_task(_pump(process.stderr, lambda line: _pass_on(node.node_id, line)))
        code = await process.wait()
        assert process.stdin is not None
        process.stdin.close()
        del self._processes[node.node_id]
        self._carry_out(self._rules.on_exit(node.node_id, code, _now()))

    def _command(self, node: HostNode) -> list[str]:
        overrides = [*self._arguments.overrides, *node.overrides]
        options = [word for each in overrides for word in ("--override", each)]
        own = ["--stop-at-end-of-input", "--supervised"]
        begin = [sys.executable, "-m", "ottla.cli.main", "server", self._arguments.config]
        return begin + own + options

    def _on_state(self, node: HostNode, line: bytes) -> None:
        found = parse_line(line)
        if found is None:
            _pass_on(node.node_id, line)
        elif found.state is NodeState.READY:
            self._greet(found)
            self._carry_out(self._rules.on_ready(node.node_id, _now()))
            self._greet_all()
        else:
            is_settled = found.state is NodeState.SETTLED
            self._carry_out(self._rules.on_settled(node.node_id, is_settled, _now()))

    # -- output ----------------------------------------------------------------------------

    def _greet(self, ready: StateLine) -> None:
        self._addresses[ready.node] = ready.addresses()
        if self._arguments.output is Output.TABLE:
            found = " ".join(f"{name}={at}" for name, at in ready.addresses().items())
            _say(f"started node {ready.node} {found}\n")

    def _greet_all(self) -> None:
        """Say once that all nodes serve."""
        if self._was_all_ready or not self._rules.are_all_ready():
            return
        self._was_all_ready = True
        self._manager.notify(READY, f"STATUS={plural(len(self._nodes), 'node')} running")
        if self._arguments.output is Output.TABLE:
            _say(f"ready {','.join(each['clients'] for each in self._addresses.values())}\n")
            return
        from ottla.cli.terminal.rendering import Row, render

        rows: list[Row] = [{"node": node_id, **self._addresses[node_id]} for node_id in self._nodes]
        _say(render(rows, self._arguments.output))


async def _pump(stream: asyncio.StreamReader, handle: Callable[[bytes], None]) -> None:
    """Pass each line of a stream on until its end."""
    splitter = LineSplitter()
    while data := await stream.read(_READ_BYTES):
        for line in splitter.feed(data):
            handle(line)
    for line in splitter.end():
        handle(line)


def _pass_on(node_id: int, line: bytes) -> None:
    sys.stderr.buffer.write(marked(node_id, line))
    sys.stderr.buffer.flush()


def _say(text: str) -> None:
    """Print on stdout. A node without one, or with a full one, serves all the same."""
    with suppress(OSError):
        sys.stdout.write(text)
        sys.stdout.flush()


def _environment() -> dict[str, str]:
    """Return the environment of the nodes: only the supervisor reports to systemd."""
    own = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
    return {name: value for name, value in os.environ.items() if name not in own}


def _now() -> float:
    return asyncio.get_running_loop().time()


class _EndOfInput(asyncio.Protocol):
    """Calls ``stop`` at the end of standard input."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop: Callable[[], None] | None = stop

    def eof_received(self) -> None:
        """Stop once."""
        if self._stop is not None:
            self._stop()
            self._stop = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop, unless the end was seen."""
        self.eof_received()
