"""Incremental fetch sessions (KIP-227): requests and replies carry only what has changed.

Pure; times are monotonic milliseconds. A request is one of

    epoch -1            without a session; the session named is closed
    epoch 0             a full request: the session named is closed, the reply begins a new one
    epoch n, session s  the partitions named are added or changed, the forgotten ones go, and all
                        partitions of the session are fetched; the reply leaves out unchanged ones

The epoch rises by one per request and wraps to 1; any other is INVALID_FETCH_SESSION_EPOCH, a
session that no longer exists is FETCH_SESSION_ID_NOT_FOUND, and switching between topic names and
ids is FETCH_SESSION_TOPIC_ID_ERROR. The client reacts to each with a full request.

Slots are few and any client may request one. When all are taken, a new session replaces

1. the least recently used one, if that is longer ago than ``eviction_ms``; otherwise
2. the least valuable one that is older than ``eviction_ms`` (or, for a follower, of any client),
   if the new one is at least as valuable: followers before clients, then more partitions.

Otherwise there is no session, and the client continues with full requests. A flood of new clients
therefore cannot evict a follower, nor a client that has just begun.

Invariant: ``_by_use`` is in the order of last use; a session is in ``_evictable`` exactly when
it was old enough at its last use, and in ``_by_followers`` then or if it is a client's.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from ottla.api.fetch.decision import Ground, LastRead
from ottla.api.fetch.partitions import FetchedPartition, Key, Rest, SessionPartitions
from ottla.api.fetch.reply import NO_SESSION, Row
from ottla.api.fetch.request import IDS_SINCE, ITEMS_PER_READ, FetchBody
from ottla.api.surface.replies import Steps, finish
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis, Offset

EPOCH_INITIAL: Final = 0
EPOCH_FINAL: Final = -1
_FULL: Final = (EPOCH_INITIAL, EPOCH_FINAL)
EPOCH_MAX: Final = 2**31 - 1
EVICTION_MS: Final = 120_000
"""How long a session keeps its slot against others of its rank, as in Kafka."""
PARTITIONS_MAX: Final = 1_000_000
"""Partitions of all sessions; any client may name as many as fit in a frame."""


class _Value(NamedTuple):
    """The rank of a session; the lowest is evicted first."""

    is_follower: bool
    size: int
    session_id: int


class Session(msgspec.Struct, eq=False):
    """One session. ``ground`` is the state that its rows depended on when they were last read.

    ``last`` is how its only active partition was last read, if so.
    """

    id: int
    is_follower: bool
    uses_ids: bool
    created: Millis
    used: Millis
    epoch: int
    partitions: SessionPartitions
    value: _Value | None = None  # as of the last use; None before the first
    ground: Ground | None = None
    last: LastRead | None = None

    def update(self, fetch: FetchBody) -> Steps[None]:
        """Apply the changes of a request."""
        for count, (topic, partitions) in enumerate(fetch.topics, 1):
            for place, requested in enumerate(partitions, 1):
                self.partitions.put(FetchedPartition(topic, requested))
                if not place % ITEMS_PER_READ:
                    yield
            if not count % ITEMS_PER_READ:
                yield
        for count, (topic, numbers) in enumerate(fetch.forgotten, 1):
            for place, number in enumerate(numbers, 1):
                self.partitions.drop((topic, number))
                if not place % ITEMS_PER_READ:
                    yield
            if not count % ITEMS_PER_READ:
                yield


def next_epoch(epoch: int) -> int:
    """Return the epoch of the next request of a session."""
    if epoch < 0:
        return EPOCH_FINAL
    return 1 if epoch == EPOCH_MAX else epoch + 1


PartitionRow = tuple[FetchedPartition, Row]
SentOffsets = tuple[Offset, Offset]
"""The high watermark and the log start offset of a row."""


class Finished(NamedTuple):
    """The session fields and the rows of a reply."""

    error: ErrorCode
    session_id: int
    results: Sequence[PartitionRow]


class Sessionless(msgspec.Struct, frozen=True):
    """A request without a session."""

    fetched: Iterable[FetchedPartition]

    def finish(self, results: Sequence[PartitionRow], now: Millis) -> Finished:
        """Return all rows."""
        return Finished(ErrorCode.NONE, NO_SESSION, results)

    def finish_with(self, fetched: FetchedPartition, sent: SentOffsets) -> int | None:
        """Return the session id of a reply with records of the only active partition."""
        return NO_SESSION


class Full(msgspec.Struct, frozen=True):
    """A request that begins a session, if there is a slot when it is answered."""

    fetched: Iterable[FetchedPartition]
    fetch: FetchBody
    sessions: "Sessions"

    def finish(self, results: Sequence[PartitionRow], now: Millis) -> Finished:
        """Return all rows and begin the session with them."""
        session_id = self.sessions.begin(self.fetch, results, now)
        return Finished(ErrorCode.NONE, session_id, results)

    def finish_with(self, fetched: FetchedPartition, sent: SentOffsets) -> int | None:
        """Return None: the id is not known before `finish` begins the session."""
        return None


class Incremental(msgspec.Struct, frozen=True):
    """A request within a session."""

    session: Session
    epoch: int

    @property
    def fetched(self) -> Iterable[FetchedPartition]:
        """The active partitions of the session."""
        return self.session.partitions.awake

    @property
    def is_newest(self) -> bool:
        """Whether no later request of the session has arrived."""
        return self.session.epoch == next_epoch(self.epoch)

    def finish(self, results: Sequence[PartitionRow], now: Millis) -> Finished:
        """Return the changed rows. Partitions that got records are read last next time."""
        session = self.session
        if not self.is_newest:
            return Finished(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, ())
        news: list[PartitionRow] = []
        for fetched, row in results:
            if not fetched.learn(row):
                continue
            news.append((fetched, row))
            if row.size:
                session.partitions.to_end(fetched)
        return Finished(ErrorCode.NONE, session.id, news)

    def finish_with(self, fetched: FetchedPartition, sent: SentOffsets) -> int | None:
        """Store what is sent, as `finish` does; None if `finish` has to return an error."""
        session = self.session
        if not self.is_newest:
            return None
        fetched.high_watermark, fetched.log_start_offset = sent
        return session.id


Context = Sessionless | Full | Incremental


class _Ranking:
    """Sessions by rank, lowest first."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: list[_Value] = []

    def add(self, value: _Value) -> None:
        at = bisect_left(self._values, value)
        if at == len(self._values) or self._values[at] != value:
            self._values.insert(at, value)

    def discard(self, value: _Value) -> None:
        at = bisect_left(self._values, value)
        if at < len(self._values) and self._values[at] == value:
            del self._values[at]

    def least(self) -> _Value | None:
        return self._values[0] if self._values else None


