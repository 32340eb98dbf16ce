"""Both ends of a simulated TCP connection: in order, with flow control, until it breaks.

A `Pipe` carries one direction. It numbers what is sent, so that bytes arrive in order whatever
delays the link draws. Data that cannot pass (a cut, a host without power) is held, as TCP
retransmits, until the path is free or the sender times out; the other side does not notice: a
half-open connection.
"""

import asyncio
import contextvars
import errno
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.protocol.types import Buffer
from ottla.runtime.ports import Address
from simulation.disk import SimCrash
from simulation.loop import PROCESS

# asyncio's own defaults.
HIGH_WATER_BYTES = 64 * 1024
LOW_WATER_BYTES = 16 * 1024


class Wire(Protocol):
    """The network as a connection sees it."""

    loop: asyncio.AbstractEventLoop
    user_timeout_s: float

    def may_pass(self, source: str, target: str) -> bool:
        """Say whether a packet gets through now."""
        ...

    def delay_s(self, source: str, target: str) -> float:
        """Draw how long a packet takes."""
        ...

    def segments(self, source: str, target: str, data: bytes) -> Iterable[bytes]:
        """Split what was written into the pieces that arrive."""
        ...

    def frames(self, source: str, target: str, pipe: "Pipe", data: bytes) -> bool:
        """Take ``data`` over if the link works on whole frames; see `FrameFaults`."""
        ...

    def note(self, host: str, kind: str, detail: str) -> None:
        """Journal an event."""
        ...

    def park(self, pipe: "Pipe") -> None:
        """Call ``pipe.release`` once a blocked path opens."""
        ...

    def forget(self, transport: "SimTransport") -> None:
        """Drop an end that is closed."""
        ...


@dataclass(frozen=True, slots=True)
class _Data:
    payload: bytes


@dataclass(frozen=True, slots=True)
class _End:
    """FIN: no more data this way."""


_Item = _Data | _End


class Pipe:
    """One direction of a connection."""

    def __init__(self, wire: Wire, sender: "SimTransport", receiver: "SimTransport") -> None:
        self.wire = wire
        self.unacked = 0  # bytes sent that the receiver has not read
        self.partial = bytearray()  # of a frame, where the link works on frames
        self._sender = sender
        self._receiver = receiver
        self._sent = 0
        self._next = 0
        self._arrived: dict[int, _Item] = {}
        self._held: list[tuple[int, _Item]] = []
        self._unheard = 0  # bytes read whose acknowledgement was blocked
        self._timer: asyncio.TimerHandle | None = None

    def send(self, data: bytes) -> None:
        """Send bytes; they arrive in order, in pieces if the link says so."""
        self.unacked += len(data)
        source, target = self._sender.host, self._receiver.host
        if not self.wire.frames(source, target, self, data):
            for piece in self.wire.segments(source, target, data):
                self._dispatch(self._number(), _Data(piece))

    def end(self) -> None:
        """Send FIN after all data."""
        self._dispatch(self._number(), _End())

    def send_unordered(self, data: bytes, delay_s: float) -> None:
        """Deliver ``data`` by itself after ``delay_s``, without regard to data in flight."""
        self.wire.loop.call_later(
            delay_s, self._arrive, -1, _Data(data), context=contextvars.Context()
        )

    def reset(self) -> None:
        """Send RST: it overtakes data in flight. Lost in a cut like any packet."""
        delay_s = self.wire.delay_s(self._sender.host, self._receiver.host)
        self.wire.loop.call_later(delay_s, self._reset_arrives, context=contextvars.Context())

    def release(self) -> None:
        """Send what was held and receive pending acknowledgements: the path may be free again."""
        held, self._held = self._held, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for number, item in held:
            self._dispatch(number, item)
        if self._unheard:
            self._acknowledge(0)

    def stop(self) -> None:
        """Drop what is held: the sender is gone."""
        self._held.clear()
        self._unheard = 0

    def _number(self) -> int:
        self._sent += 1
        return self._sent - 1

    def _dispatch(self, number: int, item: _Item) -> None:
        delay_s = self.wire.delay_s(self._sender.host, self._receiver.host)
        # An empty context: a packet in flight belongs to no process.
        self.wire.loop.call_later(
            delay_s, self._arrive, number, item, context=contextvars.Context()
        )

    def _arrive(self, number: int, item: _Item) -> None:
        if not self.wire.may_pass(self._sender.host, self._receiver.host):
            self._held.append((number, item))
            self._start_patience()
        elif number < 0:
            self._deliver(item)
        else:
            self._arrived[number] = item
            while self._next in self._arrived:
                self._next += 1
                self._deliver(self._arrived.pop(self._next - 1))

    def _deliver(self, item: _Item) -> None:
        if self._receiver.is_gone():
            if isinstance(item, _Data):  # the machine is up and has no such connection
                self._receiver.outgoing.reset()
            return
        if isinstance(item, _Data):
            detail = f"{len(item.payload)}:{zlib.crc32(item.payload):08x}"
            self.wire.note(self._receiver.host, "receive", f"{self._sender.host} {detail}")
            self._receiver.receive(item.payload)
        else:
            self.wire.note(self._receiver.host, "eof", self._sender.host)
            self._receiver.receive_end()

    def _reset_arrives(self) -> None:
        if self.wire.may_pass(self._sender.host, self._receiver.host):
            self._receiver.break_with(ConnectionResetError(errno.ECONNRESET, "reset by peer"))

    def taken(self, length: int) -> None:
        """Acknowledge ``length`` bytes that the receiver read, if that gets through."""
        if self.wire.may_pass(self._receiver.host, self._sender.host):
            self._acknowledge(length)
        else:
            self._unheard += length
            self._start_patience()

    def _acknowledge(self, length: int) -> None:
        self.unacked -= length + self._unheard
        self._unheard = 0
        self._sender.drained()

    def _start_patience(self) -> None:
        if self._timer is None:
            self.wire.park(self)
            self._timer = self.wire.loop.call_later(
                self.wire.user_timeout_s, self._lose_patience, context=contextvars.Context()
            )

    def _lose_patience(self) -> None:
        self._timer = None
        if self._held or self._unheard:
            self._sender.break_with(TimeoutError(errno.ETIMEDOUT, "no acknowledgement"))


