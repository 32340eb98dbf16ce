"""Which brokers are alive, by when they were last heard. Not in the log: it dies with a leadership.

A broker has a session while its heartbeats come in time. On becoming leader the registry is
seeded with every broker of the image, so that one that only ever spoke to the old leader times
out here as well. Sessions belong to an incarnation: a heartbeat of an older epoch counts nothing.
While the controller itself stands still nobody is silent: heartbeats wait to be read (`look`).

Pure: whoever calls says what time it is, by a clock that does not jump.
"""

import enum

import msgspec

from ottla.metadata.image import Image
from ottla.protocol.types import Millis, Offset

UNKNOWN_OFFSET = Offset(-1)
# What nobody is behind: there is nobody to wait for.
OFFSET_MAX = Offset(2**63 - 1)


class Transition(enum.Enum):
    """What became of a broker."""

    ALIVE_TO_DEAD = "alive to dead"
    DEAD_TO_ALIVE = "dead to alive"


class SessionChange(msgspec.Struct, frozen=True):
    """A broker that died or came back since the last tick."""

    broker_id: int
    epoch: int
    transition: Transition


class ChangeCounter(msgspec.Struct):
    """Counts how often a watched value really changed; the first one seen is no change."""

    count: int = 0
    _last: object = None
    _has_seen: bool = False

    def see(self, value: object) -> bool:
        """Take the value as it is now; say whether it is another than before."""
        is_changed = self._has_seen and value != self._last
        self._last, self._has_seen = value, True
        self.count += is_changed
        return is_changed


class _Session(msgspec.Struct):
    epoch: int
    contact: Millis
    is_alive: bool = True
    was_alive: bool = True
    metadata_offset: Offset = UNKNOWN_OFFSET
    shutdown_offset: Offset = UNKNOWN_OFFSET


class HeartbeatContext(msgspec.Struct, frozen=True):
    """What a heartbeat is judged by, beside the image.

    ``shutdown_offset`` is where the broker's leaderships were moved away, -1 while it has not
    asked to go; ``lowest_active_offset`` how far all brokers that stay have read the log.
    """

    shutdown_offset: Offset = UNKNOWN_OFFSET
    lowest_active_offset: Offset = OFFSET_MAX


class Liveness(msgspec.Struct):
    """The registry of one leadership. ``session_timeout_ms`` is broker.session.timeout.ms."""

    session_timeout_ms: int
    heartbeats: int = 0
    expirations: int = 0
    renewals: int = 0
    _sessions: dict[int, _Session] = msgspec.field(default_factory=dict)
    _looked: Millis = Millis(0)

    def seed(self, image: Image, now: Millis) -> None:
        """Start over with every broker of the image, all just heard but for those fenced.

        A fenced broker has no session to lose: whoever registers under its id is welcome.
        """
        self._looked = now
        self._sessions = {
            broker.id: _Session(broker.epoch, now, not broker.fenced, not broker.fenced)
            for broker in (image.cluster.brokers[i] for i in sorted(image.cluster.brokers))
        }

    def register(self, broker_id: int, epoch: int, now: Millis) -> None:
        """A broker registered. What was known of an older incarnation is forgotten.

        Its session begins with its first heartbeat: until then it is fenced, and may restart.
        """
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            self._sessions[broker_id] = _Session(epoch, now, is_alive=False, was_alive=False)
        elif session.is_alive:
            self._hear(session, now)

    def touch(self, broker_id: int, epoch: int, metadata_offset: Offset, now: Millis) -> None:
        """A heartbeat came, having read the log as far as ``metadata_offset``."""
        session = self._sessions.get(broker_id)
        if session is None:
            session = self._sessions[broker_id] = _Session(epoch, now, was_alive=False)
        if session.epoch != epoch:
            return
        self.heartbeats += 1
        session.metadata_offset = metadata_offset
        self._hear(session, now)

    def _hear(self, session: _Session, now: Millis) -> None:
        session.contact = max(session.contact, now)
        session.is_alive = True

    def enter_shutdown(self, broker_id: int, offset: Offset) -> None:
        """The broker's leaderships were moved by records up to ``offset``; the first counts."""
        session = self._sessions[broker_id]
        if session.shutdown_offset == UNKNOWN_OFFSET:
            session.shutdown_offset = offset

    def fence(self, broker_id: int) -> None:
        """The broker was fenced: it has no session, and is not on its way out any more."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.is_alive = session.was_alive = False
            session.shutdown_offset = UNKNOWN_OFFSET

    def forget(self, broker_id: int) -> None:
        """The broker was unregistered."""
        self._sessions.pop(broker_id, None)

    def has_session(self, broker_id: int, epoch: int, now: Millis) -> bool:
        """Whether this incarnation was heard in time."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch or not session.is_alive:
            return False
        return not self._is_expired(session, now)

    def heartbeat_context(self, broker_id: int, image: Image) -> HeartbeatContext:
        """Return what the next heartbeat of a broker is judged by."""
        session = self._sessions.get(broker_id)
        offsets = [
            self._offset(broker.id)
            for broker in image.cluster.brokers.values()
            if not broker.fenced and not self._is_leaving(broker.id)
        ]
        return HeartbeatContext(
            UNKNOWN_OFFSET if session is None else session.shutdown_offset,
            min(offsets, default=OFFSET_MAX),
        )

    def look(self, now: Millis, interval_ms: int) -> None:
        """Take note of a look at the sessions; there is one every ``interval_ms``.

        One that comes later than twice that means that this process stood still (a busy or paused
        machine), and what brokers said meanwhile is not read yet: that time does not count.
        """
        late_ms = now - self._looked - interval_ms
        self._looked = now
        if late_ms <= interval_ms:
            return
        for session in self._sessions.values():
            session.contact = Millis(min(now, session.contact + late_ms))

    def tick(self, now: Millis) -> list[SessionChange]:
        """Return who died and who came back since the last tick, by broker id, each once."""
        turns: list[SessionChange] = []
        for broker_id in sorted(self._sessions):
            session = self._sessions[broker_id]
            if session.is_alive and self._is_expired(session, now):
                session.is_alive = False
            if session.is_alive == session.was_alive:
                continue
            session.was_alive = session.is_alive
            self.renewals += session.is_alive
            self.expirations += not session.is_alive
            transition = Transition.DEAD_TO_ALIVE if session.is_alive else Transition.ALIVE_TO_DEAD
            turns.append(SessionChange(broker_id, session.epoch, transition))
        return turns

    def alive_snapshot(self, now: Millis) -> tuple[int, ...]:
        """Return who has a session, ascending."""
        return tuple(
            broker_id
            for broker_id, session in sorted(self._sessions.items())
            if session.is_alive and not self._is_expired(session, now)
        )

    def _is_expired(self, session: _Session, now: Millis) -> bool:
        return session.contact + self.session_timeout_ms < now

    def _offset(self, broker_id: int) -> Offset:
        session = self._sessions.get(broker_id)
        return UNKNOWN_OFFSET if session is None else session.metadata_offset

    def _is_leaving(self, broker_id: int) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and session.shutdown_offset != UNKNOWN_OFFSET
