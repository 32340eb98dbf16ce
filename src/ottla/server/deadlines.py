"""When a connection has been silent, or slow, for too long.

Pure. A listener asks this of each of its connections now and then; there is no timer per
connection and none per request, so a deadline is kept to within one sweep.
"""

import enum

import msgspec

from ottla.protocol.types import Millis


class Expiry(enum.Enum):
    """Which deadline passed."""

    IDLE = "idle for longer than connections.max.idle.ms"
    SLOW_FRAME = "frame not complete in time"
    STALLED = "takes no replies"


class Deadlines(msgspec.Struct, frozen=True):
    """How long is too long, in milliseconds.

    A frame has ``frame_ms`` from its first byte, and more the longer it is: a client that sends at
    least ``frame_bytes_per_second`` is never cut off. A client that sends nothing for ``frame_ms``
    in the middle of a frame is cut off, whatever length it announced.
    """

    idle_ms: int = 600_000
    frame_ms: int = 30_000
    frame_bytes_per_second: int = 128 * 1024

    def frame_limit_ms(self, size: int) -> int:
        """Return how long a frame of ``size`` bytes may take to arrive."""
        return self.frame_ms + size * 1000 // self.frame_bytes_per_second


class Activity(msgspec.Struct, frozen=True):
    """What a connection last did. Times are monotonic.

    ``frame_since`` is when the first byte of an unfinished frame came, None between frames and
    while the connection is not being read: a client is not blamed for waits that are ours.
    ``frame_size`` is its announced length, 4 until that is known. ``sending`` says that replies
    wait for the client to take them, ``busy`` that requests are being worked on.
    """

    last_active: Millis
    frame_since: Millis | None
    frame_size: int
    sending: bool
    busy: bool


def expiry_of(activity: Activity, deadlines: Deadlines, now: Millis) -> Expiry | None:
    """Say which deadline a connection has missed, if any. ``idle_ms`` below 0 is never."""
    since = activity.frame_since
    if since is not None:
        is_slow = now - since >= deadlines.frame_limit_ms(activity.frame_size)
        if is_slow or now - max(since, activity.last_active) >= deadlines.frame_ms:
            return Expiry.SLOW_FRAME
    if deadlines.idle_ms < 0 or now - activity.last_active < deadlines.idle_ms:
        return None
    if activity.sending:
        return Expiry.STALLED
    return None if activity.busy else Expiry.IDLE