class SimTransport(asyncio.Transport):
    """One end of a connection, as asyncio's protocols see it.

    Callbacks into the protocol run in the context of the process that created this end, so they
    count as its steps and stop with it.
    """

    outgoing: Pipe
    incoming: Pipe

    def __init__(
        self, wire: Wire, local: Address, remote: Address, process: contextvars.Context
    ) -> None:
        super().__init__({"sockname": (local.host, local.port)})
        self.host = local.host
        self.peer = remote.host
        self._remote = remote
        self._wire = wire
        self._context = process
        self._process = process.get(PROCESS)
        self._protocol: Any = None
        self._inbox: deque[bytes] = deque()
        self._end_pending = False
        self._is_paused = False
        self._is_closing = False
        self._is_lost = False
        self._has_ended = False
        self._is_held_back = False
        self._high, self._low = HIGH_WATER_BYTES, LOW_WATER_BYTES

    # -- what the network does to this end ---------------------------------------

    def begin(self, accept: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseProtocol | None:
        """Create the protocol and pass it this transport; None if the process ended meanwhile."""
        self._call(self._begin, accept)
        protocol: asyncio.BaseProtocol | None = self._protocol
        return protocol

    def _begin(self, accept: Callable[[], asyncio.BaseProtocol]) -> None:
        self._protocol = accept()
        self._protocol.connection_made(self)

    def is_gone(self) -> bool:
        """Say whether the process behind this end is gone."""
        return (
            self._is_lost
            or self._is_closing
            or (self._process is not None and self._process.is_over)
        )

    def belongs_to(self, process: object) -> bool:
        """Say whether ``process`` created this end."""
        return self._process is process

    def receive(self, data: bytes) -> None:
        """Receive bytes from the network."""
        self._inbox.append(data)
        self._call(self._read)

    def receive_end(self) -> None:
        """Receive a FIN from the network."""
        self._end_pending = True
        self._call(self._read)

    def break_with(self, error: OSError) -> None:
        """Lose the connection because of the network."""
        if not self._is_lost:
            self._wire.note(self.host, "lost", f"{self.peer} {type(error).__name__}")
            self._is_closing = True
            self._call(self._lose, error)

    def drained(self) -> None:
        """Resume the protocol's writes if they were paused: the receiver read some data."""
        if self._is_held_back and self.outgoing.unacked <= self._low:
            self._is_held_back = False
            if not self.is_gone():
                self._call(self._protocol.resume_writing)

    def _call(self, callback: Callable[..., object], *args: object) -> None:
        """Run a callback of the host, unless its process has ended. The loop handles its errors."""
        if self._process is not None and not self._process.step():
            return
        try:
            self._context.run(callback, *args)
        except SimCrash:
            pass  # the simulation has ended this process already
        except Exception as error:  # noqa: BLE001 - what asyncio does with a protocol's error
            self._fatal(error)

    def _fatal(self, error: Exception) -> None:
        self._wire.loop.call_exception_handler(
            {"message": "a protocol failed", "exception": error, "transport": self}
        )
        self.abort()

    def _read(self) -> None:
        while self._inbox and not self._is_paused and not self._is_closing:
            data = self._inbox.popleft()
            rest = self._feed(data)
            if rest:
                self._inbox.appendleft(rest)
            self.incoming.taken(len(data) - len(rest))
        if self._end_pending and not self._inbox and not self._is_closing:
            self._end_pending = False
            if not self._protocol.eof_received():
                self.close()

    def _feed(self, data: bytes) -> bytes:
        """Pass ``data`` to the protocol; return what it did not accept."""
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.data_received(data)
            return b""
        while data and not self._is_paused and not self._is_closing:
            buffer = memoryview(self._protocol.get_buffer(len(data))).cast("B")
            if not len(buffer):
                raise RuntimeError("get_buffer() returned an empty buffer")
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            del buffer  # a protocol may resize its bytearray now
            self._protocol.buffer_updated(count)
            data = data[count:]
        return data

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            if error is not None:
                self.outgoing.stop()
            self._wire.forget(self)
            if self._protocol is not None:
                self._protocol.connection_lost(error)

    # -- what the program does to this end -----------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        """Answer ``peername`` and ``sockname``; there is no socket."""
        if name == "peername":
            return (self._remote.host, self._remote.port)
        return super().get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Change the protocol."""
        self._protocol = protocol

    def write(self, data: Buffer) -> None:
        """Send bytes. On a connection that is closing they go nowhere, as in asyncio."""
        if self._has_ended and not self._is_closing:
            raise RuntimeError("cannot write after write_eof()")
        if self.is_gone() or not data:
            return
        self.outgoing.send(bytes(data))
        if self.outgoing.unacked > self._high and not self._is_held_back:
            self._is_held_back = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """Return True: TCP can half-close."""
        return True

    def write_eof(self) -> None:
        """Half-close."""
        if not self._has_ended and not self.is_gone():
            self._has_ended = True
            self.outgoing.end()

    def close(self) -> None:
        """Send what was written, then FIN; ``connection_lost(None)`` follows."""
        if not self._is_closing:
            self.write_eof()
            self._is_closing = True
            self._wire.loop.call_soon(self._lose, None, context=self._context)

    def abort(self) -> None:
        """Reset at once."""
        if not self._is_lost:
            if self._process is None or not self._process.is_over:
                self.outgoing.reset()
            self._is_closing = True
            self._wire.loop.call_soon(self._lose, None, context=self._context)

    def is_closing(self) -> bool:
        """Say whether it is closing or closed."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Stop receiving: the sender is blocked once its window is full."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Resume, from the next iteration of the loop."""
        if self._is_paused:
            self._is_paused = False
            self._wire.loop.call_soon(self._read_on, context=self._context)

    def _read_on(self) -> None:
        try:
            self._read()
        except Exception as error:  # noqa: BLE001 - what asyncio does with a protocol's error
            self._fatal(error)

    def is_reading(self) -> bool:
        """Say whether it reads."""
        return not self._is_paused and not self._is_closing

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the receiver has not read."""
        return self.outgoing.unacked

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when the protocol's writes are paused and resumed."""
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")
        self._high, self._low = high, low
