"""Deadlines of idle and slow connections.

Pure. A listener checks its connections periodically instead of keeping a timer per connection or
request, so a deadline is enforced with the precision of one sweep.
"""

import enum

import msgspec

from ottla.protocol.types import Millis


class Expiry(enum.Enum):
    """The deadline that a connection missed."""

    IDLE = "idle for longer than connections.max.idle.ms"
    SLOW_FRAME = "frame not complete in time"
    STALLED = "does not read replies"
    NO_LOGIN = "not authenticated in time"
    CERTIFICATE = "the client's certificate has expired"


class Deadlines(msgspec.Struct, frozen=True):
    """The deadlines of a connection, in milliseconds.

    A frame must be complete within ``frame_ms`` of its first byte, plus time for its length: a
    client that sends at least ``frame_bytes_per_second`` is never disconnected. A client that sends
    nothing for ``frame_ms`` in the middle of a frame is, whatever length it announced. On a
    listener with SASL a client must have logged in within ``login_ms``: otherwise clients without
    credentials could hold connections open for ``idle_ms``.
    """

    idle_ms: int = 600_000
    frame_ms: int = 30_000
    frame_bytes_per_second: int = 128 * 1024
    login_ms: int = 30_000

    def frame_limit_ms(self, size: int) -> int:
        """Return the time in which a frame of ``size`` bytes must be received."""
        return self.frame_ms + size * 1000 // self.frame_bytes_per_second


class Activity(msgspec.Struct, frozen=True):
    """The last activity of a connection. Times are monotonic.

    ``frame_since`` is when the first byte of an incomplete frame was received; None between frames
    and while the broker does not read, since that delay is not the client's. ``frame_size`` is the
    announced length, 4 until it is known. ``sending``: replies wait for the client to read them.
    ``busy``: requests are in flight. ``unauthenticated_since`` is when a connection was opened that
    has to log in and has not yet. ``login_ends_at`` is when the certificate expires with which the
    client logged in, if the connection may not outlive it.
    """

    last_active: Millis
    frame_since: Millis | None
    frame_size: int
    sending: bool
    busy: bool
    unauthenticated_since: Millis | None = None
    login_ends_at: Millis | None = None


def expiry_of(activity: Activity, deadlines: Deadlines, now: Millis) -> Expiry | None:
    """Return the deadline that a connection has missed. A negative ``idle_ms`` means never."""
    opened = activity.unauthenticated_since
    if opened is not None and not activity.busy and now - opened >= deadlines.login_ms:
        return Expiry.NO_LOGIN
    if activity.login_ends_at is not None and now >= activity.login_ends_at:
        return Expiry.CERTIFICATE
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
