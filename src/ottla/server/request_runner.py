"""Runs the requests of one connection, from a frame to a reply in the order of the requests.

    frame -> Dispatcher.open -> handler -> ReplyOrder -> RequestOwner.send

A handler that returns its result costs no task. One that returns a `Pending` reserves a slot in
`ReplyOrder`: its reply is sent after those of earlier requests, and later requests are served in
the meantime. Only `Work` needs a task. A large request is decoded in steps, and later requests wait
until its handler has been called. They also wait while a request has a `Hold`.
"""

import asyncio
import logging
from collections.abc import Generator
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from ottla.api.surface.replies import (
    Hold,
    Reply,
    Result,
    Steps,
    Work,
    length_of,
    reply_of,
)
from ottla.api.surface.routes import ANONYMOUS, Caller
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.frames import Request, client_field
from ottla.protocol.types import Millis
from ottla.runtime.pending import Pending
from ottla.runtime.ports import Address
from ottla.server.connection_state import ConnectionState, FrameEvent, Lifecycle, LifecycleEvent
from ottla.server.dispatch import Call, Outgoing, token_frame
from ottla.server.fair_scheduler import Done
from ottla.server.frame_memory import NO_GRANT, FrameMemory, Grant
from ottla.server.listener_context import ListenerContext
from ottla.server.receive_buffer import ReceiveBuffer
from ottla.server.reply_order import ReplyOrder, ReplySlot
from ottla.server.request_memory import RequestMemory
from ottla.server.throttling import metered, metered_await

if TYPE_CHECKING:
    from ottla.observability.request_traces import RequestTrace

log = logging.getLogger(__name__)

# The body of a raw request up to this size is copied: cheaper than handing the buffer over.
COPIED_BYTES_MAX: Final = 4096
KEY_AND_VERSION: Final = Struct(">hh")
_VERSION_AND_ID: Final = Struct(">hi")
_NOTHING: Final = memoryview(b"")
T = TypeVar("T")
_AUTHENTICATING: Final = Lifecycle.AUTHENTICATING
_FINISHING: Final = Lifecycle.FINISHING


class PendingRequest(msgspec.Struct, eq=False):
    """A request whose handler has not finished. ``granted`` is memory to give back.

    ``since`` is when the request was read, in the loop's time. ``is_long``: the reply may be large
    and is encoded in steps. ``size`` is that of the frame. ``spent_s`` is the time that the request
    has kept the event loop busy, measured if a quota is in force.
    """

    call: Call
    caller: Caller
    slot: ReplySlot[Outgoing]
    granted: Grant
    since: float
    is_long: bool = False
    size: int = 0
    spent_s: float = 0.0
    is_charged: bool = False
    work: "asyncio.Task[None] | Pending[Result] | None" = None

    def spend(self, seconds: float) -> None:
        """Add to the time that the request has kept the event loop busy."""
        self.spent_s += seconds


class RequestOwner(Protocol):
    """The connection that the requests belong to."""

    def send(self, outgoing: Outgoing) -> None:
        """Queue a reply to be sent, after those before it."""
        ...

    def send_at_once(self, outgoing: Outgoing) -> None:
        """Send a reply now if that is possible; otherwise queue it."""
        ...

    def serve_frames(self) -> None:
        """Serve the frames received so far, send what is queued, and close if it is time."""
        ...

    def end(self, reason: str) -> None:
        """Close the connection at once."""
        ...

    def reject(self, fault: ProtocolFault, head: memoryview | None) -> None:
        """Close the connection because of bytes that are not a valid request."""
        ...


class _ClosedOwner:
    """`RequestOwner` in place of a closed connection, so that its requests do not keep it alive."""

    def send(self, outgoing: Outgoing) -> None:
        """Drop the reply."""

    def send_at_once(self, outgoing: Outgoing) -> None:
        """Drop the reply."""

    def serve_frames(self) -> None:
        """Do nothing: there are no more frames."""

    def end(self, reason: str) -> None:
        """Do nothing: the connection is closed."""

    def reject(self, fault: ProtocolFault, head: memoryview | None) -> None:
        """Do nothing: the connection is closed."""


