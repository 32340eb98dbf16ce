"""The service that listens: binds, admits, watches deadlines, and drains when it is stopped.

One `Server` holds any number of named listeners; a node may run several, say one for its
controller before and one for clients after its state is there, sharing one `Admission`.

Running out of descriptors does not end it: see `ottla.runtime.network`.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from ottla.api.routes import Routes
from ottla.protocol.types import Millis
from ottla.runtime.ports import Address, Clock, Listener, Network
from ottla.runtime.supervisor import is_failing
from ottla.server.accepted_socket import AcceptContext, AcceptedSocket
from ottla.server.admission import Admission, Limits
from ottla.server.api_versions import ApiVersions, Features, no_features
from ottla.server.authenticator import Authenticator
from ottla.server.connection_close_hooks import ConnectionCloseHooks
from ottla.server.deadlines import Deadlines, expiry_of
from ottla.server.dispatch import Dispatcher
from ottla.server.events import NoEvents, ServerEvents
from ottla.server.fair_scheduler import FairScheduler
from ottla.server.listener_context import ConnectionLimits, ListenerContext, Tasks
from ottla.server.memory_release import MemoryRelease
from ottla.server.request_memory import RequestMemory

log = logging.getLogger(__name__)

# A connection silent for so long gives its receive buffer back.
BUFFER_IDLE_MS: Final = 10_000
# Connections looked at in one go, before others get their turn.
SWEPT_PER_TURN: Final = 500
# How long the refusals of a drain that ran out of time may take to leave.
REFUSAL_S: Final = 0.5


class SocketNetwork(Protocol):
    """A network that also takes a socket that somebody else has bound."""

    async def listen_on(
        self, sock: socket.socket, accept: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Accept on a bound socket."""
        ...


class ListenerSpec(msgspec.Struct, frozen=True):
    """One listener: a name, where, and what is served there.

    ``address`` may have port 0. Where ``handed_over`` is given, a socket that somebody else has
    bound, that is used and ``address`` is not looked at.
    """

    name: str
    address: Address
    routes: Routes
    tls: Callable[[], ssl.SSLContext] | None = None
    """Returns the context of a handshake that begins now; None for a listener without TLS."""
    authenticator: Callable[[], Authenticator] | None = None
    certificate_principal: Callable[[bytes | None], str] | None = None
    features: Callable[[], Features] = no_features
    handed_over: socket.socket | None = None


class ServerSettings(msgspec.Struct, frozen=True):
    """Bounds of a server. A drain lasts at most ``drain_ms``; deadlines are checked every
    ``sweep_ms``.
    """

    connection: ConnectionLimits = msgspec.field(default_factory=ConnectionLimits)
    deadlines: Deadlines = msgspec.field(default_factory=Deadlines)
    sweep_ms: int = 1000
    drain_ms: int = 10_000


class Shared(msgspec.Struct, frozen=True):
    """What the servers of one node share: places, memory for large requests, turns on the event
    loop, the counters, and the functions to call when a connection closes.

    ``release_memory`` gives free memory back to the operating system, off the event loop.
    """

    admission: Admission = msgspec.field(default_factory=lambda: Admission(Limits()))
    memory: RequestMemory = msgspec.field(default_factory=RequestMemory)
    events: ServerEvents = msgspec.field(default_factory=NoEvents)
    close_hooks: ConnectionCloseHooks = msgspec.field(default_factory=ConnectionCloseHooks)
    scheduler: FairScheduler = msgspec.field(default_factory=FairScheduler)
    release: MemoryRelease = msgspec.field(default_factory=MemoryRelease)
    release_memory: Callable[[], Awaitable[None]] | None = None


