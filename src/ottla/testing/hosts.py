"""Hosts for the nodes of a test cluster: a thread of the test's process, or a process.

Both keep the node's directory and ports across restarts. A thread starts faster and can be
debugged; only a process can be killed.
"""

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ottla.config.loading import load
from ottla.node.handle import Node, start_node
from ottla.runtime import system_calls
from ottla.runtime.ports import Address
from ottla.testing.child import READY, Orders, leave, node_ports, wait_brokers
from ottla.testing.loop_thread import LoopThread
from ottla.testing.ports import HeldPort

START_S_MAX = 60.0
STOP_S_MAX = 30.0
LOG_TAIL_CHARACTERS = 4000


class NodeFailed(Exception):
    """A node did not start, or did not stop; the text has its last output."""


class NeedsProcesses(Exception):
    """The operation is only possible on a process: ``run_cluster(..., processes=True)``."""


@dataclass(frozen=True, slots=True)
class Site:
    """What a node keeps while it does not run. ``relays``: how it reaches its peers.

    ``environment``: additional environment variables of its process; ``command``: the prefix of its
    command line, such as ``ip netns exec``.
    """

    node_id: int
    root: Path
    ports: Mapping[str, HeldPort]
    relays: Mapping[Address, Address] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()

    @property
    def settings(self) -> Path:
        """Its ``server.properties``."""
        return self.root / "server.properties"

    @property
    def log(self) -> Path:
        """The file with the output of its process."""
        return self.root / "node.log"

    def sockets(self) -> dict[str, socket.socket]:
        """Bind all its ports again. Raises OSError as `HeldPort.socket`; then none stays bound."""
        with contextlib.ExitStack() as undo:
            bound = {
                name: undo.enter_context(contextlib.closing(port.socket()))
                for name, port in self.ports.items()
            }
            undo.pop_all()
        return bound


class Host(Protocol):
    """A node that can be started and stopped repeatedly."""

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        ...

    def begin(self, brokers: list[int]) -> None:
        """Start it; returns before it serves. It is ready when it sees that ``brokers`` serve."""
        ...

    def wait_ready(self) -> None:
        """Wait until it is ready. Raises NodeFailed."""
        ...

    def stop(self) -> None:
        """Stop it by controlled shutdown. Raises NodeFailed."""
        ...

    def kill(self) -> None:
        """End it at once, as in a power loss. Raises NeedsProcesses."""
        ...

    def pause(self) -> None:
        """Pause it: it neither answers nor notices that time passes."""
        ...

    def resume(self) -> None:
        """Resume it."""
        ...

    def discard(self) -> None:
        """End it by any means; it is not used again."""
        ...


class ThreadHost:
    """A node on its own loop, in a thread of this process."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._thread: LoopThread | None = None
        self._starting: Future[Node] | None = None
        self._node: Node | None = None
        self._resumed: threading.Event | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._thread is not None

    def begin(self, brokers: list[int]) -> None:
        """Start it; returns before it serves."""
        self._thread = LoopThread(f"ottla-node-{self._site.node_id}")
        self._starting = self._thread.submit(self._start(brokers), START_S_MAX)

    async def _start(self, brokers: list[int]) -> Node:
        loaded = load(self._site.settings.read_text(encoding="utf-8"))
        ports = node_ports(self._site.sockets(), self._site.relays)
        node = await start_node(loaded, ports, start_s_max=START_S_MAX)
        try:
            await wait_brokers(node, brokers)
        except BaseException:
            await node.shutdown()
            raise
        return node

    def wait_ready(self) -> None:
        """Wait until it is ready. Raises NodeFailed."""
        assert self._starting is not None
        try:
            self._node = self._starting.result()
        except Exception as error:
            self.discard()
            raise NodeFailed(f"node {self._site.node_id} did not start: {error!r}") from error

    def stop(self) -> None:
        """Stop it by controlled shutdown. Raises NodeFailed."""
        node, thread = self._node, self._thread
        assert thread is not None
        self.resume()
        try:
            if node is not None:
                thread.run(leave(node), STOP_S_MAX)
        except Exception as error:
            raise NodeFailed(f"node {self._site.node_id} did not stop: {error!r}") from error
        finally:
            self._node = self._thread = None
            thread.close()

    def kill(self) -> None:
        """Raise NeedsProcesses: a thread cannot be ended from outside."""
        raise NeedsProcesses("a node in a thread cannot be killed")

    def pause(self) -> None:
        """Block its loop."""
        assert self._thread is not None
        if self._resumed is None:
            self._resumed = threading.Event()
            self._thread.block(self._resumed)

    def resume(self) -> None:
        """Unblock its loop."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    def discard(self) -> None:
        """End it without controlled shutdown."""
        self.resume()
        node, thread = self._node, self._thread
        self._node = self._thread = None
        if thread is not None:
            try:
                if node is not None:
                    thread.run(node.shutdown(), STOP_S_MAX)
            finally:
                thread.close()


