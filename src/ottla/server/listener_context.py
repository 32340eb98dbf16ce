"""Objects that the connections of one listener share, and the limits of each connection."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol

import msgspec

from ottla.runtime.ports import Clock
from ottla.server.authenticator import Authenticator
from ottla.server.dispatch import Dispatcher
from ottla.server.events import ServerEvents
from ottla.server.fair_scheduler import FairScheduler
from ottla.server.held_replies import HeldReplies
from ottla.server.memory_release import MemoryRelease
from ottla.server.request_memory import RequestMemory
from ottla.server.throttling import Throttling
from ottla.server.write_coalescing import WriteCoalescer

if TYPE_CHECKING:
    from ottla.observability.request_traces import RequestTracer
    from ottla.security.certificate_login import LoginByCertificate


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Limits of one connection; above them the broker stops reading from it.

    ``in_flight_max`` requests without a sent reply, ``in_flight_bytes_max`` of memory held for
    them, ``unsent_bytes_max`` of replies that the client does not read. The request that reaches a
    limit may exceed it.
    """

    frame_bytes_max: int = 100 * 1024 * 1024  # socket.request.max.bytes
    in_flight_max: int = 100
    in_flight_bytes_max: int = 128 * 1024 * 1024
    unsent_bytes_max: int = 1024 * 1024


class Tasks(Protocol):
    """Owner of the tasks that a connection starts, such as a ``TaskGroup``."""

    def create_task(self, coro: Coroutine[object, object, None], /) -> "asyncio.Task[None]":
        """Start a task; the owner awaits it."""
        ...


class ListenerContext(msgspec.Struct, frozen=True):
    """Objects that all connections of one listener share.

    The memory of large frames counts for one of three limits: ``login_memory`` before a login,
    ``anonymous_memory`` on a listener that asks for none, and ``memory`` after a login. ``held``
    counts what connections hold for requests in flight and for replies that clients do not read.
    """

    dispatcher: Dispatcher
    memory: RequestMemory
    limits: ConnectionLimits
    clock: Clock
    events: ServerEvents
    tasks: Tasks
    authenticator: Callable[[], Authenticator] | None = None
    certificate_login: "LoginByCertificate | None" = None
    coalescer: WriteCoalescer = msgspec.field(default_factory=WriteCoalescer)
    scheduler: FairScheduler = msgspec.field(default_factory=FairScheduler)
    release: MemoryRelease = msgspec.field(default_factory=MemoryRelease)
    throttling: Throttling = msgspec.field(default_factory=Throttling)
    tracer: "RequestTracer | None" = None
    """Samples requests; None if none are traced."""
    anonymous_memory: RequestMemory = msgspec.field(default_factory=RequestMemory)
    login_memory: RequestMemory = msgspec.field(default_factory=RequestMemory)
    held: HeldReplies = msgspec.field(default_factory=HeldReplies)

    @property
    def name(self) -> str:
        """The listener's name."""
        return self.dispatcher.listener