class Server:
    """`Service` for the supervisor. Ready means bound and accepting on every listener."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        specs: Sequence[ListenerSpec],
        shared: Shared | None = None,
        settings: ServerSettings | None = None,
    ) -> None:
        self.name = "server " + ",".join(spec.name for spec in specs)
        self._network = network
        self._clock = clock
        self._specs = specs
        # Other listeners than those it starts with, once `serve` was called.
        self._wanted: Sequence[ListenerSpec] | None = None
        self._changed = asyncio.Event()
        self._shared = shared or Shared()
        self._settings = settings or ServerSettings()
        self._listeners: dict[str, Listener] = {}
        # Each with the name of its listener.
        self._accepted: dict[AcceptedSocket, str] = {}
        self._emptied: asyncio.Future[None] | None = None

    @property
    def addresses(self) -> Mapping[str, Address]:
        """Where each listener really listens, by name. Empty before it is ready."""
        return {name: listener.address for name, listener in self._listeners.items()}

    def serve(self, specs: Sequence[ListenerSpec]) -> None:
        """Listen on these from now on: others are closed with their connections, new ones opened.

        A listener that is open stays as it is. One that cannot be opened is logged.
        """
        self._wanted = specs
        self._changed.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Listen until cancelled, then drain.

        Raises:
            OSError: a listener cannot be bound; none stays open then.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._serve(tasks, ready)
        except BaseExceptionGroup as group:
            # What a group of one says is what went wrong: the supervisor wants that.
            if len(group.exceptions) > 1:
                raise
            raise group.exceptions[0] from None

    async def _serve(self, tasks: Tasks, ready: Callable[[], None]) -> None:
        try:
            for spec in self._specs:
                await self._open(spec, tasks)
            await self._follow(tasks)
            ready()
            while True:
                if await self._wait_changed(self._settings.sweep_ms / 1000):
                    await self._follow(tasks)
                else:
                    await self._sweep(self._clock.monotonic())
                    await self._release_memory(self._clock.monotonic())
        except asyncio.CancelledError as cancelled:
            # A node that failed answers nobody any more: it gets out of the way at once, so that
            # its clients and peers turn to others.
            await self._drain(0 if is_failing(cancelled) else self._settings.drain_ms)
            raise
        finally:
            await self._stop_listening()
            for accepted in list(self._accepted):
                _end(accepted, "stopped")

    async def _open(self, spec: ListenerSpec, tasks: Tasks) -> None:
        self._listeners[spec.name] = await self._listen(spec, tasks)
        log.info("listening name=%s address=%s", spec.name, self.addresses[spec.name])

    async def _wait_changed(self, seconds: float) -> bool:
        """Wait until other listeners are wanted; False when time is up."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _follow(self, tasks: Tasks) -> None:
        """Close what is not wanted any more, open what is not open yet."""
        self._changed.clear()
        if self._wanted is None:
            return
        wanted = {spec.name: spec for spec in self._wanted}
        for name in [name for name in self._listeners if name not in wanted]:
            await self._listeners.pop(name).close()
            log.info("listener closed name=%s", name)
            for accepted in [accepted for accepted, of in self._accepted.items() if of == name]:
                _end(accepted, "listener closed")
        for name, spec in wanted.items():
            if name in self._listeners:
                continue
            try:
                await self._open(spec, tasks)
            except OSError as error:
                log.warning("listener not opened name=%s reason=%s", name, error)

    async def _listen(self, spec: ListenerSpec, tasks: Tasks) -> Listener:
        shared = self._shared
        dispatcher = Dispatcher(
            spec.name, spec.routes, ApiVersions(spec.routes, spec.features), shared.events
        )
        context = ListenerContext(
            dispatcher=dispatcher,
            memory=shared.memory,
            limits=self._settings.connection,
            clock=self._clock,
            events=shared.events,
            tasks=tasks,
            authenticator=spec.authenticator,
            certificate_principal=spec.certificate_principal,
            scheduler=shared.scheduler,
            release=shared.release,
        )

        def on_admitted(accepted: AcceptedSocket) -> None:
            self._accepted[accepted] = spec.name

        def on_closed(accepted: AcceptedSocket) -> None:
            self._forget(accepted)
            shared.close_hooks.run(spec.name, accepted.peer)
            shared.release.connection_closed()

        accept_context = AcceptContext(context, shared.admission, spec.tls, on_admitted, on_closed)
        # A socket handed over is closed with its listener, which may be opened again.
        if spec.handed_over is None or spec.handed_over.fileno() < 0:
            return await self._network.listen(spec.address, lambda: AcceptedSocket(accept_context))
        network: SocketNetwork = self._network  # type: ignore[assignment]
        return await network.listen_on(spec.handed_over, lambda: AcceptedSocket(accept_context))

    def _forget(self, accepted: AcceptedSocket) -> None:
        self._accepted.pop(accepted, None)
        if not self._accepted and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    # -- deadlines -------------------------------------------------------------

    async def _sweep(self, now: Millis) -> None:
        """End what has missed a deadline, in small steps."""
        sockets = list(self._accepted)
        for start in range(0, len(sockets), SWEPT_PER_TURN):
            for accepted in sockets[start : start + SWEPT_PER_TURN]:
                self._check(accepted, now)
            await asyncio.sleep(0)

    def _check(self, accepted: AcceptedSocket, now: Millis) -> None:
        connection = accepted.connection
        if connection is None:
            return
        activity = connection.activity
        expiry = expiry_of(activity, self._settings.deadlines, now)
        if expiry is not None:
            log.info("connection closed peer=%s reason=%s", accepted.peer, expiry.value)
            connection.end(expiry.value)
        elif now - activity.last_active >= BUFFER_IDLE_MS:
            connection.release_buffer()

    async def _release_memory(self, now: Millis) -> None:
        """Give free memory back if enough was freed for it."""
        shared = self._shared
        if shared.release_memory is not None and shared.release.is_due(now):
            await shared.release_memory()

    # -- stopping --------------------------------------------------------------

    async def _stop_listening(self) -> None:
        listeners, self._listeners = list(self._listeners.values()), {}
        for listener in listeners:
            await listener.close()

    async def _drain(self, drain_ms: int) -> None:
        """Accept nobody; let what was asked be answered, in bounded time; then hang up."""
        await self._stop_listening()
        for accepted in list(self._accepted):
            if accepted.connection is None:
                accepted.close()
            else:
                accepted.connection.drain()
        await self._wait_empty(drain_ms / 1000)
        for accepted in list(self._accepted):
            if accepted.connection is not None:
                accepted.connection.cancel_pending()
        await self._wait_empty(REFUSAL_S)
        for accepted in list(self._accepted):
            _end(accepted, "drain took too long")
        await self._wait_empty(REFUSAL_S)

    async def _wait_empty(self, seconds: float) -> None:
        if self._accepted:
            self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._emptied], timeout=seconds)


def _end(accepted: AcceptedSocket, reason: str) -> None:
    if accepted.connection is None:
        accepted.close()
    else:
        accepted.connection.end(reason)