class ProcessHost:
    """A node in its own process."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._command = (*site.command, sys.executable, "-m", "ottla.testing.child")
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = -1
        self._lifeline = -1
        self._is_paused = False

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._process is not None

    @property
    def process_id(self) -> int | None:
        """Its process id, while it runs."""
        return None if self._process is None else self._process.pid

    def begin(self, brokers: list[int]) -> None:
        """Start it; returns before it serves. Raises NodeFailed where that is not possible."""
        if not system_calls.IS_POSIX:
            text = (
                "a node in its own process inherits sockets, which this operating system cannot do"
            )
            raise NodeFailed(f"{text}: use processes=False")
        sockets = self._site.sockets()
        self._ready, reply = os.pipe()
        lifeline, self._lifeline = os.pipe()
        orders = Orders(
            settings=str(self._site.settings),
            sockets={name: each.fileno() for name, each in sockets.items()},
            relays=[
                ((peer.host, peer.port), (relay.host, relay.port))
                for peer, relay in self._site.relays.items()
            ],
            brokers=brokers,
            ready=reply,
            lifeline=lifeline,
        )
        try:
            with self._site.log.open("ab") as log:
                self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    [*self._command, orders.to_text()],
                    pass_fds=(reply, lifeline, *orders.sockets.values()),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **self._site.environment},
                )
        finally:
            # The child has its own copies. One kept here would stay listening after the child
            # ended.
            for each in sockets.values():
                each.close()
            os.close(reply)
            os.close(lifeline)

    def wait_ready(self) -> None:
        """Wait until it is ready. Raises NodeFailed."""
        readable, _, _ = select.select([self._ready], [], [], START_S_MAX)
        if not readable or os.read(self._ready, len(READY)) != READY:
            self.discard()
            raise NodeFailed(f"node {self._site.node_id} did not start:\n{self._tail()}")

    def stop(self) -> None:
        """Ask it to stop, and wait. Raises NodeFailed."""
        assert self._process is not None
        self.resume()
        self._process.terminate()
        try:
            code = self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            code = None
        self.discard()
        if code != 0:
            raise NodeFailed(
                f"node {self._site.node_id} did not stop in order, code {code}:\n{self._tail()}"
            )

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.discard()

    def pause(self) -> None:
        """Stop it with SIGSTOP."""
        assert self._process is not None
        system_calls.pause(self._process.pid)
        self._is_paused = True

    def resume(self) -> None:
        """Resume it with SIGCONT."""
        if self._is_paused and self._process is not None:
            system_calls.resume(self._process.pid)
        self._is_paused = False

    def discard(self) -> None:
        """Kill it, if it still runs, and forget it."""
        process, self._process = self._process, None
        self._is_paused = False
        if process is not None:
            process.kill()
            process.wait()
            os.close(self._ready)
            os.close(self._lifeline)

    def _tail(self) -> str:
        return self._site.log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL_CHARACTERS:]
