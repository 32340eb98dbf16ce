"""The sessions of the brokers, by the time of their last heartbeat. Kept in memory only.

A broker has a session while its heartbeats arrive in time. When a node becomes leader, a session is
created for every broker of the image, so that one that only ever contacted the old leader times out
here as well. Sessions belong to an incarnation: heartbeats with an older epoch are ignored. While
the controller itself is stalled no session expires: heartbeats are waiting to be read (`look`).

A broker is suspected once the connection of its last heartbeat closes, and when a node becomes
leader; the suspicion ends with its next heartbeat. A suspected broker keeps its session unless a
probe proves that its process is gone (`ottla.controller.broker_probes`).

Pure: the caller passes the time, from a monotonic clock.
"""

import enum
from typing import Final, TypeAlias

import msgspec

from ottla.metadata.image import Image
from ottla.protocol.types import Millis, Offset
from ottla.runtime.ports import Address

UNKNOWN_OFFSET = Offset(-1)
# No broker is behind this offset: there is no broker to wait for.
OFFSET_MAX = Offset(2**63 - 1)
# Connections that closed before their last heartbeat was decided; the oldest is forgotten.
CLOSED_MAX: Final = 256

HeartbeatConnection: TypeAlias = tuple[str, Address]
"""The listener that received a heartbeat, and the address it came from."""


class Transition(enum.Enum):
    """How a broker's session changed."""

    ALIVE_TO_DEAD = "alive to dead"
    DEAD_TO_ALIVE = "dead to alive"


class SessionChange(msgspec.Struct, frozen=True):
    """A broker whose session expired or was renewed since the last tick."""

    broker_id: int
    epoch: int
    transition: Transition


class Suspicion(msgspec.Struct, frozen=True):
    """A broker that may be gone, and the number of its last contact: a newer one disproves it."""

    broker_id: int
    epoch: int
    contact_number: int


class _Session(msgspec.Struct):
    epoch: int
    contact: Millis
    is_alive: bool = True
    was_alive: bool = True
    metadata_offset: Offset = UNKNOWN_OFFSET
    shutdown_offset: Offset = UNKNOWN_OFFSET
    contact_number: int = 0
    connection: HeartbeatConnection | None = None


class HeartbeatContext(msgspec.Struct, frozen=True):
    """The input of a heartbeat decision beside the image.

    ``shutdown_offset`` is the offset at which the broker's leaderships were moved away, -1 if it
    has not asked to shut down; ``lowest_active_offset`` is how far all remaining brokers have read
    the log.
    """

    shutdown_offset: Offset = UNKNOWN_OFFSET
    lowest_active_offset: Offset = OFFSET_MAX


