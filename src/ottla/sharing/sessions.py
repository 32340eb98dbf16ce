"""ShareFetch sessions: what a member follows, said once (KIP-932).

    epoch 0   begin, in place of an older one; acknowledges nothing
    epoch n   go on: n is one more than the last, and 1 follows the largest
    epoch -1  end; may acknowledge, and what the member still holds is released

Pure. A session belongs to a member of a group and to the connection that it began on: with that
it ends, since nobody would answer for what the member holds. It is forgotten too when it has been
silent for long and its room is needed.
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
    """Whose session."""

    group_id: str
    member_id: str


class Session(msgspec.Struct):
    """What a member follows, in its own order, and the epoch that it has to come with next.

    ``unlisted`` are partitions that the next reply names even without records: those that are
    new to the session, and those that had an error in the reply before.
    """

    followed: dict[TopicIdPartition, None]
    epoch: int
    used_at: Millis
    connection: Hashable = None
    unlisted: dict[TopicIdPartition, None] = msgspec.field(default_factory=dict)

    def take_unlisted(self, errors: Iterable[TopicIdPartition]) -> tuple[TopicIdPartition, ...]:
        """Return what this reply names besides what it has; ``errors`` are named again next."""
        unlisted = tuple(self.unlisted)
        self.unlisted = dict.fromkeys(errors)
        return unlisted


class Asked(NamedTuple):
    """What a ShareFetch says of its session, and which connection it came by."""

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

    ``idle_ms``: a member silent for longer is out of its group, so its session may be given up.
    """

    def __init__(self, sessions_max: int, idle_ms: int) -> None:
        self._sessions_max = sessions_max
        self._idle_ms = idle_ms
        self._sessions: dict[SessionKey, Session] = {}
        self._begun_on: dict[Hashable, dict[SessionKey, None]] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(self, asked: Asked, now: Millis) -> Opened | ErrorCode:
        """Begin, go on with, or look at a session for the last time."""
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
        """Take the next step for a ShareAcknowledge, which cannot begin a session."""
        if epoch == INITIAL:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        if epoch == FINAL:
            found = key in self._sessions
            return ErrorCode.NONE if found else ErrorCode.SHARE_SESSION_NOT_FOUND
        session = self._go_on(key, epoch, now)
        return session if isinstance(session, ErrorCode) else ErrorCode.NONE

    def end(self, key: SessionKey) -> None:
        """Forget a session."""
        self._forget(key)

    def is_open(self, key: SessionKey, session: Session | None) -> bool:
        """Whether a session has neither ended nor been replaced since a fetch opened it.

        A fetch may acquire records only while this holds: nothing would release them otherwise
        before their lock expires.
        """
        return session is not None and self._sessions.get(key) is session

    def begun_on(self, connection: Hashable) -> tuple[SessionKey, ...]:
        """Return whose sessions end with a connection."""
        return tuple(self._begun_on.get(connection, ()))

    def count_of(self, group_id: str) -> int:
        """Return how many members of a group have a session."""
        return self._counts.get(group_id, 0)

    def keys(self) -> tuple[SessionKey, ...]:
        """Return whose sessions there are."""
        return tuple(self._sessions)

    def _begin(self, asked: Asked, now: Millis) -> Opened | ErrorCode:
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
        """Forget the session that was silent for longest, if that is too long."""
        oldest = min(self._sessions, key=lambda key: self._sessions[key].used_at)
        if now - self._sessions[oldest].used_at <= self._idle_ms:
            return False
        self._forget(oldest)
        return True


def _rotated(places: tuple[TopicIdPartition, ...], epoch: int) -> tuple[TopicIdPartition, ...]:
    """Let each turn begin with the next partition, so that none is starved."""
    if not places:
        return ()
    turn = epoch % len(places)
    return places[turn:] + places[:turn]


def named(places: Iterable[tuple[Uuid, Iterable[int]]]) -> tuple[TopicIdPartition, ...]:
    """Return partitions of topics, in order and each once."""
    return tuple(
        dict.fromkeys(
            TopicIdPartition(topic_id, number) for topic_id, numbers in places for number in numbers
        )
    )
