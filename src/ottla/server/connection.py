"""One connection: frames in, replies out in the same order, and no more work than it may hold.

    bytes -> ReceiveBuffer -> frame -> Dispatcher -> handler -> ReplyOrder -> SendQueue -> bytes

A handler that answers at once costs no task. One that returns an awaitable takes a turn in
`ReplyOrder`: its reply leaves when those before it have left, and later requests go on.

A frame is taken only while the connection may have more: see `Connection._may_serve`. When it
may not, the socket is not read either, so TCP holds the client back and memory is bounded by
`ConnectionLimits`, whatever the client sends or leaves unread.
"""

import asyncio
import logging
from collections.abc import Callable, Generator
from struct import Struct
from types import GeneratorType
from typing import Final, cast

from msgspec.structs import replace

from ottla.api.replies import Answer, Handled, Holding, NoReply, Reply, Result, Steps
from ottla.api.routes import ANONYMOUS, Caller
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.frames import LENGTH_SIZE, client_field
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis
from ottla.runtime.ports import Address
from ottla.server.deadlines import Activity
from ottla.server.dispatch import Call, Outgoing, printable, token_reply
from ottla.server.fair_scheduler import (
    BACKLOG_MEMORY_S,
    FAST_REQUESTS_PER_CLOCK_READ,
    SLICE_S,
    Done,
)
from ottla.server.listener_context import ListenerContext
from ottla.server.pending_request import PendingRequest, held
from ottla.server.receive_buffer import ReceiveBuffer
from ottla.server.reply_order import ReplyOrder
from ottla.server.send_queue import SendQueue, SendQueueEvents, send_queue_for

log = logging.getLogger(__name__)

# However quick: see `ottla.server.fair_scheduler`.
FRAMES_PER_SLICE: Final = 64
# A raw handler's request up to this is copied: cheaper than giving the receive buffer away.
COPIED_BYTES_MAX: Final = 4096
_KEY_AND_VERSION: Final = Struct(">hh")
# What a handler returns when it is done; anything else it returns is awaited.
_RESULTS: Final = (Message, list, tuple, Answer, NoReply)
_NOTHING: Final = memoryview(b"")


