"""The service that listens: binds, admits, enforces deadlines, and drains when it is stopped.

One `Server` holds any number of named listeners. A node may run several servers that share one
`Admission`: one for its controller, started before the state is loaded, and one for clients.

Running out of file descriptors does not stop it: see `ottla.runtime.network`.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from ottla.api.surface.routes import Routes
from ottla.protocol.types import Millis
from ottla.runtime.ports import Address, Clock, Listener, Network
from ottla.runtime.supervisor import is_failing
from ottla.server.accepted_socket import AcceptContext, AcceptedSocket
from ottla.server.admission import Admission, AdmissionLimits
from ottla.server.api_versions import ApiVersions, Features, NodeIdentity, no_features
from ottla.server.authenticator import Authenticator
from ottla.server.connection_close_hooks import ConnectionCloseHooks
from ottla.server.deadlines import Deadlines, expiry_of
from ottla.server.dispatch import Dispatcher
from ottla.server.events import NoEvents, ServerEvents
from ottla.server.fair_scheduler import FairScheduler
from ottla.server.held_replies import HeldReplies
from ottla.server.listener_context import ConnectionLimits, ListenerContext, Tasks
from ottla.server.memory_release import MemoryRelease
from ottla.server.request_memory import RequestMemory
from ottla.server.throttling import Throttling

if TYPE_CHECKING:
    from ottla.observability.request_traces import RequestTracer
    from ottla.security.certificate_login import LoginByCertificate

log = logging.getLogger(__name__)

# A connection that is idle for this long releases its receive buffer.
BUFFER_IDLE_MS: Final = 10_000
# Connections checked at once, before the event loop runs other callbacks.
SWEPT_PER_TURN: Final = 500
# Memory that the large frames of all connections before their login may hold. The frames of a login
# have a few KiB; the request that crosses the limit is still granted.
LOGIN_BYTES_MAX: Final = 32 * 1024 * 1024
# How long it may take to send the error replies of a drain that timed out.
REFUSAL_S: Final = 0.5


class SocketNetwork(Protocol):
    """A network that also accepts on a socket bound by the caller."""

    async def listen_on(
        self, sock: socket.socket, accept: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Accept on a bound socket."""
        ...


class ListenerSpec(msgspec.Struct, frozen=True):
    """One listener: its name, address and routes.

    ``address`` may have port 0. ``handed_over`` is an already bound socket; if it is given,
    ``address`` is ignored.
    """

    name: str
    address: Address
    routes: Routes
    tls: Callable[[], ssl.SSLContext] | None = None
    """Returns the context of a handshake that begins now; None for a listener without TLS."""
    authenticator: Callable[[], Authenticator] | None = None
    certificate_login: "LoginByCertificate | None" = None
    features: Callable[[], Features] = no_features
    identity: NodeIdentity = NodeIdentity()
    handed_over: socket.socket | None = None


class ServerSettings(msgspec.Struct, frozen=True):
    """AdmissionLimits of a server. A drain lasts at most ``drain_ms``; deadlines are checked every
    ``sweep_ms``.
    """

    connection: ConnectionLimits = msgspec.field(default_factory=ConnectionLimits)
    deadlines: Deadlines = msgspec.field(default_factory=Deadlines)
    sweep_ms: int = 1000
    drain_ms: int = 10_000


class SharedResources(msgspec.Struct, frozen=True):
    """Objects that the servers of one node share.

    ``release_memory`` returns free memory to the operating system, off the event loop. Without
    ``anonymous_memory`` the limit of clients that do not log in is ``memory``, too.
    """

    admission: Admission = msgspec.field(default_factory=lambda: Admission(AdmissionLimits()))
    memory: RequestMemory = msgspec.field(default_factory=RequestMemory)
    anonymous_memory: RequestMemory | None = None
    login_memory: RequestMemory = msgspec.field(
        default_factory=lambda: RequestMemory(LOGIN_BYTES_MAX)
    )
    held: HeldReplies = msgspec.field(default_factory=HeldReplies)
    events: ServerEvents = msgspec.field(default_factory=NoEvents)
    close_hooks: ConnectionCloseHooks = msgspec.field(default_factory=ConnectionCloseHooks)
    scheduler: FairScheduler = msgspec.field(default_factory=FairScheduler)
    release: MemoryRelease = msgspec.field(default_factory=MemoryRelease)
    release_memory: Callable[[], Awaitable[None]] | None = None
    throttling: Throttling = msgspec.field(default_factory=Throttling)
    tracer: "RequestTracer | None" = None


