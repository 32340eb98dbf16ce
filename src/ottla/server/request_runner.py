"""Runs the requests of one connection, from a frame to a reply in the order of the requests.

    frame -> Dispatcher.open -> handler -> ReplyOrder -> RequestOwner.send

A handler that returns its result costs no task. One that returns an awaitable reserves a slot in
`ReplyOrder`: its reply is sent after those of earlier requests, and later requests are served in
the meantime. A large request is decoded in steps, and later requests wait until its handler has
been called.
"""

import asyncio
import logging
from collections.abc import Awaitable, Generator
from struct import Struct
from types import GeneratorType
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from msgspec.structs import replace

from ottla.api.replies import (
    Answer,
    Handled,
    Holding,
    LaterReply,
    NoReply,
    Reply,
    Result,
    Steps,
    length_of,
)
from ottla.api.routes import ANONYMOUS, Caller
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.frames import client_field
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis
from ottla.runtime.ports import Address
from ottla.server.connection_state import ConnectionState, FrameEvent, Lifecycle, LifecycleEvent
from ottla.server.dispatch import Call, Outgoing, token_frame
from ottla.server.fair_scheduler import Done
from ottla.server.frame_memory import NO_GRANT, FrameMemory
from ottla.server.listener_context import ListenerContext
from ottla.server.pending_request import PendingRequest, held
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
# What a handler returns when it is done; anything else that it returns is awaited.
_RESULTS: Final = (Message, list, tuple, Answer, NoReply)
_NOTHING: Final = memoryview(b"")
T = TypeVar("T")
_AUTHENTICATING: Final = Lifecycle.AUTHENTICATING
_FINISHING: Final = Lifecycle.FINISHING


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
            self._put(call)
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
        if type(reply) is GeneratorType:
            reply = self._begin_steps(caller, call, reply)
        granted = self._memory.take()
        if isinstance(reply, _RESULTS):
            self._memory.give_back(granted)
            if is_metered:
                spent_s = throttling.stopwatch() - began
                reply = throttling.charge(caller, call.request, len(frame), spent_s, reply)
            self._answer_now(caller, call, reply, since)
            return
        if call.holds_frame or isinstance(reply, Holding):
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

    def _call(self, caller: Caller, call: Call, *, is_long: bool = False) -> Handled:
        reply = self._context.dispatcher.call(caller, call, is_long=is_long)
        if call.trace is not None:
            call.trace.called_s = self._loop.time()
        return reply

    def _answer_now(self, caller: Caller, call: Call, result: Result, since: float) -> None:
        """Send the reply of a handler that has returned its result."""
        if self.authenticator is not None:
            self._learn_principal()
        outgoing = self._context.dispatcher.settle(caller, call, result)
        self._put(outgoing)
        self._answered(call, since)
        if call.trace is not None:
            call.trace.replied_s = call.trace.called_s
            self._finish_trace(call.trace, call, result, outgoing)

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

    def _serve_token(self, result: Result | Awaitable[Result], size: int) -> None:
        """Answer a token that was a whole frame, now or when the authenticator has decided."""
        if isinstance(result, _RESULTS):
            self._learn_principal()
            self._put(token_frame(result))
            return
        slot = self.order.reserve(size)
        tasks = self._context.tasks
        tasks.create_task(self._wait_for_token(slot, result))

    async def _wait_for_token(self, slot: ReplySlot[Outgoing], result: Awaitable[Result]) -> None:
        try:
            outgoing = token_frame(await result)
        except Exception:  # one failed login must not stop the server
            log.exception("login failed unexpectedly peer=%s", self.caller.peer)
            self._owner.end("login failed unexpectedly")
            return
        if self._state.is_ended:
            return
        self._learn_principal()
        self.order.complete(slot, outgoing, held(outgoing))
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

    def _begin_steps(self, caller: Caller, call: Call, steps: Steps[Reply]) -> Handled:
        """Run ``steps`` for one slice; return the result, or the remaining steps."""
        try:
            found = self._context.scheduler.begin(steps)
        except Exception as error:  # noqa: BLE001 - every error of a handler becomes a reply
            return self._context.dispatcher.failure(caller, call, error)
        return found.result if isinstance(found, Done) else found

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
        await self._wait(pending, reply)

    # -- requests whose handlers return later --------------------------------------

    def _await(self, pending: PendingRequest, reply: Handled) -> None:
        self._pending[pending] = None
        if isinstance(reply, LaterReply):
            pending.work = reply
            reply.when_announced(self._context.coalescer.expect_reply)
            reply.when_done(lambda outcome: self._outcome(pending, outcome))
        elif isinstance(reply, asyncio.Future):
            # The future is completed elsewhere: waiting for it needs no task.
            pending.work = reply
            reply.add_done_callback(lambda done: self._future_done(pending, done))
        else:
            tasks = self._context.tasks
            pending.work = tasks.create_task(self._wait(pending, reply))

    async def _wait(self, pending: PendingRequest, reply: Handled) -> None:
        scheduler, dispatcher = self._context.scheduler, self._context.dispatcher
        try:
            if isinstance(reply, Generator):
                pending.is_long = True
                reply = await scheduler.complete(self._metered(pending, reply))
            if isinstance(reply, _RESULTS):
                result = reply
            elif self._context.throttling.quotas.is_active:
                stopwatch = self._context.throttling.stopwatch
                result = await metered_await(reply, stopwatch, pending.spend)
            else:
                result = await reply
            if pending.is_long:
                result = self._charge(pending, result)
                result = await scheduler.complete(dispatcher.encode_steps(pending.call, result))
        except asyncio.CancelledError as error:
            self._fail(pending, error)
            raise
        except Exception as error:  # noqa: BLE001 - every error of a handler becomes a reply
            await self._fail_in_steps(pending, error)
        else:
            self._finish(pending, result)

    async def _fail_in_steps(self, pending: PendingRequest, error: Exception) -> None:
        """Fail as `_fail` does; the error reply to a long request is made and encoded in steps."""
        if not pending.is_long or self._state.is_ended:
            self._fail(pending, error)
            return
        scheduler, dispatcher = self._context.scheduler, self._context.dispatcher
        try:
            steps = dispatcher.failure_steps(pending.caller, pending.call, error)
            result = self._charge(pending, await scheduler.complete(steps))
            result = await scheduler.complete(dispatcher.encode_steps(pending.call, result))
        except asyncio.CancelledError as cancelled:
            self._fail(pending, cancelled)
            raise
        self._finish(pending, result)

    def _future_done(self, pending: PendingRequest, done: "asyncio.Future[Result]") -> None:
        if done.cancelled():
            self._fail(pending, asyncio.CancelledError())
        elif (error := done.exception()) is not None:
            self._fail(pending, error)
        else:
            self._finish(pending, done.result())

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
        outgoing = self._context.dispatcher.settle(pending.caller, pending.call, result)
        is_final_sent = self._state.lifecycle is _FINISHING
        if not is_final_sent and self.order.remove_first(pending.slot):
            self._owner.send_at_once(outgoing)
        else:
            self.order.complete(pending.slot, outgoing, held(outgoing))
        self._answered(pending.call, pending.since)
        if self.order.slots and not self._state.is_ended:  # sending may have failed
            self._send_due()
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
        request = pending.call.request
        return throttling.charge(pending.caller, request, pending.size, pending.spent_s, result)

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

    def _put(self, outgoing: Outgoing) -> None:
        """Send a reply that is known at once, after the replies of earlier requests."""
        if not self.order.slots:
            self._owner.send(outgoing)
        else:
            size = held(outgoing)
            self.order.complete(self.order.reserve(size), outgoing, size)

    def _send_due(self) -> None:
        for outgoing in self.order.due():
            if self._state.lifecycle is _FINISHING:
                return
            self._owner.send(outgoing)
