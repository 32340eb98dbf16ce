"""A simulated network of named hosts: delays, spikes, cuts one way or both, resets.

TCP hides loss: within a connection bytes arrive in order or the connection breaks, and a lost
packet shows as delay. That is the default. `FrameFaults` is harsher than TCP: it drops, repeats and
reorders whole length-prefixed frames inside a connection that stays up. No real network does that
to Kafka's protocol; a protocol that survives it does not depend on its transport by accident.
"""

import asyncio
import contextvars
import errno
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ottla.runtime.ports import Address, Listener
from simulation.connection import Pipe, SimTransport
from simulation.journal import Journal
from simulation.loop import PROCESS, Process
from simulation.random import SimRandom

# First port for a listener on port 0; Linux begins there too.
EPHEMERAL_PORT_FIRST = 32768
# Pauses between connection attempts, as TCP's; then the attempt times out.
SYN_RETRIES_S = (1.0, 2.0, 4.0, 8.0, 16.0)
_OWN_NAMES = {"", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::"}  # noqa: S104


@dataclass(frozen=True, slots=True)
class FrameFaults:
    """Probabilities, each in [0, 1], for every frame: 4 bytes of length and as many bytes."""

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0


@dataclass(slots=True)
class Link:
    """The path from one host to another. Each direction has its own."""

    delay_s: float = 0.0002
    jitter_s: float = 0.0003
    spike_chance: float = 0.0
    spike_s: float = 0.5
    split_chance: float = 0.0  # that a write arrives in several pieces
    frame_faults: FrameFaults | None = None
    is_cut: bool = False


class SimNetwork:
    """The links between hosts. `port_of` returns the `Network` port of a host."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seed: int = 0, *, journal: Journal | None = None
    ) -> None:
        self.loop = loop
        self.user_timeout_s = 30.0
        self._random = SimRandom(seed, "network")
        self._journal = journal
        self._links: dict[tuple[str, str], Link] = {}
        self._dark: set[str] = set()
        self._listeners: dict[tuple[str, int], _SimListener] = {}
        self._transports: dict[SimTransport, None] = {}
        self._parked: dict[Pipe, None] = {}
        self._next_port = EPHEMERAL_PORT_FIRST

    # -- faults ----------------------------------------------------------------

    def link(self, source: str, target: str) -> Link:
        """Return the link from ``source`` to ``target``; its attributes may be changed."""
        return self._links.setdefault((source, target), Link())

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Block packets from ``source`` to ``target``, and back unless ``one_way``."""
        self.note(source, "cut", f"{target} {'one way' if one_way else 'both ways'}")
        self.link(source, target).is_cut = True
        if not one_way:
            self.link(target, source).is_cut = True

    def heal(self) -> None:
        """Remove all cuts."""
        self.note("*", "heal", "")
        for link in self._links.values():
            link.is_cut = False
        self._release()

    def reset(self, first: str, second: str) -> None:
        """Break every connection between two hosts, at both ends."""
        for transport in list(self._transports):
            if {transport.host, transport.peer} == {first, second}:
                transport.break_with(ConnectionResetError(errno.ECONNRESET, "reset"))

    def lose_power(self, host: str, process: Process) -> None:
        """Disconnect a host that lost power: its peers are not notified."""
        self._dark.add(host)
        self._drop_life(process)

    def kill(self, process: Process) -> None:
        """End a process: its machine resets every connection it had."""
        for transport in [t for t in self._transports if t.belongs_to(process)]:
            transport.outgoing.reset()
        self._drop_life(process)

    def power_on(self, host: str) -> None:
        """Reconnect a host; it has none of its old connections."""
        self._dark.discard(host)
        self._release()

    def _drop_life(self, process: Process) -> None:
        self._listeners = {k: v for k, v in self._listeners.items() if v.process is not process}
        for transport in [t for t in self._transports if t.belongs_to(process)]:
            transport.outgoing.stop()
            self.forget(transport)

    def _release(self) -> None:
        parked, self._parked = self._parked, {}
        for pipe in parked:
            pipe.release()

    # -- the Wire that connections use -----------------------------------------

    def may_pass(self, source: str, target: str) -> bool:
        """Say whether a packet gets through now."""
        dark = source in self._dark or target in self._dark
        return not dark and not self.link(source, target).is_cut

    def delay_s(self, source: str, target: str) -> float:
        """Draw a delay of the link; a host reaches itself at once."""
        if source == target:
            return 0.0
        link = self.link(source, target)
        delay = link.delay_s + link.jitter_s * self._random.fraction()
        if link.spike_chance and self._random.chance(link.spike_chance):
            delay += link.spike_s * self._random.fraction()
        return delay

    def segments(self, source: str, target: str, data: bytes) -> Iterable[bytes]:
        """Cut ``data`` into pieces at random, as often as the link says."""
        split = self.link(source, target).split_chance
        while len(data) > 1 and split and self._random.chance(split):
            cut = 1 + self._random.below(len(data) - 1)
            yield data[:cut]
            data = data[cut:]
        yield data

    def frames(self, source: str, target: str, pipe: Pipe, data: bytes) -> bool:
        """Send whole frames, each with its own faults, if the link has `FrameFaults`."""
        faults = self.link(source, target).frame_faults
        if faults is None and not pipe.partial:
            return False
        pipe.partial += data
        while len(pipe.partial) >= 4:
            size = 4 + max(0, struct.unpack_from(">i", pipe.partial)[0])
            if len(pipe.partial) < size:
                break
            frame = bytes(pipe.partial[:size])
            del pipe.partial[:size]
            self._send_frame(source, target, pipe, frame)
        return True

    def _send_frame(self, source: str, target: str, pipe: Pipe, frame: bytes) -> None:
        faults = self.link(source, target).frame_faults or FrameFaults()
        if self._random.chance(faults.drop):
            self.note(source, "drop", f"{target} {len(frame)}")
            pipe.unacked -= len(frame)
            return
        delay = self.delay_s(source, target)
        if self._random.chance(faults.reorder):
            delay += 0.001 + 0.05 * self._random.fraction()
        pipe.send_unordered(frame, delay)
        if self._random.chance(faults.duplicate):
            self.note(source, "duplicate", f"{target} {len(frame)}")
            pipe.unacked += len(frame)
            pipe.send_unordered(frame, delay + 0.01 * self._random.fraction())

    def note(self, host: str, kind: str, detail: str) -> None:
        """Journal an event."""
        if self._journal is not None:
            self._journal.note(host, kind, detail)

    def park(self, pipe: Pipe) -> None:
        """Remember a pipe that waits for its path."""
        self._parked[pipe] = None

    def forget(self, transport: SimTransport) -> None:
        """Drop an end that is closed."""
        self._transports.pop(transport, None)

    # -- listening and dialling -------------------------------------------------

    def port_of(self, host: str) -> "HostNetwork":
        """Return the `Network` port of one host."""
        return HostNetwork(self, host)

    def bind(
        self, host: str, port: int, accept: Callable[[], asyncio.BaseProtocol]
    ) -> "_SimListener":
        """Listen on behalf of the calling process."""
        port = port or self.take_port()
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
        listener = _SimListener(self, Address(host, port), accept)
        self._listeners[host, port] = listener
        self.note(host, "listen", str(port))
        return listener

    def take_port(self) -> int:
        """Return a port that was never used."""
        self._next_port += 1
        return self._next_port - 1

    def unbind(self, listener: "_SimListener") -> None:
        """Stop listening, if it still does."""
        address = listener.address
        if self._listeners.get((address.host, address.port)) is listener:
            del self._listeners[address.host, address.port]

    def connect(
        self, source: str, target: Address, connect: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Create both ends of a connection, now."""
        listener = self._listeners.get((target.host, target.port))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {target}")
        local = Address(source, self.take_port())
        near = SimTransport(self, local, target, contextvars.copy_context())
        far = SimTransport(self, target, local, listener.context)
        near.outgoing = far.incoming = Pipe(self, near, far)
        far.outgoing = near.incoming = Pipe(self, far, near)
        self._transports[near] = self._transports[far] = None
        self.note(source, "connect", str(target))
        self.loop.call_soon(far.begin, listener.accept, context=contextvars.Context())
        protocol = near.begin(connect)
        if protocol is None:
            raise ConnectionAbortedError(errno.ECONNABORTED, "the host died")
        return near, protocol


class _SimListener:
    """`Listener` of one process of a host."""

    def __init__(
        self, network: SimNetwork, address: Address, accept: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self.accept = accept
        self.process = PROCESS.get()
        self._network = network
        self._context = contextvars.copy_context()
        self._address = address

    @property
    def context(self) -> contextvars.Context:
        """A fresh copy of the context it was created in: each connection enters its own."""
        return self._context.copy()

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._address

    async def close(self) -> None:
        """Stop accepting."""
        self._network.unbind(self)


class HostNetwork:
    """`Network` as one host sees it. ``localhost`` and wildcards mean that host itself."""

    def __init__(self, network: SimNetwork, host: str) -> None:
        self._network = network
        self._host = host

    async def listen(
        self, address: Address, accept: Callable[[], asyncio.BaseProtocol]
    ) -> Listener:
        """Listen; port 0 is replaced by a free port."""
        return self._network.bind(self._host, address.port, accept)

    async def dial(
        self, address: Address, connect: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect, retrying as TCP does while the path is cut.

        Raises:
            ConnectionRefusedError: the host is up and has no listener on the port.
            TimeoutError: nothing answered in all attempts (31 s).
        """
        network = self._network
        target = self._host if address.host in _OWN_NAMES else address.host
        for wait_s in SYN_RETRIES_S:
            delay_s = network.delay_s(self._host, target) + network.delay_s(target, self._host)
            await asyncio.sleep(delay_s)
            if network.may_pass(self._host, target) and network.may_pass(target, self._host):
                return network.connect(self._host, Address(target, address.port), connect)
            await asyncio.sleep(wait_s)
        raise TimeoutError(errno.ETIMEDOUT, f"{address} does not answer")