class Liveness(msgspec.Struct):
    """The sessions of one leadership. ``session_timeout_ms`` is broker.session.timeout.ms."""

    session_timeout_ms: int
    heartbeats: int = 0
    expirations: int = 0
    renewals: int = 0
    _sessions: dict[int, _Session] = msgspec.field(default_factory=dict)
    _checked_at: Millis = Millis(0)
    _contacts: int = 0
    _suspected: dict[int, Suspicion] = msgspec.field(default_factory=dict)
    _closed: dict[HeartbeatConnection, None] = msgspec.field(default_factory=dict)

    def seed(self, image: Image, now: Millis) -> None:
        """Start over with a new session for every broker of the image that is not fenced.

        A fenced broker has no session to lose: any incarnation may register under its id. All
        others are suspected until their first heartbeat: they may have failed with the old leader.
        """
        self._checked_at = now
        self._sessions = {
            broker.id: _Session(broker.epoch, now, not broker.fenced, not broker.fenced)
            for broker in (image.cluster.brokers[i] for i in sorted(image.cluster.brokers))
        }
        self._suspected.clear()
        for broker_id, session in self._sessions.items():
            session.contact_number = self._next_contact()
            self._suspect(broker_id, session)

    def register(self, broker_id: int, epoch: int, now: Millis) -> None:
        """Record a registration. The session of an older incarnation is dropped.

        A new session begins with the first heartbeat: until then the broker is fenced.
        """
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            self._sessions[broker_id] = _Session(epoch, now, is_alive=False, was_alive=False)
            self._suspected.pop(broker_id, None)
        elif session.is_alive:
            self._record_contact(session, now)

    def touch(
        self,
        broker_id: int,
        epoch: int,
        metadata_offset: Offset,
        now: Millis,
        connection: HeartbeatConnection | None = None,
    ) -> None:
        """Record a heartbeat of a broker that has read the log up to ``metadata_offset``.

        A ``connection`` that has closed since the heartbeat was read makes the broker suspected.
        """
        session = self._sessions.get(broker_id)
        if session is None:
            session = self._sessions[broker_id] = _Session(epoch, now, was_alive=False)
        if session.epoch != epoch:
            return
        self.heartbeats += 1
        session.metadata_offset = metadata_offset
        session.connection = connection
        self._record_contact(session, now)
        self._suspected.pop(broker_id, None)
        if connection in self._closed:
            self._suspect(broker_id, session)

    def _record_contact(self, session: _Session, now: Millis) -> None:
        session.contact = max(session.contact, now)
        session.is_alive = True
        session.contact_number = self._next_contact()

    def _next_contact(self) -> int:
        self._contacts += 1
        return self._contacts

    # -- suspicion ---------------------------------------------------------------

    def connection_closed(self, connection: HeartbeatConnection) -> bool:
        """Suspect the brokers whose last heartbeat came over it; return whether there is one."""
        self._closed.pop(connection, None)
        self._closed[connection] = None
        if len(self._closed) > CLOSED_MAX:
            del self._closed[next(iter(self._closed))]
        found = [id for id, each in self._sessions.items() if each.connection == connection]
        for broker_id in found:
            self._suspect(broker_id, self._sessions[broker_id])
        return bool(found)

    def _suspect(self, broker_id: int, session: _Session) -> None:
        if session.is_alive:
            suspicion = Suspicion(broker_id, session.epoch, session.contact_number)
            self._suspected[broker_id] = suspicion

    def suspicions(self) -> list[Suspicion]:
        """Return the suspected brokers, by id."""
        return [self._suspected[broker_id] for broker_id in sorted(self._suspected)]

    def acquit(self, suspicion: Suspicion) -> None:
        """End a suspicion that cannot be examined: the session expires in its time."""
        if self._suspected.get(suspicion.broker_id) == suspicion:
            del self._suspected[suspicion.broker_id]

    def is_suspected(self, suspicion: Suspicion, now: Millis) -> bool:
        """Return whether the broker has been silent since, and its session has not expired."""
        session = self._sessions.get(suspicion.broker_id)
        is_silent = session is not None and session.contact_number == suspicion.contact_number
        return is_silent and self.has_session(suspicion.broker_id, suspicion.epoch, now)

    def enter_shutdown(self, broker_id: int, offset: Offset) -> None:
        """Record that leaderships were moved by records up to ``offset``; the first call counts."""
        session = self._sessions[broker_id]
        if session.shutdown_offset == UNKNOWN_OFFSET:
            session.shutdown_offset = offset

    def fence(self, broker_id: int) -> None:
        """Record that the broker was fenced: it has no session and is not shutting down."""
        session = self._sessions.get(broker_id)
        self._suspected.pop(broker_id, None)
        if session is not None:
            session.is_alive = session.was_alive = False
            session.shutdown_offset = UNKNOWN_OFFSET

    def forget(self, broker_id: int) -> None:
        """Record that the broker was unregistered."""
        self._sessions.pop(broker_id, None)
        self._suspected.pop(broker_id, None)

    def has_session(self, broker_id: int, epoch: int, now: Millis) -> bool:
        """Return whether this incarnation has a session."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch or not session.is_alive:
            return False
        return not self._is_expired(session, now)

    def heartbeat_context(self, broker_id: int, image: Image) -> HeartbeatContext:
        """Return the input for the next heartbeat decision of a broker."""
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
        """Record a check of the sessions; there is one every ``interval_ms``.

        A check that comes later than twice the interval means that this process was stalled (a busy
        or paused machine) and has not read the heartbeats sent meanwhile: that time does not count.
        """
        late_ms = now - self._checked_at - interval_ms
        self._checked_at = now
        if late_ms <= interval_ms:
            return
        for session in self._sessions.values():
            session.contact = Millis(min(now, session.contact + late_ms))

    def tick(self, now: Millis) -> list[SessionChange]:
        """Return the sessions expired and renewed since the last tick, by broker id, each once."""
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

    def _is_expired(self, session: _Session, now: Millis) -> bool:
        return session.contact + self.session_timeout_ms < now

    def _offset(self, broker_id: int) -> Offset:
        session = self._sessions.get(broker_id)
        return UNKNOWN_OFFSET if session is None else session.metadata_offset

    def _is_leaving(self, broker_id: int) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and session.shutdown_offset != UNKNOWN_OFFSET