class Server:
    """`Service` for the supervisor. It is ready once every listener accepts."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        specs: Sequence[ListenerSpec],
        shared: SharedResources | None = None,
        settings: ServerSettings | None = None,
    ) -> None:
        self.name = "server " + ",".join(spec.name for spec in specs)
        self._network = network
        self._clock = clock
        self._specs = specs
        # The listeners of the last call of `serve`; None before the first.
        self._wanted: Sequence[ListenerSpec] | None = None
        self._changed = asyncio.Event()
        self._shared = shared or SharedResources()
        self._settings = settings or ServerSettings()
        self._listeners: dict[str, Listener] = {}
        # Open connections, with the names of their listeners.
        self._accepted: dict[AcceptedSocket, str] = {}
        self._emptied: asyncio.Future[None] | None = None

    @property
    def addresses(self) -> Mapping[str, Address]:
        """The bound address of each listener, by name. Empty before the server is ready."""
        return {name: listener.address for name, listener in self._listeners.items()}

    def serve(self, specs: Sequence[ListenerSpec]) -> None:
        """Replace the listeners: close others with their connections, and open new ones.

        An open listener stays as it is. One that cannot be opened is logged.
        """
        self._wanted = specs
        self._changed.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Listen until cancelled, then drain.

        Raises:
            OSError: a listener cannot be bound; all others are closed.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._serve(tasks, ready)
        except BaseExceptionGroup as group:
            # Unwrap a group of one: the supervisor expects the error itself.
            if len(group.exceptions) > 1:
                raise
            raise group.exceptions[0] from None

    async def _serve(self, tasks: Tasks, ready: Callable[[], None]) -> None:
        try:
            for spec in self._specs:
                await self._open(spec, tasks)
            await self._apply_specs(tasks)
            ready()
            while True:
                if await self._wait_changed(self._settings.sweep_ms / 1000):
                    await self._apply_specs(tasks)
                else:
                    await self._sweep(self._clock.monotonic())
                    await self._release_memory(self._clock.monotonic())
        except asyncio.CancelledError as cancelled:
            # A failed node closes its connections at once, so that clients and peers turn to other
            # brokers.
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
        """Wait until `serve` was called; return False after ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _apply_specs(self, tasks: Tasks) -> None:
        """Close the listeners that are no longer wanted and open the new ones."""
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
            spec.name,
            spec.routes,
            ApiVersions(spec.routes, spec.features, spec.identity),
            shared.events,
        )
        context = ListenerContext(
            dispatcher=dispatcher,
            memory=shared.memory,
            anonymous_memory=shared.anonymous_memory or shared.memory,
            login_memory=shared.login_memory,
            held=shared.held,
            limits=self._settings.connection,
            clock=self._clock,
            events=shared.events,
            tasks=tasks,
            authenticator=spec.authenticator,
            certificate_login=spec.certificate_login,
            scheduler=shared.scheduler,
            release=shared.release,
            throttling=shared.throttling,
            tracer=shared.tracer,
        )

        def on_admitted(accepted: AcceptedSocket) -> None:
            self._accepted[accepted] = spec.name

        def on_closed(accepted: AcceptedSocket) -> None:
            self._forget(accepted)
            shared.close_hooks.run(spec.name, accepted.peer)
            shared.release.connection_closed()

        accept_context = AcceptContext(context, shared.admission, spec.tls, on_admitted, on_closed)
        # A handed-over socket is closed with its listener, which may be opened again.
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
        """Close the connections that have missed a deadline, in small steps."""
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
        """Return free memory to the operating system if enough was freed."""
        shared = self._shared
        if shared.release_memory is not None and shared.release.is_due(now):
            await shared.release_memory()

    # -- stopping --------------------------------------------------------------

    async def _stop_listening(self) -> None:
        listeners, self._listeners = list(self._listeners.values()), {}
        for listener in listeners:
            await listener.close()

    async def _drain(self, drain_ms: int) -> None:
        """Stop accepting, answer the requests in flight in bounded time, then close."""
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
