"""ShareFetch sessions: the partitions that a member fetches, sent once (KIP-932).

    epoch 0   open, replacing an older one; acknowledges nothing
    epoch n   continue: n is one more than the last, and 1 follows the largest
    epoch -1  close; may acknowledge, and releases what the member has acquired

Pure. A session belongs to a member of a group and to the connection that it was opened on, and ends
with the connection, since no acknowledgements would follow. It is also evicted when it was idle for
long and its slot is needed.
"""

from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis, TopicIdPartition, Uuid

INITIAL: Final = 0
FINAL: Final = -1
EPOCH_MAX: Final = 2**31 - 1


class SessionKey(NamedTuple):
    """Identifies a session."""

    group_id: str
    member_id: str


class Session(msgspec.Struct):
    """The partitions of a session, in the client's order, and the next expected epoch.

    ``unlisted`` are partitions that the next reply names even without records: those that are new
    to the session, and those that had an error in the previous reply.
    """

    followed: dict[TopicIdPartition, None]
    epoch: int
    used_at: Millis
    connection: Hashable = None
    unlisted: dict[TopicIdPartition, None] = msgspec.field(default_factory=dict)

    def take_unlisted(self, errors: Iterable[TopicIdPartition]) -> tuple[TopicIdPartition, ...]:
        """Return the partitions that this reply has to name; ``errors`` are named again next."""
        unlisted = tuple(self.unlisted)
        self.unlisted = dict.fromkeys(errors)
        return unlisted


class SessionRequest(NamedTuple):
    """The session fields of a ShareFetch, and its connection."""

    key: SessionKey
    epoch: int
    added: tuple[TopicIdPartition, ...]
    forgotten: tuple[TopicIdPartition, ...] = ()
    has_acks: bool = False
    connection: Hashable = None


class Opened(NamedTuple):
    """The partitions to fetch now, in the order of this turn; ``is_final``: the session ends.

    ``session`` is the one this fetch belongs to; see `Sessions.is_open`.
    """

    places: tuple[TopicIdPartition, ...]
    is_final: bool = False
    session: Session | None = None


class Sessions:
    """The sessions of one broker, at most ``sessions_max`` (``group.share.max.share.sessions``).

    ``idle_ms``: a member that is idle for longer has left its group, so its session may be evicted.
    """

    def __init__(self, sessions_max: int, idle_ms: int) -> None:
        self._sessions_max = sessions_max
        self._idle_ms = idle_ms
        self._sessions: dict[SessionKey, Session] = {}
        self._begun_on: dict[Hashable, dict[SessionKey, None]] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(self, asked: SessionRequest, now: Millis) -> Opened | ErrorCode:
        """Open, continue or close a session."""
        if asked.epoch == FINAL:
            if asked.key not in self._sessions:
                return ErrorCode.SHARE_SESSION_NOT_FOUND
            return Opened((), is_final=True)
        if asked.epoch == INITIAL:
            return self._begin(asked, now)
        session = self._go_on(asked.key, asked.epoch, now)
        if isinstance(session, ErrorCode):
            return session
        for place in asked.forgotten:
            session.followed.pop(place, None)
            session.unlisted.pop(place, None)
        session.unlisted.update(
            (each, None) for each in asked.added if each not in session.followed
        )
        session.followed.update(dict.fromkeys(asked.added))
        return Opened(_rotated(tuple(session.followed), asked.epoch), session=session)

    def acknowledge(self, key: SessionKey, epoch: int, now: Millis) -> ErrorCode:
        """Advance a session by a ShareAcknowledge, which cannot open one."""
        if epoch == INITIAL:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        if epoch == FINAL:
            found = key in self._sessions
            return ErrorCode.NONE if found else ErrorCode.SHARE_SESSION_NOT_FOUND
        session = self._go_on(key, epoch, now)
        return session if isinstance(session, ErrorCode) else ErrorCode.NONE

    def end(self, key: SessionKey) -> None:
        """Remove a session."""
        self._forget(key)

    def is_open(self, key: SessionKey, session: Session | None) -> bool:
        """Whether a session has neither ended nor been replaced since a fetch opened it.

        A fetch may acquire records only while this holds: otherwise nothing would release them
        before their lock expires.
        """
        return session is not None and self._sessions.get(key) is session

    def begun_on(self, connection: Hashable) -> tuple[SessionKey, ...]:
        """Remove the sessions of a connection; return their keys."""
        return tuple(self._begun_on.get(connection, ()))

    def count_of(self, group_id: str) -> int:
        """Return how many members of a group have a session."""
        return self._counts.get(group_id, 0)

    def keys(self) -> tuple[SessionKey, ...]:
        """Return the keys of all sessions."""
        return tuple(self._sessions)

    def _begin(self, asked: SessionRequest, now: Millis) -> Opened | ErrorCode:
        if asked.has_acks:
            return ErrorCode.INVALID_REQUEST
        self._forget(asked.key)
        if len(self._sessions) >= self._sessions_max and not self._give_up_idle(now):
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        added = dict.fromkeys(asked.added)
        session = Session(added, INITIAL + 1, now, asked.connection, dict(added))
        self._sessions[asked.key] = session
        self._begun_on.setdefault(asked.connection, {})[asked.key] = None
        self._counts[asked.key.group_id] = self.count_of(asked.key.group_id) + 1
        return Opened(tuple(session.followed), session=session)

    def _forget(self, key: SessionKey) -> Session | None:
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        together = self._begun_on[session.connection]
        del together[key]
        if not together:
            del self._begun_on[session.connection]
        self._counts[key.group_id] -= 1
        if not self._counts[key.group_id]:
            del self._counts[key.group_id]
        return session

    def _go_on(self, key: SessionKey, epoch: int, now: Millis) -> Session | ErrorCode:
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_at = now
        return session

    def _give_up_idle(self, now: Millis) -> bool:
        """Evict the session that was idle for longest, if that is too long."""
        oldest = min(self._sessions, key=lambda key: self._sessions[key].used_at)
        if now - self._sessions[oldest].used_at <= self._idle_ms:
            return False
        self._forget(oldest)
        return True


def _rotated(places: tuple[TopicIdPartition, ...], epoch: int) -> tuple[TopicIdPartition, ...]:
    """Start each turn with the next partition, so that none is starved."""
    if not places:
        return ()
    turn = epoch % len(places)
    return places[turn:] + places[:turn]


def named(places: Iterable[tuple[Uuid, Iterable[int]]]) -> tuple[TopicIdPartition, ...]:
    """Return partitions of topics, in order and without duplicates."""
    return tuple(
        dict.fromkeys(
            TopicIdPartition(topic_id, number) for topic_id, numbers in places for number in numbers
        )
    )
