"""The states of a connection, as tables. Pure.

Three machines run side by side; each has one table, and a transition that is not in its table is a
bug and raises `IllegalTransition`.

`Lifecycle`: which requests are accepted, and how the connection ends.

    AUTHENTICATING --> OPEN --DRAIN--> DRAINING --ALL_SENT--> CLOSING --LOST--> CLOSED
           |             |                |                      ^
           +-------------+--FINAL_REPLY---+--> FINISHING --------+

`FrameState`: what happens to the frames in the receive buffer.

    READY --ENQUEUE--> QUEUED --RUN--> READY           waits for a slice of the event loop
    READY --DECODE--> DECODING --DECODED--> READY      waits until a large request is decoded
    READY --HOLD--> HELD --RELEASE--> READY            waits for the effects of a long request
    READY --MEMORY_DENIED--> AWAITING_MEMORY --MEMORY_FREED--> READY

`MuteState`: whether the client is throttled (KIP-219: send the reply first, then stop reading until
a deadline).

    UNMUTED --THROTTLED--> MUTED --DEADLINE_PASSED--> UNMUTED

Frames are served on the fast path only if all three are at rest: `ConnectionState.is_ready`.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar


class IllegalTransition(AssertionError):
    """An event arrived in a state that does not allow it: a bug in the connection."""


class _Identity(enum.Enum):
    """An enum whose members hash by identity: `Enum` itself calls Python code for each lookup."""

    __hash__ = object.__hash__


class Lifecycle(_Identity):
    """Which requests are accepted, and how the connection ends."""

    AUTHENTICATING = "one request at a time, only those that authenticate, and small frames"
    OPEN = "requests are served"
    DRAINING = "no new requests; closes once the requests in flight have their replies"
    FINISHING = "no new requests; closes once the final reply has been sent"
    CLOSING = "the transport is closing; connection_lost follows"
    CLOSED = "the transport is closed"


class LifecycleEvent(_Identity):
    """Events of `Lifecycle`."""

    AUTHENTICATED = "the principal of the client is known"
    DRAIN = "the listener shuts down"
    FINAL_REPLY = "a reply was queued that must be the last one"
    ALL_SENT = "every reply due was handed to the transport"
    ABORT = "the connection is closed without waiting for replies"
    LOST = "the transport has closed the connection"


class FrameState(_Identity):
    """What happens to the frames in the receive buffer."""

    READY = "frames are served as they arrive"
    QUEUED = "frames wait for a slice of the event loop"
    DECODING = "frames wait until a large request is decoded and its handler called"
    HELD = "frames wait until a long request has had the effects that must come before theirs"
    AWAITING_MEMORY = "a large frame waits for memory to be received into"


class FrameEvent(_Identity):
    """Events of `FrameState`."""

    ENQUEUE = "the time for this connection is used up"
    RUN = "the scheduler runs the connection"
    DECODE = "a large request is decoded in steps"
    DECODED = "the handler of that request was called"
    HOLD = "a request was begun that makes later ones wait"
    RELEASE = "that request lets later ones be served, or has ended"
    MEMORY_DENIED = "too much memory is held by large requests"
    MEMORY_FREED = "memory for a large frame may be available"


class MuteState(_Identity):
    """Whether the client is throttled."""

    UNMUTED = "requests are read"
    MUTED = "nothing is read until the deadline"


class MuteEvent(_Identity):
    """Events of `MuteState`."""

    THROTTLED = "a reply with a throttle time was queued"
    DEADLINE_PASSED = "the throttle time is over"


_L, _LE = Lifecycle, LifecycleEvent
LIFECYCLE: Final[Mapping[tuple[Lifecycle, LifecycleEvent], Lifecycle]] = MappingProxyType(
    {
        (_L.AUTHENTICATING, _LE.AUTHENTICATED): _L.OPEN,
        (_L.AUTHENTICATING, _LE.DRAIN): _L.DRAINING,
        (_L.AUTHENTICATING, _LE.FINAL_REPLY): _L.FINISHING,
        (_L.AUTHENTICATING, _LE.ABORT): _L.CLOSING,
        (_L.AUTHENTICATING, _LE.LOST): _L.CLOSED,
        (_L.OPEN, _LE.DRAIN): _L.DRAINING,
        (_L.OPEN, _LE.FINAL_REPLY): _L.FINISHING,
        (_L.OPEN, _LE.ABORT): _L.CLOSING,
        (_L.OPEN, _LE.LOST): _L.CLOSED,
        (_L.DRAINING, _LE.FINAL_REPLY): _L.FINISHING,
        (_L.DRAINING, _LE.ALL_SENT): _L.CLOSING,
        (_L.DRAINING, _LE.ABORT): _L.CLOSING,
        (_L.DRAINING, _LE.LOST): _L.CLOSED,
        (_L.FINISHING, _LE.DRAIN): _L.FINISHING,
        (_L.FINISHING, _LE.ALL_SENT): _L.CLOSING,
        (_L.FINISHING, _LE.ABORT): _L.CLOSING,
        (_L.FINISHING, _LE.LOST): _L.CLOSED,
        (_L.CLOSING, _LE.DRAIN): _L.CLOSING,
        (_L.CLOSING, _LE.ABORT): _L.CLOSING,
        (_L.CLOSING, _LE.LOST): _L.CLOSED,
    }
)

_F, _FE = FrameState, FrameEvent
FRAMES: Final[Mapping[tuple[FrameState, FrameEvent], FrameState]] = MappingProxyType(
    {
        (_F.READY, _FE.ENQUEUE): _F.QUEUED,
        (_F.READY, _FE.DECODE): _F.DECODING,
        (_F.READY, _FE.HOLD): _F.HELD,
        (_F.READY, _FE.MEMORY_DENIED): _F.AWAITING_MEMORY,
        (_F.READY, _FE.MEMORY_FREED): _F.READY,
        (_F.QUEUED, _FE.RUN): _F.READY,
        (_F.QUEUED, _FE.MEMORY_FREED): _F.QUEUED,
        (_F.DECODING, _FE.DECODED): _F.READY,
        (_F.HELD, _FE.RELEASE): _F.READY,
        (_F.AWAITING_MEMORY, _FE.MEMORY_FREED): _F.READY,
    }
)

_M, _ME = MuteState, MuteEvent
MUTE: Final[Mapping[tuple[MuteState, MuteEvent], MuteState]] = MappingProxyType(
    {
        (_M.UNMUTED, _ME.THROTTLED): _M.MUTED,
        (_M.MUTED, _ME.THROTTLED): _M.MUTED,
        (_M.MUTED, _ME.DEADLINE_PASSED): _M.UNMUTED,
    }
)

# Names of the module: CPython 3.11 looks up a member of an enum class in Python code.
_AUTHENTICATING: Final = Lifecycle.AUTHENTICATING
_OPEN: Final = Lifecycle.OPEN
_ENDED: Final = (Lifecycle.CLOSING, Lifecycle.CLOSED)
_READY: Final = FrameState.READY
_WAITING: Final = (FrameState.DECODING, FrameState.HELD)
_MUTED: Final = MuteState.MUTED

State = TypeVar("State", bound=enum.Enum)
Event = TypeVar("Event", bound=enum.Enum)


def next_state(table: Mapping[tuple[State, Event], State], state: State, event: Event) -> State:
    """Return the state after ``event``.

    Raises:
        IllegalTransition: the table has no row for ``event`` in ``state``.
    """
    found = table.get((state, event))
    if found is None:
        raise IllegalTransition(f"{event} in {state}")
    return found


class ConnectionState:
    """The current state of one connection, and what it permits.

    ``accepts_requests``: one more request may be served, as far as the states decide.
    ``is_ready``: the client is authenticated and nothing delays the next frame.
    ``is_ended``: replies can no longer be sent.
    ``muted_until``: the end of the throttle time in the loop's time; None if not muted.

    The three flags change only with a transition, so that serving a request reads attributes.
    """

    __slots__ = (
        "accepts_requests",
        "frames",
        "is_ended",
        "is_ready",
        "lifecycle",
        "mute",
        "muted_until",
    )

    def __init__(self, *, authenticates: bool) -> None:
        self.lifecycle = Lifecycle.AUTHENTICATING if authenticates else Lifecycle.OPEN
        self.frames = FrameState.READY
        self.mute = MuteState.UNMUTED
        self.muted_until: float | None = None
        self._derive()

    def advance(self, event: LifecycleEvent) -> None:
        """Move `Lifecycle` by ``event``."""
        self.lifecycle = next_state(LIFECYCLE, self.lifecycle, event)
        self._derive()

    def on_frames(self, event: FrameEvent) -> None:
        """Move `FrameState` by ``event``."""
        self.frames = next_state(FRAMES, self.frames, event)
        self._derive()

    def throttle(self, until: float) -> bool:
        """Mute until ``until``; say whether that is a new deadline. The later of two applies."""
        self.mute = next_state(MUTE, self.mute, MuteEvent.THROTTLED)
        is_later = self.muted_until is None or until > self.muted_until
        if is_later:
            self.muted_until = until
        self._derive()
        return is_later

    def unmute(self) -> None:
        """Read again: the deadline has passed."""
        self.mute = next_state(MUTE, self.mute, MuteEvent.DEADLINE_PASSED)
        self.muted_until = None
        self._derive()

    def _derive(self) -> None:
        lifecycle, frames = self.lifecycle, self.frames
        is_muted = self.mute is _MUTED
        is_open = lifecycle is _OPEN
        self.accepts_requests = (
            (is_open or lifecycle is _AUTHENTICATING) and frames not in _WAITING and not is_muted
        )
        self.is_ready = is_open and frames is _READY and not is_muted
        self.is_ended = lifecycle in _ENDED
