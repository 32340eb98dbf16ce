"""One client connection: frames in, replies out in the same order, within bounds.

    bytes -> ReceiveBuffer -> frame -> RequestRunner -> reply -> SendQueue -> bytes

`ConnectionState` says what the connection may do at the moment; this module acts on it. A frame is
taken only if the limits of the connection allow one more request (`Connection._may_serve`).
Otherwise the socket is not read either: TCP flow control stops the client. `ConnectionLimits`
bounds the memory of one connection, and `HeldReplies` that of all, no matter what clients send or
do not read.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.frames import LENGTH_SIZE
from ottla.protocol.types import Millis
from ottla.runtime.pending import Pending
from ottla.runtime.ports import Address
from ottla.security.principal import CertificateRefused
from ottla.server.closed_transport import CLOSED_TRANSPORT
from ottla.server.connection_state import FrameEvent, FrameState, Lifecycle, LifecycleEvent
from ottla.server.deadlines import Activity
from ottla.server.dispatch import Outgoing, printable
from ottla.server.fair_scheduler import BACKLOG_MEMORY_S, FAST_REQUESTS_PER_CLOCK_READ, SLICE_S
from ottla.server.frame_memory import FrameMemory
from ottla.server.listener_context import ListenerContext
from ottla.server.receive_buffer import BUFFER_BYTES, FIRST_BYTES, ReceiveBuffer
from ottla.server.request_runner import KEY_AND_VERSION, RequestRunner
from ottla.server.send_queue import SendQueue, SendQueueEvents, send_queue_for

log = logging.getLogger(__name__)

# Frames in one slice, even if each takes next to no time: see `ottla.server.fair_scheduler`.
FRAMES_PER_SLICE: Final = 64
# How long a TLS connection may take to close. Asyncio and uvloop never close one whose client has
# gone while reading was paused: they note the end of the stream and then ignore `close`.
CLOSE_S_MAX: Final = 3.0
# Names of the module: CPython 3.11 looks up a member of an enum class in Python code.
_READY: Final = FrameState.READY
_AUTHENTICATING: Final = Lifecycle.AUTHENTICATING
_DRAINING: Final = Lifecycle.DRAINING
_FINISHING: Final = Lifecycle.FINISHING
_CLOSED: Final = Lifecycle.CLOSED


def _already_ended(connection: "Connection", reason: str) -> None:
    """Take the place of ``on_end`` once it was called."""


class Connection(asyncio.BufferedProtocol):
    """The protocol of one client's connection. ``on_end`` is called once, when it has closed."""

    __slots__ = (
        "_abort_timer",
        "_backlogged_at",
        "_context",
        "_deferred",
        "_fast_paths",
        "_frame_since",
        "_has_moved",
        "_held_bytes",
        "_is_full",
        "_is_reading",
        "_is_settling",
        "_last_active",
        "_listener",
        "_loop",
        "_memory",
        "_on_end",
        "_opened",
        "_order",
        "_queued_at",
        "_quotas",
        "_reason",
        "_received",
        "_requests",
        "_scheduler",
        "_send_queue",
        "_state",
        "_tracer",
        "_transport",
        "_unmute_timer",
    )

    def __init__(
        self, context: ListenerContext, peer: Address, on_end: Callable[["Connection", str], None]
    ) -> None:
        self._context = context
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._scheduler = context.scheduler
        self._fast_paths = context.dispatcher.fast_paths
        self._listener = context.name
        self._quotas = context.throttling.quotas
        self._tracer = context.tracer
        self._received = ReceiveBuffer()
        self._memory = FrameMemory(context, self._memory_freed)
        self._requests = RequestRunner(context, self, peer, self._received, self._memory)
        self._state = self._requests.state
        self._order = self._requests.order
        self._transport: asyncio.Transport
        self._send_queue: SendQueue
        self._deferred: bytearray | None = None  # a reply that `WriteCoalescer` holds back
        self._unmute_timer: asyncio.TimerHandle | None = None
        self._abort_timer: asyncio.TimerHandle | None = None
        self._is_reading = True  # the transport reads from the socket
        self._is_full = False  # a limit was reached when frames were last looked for
        self._is_settling = False
        self._backlogged_at = -BACKLOG_MEMORY_S  # when this connection last used up a slice
        self._queued_at = 0.0  # when frames began to wait for a slice, in the loop's time
        self._reason = "by peer"
        self._opened: Millis = context.clock.monotonic()
        self._last_active = self._opened
        self._has_moved = False  # bytes were sent or received since `activity` was last read
        self._frame_since: Millis | None = None
        self._held_bytes = 0  # counted in `HeldReplies`

    # -- called by asyncio -----------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving."""
        # uvloop's transport has asyncio's methods but does not inherit from its class.
        self._transport = cast("asyncio.Transport", transport)
        events = SendQueueEvents(self._made_progress, self._write_failed)
        self._send_queue = send_queue_for(self._loop, self._transport, events)
        try:
            self._requests.identify_by_certificate(transport)
        except CertificateRefused as error:
            log.warning(
                "connection closed listener=%s peer=%s reason=%s",
                *(self._listener, self._requests.caller.peer, printable(str(error))),
            )
            self.end("certificate without a principal")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to receive into."""
        return self._received.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Serve what was received, once a whole length field or a whole frame is there."""
        self._has_moved = True
        if self._received.filled(nbytes):
            if self._state.frames is not _READY:
                self._update_reading(may_serve=False)
            elif self._serve_fast_path():
                return
            elif self._scheduler.is_round_spent():
                self._enqueue()
            else:
                self._serve_slice(self._scheduler.last)
        elif self._frame_since is None:
            self._frame_since = self._context.clock.monotonic()

    def eof_received(self) -> bool:
        """Close the connection, as Kafka does: a client that half-closes does not read replies."""
        return False

    def pause_writing(self) -> None:
        """Forward the back-pressure signal to the send queue."""
        self._send_queue.pause()

    def resume_writing(self) -> None:
        """Forward the end of the back-pressure to the send queue."""
        self._send_queue.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release all that the connection holds; requests that do more than wait run on.

        References to this object are dropped, too: it is freed now, not when the garbage collector
        runs, which counts objects and not the megabytes of a receive buffer.
        """
        self._state.advance(LifecycleEvent.LOST)
        if exc is not None and self._reason == "by peer":
            self._reason = f"error: {exc}"
        self._send_queue.close()
        for timer in (self._unmute_timer, self._abort_timer):
            if timer is not None:
                timer.cancel()
        self._unmute_timer = self._abort_timer = self._deferred = None
        on_end = self._on_end
        self.discard()
        on_end(self, self._reason)

    # -- called by the listener -------------------------------------------------

    @property
    def activity(self) -> Activity:
        """The times that deadlines are checked against.

        Read it periodically: bytes that moved since it was last read count as moved now.
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
            unauthenticated_since=(
                self._opened if self._state.lifecycle is _AUTHENTICATING else None
            ),
            login_ends_at=self._requests.login_ends_at,
        )

    def discard(self) -> None:
        """Release what a connection holds that is not served, such as after a failed handshake."""
        self._count_held(0)
        self._memory.close()
        self._requests.close()
        self._received.close()
        self._transport = CLOSED_TRANSPORT
        self._on_end = _already_ended

    def release_buffer(self) -> None:
        """Release the receive buffer of an idle connection."""
        self._received.release()

    def drain(self) -> None:
        """Serve no new requests; close once every request in flight has its reply."""
        self._state.advance(LifecycleEvent.DRAIN)
        self._settle()

    def cancel_pending(self) -> None:
        """Cancel the requests in flight; they get error replies, and then a drain can end."""
        self._requests.cancel_pending()

    def end(self, reason: str) -> None:
        """Close at once; replies that are not sent yet are lost."""
        if self._state.lifecycle is not _CLOSED:
            self._state.advance(LifecycleEvent.ABORT)
            self._reason = reason
            self._transport.abort()

    # -- frames in -------------------------------------------------------------

    def _may_serve(self) -> bool:
        """Say whether one more request may be taken: by the state, and within the limits."""
        if not self._state.accepts_requests:
            return False
        limits, order = self._context.limits, self._order
        if order.slots or self._send_queue.queued:
            is_alone = self._state.lifecycle is _AUTHENTICATING and order.slots
            if is_alone or self._context.held.is_full:
                return False
        return (
            len(order.slots) < limits.in_flight_max
            and order.bytes < limits.in_flight_bytes_max
            and self._send_queue.pending < limits.unsent_bytes_max
        )

    def serve_frames(self) -> None:
        """Serve the frames received so far, in this round of the scheduler if it has time left."""
        if self._state.frames is _READY and self._received.is_partial:
            if not self._scheduler.is_round_spent():
                self._serve_slice(self._scheduler.last)
                return
            self._enqueue()
        self._settle()

    def run_slice(self) -> None:
        """Serve for one slice. The scheduler calls this for a connection that was enqueued."""
        self._state.on_frames(FrameEvent.RUN)
        if self._state.is_ended:
            return
        if not self._serve_fast_path():
            self._serve_slice(self._scheduler.now(), self._queued_at)
        elif not self._is_reading:
            self._update_reading(self._may_serve())

    def _serve_slice(self, began: float, queued_at: float = 0.0) -> None:
        """Serve frames for one slice that began at ``began``, in the loop's time.

        ``queued_at``: since when they have waited for it; 0 if they have not.
        """
        self._requests.queued_at = queued_at
        self.send_deferred()  # no later reply may overtake it
        served = 0
        scheduler = self._scheduler
        now = began
        stop = began + SLICE_S
        self._is_full = not self._may_serve()
        while not self._is_full:
            if served == FRAMES_PER_SLICE or now >= stop:
                self._backlogged_at = now
                self._enqueue()
                break
            frame: memoryview | None = None
            try:
                frame = self._received.take(self._requests.frame_bytes_max)
                if frame is None:
                    self._request_memory()
                    break
                self._requests.serve(frame)
            except ProtocolFault as fault:
                self.reject(fault, frame)
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
        """Serve the frames received, if their APIs have a fast path and nothing is unsent.

        The replies are sent together, behind those of requests in flight. Return False if frames
        are left that take the general path, or a part of one. A connection that has used up its
        slice waits for the next one.
        """
        requests, received = self._requests, self._received
        if (
            not self._state.is_ready
            or self._deferred is not None
            or self._send_queue.pending
            or (self._order.slots and not self._may_serve())
            or (requests.authenticator is not None and not requests.authenticator.admits_all)
            # The general path charges the requests of a client with a quota.
            or (self._quotas.is_active and self._context.throttling.applies(requests.caller))
        ):
            return False
        replies: bytearray | None = None
        for _ in range(FRAMES_PER_SLICE):
            reply = self._serve_fast_frame()
            if reply is None:
                break
            replies = reply if replies is None else replies + reply
            if not received.is_partial or (self._order.slots and not self._may_serve()):
                break
        else:
            self._backlogged_at = self._scheduler.now()
            self._enqueue()
        if replies is None:
            return False
        self._frame_since = None
        if replies:
            self._deferred = replies
            if not self._context.coalescer.defers(self):
                self.send_deferred()
        return not received.is_partial or self._state.frames is not _READY

    def _serve_fast_frame(self) -> bytearray | None:
        """Serve the next frame if it is whole and its API has a fast path; return what to send.

        That is empty if the client wants no reply, or it is not its turn yet. None if nothing has
        been done.
        """
        requests, received = self._requests, self._received
        end = received.next_frame(self._context.limits.frame_bytes_max)
        if not end:
            return None
        data, start = received.buffer, received.start + LENGTH_SIZE
        found = self._fast_paths.get(data[start] << 8 | data[start + 1])
        tracer = self._tracer
        if found is None or (tracer is not None and not tracer.skips):
            return None  # the general path traces requests
        scheduler = self._scheduler
        scheduler.unseen += 1
        if (
            scheduler.unseen >= FAST_REQUESTS_PER_CLOCK_READ
            and not scheduler.has_time_for_fast_path()
        ):
            return None
        key, serve = found
        reply = serve(requests.caller, requests.client, data, start, end)
        if reply is None:
            return None
        if isinstance(reply, Pending):
            requests.wait_for(key, data, start, end, reply)
            reply = bytearray()
        else:
            self._context.events.answered_at_once(self._listener, key)
            if self._order.slots and reply:
                requests.put(Outgoing((reply,)))
                reply = bytearray()
        received.take_until(end)
        if tracer is not None:
            tracer.skips -= 1
        return reply

    def reject(self, fault: ProtocolFault, head: memoryview | None) -> None:
        """Close because of bytes that are not a valid request, and log it for the operator.

        ``head`` starts with the API key and version, if they were received.
        """
        if self._state.is_ended:
            return
        api, version = "-", "-"
        if head is not None and len(head) >= KEY_AND_VERSION.size:
            key, version = KEY_AND_VERSION.unpack_from(head)
            api = ApiKey(key).title if key in ApiKey.__members__.values() else str(key)
        caller = self._requests.caller
        log.warning(
            "connection closed listener=%s peer=%s client_id=%s api=%s version=%s reason=%s",
            *(self._listener, caller.peer, printable(caller.client_id)),
            *(api, version, printable(str(fault))),
        )
        self._context.events.bad_bytes(self._listener)
        self._is_settling = True  # no frame after the bad bytes is served
        self._send_queue.flush()
        self.end("bad bytes")

    def _request_memory(self) -> None:
        """Ask for memory before the buffer grows to a large frame; if denied, stop reading."""
        received, memory = self._received, self._memory
        # Before the login only the first buffer is free.
        is_login = self._state.lifecycle is _AUTHENTICATING
        free_bytes = FIRST_BYTES if is_login else BUFFER_BYTES
        if memory.is_granted or not received.wants_memory(free_bytes):
            return
        if not memory.request(received.frame_size, self._requests.memory_limit):
            self._state.on_frames(FrameEvent.MEMORY_DENIED)

    def _memory_freed(self) -> None:
        self._state.on_frames(FrameEvent.MEMORY_FREED)
        self._enqueue()

    def _enqueue(self) -> None:
        """Wait in the scheduler for a slice, unless frames wait for something else already."""
        if self._state.frames is not _READY:
            return
        self._state.on_frames(FrameEvent.ENQUEUE)
        scheduler = self._scheduler
        self._queued_at = now = scheduler.now()
        is_prompt = now - self._backlogged_at >= BACKLOG_MEMORY_S and (
            self._received.only_frame(self._context.limits.frame_bytes_max) > 0
        )
        scheduler.enqueue(self, is_prompt=is_prompt)

    # -- replies out -----------------------------------------------------------

    def send(self, outgoing: Outgoing) -> None:
        """Queue a reply; apply its throttle time, and remember if it is the last one."""
        self._send_queue.push(outgoing.chunks)
        if outgoing.close:
            self._state.advance(LifecycleEvent.FINAL_REPLY)
            self._reason = "after reply"
        if outgoing.throttle_ms > 0:
            self._throttle(self._loop.time() + outgoing.throttle_ms / 1000)

    def send_at_once(self, outgoing: Outgoing) -> None:
        """Send a reply as `send` does, but before anything else is done if it is one buffer."""
        chunks = outgoing.chunks
        first = chunks[0] if len(chunks) == 1 else None
        if not isinstance(first, bytearray) or outgoing.close or outgoing.throttle_ms > 0:
            self.send(outgoing)
            return
        self.send_deferred()
        self._has_moved = self._is_settling = True
        self._send_queue.send(first)
        self._is_settling = False

    def send_deferred(self) -> None:
        """Send the reply that `WriteCoalescer` deferred, if there is one."""
        reply, self._deferred = self._deferred, None
        if reply is not None and not self._state.is_ended and not self._send_queue.send(reply):
            self._settle()

    def _throttle(self, until: float) -> None:
        if self._state.throttle(until):
            if self._unmute_timer is not None:
                self._unmute_timer.cancel()
            self._unmute_timer = self._loop.call_at(until, self._unmute)

    def _unmute(self) -> None:
        self._unmute_timer = None
        self._state.unmute()
        self.serve_frames()

    def _made_progress(self) -> None:
        self._has_moved = True
        if not self._is_settling:
            self.serve_frames()

    def _write_failed(self, error: OSError) -> None:
        log.info(
            "connection closed listener=%s peer=%s reason=%s",
            *(self._listener, self._requests.caller.peer, printable(str(error))),
        )
        self.end(f"write failed: {error}")

    # -- after every step ------------------------------------------------------

    def _settle(self) -> None:
        """Send what is queued, then close, continue or wait, as the state demands."""
        self.send_deferred()
        self._is_settling = True
        self._send_queue.flush()
        self._is_settling = False
        self._count_held(self._send_queue.queued + self._order.bytes)
        state = self._state
        if state.is_ended or self._transport.is_closing():
            return
        is_draining = state.lifecycle is _DRAINING
        is_done = state.lifecycle is _FINISHING or (is_draining and not self._order.slots)
        if is_done and self._send_queue.is_empty:
            if is_draining:
                self._reason = "drained"
            state.advance(LifecycleEvent.ALL_SENT)
            self._transport.close()
            if self._transport.get_extra_info("sslcontext") is not None:
                self._abort_timer = self._loop.call_later(CLOSE_S_MAX, self._transport.abort)
            return
        may_serve = self._may_serve()
        if may_serve and self._is_full:
            # Sending made room: continue with the frames received already.
            self._is_full = False
            self._enqueue()
        self._update_reading(may_serve)

    def _count_held(self, held_bytes: int) -> None:
        if held_bytes != self._held_bytes:
            self._context.held.change(self._held_bytes, held_bytes)
            self._held_bytes = held_bytes

    def _update_reading(self, may_serve: bool) -> None:
        """Read from the socket only if a frame that arrives may be served now."""
        wanted = may_serve and self._state.frames is _READY
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