class Connection(asyncio.BufferedProtocol):
    """The protocol of one client's connection. ``on_end`` is called once, when it is over."""

    # Without slots, CPython 3.11 is slower at attributes of objects with more than 30 of them.
    __slots__ = (  # noqa: SIM905 - a list of one name per line is a page
        "_backlogged_at _caller _client _frame_since _deferred _granted _authenticator _has_moved "
        "_received _is_denied _is_draining _is_closing_after_reply _is_full _is_held _is_over "
        "_is_queued "
        "_is_reading _is_settling _last_active _listener _loop _mute _on_end _order _send_queue "
        "_pending _fast_paths _reason _context _transport _scheduler"
    ).split()

    def __init__(
        self, context: ListenerContext, peer: Address, on_end: Callable[["Connection", str], None]
    ) -> None:
        self._context = context
        self._on_end = on_end
        self._authenticator = context.authenticator() if context.authenticator else None
        principal = ANONYMOUS if self._authenticator is None else ""
        self._caller = Caller(principal, None, peer, context.name)
        self._client = client_field(None)
        self._deferred: bytearray | None = None  # a reply that leaves when the turn ends
        self._received = ReceiveBuffer()
        self._scheduler = context.scheduler
        self._fast_paths = context.dispatcher.fast_paths
        self._listener = context.name
        self._order: ReplyOrder[Outgoing] = ReplyOrder()
        self._pending: dict[PendingRequest, None] = {}
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._send_queue: SendQueue
        self._granted = 0  # memory of the frame under way
        self._is_denied = False  # that memory, for now
        self._mute: asyncio.TimerHandle | None = None
        self._is_reading = True
        self._is_queued = False  # for a turn
        self._is_held = False  # behind a large request whose handler has not been called yet
        self._backlogged_at = -BACKLOG_MEMORY_S  # when a slice was last used up
        self._is_full = False  # of requests or replies, when frames were last looked for
        self._is_settling = False
        self._is_draining = False
        self._is_closing_after_reply = False  # a reply said that nothing comes after it
        self._is_over = False
        self._reason = "by peer"
        self._last_active: Millis = context.clock.monotonic()
        self._has_moved = False  # bytes, since activity was last asked for
        self._frame_since: Millis | None = None

    # -- what asyncio calls ----------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve."""
        # uvloop's has the shape of asyncio's and not its name, so it cannot be asked.
        self._transport = cast("asyncio.Transport", transport)
        events = SendQueueEvents(self._made_progress, self._write_failed)
        self._send_queue = send_queue_for(self._loop, self._transport, events)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where to put what comes next."""
        return self._received.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Take what came. Nothing is done before a length, then a frame, is whole."""
        self._has_moved = True
        if self._received.filled(nbytes):
            if self._is_queued:
                self._read_or_not(may_serve=False)
            elif self._serve_fast_path():
                return
            elif self._scheduler.is_round_spent():
                self._queue()
            else:
                self._serve_slice(self._scheduler.last)
        elif self._frame_since is None:
            self._frame_since = self._context.clock.monotonic()

    def eof_received(self) -> bool:
        """Close the connection, as Kafka does: a client that half-closes reads no replies."""
        return False

    def pause_writing(self) -> None:
        """Pass it on to the write side."""
        self._send_queue.pause()

    def resume_writing(self) -> None:
        """Pass it on to the write side."""
        self._send_queue.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back everything that is held; pending work goes on unless it only waits."""
        if self._is_over:
            return
        self._is_over = True
        if exc is not None and self._reason == "by peer":
            self._reason = f"error: {exc}"
        self._send_queue.close()
        if self._mute is not None:
            self._mute.cancel()
        self._context.memory.forget(self._memory_freed)
        self._give_back(self._take_grant())
        for pending in list(self._pending):
            is_idle = pending.call.route.cancel_when_gone or pending.call.is_large
            if is_idle and pending.work is not None:
                pending.work.cancel()
        self._on_end(self, self._reason)

    # -- what the listener calls -----------------------------------------------

    @property
    def activity(self) -> Activity:
        """What the deadlines are measured by.

        To be asked for now and then: bytes that moved since the last time count as moved now.
        """
        if self._has_moved:
            self._has_moved = False
            self._last_active = self._context.clock.monotonic()
        return Activity(
            last_active=self._last_active,
            frame_since=self._frame_since,
            frame_size=self._received.frame_size,
            sending=self._send_queue.pending > 0,
            busy=len(self._order) > 0,
        )

    def release_buffer(self) -> None:
        """Give up the receive buffer if nothing is in it: the connection is quiet."""
        self._received.release()

    def drain(self) -> None:
        """Serve nothing new; close once every request taken so far has its reply."""
        self._is_draining = True
        self._settle()

    def cancel_pending(self) -> None:
        """Cancel what is still being worked on; its clients are told, then it closes."""
        for pending in list(self._pending):
            if pending.work is not None:
                pending.work.cancel()

    def end(self, reason: str) -> None:
        """Close at once; replies not sent yet are lost."""
        if not self._is_over:
            self._reason = reason
            self._transport.abort()

    # -- frames in -------------------------------------------------------------

    def _may_serve(self) -> bool:
        """Say whether one more request may be taken: nothing that it could fill is full."""
        if self._is_over or self._is_draining or self._is_closing_after_reply:
            return False
        if self._is_held or self._mute is not None:
            return False
        limits, order = self._context.limits, self._order
        if self._authenticator is not None and self._authenticator.principal is None and order:
            return False
        return (
            len(order.slots) < limits.in_flight_max
            and order.bytes < limits.in_flight_bytes_max
            and self._send_queue.pending < limits.unsent_bytes_max
        )

    def _serve_frames(self) -> None:
        """Serve what was received, in this turn if it has time left."""
        if not self._is_queued and not self._scheduler.is_round_spent():
            self._serve_slice(self._scheduler.last)
            return
        if self._received.is_partial:
            self._queue()
        self._settle()

    def run_slice(self) -> None:
        """Serve for one slice: the turn that this connection was queued for has come."""
        self._is_queued = False
        if not self._is_over and not (self._is_reading and self._serve_fast_path()):
            self._serve_slice(self._scheduler.now())

    def _serve_slice(self, began: float) -> None:
        """Serve frames for one slice that began at ``began``, in the loop's time."""
        self.send_deferred()  # nothing of what follows may overtake it
        served = 0
        scheduler = self._scheduler
        now = began
        stop = began + SLICE_S
        self._is_full = not self._may_serve()
        while not self._is_full:
            if served == FRAMES_PER_SLICE or now >= stop:
                self._backlogged_at = now
                self._queue()
                break
            frame: memoryview | None = None
            try:
                frame = self._received.take(self._frame_bytes_max())
                if frame is None:
                    self._ask_for_memory()
                    break
                self._serve(frame)
            except ProtocolFault as fault:
                self._refuse(fault, frame)
                return
            served += 1
            if not self._received.is_partial:
                break
            now = scheduler.now()
            self._is_full = not self._may_serve()
        scheduler.served(scheduler.now())
        if served:
            self._frame_since = None
        self._settle()

    def _serve_fast_path(self) -> bool:
        """Serve the one frame that is here, if it is plain and nothing is under way.

        False where it is not so; nothing has been done then.
        """
        if not self._may_use_fast_path():
            return False
        received = self._received
        end = received.only_frame(self._context.limits.frame_bytes_max)
        if not end:
            return False
        data = received.buffer
        way = self._fast_paths.get(data[LENGTH_SIZE] << 8 | data[LENGTH_SIZE + 1])
        if way is None:
            return False
        scheduler = self._scheduler
        scheduler.unseen += 1
        if (
            scheduler.unseen >= FAST_REQUESTS_PER_CLOCK_READ
            and not scheduler.has_time_for_fast_path()
        ):
            return False
        key, serve = way
        reply = serve(self._caller, self._client, data, LENGTH_SIZE, end)
        if reply is None:
            return False
        received.take_all()
        self._frame_since = None
        self._context.events.answered_at_once(self._listener, key)
        if reply:
            self._deferred = reply
            if not self._context.coalescer.defers(self):
                self.send_deferred()
        return True

    def send_deferred(self) -> None:
        """Send the reply that waited for the end of the loop's turn, if there is one."""
        reply, self._deferred = self._deferred, None
        if reply is not None and not self._is_over and not self._send_queue.send(reply):
            self._settle()

    def _may_use_fast_path(self) -> bool:
        if self._is_over or self._is_draining or self._is_closing_after_reply or self._is_queued:
            return False
        if self._mute is not None or self._deferred is not None or self._is_held:
            return False
        if self._order.slots or self._send_queue.pending:
            return False
        authenticator = self._authenticator
        return authenticator is None or (
            authenticator.principal is not None and not authenticator.expects_token
        )

    def _serve(self, frame: memoryview) -> None:
        if self._authenticator is not None and self._authenticator.expects_token:
            token = token_reply(self._authenticator, self._caller, frame)
            self._learn_principal()
            self._put(token)
            return
        since = self._loop.time()
        call = self._context.dispatcher.open(frame, self._authenticator)
        if isinstance(call, Outgoing):
            self._give_back(self._take_grant())
            self._put(call)
            return
        if call.is_large:
            self._serve_large(call, since, len(frame))
            return
        if call.holds_frame and call.message is None and len(frame) <= COPIED_BYTES_MAX:
            call.request = call.request._replace(body=memoryview(bytearray(call.request.body)))
            call.holds_frame = False
        caller = self._context.dispatcher.caller_of(call, self._caller)
        if caller is not self._caller:
            self._caller, self._client = caller, client_field(caller.client_id)
        reply = self._context.dispatcher.call(caller, call)
        if type(reply) is GeneratorType:
            reply = self._begin_steps(caller, call, reply)
        granted = self._take_grant()
        if isinstance(reply, _RESULTS):
            self._give_back(granted)
            if self._authenticator is not None:
                self._learn_principal()
            self._put(self._context.dispatcher.settle(caller, call, reply))
            self._answered(call, since)
            return
        if call.holds_frame or isinstance(reply, Holding):
            self._received.hand_over()
        elif not call.route.keeps_body:
            # Nobody looks at it again: not who answers an error, and it costs no memory.
            call.request = call.request._replace(body=_NOTHING)
            self._give_back(granted)
            granted = 0
        slot = self._order.reserve(len(frame))
        self._park(PendingRequest(call, caller, slot, granted, since), reply)

    def _begin_steps(self, caller: Caller, call: Call, steps: Steps[Reply]) -> Handled:
        """Run steps for one slice; return the result, or the steps that are left."""
        try:
            found = self._scheduler.begin(steps)
        except Exception as error:  # noqa: BLE001 - the border between handlers and the wire
            return self._context.dispatcher.failure(caller, call, error)
        return found.result if isinstance(found, Done) else found

    def _serve_large(self, call: Call, since: float, size: int) -> None:
        """Decode in steps, then call the handler; later requests wait until it has been called."""
        self._is_held = True
        self._received.hand_over()
        slot = self._order.reserve(size)
        pending = PendingRequest(call, self._caller, slot, self._take_grant(), since, is_long=True)
        self._pending[pending] = None
        tasks = self._context.tasks
        pending.work = tasks.create_task(self._decode_and_wait(pending))

    async def _decode_and_wait(self, pending: PendingRequest) -> None:
        call, dispatcher = pending.call, self._context.dispatcher
        try:
            await self._scheduler.complete(dispatcher.decode_steps(call))
        except asyncio.CancelledError as error:
            self._fail(pending, error)
            raise
        except ProtocolFault as fault:
            self._forget(pending)
            head = _KEY_AND_VERSION.pack(call.request.key, call.request.version)
            self._refuse(fault, memoryview(head))
            return
        if not call.holds_frame:
            call.request = call.request._replace(body=_NOTHING)
            self._give_back(pending.granted)
            pending.granted = 0
        pending.caller = self._caller = dispatcher.caller_of(call, self._caller)
        self._client = client_field(self._caller.client_id)
        reply = dispatcher.call(self._caller, call)
        self._is_held = False
        if not self._is_over:
            self._serve_frames()
        await self._wait(pending, reply)

    def _answered(self, call: Call, since: float) -> None:
        micros = int((self._loop.time() - since) * 1e6)
        self._context.events.answered(self._context.dispatcher.listener, call.request.key, micros)

    def _learn_principal(self) -> None:
        known = None if self._authenticator is None else self._authenticator.principal
        if known is not None and known != self._caller.principal:
            self._caller = replace(self._caller, principal=known)

    def _frame_bytes_max(self) -> int:
        frame_bytes_max = self._context.limits.frame_bytes_max
        if self._authenticator is None or self._authenticator.principal is not None:
            return frame_bytes_max
        return min(frame_bytes_max, self._authenticator.frame_bytes_max)

    def _refuse(self, fault: ProtocolFault, frame: memoryview | None) -> None:
        """Close for bytes that are no request, and say so where an operator looks."""
        if self._is_over:
            return
        api, version = "-", "-"
        if frame is not None and len(frame) >= _KEY_AND_VERSION.size:
            key, version = _KEY_AND_VERSION.unpack_from(frame)
            api = ApiKey(key).title if key in ApiKey.__members__.values() else str(key)
        log.warning(
            "connection closed listener=%s peer=%s client_id=%s api=%s version=%s reason=%s",
            *(self._context.name, self._caller.peer, printable(self._caller.client_id)),
            *(api, version, printable(str(fault))),
        )
        self._context.events.bad_bytes(self._context.name)
        self._send_queue.flush()
        self.end("bad bytes")

    # -- memory ----------------------------------------------------------------

    def _ask_for_memory(self) -> None:
        """Before the buffer grows to a large frame; until it is granted nothing is read."""
        if self._granted or not self._received.wants_memory:
            return
        size = self._received.frame_size
        self._is_denied = not self._context.memory.take(size, self._memory_freed)
        if not self._is_denied:
            self._granted = size

    def _memory_freed(self) -> None:
        self._is_denied = False
        self._queue()

    def _take_grant(self) -> int:
        granted, self._granted = self._granted, 0
        return granted

    def _give_back(self, granted: int) -> None:
        if granted:
            self._context.memory.give_back(granted)
            self._context.release.request_freed(granted)

    # -- handlers that take their time -----------------------------------------

    def _park(self, pending: PendingRequest, reply: Handled) -> None:
        self._pending[pending] = None
        if isinstance(reply, asyncio.Future):
            # Somebody else completes it: no task is needed to wait for that.
            pending.work = reply
            reply.add_done_callback(lambda done: self._future_done(pending, done))
        else:
            tasks = self._context.tasks
            pending.work = tasks.create_task(self._wait(pending, reply))

    async def _wait(self, pending: PendingRequest, reply: Handled) -> None:
        scheduler, dispatcher = self._scheduler, self._context.dispatcher
        try:
            if isinstance(reply, Generator):
                pending.is_long = True
                reply = await scheduler.complete(reply)
            result = reply if isinstance(reply, _RESULTS) else await reply
            if pending.is_long:
                result = await scheduler.complete(dispatcher.encode_steps(pending.call, result))
        except asyncio.CancelledError as error:
            self._fail(pending, error)
            raise
        except Exception as error:  # noqa: BLE001 - the border between handlers and the wire
            self._fail(pending, error)
        else:
            self._finish(pending, result)

    def _future_done(self, pending: PendingRequest, done: "asyncio.Future[Result]") -> None:
        if done.cancelled():
            self._fail(pending, asyncio.CancelledError())
        elif (error := done.exception()) is not None:
            self._fail(pending, error)
        else:
            self._finish(pending, done.result())

    def _fail(self, pending: PendingRequest, error: BaseException) -> None:
        if self._is_over:
            self._forget(pending)
        else:
            dispatcher = self._context.dispatcher
            self._finish(pending, dispatcher.failure(pending.caller, pending.call, error))

    def _finish(self, pending: PendingRequest, result: Result) -> None:
        self._forget(pending)
        if self._is_over:
            return
        self._learn_principal()
        outgoing = self._context.dispatcher.settle(pending.caller, pending.call, result)
        self._order.complete(pending.slot, outgoing, held(outgoing))
        self._answered(pending.call, pending.since)
        self._send_due()
        self._serve_frames()

    def _forget(self, pending: PendingRequest) -> None:
        del self._pending[pending]
        self._give_back(pending.granted)

    # -- replies out -----------------------------------------------------------

    def _put(self, outgoing: Outgoing) -> None:
        """Send a reply that is known at once, behind those that are not."""
        if not self._order.slots:
            self._send(outgoing)
        else:
            size = held(outgoing)
            self._order.complete(self._order.reserve(size), outgoing, size)

    def _send_due(self) -> None:
        for outgoing in self._order.due():
            if self._is_closing_after_reply:
                return
            self._send(outgoing)

    def _send(self, outgoing: Outgoing) -> None:
        self._send_queue.push(outgoing.chunks)
        if outgoing.close:
            self._is_closing_after_reply = True
            self._reason = "after reply"
        if outgoing.throttle_ms > 0:
            # Reply first, then silence (KIP-219). The later of two deadlines holds.
            when = self._loop.time() + outgoing.throttle_ms / 1000
            if self._mute is None or self._mute.when() < when:
                if self._mute is not None:
                    self._mute.cancel()
                self._mute = self._loop.call_at(when, self._unmute)

    def _unmute(self) -> None:
        self._mute = None
        self._serve_frames()

    def _made_progress(self) -> None:
        self._has_moved = True
        if not self._is_settling:
            self._serve_frames()

    def _write_failed(self, error: OSError) -> None:
        log.info(
            "connection closed listener=%s peer=%s reason=%s",
            *(self._context.name, self._caller.peer, printable(str(error))),
        )
        self.end(f"write failed: {error}")

    # -- after every step ------------------------------------------------------

    def _settle(self) -> None:
        """Send what is queued, then close, go on, or wait: whichever is due."""
        self.send_deferred()
        self._is_settling = True
        self._send_queue.flush()
        self._is_settling = False
        if self._is_over or self._transport.is_closing():
            return
        is_done = self._is_closing_after_reply or (self._is_draining and not self._order)
        if is_done and self._send_queue.is_empty:
            if self._is_draining:
                self._reason = "drained"
            self._transport.close()
            return
        may_serve = self._may_serve()
        if may_serve and self._is_full:
            # Sending made room: go on with what is here already.
            self._is_full = False
            self._queue()
        self._read_or_not(may_serve)

    def _read_or_not(self, may_serve: bool) -> None:
        wanted = may_serve and not self._is_queued and not self._is_denied
        if not wanted:
            self._frame_since = None
        elif self._frame_since is None and self._received.is_partial:
            self._frame_since = self._context.clock.monotonic()
        if wanted != self._is_reading:
            self._is_reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _queue(self) -> None:
        """Wait for a turn; frames that are here already wait until then."""
        if self._is_queued:
            return
        self._is_queued = True
        scheduler = self._scheduler
        is_prompt = scheduler.now() - self._backlogged_at >= BACKLOG_MEMORY_S and (
            self._received.only_frame(self._context.limits.frame_bytes_max) > 0
        )
        scheduler.enqueue(self, is_prompt=is_prompt)