_CLOSED_OWNER: Final = _ClosedOwner()


class RequestRunner:
    """The requests of one connection that have no reply yet, and the identity of its client.

    ``order`` bounds the requests in flight. ``caller`` and ``client`` describe the sender of the
    last request; ``client`` is its client id as a request header encodes it. ``queued_at`` is since
    when the frames of this slice have waited for it, 0 if they have not.
    """

    __slots__ = (
        "_context",
        "_loop",
        "_memory",
        "_owner",
        "_pending",
        "_received",
        "_state",
        "authenticator",
        "caller",
        "client",
        "login_ends_at",
        "order",
        "queued_at",
    )

    def __init__(
        self,
        context: ListenerContext,
        owner: RequestOwner,
        peer: Address,
        received: ReceiveBuffer,
        memory: FrameMemory,
    ) -> None:
        self._context = context
        self._owner: RequestOwner = owner
        self._received = received
        self._memory = memory
        self._loop = asyncio.get_running_loop()
        self._pending: dict[PendingRequest, None] = {}
        self.authenticator = context.authenticator() if context.authenticator else None
        principal = ANONYMOUS if self.authenticator is None else ""
        self._state = ConnectionState(authenticates=self.authenticator is not None)
        self.caller = Caller(principal, None, peer, context.name)
        self.client = client_field(None)
        self.login_ends_at: Millis | None = None
        self.order: ReplyOrder[Outgoing] = ReplyOrder()
        self.queued_at = 0.0

    @property
    def state(self) -> ConnectionState:
        """The state of the connection."""
        return self._state

    @property
    def frame_bytes_max(self) -> int:
        """The longest frame that is accepted now, without its length field."""
        frame_bytes_max = self._context.limits.frame_bytes_max
        if self.authenticator is None or self._state.lifecycle is not _AUTHENTICATING:
            return frame_bytes_max
        return min(frame_bytes_max, self.authenticator.frame_bytes_max)

    @property
    def memory_limit(self) -> RequestMemory:
        """The limit that the memory of the next large frame counts for."""
        context = self._context
        if self._state.lifecycle is _AUTHENTICATING:
            return context.login_memory
        return context.anonymous_memory if self.caller.principal == ANONYMOUS else context.memory

    def serve(self, frame: memoryview) -> None:
        """Serve one frame. Its reply is sent by `RequestOwner.send`, now or later.

        Raises:
            ProtocolFault: the frame is not a request that may be served.
        """
        if self.authenticator is not None and self.authenticator.expects_token:
            self._serve_token(self.authenticator.take_token(self.caller, bytes(frame)), len(frame))
            return
        since = self._loop.time()
        throttling = self._context.throttling
        is_metered = throttling.quotas.is_active
        began = throttling.stopwatch() if is_metered else 0.0
        dispatcher = self._context.dispatcher
        call = self._open(frame, since)
        if isinstance(call, Outgoing):
            self._memory.give_back(self._memory.take())
            self.put(call)
            return
        if call.is_large:
            self._serve_large(call, since, len(frame))
            return
        if call.holds_frame and call.message is None and len(frame) <= COPIED_BYTES_MAX:
            call.request = call.request._replace(body=memoryview(bytearray(call.request.body)))
            call.holds_frame = False
        caller = dispatcher.caller_of(call, self.caller)
        if caller is not self.caller:
            self._identify(caller)
        reply = self._call(caller, call)
        if isinstance(reply, Work):
            reply = self._begin(caller, call, reply)
        granted = self._memory.take()
        if not isinstance(reply, Pending):
            self._memory.give_back(granted)
            if is_metered:
                self._answer_metered(caller, call, reply, since, began, len(frame))
            else:
                self._answer_now(caller, call, reply, since)
            return
        if call.holds_frame or (isinstance(reply, Work) and reply.holds_body):
            self._received.hand_over()
        elif not call.route.keeps_body:
            # The body is not read again, not even for an error reply: free its memory.
            call.request = call.request._replace(body=_NOTHING)
            self._memory.give_back(granted)
            granted = NO_GRANT
        slot = self.order.reserve(len(frame))
        pending = PendingRequest(call, caller, slot, granted, since, size=len(frame))
        if is_metered:
            pending.spend(throttling.stopwatch() - began)
        self._await(pending, reply)

    def _open(self, frame: memoryview, since: float) -> Call | Outgoing:
        call = self._context.dispatcher.open(frame, self.authenticator)
        tracer = self._context.tracer
        if tracer is not None and isinstance(call, Call) and tracer.is_due():
            call.trace = self._trace(call, since, len(frame))
        return call

    def _call(self, caller: Caller, call: Call, *, is_long: bool = False) -> Reply:
        reply = self._context.dispatcher.call(caller, call, is_long=is_long)
        if call.trace is not None:
            call.trace.called_s = self._loop.time()
        return reply

    def _answer_now(self, caller: Caller, call: Call, result: Result, since: float) -> None:
        """Send the reply of a handler that has returned its result."""
        if self.authenticator is not None:
            self._learn_principal()
        outgoing = self._context.dispatcher.settle(caller, call, result)
        self.put(outgoing)
        self._answered(call, since)
        if call.trace is not None:
            call.trace.replied_s = call.trace.called_s
            self._finish_trace(call.trace, call, result, outgoing)

    def _answer_metered(
        self, caller: Caller, call: Call, result: Result, since: float, began: float, size: int
    ) -> None:
        """Charge a request that ``began`` by the stopwatch, and send its reply."""
        throttling, request = self._context.throttling, call.request
        spent_s, is_denied = throttling.stopwatch() - began, call.is_denied
        result = throttling.charge(caller, request, size, spent_s, result, is_denied=is_denied)
        began = throttling.stopwatch()
        self._answer_now(caller, call, result, since)
        spent_s = throttling.stopwatch() - began
        throttling.charge_sending(caller, request, spent_s, result, is_denied=is_denied)

    def identify_by_certificate(self, transport: asyncio.BaseTransport) -> None:
        """Take principal and end of the login from the client's certificate, where it has a say.

        Raises:
            CertificateRefused: the certificate stands for no principal.
        """
        if self._context.certificate_login is not None:
            encrypted = transport.get_extra_info("ssl_object")
            certificate = None if encrypted is None else encrypted.getpeercert(binary_form=True)
            login = self._context.certificate_login(certificate)
            self.login_ends_at = login.ends_at
            if login.principal is not None:
                self.caller = replace(self.caller, principal=login.principal)

    def _serve_token(self, reply: Reply, size: int) -> None:
        """Answer a token that was a whole frame, now or when the authenticator has decided."""
        if not isinstance(reply, Pending):
            self._learn_principal()
            self.put(token_frame(reply))
            return
        slot = self.order.reserve(size)
        tasks = self._context.tasks
        tasks.create_task(self._wait_for_token(slot, reply))

    async def _wait_for_token(self, slot: ReplySlot[Outgoing], reply: Pending[Result]) -> None:
        try:
            outgoing = token_frame(await reply)
        except Exception:  # one failed login must not stop the server
            log.exception("login failed unexpectedly peer=%s", self.caller.peer)
            self._owner.end("login failed unexpectedly")
            return
        if self._state.is_ended:
            return
        self._learn_principal()
        self.order.complete(slot, outgoing, outgoing.held)
        self._send_due()
        self._owner.serve_frames()

    def cancel_pending(self) -> None:
        """Cancel all requests in flight; their clients get error replies."""
        for pending in list(self._pending):
            if pending.work is not None:
                pending.work.cancel()

    def close(self) -> None:
        """Cancel the requests that only wait; others run to their end without a reply.

        Those keep this object alive, but neither the connection nor replies that were not sent.
        """
        self._owner = _CLOSED_OWNER
        self.order.clear()
        for pending in list(self._pending):
            is_waiting = pending.call.route.cancel_when_gone or pending.call.is_large
            if is_waiting and pending.work is not None:
                pending.work.cancel()

    def _identify(self, caller: Caller) -> None:
        self.caller, self.client = caller, client_field(caller.client_id)

    def _learn_principal(self) -> None:
        known = None if self.authenticator is None else self.authenticator.principal
        if known is None:
            return
        if self._state.lifecycle is _AUTHENTICATING:
            self._state.advance(LifecycleEvent.AUTHENTICATED)
        login = self.authenticator.login if self.authenticator is not None else None
        is_token = login is not None and login.is_token_authenticated
        # A later login may be by a token, or no longer be by one.
        if (known, is_token) != (self.caller.principal, self.caller.is_token_authenticated):
            self.caller = replace(self.caller, principal=known, is_token_authenticated=is_token)

    def _begin(self, caller: Caller, call: Call, work: Work) -> Reply:
        """Run steps for one slice; return the reply if that was enough, else the work."""
        if not isinstance(work.run, Generator):
            return work
        try:
            steps = self._context.scheduler.begin(work.run)
            return reply_of(steps.result) if isinstance(steps, Done) else work
        except Exception as error:  # noqa: BLE001 - every error of a handler becomes a reply
            return self._context.dispatcher.failure(caller, call, error)

    # -- large requests ----------------------------------------------------------

    def _serve_large(self, call: Call, since: float, size: int) -> None:
        """Decode in steps, then call the handler; later frames wait until then."""
        self._state.on_frames(FrameEvent.DECODE)
        self._received.hand_over()
        slot = self.order.reserve(size)
        granted = self._memory.take()
        pending = PendingRequest(call, self.caller, slot, granted, since, is_long=True, size=size)
        self._pending[pending] = None
        tasks = self._context.tasks
        pending.work = tasks.create_task(self._decode_and_wait(pending))

    async def _decode_and_wait(self, pending: PendingRequest) -> None:
        call, dispatcher = pending.call, self._context.dispatcher
        try:
            steps = self._metered(pending, dispatcher.decode_steps(call))
            await self._context.scheduler.complete(steps)
        except asyncio.CancelledError as error:
            self._fail(pending, error)
            raise
        except ProtocolFault as fault:
            self._forget(pending)
            head = KEY_AND_VERSION.pack(call.request.key, call.request.version)
            self._owner.reject(fault, memoryview(head))
            return
        if not call.holds_frame:
            call.request = call.request._replace(body=_NOTHING)
            self._memory.give_back(pending.granted)
            pending.granted = NO_GRANT
        pending.caller = dispatcher.caller_of(call, self.caller)
        self._identify(pending.caller)
        reply = self._call(pending.caller, call, is_long=True)
        self._state.on_frames(FrameEvent.DECODED)
        if not self._state.is_ended:
            self._owner.serve_frames()
        await self._run(pending, reply)

    # -- requests whose handlers return later --------------------------------------

    def wait_for(
        self, key: ApiKey, data: bytearray, start: int, end: int, reply: Pending[Result]
    ) -> None:
        """Wait for the reply to the frame ``data[start:end]``, which its fast path has begun."""
        version, correlation_id = _VERSION_AND_ID.unpack_from(data, start + 2)
        dispatcher, caller = self._context.dispatcher, self.caller
        dispatcher.events.requested(caller.listener, key)
        request = Request(key, version, correlation_id, caller.client_id, _NOTHING)
        call = Call(request, dispatcher.route_of(key), None, holds_frame=False)
        slot, since = self.order.reserve(end - start), self._loop.time()
        self._await(PendingRequest(call, caller, slot, NO_GRANT, since, size=end - start), reply)

    def _await(self, pending: PendingRequest, reply: Pending[Result]) -> None:
        self._pending[pending] = None
        if isinstance(reply, Work):
            tasks = self._context.tasks
            pending.work = work = tasks.create_task(self._run(pending, reply))
            if reply.hold is not None:
                self._hold_frames(reply.hold, work)
            return
        pending.work = reply
        reply.when_announced(self._context.coalescer.expect_reply)
        reply.when_done(lambda outcome: self._outcome(pending, outcome))

    def _hold_frames(self, hold: Hold, work: "asyncio.Task[None]") -> None:
        """Serve no later frames until ``hold`` is released or ``work`` ends."""
        self._state.on_frames(FrameEvent.HOLD)
        # By a callback of its own: the time of later requests is not charged to this one.
        hold.when_released(lambda: self._loop.call_soon(self._release_frames))
        # A task that is cancelled before it starts runs none of its code.
        work.add_done_callback(lambda _: hold.release())

    def _release_frames(self) -> None:
        self._state.on_frames(FrameEvent.RELEASE)
        if not self._state.is_ended:
            self._owner.serve_frames()

    async def _run(self, pending: PendingRequest, reply: Reply) -> None:
        scheduler = self._context.scheduler
        try:
            if isinstance(reply, Work) and isinstance(reply.run, Generator):
                pending.is_long = True
                reply = reply_of(await scheduler.complete(self._metered(pending, reply.run)))
            if not isinstance(reply, Pending):
                result = reply
            elif self._context.throttling.quotas.is_active:
                stopwatch = self._context.throttling.stopwatch
                result = await metered_await(reply, stopwatch, pending.spend)
            else:
                result = await reply
            if pending.is_long:
                result = await self._encode_long(pending, result)
        except asyncio.CancelledError as error:
            self._fail(pending, error)
            raise
        except Exception as error:  # noqa: BLE001 - every error of a handler becomes a reply
            await self._fail_in_steps(pending, error)
        else:
            self._finish(pending, result)

    async def _encode_long(self, pending: PendingRequest, result: Result) -> Result:
        """Charge a request, and encode its reply in steps."""
        result = self._charge(pending, result)
        encoding = self._context.dispatcher.encode_steps(pending.call, result)
        return await self._context.scheduler.complete(self._metered(pending, encoding))

    async def _fail_in_steps(self, pending: PendingRequest, error: Exception) -> None:
        """Fail as `_fail` does; the error reply to a long request is made and encoded in steps."""
        if not pending.is_long or self._state.is_ended:
            self._fail(pending, error)
            return
        scheduler, dispatcher = self._context.scheduler, self._context.dispatcher
        try:
            steps = dispatcher.failure_steps(pending.caller, pending.call, error)
            result = await self._encode_long(pending, await scheduler.complete(steps))
        except asyncio.CancelledError as cancelled:
            self._fail(pending, cancelled)
            raise
        self._finish(pending, result)

    def _outcome(self, pending: PendingRequest, outcome: Result | BaseException) -> None:
        if isinstance(outcome, BaseException):
            self._fail(pending, outcome)
        else:
            self._finish(pending, outcome)

    def _fail(self, pending: PendingRequest, error: BaseException) -> None:
        if self._state.is_ended:
            self._forget(pending)
        else:
            dispatcher = self._context.dispatcher
            self._finish(pending, dispatcher.failure(pending.caller, pending.call, error))

    def _finish(self, pending: PendingRequest, result: Result) -> None:
        self._forget(pending)
        if self._state.is_ended:
            return
        self._learn_principal()
        trace = pending.call.trace
        if trace is not None:
            trace.replied_s = self._loop.time()
        result = self._charge(pending, result)
        throttling = self._context.throttling
        began = throttling.stopwatch() if throttling.is_active else 0.0
        outgoing = self._context.dispatcher.settle(pending.caller, pending.call, result)
        is_final_sent = self._state.lifecycle is _FINISHING
        if not is_final_sent and self.order.remove_first(pending.slot):
            self._owner.send_at_once(outgoing)
        else:
            self.order.complete(pending.slot, outgoing, outgoing.held)
        self._answered(pending.call, pending.since)
        if self.order.slots and not self._state.is_ended:  # sending may have failed
            self._send_due()
        if throttling.is_active:
            pending.spend(throttling.stopwatch() - began)
            self._charge_sending(pending, result)
        if trace is not None:
            self._finish_trace(trace, pending.call, result, outgoing)
        self._owner.serve_frames()

    def _metered(self, pending: PendingRequest, steps: Steps[T]) -> Steps[T]:
        """Return steps that measure their time, if a quota is in force."""
        throttling = self._context.throttling
        if not throttling.quotas.is_active:
            return steps
        return metered(steps, throttling.stopwatch, pending.spend)

    def _charge(self, pending: PendingRequest, result: Result) -> Result:
        """Charge a request once; return its result with the throttle time, if there is one."""
        throttling = self._context.throttling
        if pending.is_charged or not throttling.quotas.is_active:
            return result
        pending.is_charged = True
        call, spent_s = pending.call, pending.spent_s
        pending.spent_s = 0.0
        return throttling.charge(
            *(pending.caller, call.request, pending.size, spent_s, result), is_denied=call.is_denied
        )

    def _charge_sending(self, pending: PendingRequest, result: Result) -> None:
        """Charge the time spent since `_charge`: to encode the reply and to send it."""
        caller, call = pending.caller, pending.call
        self._context.throttling.charge_sending(
            caller, call.request, pending.spent_s, result, is_denied=call.is_denied
        )

    def _forget(self, pending: PendingRequest) -> None:
        del self._pending[pending]
        self._memory.give_back(pending.granted)

    def _answered(self, call: Call, since: float) -> None:
        micros = int((self._loop.time() - since) * 1e6)
        self._context.events.answered(self.caller.listener, call.request.key, micros)

    def _trace(self, call: Call, since: float, size: int) -> "RequestTrace":
        """Begin the trace of a sampled request."""
        from ottla.observability.request_traces import RequestTrace  # few nodes need it

        request, caller = call.request, self.caller
        return RequestTrace(
            key=request.key,
            version=request.version,
            correlation_id=request.correlation_id,
            client_id=request.client_id,
            principal=caller.principal,
            listener=caller.listener,
            peer=caller.peer,
            request_bytes=size,
            received_s=min(self.queued_at or since, since),
            began_s=since,
        )

    def _finish_trace(
        self,
        trace: "RequestTrace",
        call: Call,
        result: Result,
        outgoing: Outgoing,
    ) -> None:
        from ottla.server.request_tracing import error_of  # few nodes need it

        trace.ended_s = self._loop.time()
        # 0 if the request failed before its handler was called.
        trace.called_s = trace.called_s or trace.replied_s
        trace.response_bytes = sum(map(length_of, outgoing.chunks))
        trace.error = error_of(call.request, result)
        tracer = self._context.tracer
        assert tracer is not None, "a request is traced by a tracer"
        tracer.finish(trace)

    # -- replies ---------------------------------------------------------------

    def put(self, outgoing: Outgoing) -> None:
        """Send a reply that is known at once, after the replies of earlier requests."""
        if not self.order.slots:
            self._owner.send(outgoing)
        else:
            size = outgoing.held
            self.order.complete(self.order.reserve(size), outgoing, size)

    def _send_due(self) -> None:
        for outgoing in self.order.due():
            if self._state.lifecycle is _FINISHING:
                return
            self._owner.send(outgoing)
