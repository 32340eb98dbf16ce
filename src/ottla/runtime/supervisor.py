"""Run services: start them in order, stop them in reverse order, report every failure.

    for each service: start it, wait until it is ready
    then wait until `stop` is set or a service ends
    then cancel the last started, wait for it, then the one before, ...

Not a ``TaskGroup``: that cancels all its children at once, while a node must close its
listeners before its replicas and its replicas before its log.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

log = logging.getLogger(__name__)

# How long a service may take to stop before the supervisor abandons it. Kafka waits as long
# for its network threads and log flushes together.
GRACE_S = 30.0

# The message with which a service is cancelled when another one has failed.
FAILED = "another service failed"


def is_failing(cancelled: asyncio.CancelledError) -> bool:
    """Say whether a service is cancelled because another one failed.

    Its cleanup must not wait for other services then: they may never respond.
    """
    return cancelled.args == (FAILED,)


class Service(Protocol):
    """A part of the node that runs until the node stops."""

    @property
    def name(self) -> str:
        """The name in log messages."""
        ...

    async def run(self, ready: Callable[[], None]) -> None:
        """Call ``ready`` once usable, then run until cancelled. Returning earlier is an error."""
        ...


class ServiceStopped(Exception):
    """A service ended without being stopped."""


class ServiceStuck(Exception):
    """A service did not stop within its grace time and was abandoned while running."""


async def supervise(
    services: Sequence[Service], stop: asyncio.Event, *, grace_s: float = GRACE_S
) -> None:
    """Run ``services`` until ``stop`` is set or one of them fails.

    Every started service is cancelled and awaited before this returns, last started first,
    even if the caller itself is cancelled. Each may take ``grace_s`` seconds.

    Raises:
        The error of the first service that failed, also while stopping. Later errors are logged.
        `ServiceStopped` if a service returned, `ServiceStuck` if the only problem is a service
        that did not stop.
    """
    supervision = _Supervision(stop, grace_s)
    try:
        await supervision.start(services)
        await supervision.wait_until(stop.is_set)
    finally:
        await supervision.stop_all()
    if supervision.first_error is not None:
        raise supervision.first_error


class Running:
    """Services that run in the background. Created by `start`."""

    def __init__(self, task: "asyncio.Task[None]", stop: asyncio.Event) -> None:
        self._task = task
        self._stop = stop

    async def wait_stopped(self) -> None:
        """Return once all services were stopped; raise the error if one failed.

        Cancelling this does not stop them.
        """
        await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Stop all, last started first, and raise as `supervise` does. Idempotent."""
        self._stop.set()
        await self.wait_stopped()


async def start(services: Sequence[Service], *, grace_s: float = GRACE_S) -> Running:
    """Run ``services`` in the background; return once all of them are ready.

    Raises:
        The error of a service that did not become ready. All services are stopped then, as they
        are if the caller is cancelled before they are ready.
    """
    stop = asyncio.Event()
    last = _AllReady()
    task = asyncio.create_task(supervise([*services, last], stop, grace_s=grace_s), name="node")
    ready = asyncio.create_task(last.ready.wait(), name="ready")
    try:
        await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([task])
        raise
    finally:
        ready.cancel()
    if not last.ready.is_set():
        await task
    return Running(task, stop)


class _AllReady:
    """The last service: when it starts, all others are ready."""

    name = "all-ready"

    def __init__(self) -> None:
        self.ready = asyncio.Event()

    async def run(self, ready: Callable[[], None]) -> None:
        ready()
        self.ready.set()
        await asyncio.get_running_loop().create_future()


class _Supervision:
    """One run of a list of services."""

    def __init__(self, stop: asyncio.Event, grace_s: float) -> None:
        self.first_error: BaseException | None = None
        self._stop = stop
        self._grace_s = grace_s
        self._changed = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._ended: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._stopper = asyncio.create_task(self._watch_stop(), name="stop")

    async def _watch_stop(self) -> None:
        await self._stop.wait()
        self._changed.set()

    async def start(self, services: Sequence[Service]) -> None:
        """Start each once the one before is ready; return early on stop or failure."""
        for service in services:
            if not self._stop.is_set() and self.first_error is None:
                await self._start(service)

    async def _start(self, service: Service) -> None:
        is_ready = False

        def ready() -> None:
            nonlocal is_ready
            is_ready = True
            self._changed.set()

        task = asyncio.create_task(service.run(ready), name=service.name)
        task.add_done_callback(self._note_end)
        self._running.append(task)
        await self.wait_until(lambda: is_ready or self._stop.is_set())

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return when ``condition`` holds or a service has ended."""
        while not condition() and self.first_error is None:
            self._changed.clear()
            await self._changed.wait()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Keep the first error and log the others; an unexpected end is an error."""
        if task in self._ended:
            return
        self._ended.add(task)
        error = None if task.cancelled() else task.exception()
        if error is None and not self._is_stopping:
            error = ServiceStopped(task.get_name())
        if error is not None and self.first_error is None:
            self.first_error = error
        elif error is not None:
            log.error("%s failed, too", task.get_name(), exc_info=error)
        self._changed.set()

    async def stop_all(self) -> None:
        """Stop every service, last started first; a cancellation is raised afterwards."""
        self._is_stopping = True
        self._stopper.cancel()
        interrupted: asyncio.CancelledError | None = None
        for task in reversed(self._running):
            interrupted = await self._end(task) or interrupted
        if interrupted is not None:
            raise interrupted

    async def _end(self, task: asyncio.Task[None]) -> asyncio.CancelledError | None:
        """Cancel one service and wait for its grace time, even if the caller is cancelled."""
        interrupted = None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._grace_s
        task.cancel(None if self.first_error is None else FAILED)
        while not task.done() and (left := deadline - loop.time()) > 0:
            try:
                await asyncio.wait([task], timeout=left)
            except asyncio.CancelledError as error:
                interrupted = error
        if task.done():
            self._note_end(task)  # its callback may not have run yet
        else:
            self._abandon(task)
        return interrupted

    def _abandon(self, task: asyncio.Task[None]) -> None:
        """Log the stuck service and continue: one service must not keep the node from stopping."""
        log.error("%s did not stop within %s s: abandoned", task.get_name(), self._grace_s)
        self._ended.add(task)
        task.cancel()  # interrupt what its cleanup waits for
        if self.first_error is None:
            self.first_error = ServiceStuck(task.get_name())