class Sessions:
    """The sessions of a broker. ``pick_id`` returns random ids, 1 to 2**31 - 1."""

    def __init__(
        self,
        slots_max: int,
        pick_id: Callable[[], int],
        *,
        eviction_ms: int = EVICTION_MS,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self._slots_max = slots_max
        self._pick_id = pick_id
        self._eviction_ms = eviction_ms
        self._partitions_max = partitions_max
        self._rest = Rest()
        self._by_use: dict[int, Session] = {}
        self._evictable = _Ranking()
        self._by_followers = _Ranking()
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._by_use)

    def get(self, session_id: int) -> Session | None:
        """Return a session."""
        return self._by_use.get(session_id)

    def open(self, fetch: FetchBody, now: Millis) -> Context | ErrorCode:
        """Return what a request fetches, or the error of its session."""
        if fetch.session_epoch in _FULL:
            return self._full(fetch, _partitions_of(fetch))
        if fetch.topics or fetch.forgotten:
            return finish(self.open_steps(fetch, now))
        session = self._session_of(fetch)
        return session if isinstance(session, ErrorCode) else self._go_on(session, fetch, now)

    def open_steps(self, fetch: FetchBody, now: Millis) -> Steps[Context | ErrorCode]:
        """Return what `open` does, and yield often: a request may name many partitions."""
        if fetch.session_epoch in _FULL:
            return self._full(fetch, (yield from _partitions_steps(fetch)))
        session = self._session_of(fetch)
        if isinstance(session, ErrorCode):
            return session
        yield from session.update(fetch)
        left = self._session_of(fetch)  # it may have ended or gone on meanwhile
        if left is not session:
            return left if isinstance(left, ErrorCode) else ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return self._go_on(session, fetch, now)

    def _full(self, fetch: FetchBody, fetched: Iterable[FetchedPartition]) -> Context:
        """Return the context of a request that names all of its partitions."""
        self.remove(fetch.session_id)
        if fetch.session_epoch == EPOCH_FINAL:
            return Sessionless(fetched)
        return Full(fetched, fetch, self)

    def _session_of(self, fetch: FetchBody) -> Session | ErrorCode:
        """Return the session of an incremental request, or its error."""
        session = self._by_use.get(fetch.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != fetch.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != (fetch.version >= IDS_SINCE):
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return session

    def _go_on(self, session: Session, fetch: FetchBody, now: Millis) -> Context | ErrorCode:
        if not len(session.partitions):
            self.remove(session.id)
            return Sessionless(())
        self._touch(session, now)
        if self.partition_count > self._partitions_max:
            self.remove(session.id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.epoch = next_epoch(session.epoch)
        return Incremental(session, fetch.session_epoch)

    def begin(self, fetch: FetchBody, results: Sequence[PartitionRow], now: Millis) -> int:
        """Begin a session with the rows sent; return its id, 0 if there is no slot."""
        is_follower = fetch.is_from_follower
        while not self._has_room(len(results)):
            if not self._try_evict(_Value(is_follower, len(results), NO_SESSION), now):
                return NO_SESSION
        session_id = self._pick_id()
        while session_id in self._by_use:
            session_id = self._pick_id()
        epoch = next_epoch(EPOCH_INITIAL)
        uses_ids = fetch.version >= IDS_SINCE
        partitions = SessionPartitions(self._rest)
        session = Session(session_id, is_follower, uses_ids, now, now, epoch, partitions)
        for fetched, row in results:
            fetched.high_watermark = row.high_watermark
            fetched.log_start_offset = row.log_start_offset
            partitions.put(fetched)
        self._touch(session, now)
        return session_id

    def _has_room(self, size: int) -> bool:
        is_slot_free = len(self._by_use) < self._slots_max
        return is_slot_free and self.partition_count + size <= self._partitions_max

    def _try_evict(self, newcomer: _Value, now: Millis) -> bool:
        oldest = next(iter(self._by_use.values()), None)
        if oldest is None:
            return False
        if now - oldest.used > self._eviction_ms:
            victim = oldest.id
        else:
            ranking = self._by_followers if newcomer.is_follower else self._evictable
            least = ranking.least()
            if least is None or newcomer < least:
                return False
            victim = least.session_id
        self.remove(victim)
        return True

    def remove(self, session_id: int) -> None:
        """End a session, if it exists."""
        session = self._by_use.pop(session_id, None)
        if session is not None and session.value is not None:
            session.partitions.wake_all()
            self._unrank(session.value)
            self.partition_count -= session.value.size
            session.value = None

    def _touch(self, session: Session, now: Millis) -> None:
        """Record the use of a session and its current rank."""
        self._by_use.pop(session.id, None)
        self._by_use[session.id] = session
        session.used = now
        value = _Value(session.is_follower, len(session.partitions), session.id)
        if session.value is not None and session.value != value:
            self._unrank(session.value)
        before = 0 if session.value is None else session.value.size
        self.partition_count += value.size - before
        session.value = value
        is_old = now - session.created > self._eviction_ms
        if is_old or not session.is_follower:
            self._by_followers.add(value)
        if is_old:
            self._evictable.add(value)

    def _unrank(self, value: _Value) -> None:
        self._evictable.discard(value)
        self._by_followers.discard(value)


def _partitions_of(fetch: FetchBody) -> Iterable[FetchedPartition]:
    """Return the partitions of a request; the last mention of a partition counts."""
    found: dict[Key, FetchedPartition] = {}
    for topic, partitions in fetch.topics:
        for requested in partitions:
            found[topic, requested.partition] = FetchedPartition(topic, requested)
    return found.values()


def _partitions_steps(fetch: FetchBody) -> Steps[Iterable[FetchedPartition]]:
    """Return what `_partitions_of` does, and yield often."""
    found: dict[Key, FetchedPartition] = {}
    for count, (topic, partitions) in enumerate(fetch.topics, 1):
        for place, requested in enumerate(partitions, 1):
            found[topic, requested.partition] = FetchedPartition(topic, requested)
            if not place % ITEMS_PER_READ:
                yield
        if not count % ITEMS_PER_READ:
            yield
    return found.values()
