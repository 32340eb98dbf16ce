"""The body of a Fetch request, decoded by hand: pollers send the same few bytes repeatedly.

Two forms are read in one step: a consumer's request without news, and that of a follower with one
partition, which acknowledges each record that it has.

    replica_id       int32     up to v14; from v15 on in the tagged replica_state
    max_wait_ms, min_bytes, max_bytes int32, isolation_level int8
    session_id, session_epoch int32                                       v7+
    topics           name, or id from v13 on, and partitions:
        partition int32
        current_leader_epoch int32                                        v9+
        fetch_offset int64
        last_fetched_epoch int32                                          v12+
        log_start_offset int64                                            v5+
        partition_max_bytes int32
        tagged: replica_directory_id (v17+), high_watermark (v18+)        v12+, ignored
    forgotten_topics name or id, and partition numbers                    v7+
    rack_id          string                                               v11+
    tagged: cluster_id (0), replica_state (1: id int32, epoch int64)      v12+

The quorum alone uses a cluster id, directory ids and a high watermark; they are skipped. Counts
are checked against the bytes that remain before anything is built.
"""

from struct import Struct, error
from typing import Final, NamedTuple

from ottla.api.surface.replies import Steps
from ottla.protocol.codec.primitives import (
    ARRAY_LENGTH_MAX,
    STRING_LENGTH_MAX,
    read_tag,
    read_tag_count,
    read_uvarint,
    refuse_count,
    skip_tags,
)
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.types import NO_EPOCH, Buffer, LeaderEpoch, Offset, Uuid

CONSUMER: Final = -1
IDS_SINCE: Final = 13
FLEXIBLE_SINCE: Final = 12
SESSIONS_SINCE: Final = 7

_HEAD_OLD: Final = Struct(">iiiib")
_HEAD_SESSION: Final = Struct(">iiiibii")
_HEAD_NEW: Final = Struct(">iiibii")
_REPLICA_STATE: Final = Struct(">iq")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_REPLICA_STATE_TAG: Final = 1
_ISOLATION_LEVELS: Final = (0, 1)
ITEMS_PER_READ: Final = 500
"""Topics or partitions that are read between two yields."""
# No topics, none forgotten, no rack, no tags.
_POLL_TAIL: Final = b"\1\1\1\0"
_POLL_BYTES: Final = _HEAD_NEW.size + len(_POLL_TAIL)
# A follower's request with one partition, as it is from version 15 on:
#   head, one topic: id, one partition: fields
#   no tags of the partition and the topic, none forgotten, no rack, one tag, its size
#   replica_state: id, epoch, no tags
_ONE: Final = 2
_TOPIC_AT: Final = _HEAD_NEW.size + 1
_ROW_AT: Final = _TOPIC_AT + 16 + 1
_MARKS_AT: Final = _ROW_AT + 32
_MARKS: Final = bytes((0, 0, 1, 1, 1, _REPLICA_STATE_TAG, _REPLICA_STATE.size + 1))
_STATE_AT: Final = _MARKS_AT + len(_MARKS)
_FOLLOWER_BYTES: Final = _STATE_AT + _REPLICA_STATE.size + 1


class FetchPartition(NamedTuple):
    """One partition of a request; -1 stands for an epoch or log start that it does not have."""

    partition: int
    current_leader_epoch: LeaderEpoch
    offset: Offset
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset
    bytes_max: int


Topic = str | Uuid
"""A topic's name up to version 12, its id from 13 on."""


class FetchBody(NamedTuple):
    """A request. ``topics`` and ``forgotten`` keep its order, which is the order of reading."""

    version: int
    replica_id: int
    replica_epoch: int
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    is_read_committed: bool
    session_id: int
    session_epoch: int
    topics: list[tuple[Topic, list[FetchPartition]]]
    forgotten: list[tuple[Topic, list[int]]]
    rack_id: str
    is_isolation_unknown: bool = False

    @property
    def is_from_follower(self) -> bool:
        """Return whether a follower sent the request."""
        return self.replica_id >= 0


class _Layout(NamedTuple):
    """The differences between versions, looked up once per request."""

    partition: Struct
    blanks: tuple[int, ...]  # which of `FetchPartition` the version lacks
    topic_bytes_min: int


def _layout(version: int) -> _Layout:
    if version < 5:
        return _Layout(Struct(">iqi"), (1, 3, 4), 6)
    if version < 9:
        return _Layout(Struct(">iqqi"), (1, 3), 6)
    if version < FLEXIBLE_SINCE:
        return _Layout(Struct(">iiqqi"), (3,), 6)
    return _Layout(Struct(">iiqiqi"), (), 3 if version < IDS_SINCE else 18)


_LAYOUTS: Final = tuple(_layout(version) for version in range(19))
assert _LAYOUTS[15].partition.size == _MARKS_AT - _ROW_AT


def parse_fetch(version: int, body: memoryview) -> FetchBody:
    """Read the body of a request.

    Raises:
        ProtocolFault: the body is malformed.
    """
    try:
        if version >= 15:
            size = len(body)
            if size == _POLL_BYTES and bytes(body[-4:]) == _POLL_TAIL:
                return _of_head(version, body, CONSUMER, -1, [])
            if size == _FOLLOWER_BYTES:
                found = _follower(version, bytes(body))
                if found is not None:
                    return found
        return _Reader(version, bytes(body)).read()
    except (IndexError, error):
        raise _cut_short(version) from None
    except UnicodeDecodeError as bad:
        raise _not_text(version) from bad


def parse_fetch_steps(version: int, body: bytes) -> Steps[FetchBody]:
    """Read the body of a large request as `parse_fetch` does, and yield often."""
    try:
        return (yield from _Reader(version, body).read_steps())
    except (IndexError, error):
        raise _cut_short(version) from None
    except UnicodeDecodeError as bad:
        raise _not_text(version) from bad


def _cut_short(version: int) -> ProtocolFault:
    return ProtocolFault(f"Fetch v{version}: ends within a field")


def _not_text(version: int) -> ProtocolFault:
    return ProtocolFault(f"Fetch v{version}: string is not UTF-8")


def _of_head(
    version: int,
    body: Buffer,
    replica_id: int,
    replica_epoch: int,
    topics: list[tuple[Topic, list[FetchPartition]]],
) -> FetchBody:
    """Return a request whose head is read here, and that has nothing else but ``topics``."""
    wait_ms, bytes_min, bytes_max, isolation, session_id, epoch = _HEAD_NEW.unpack_from(body)
    return FetchBody(
        version,
        replica_id,
        replica_epoch,
        wait_ms,
        bytes_min,
        bytes_max,
        isolation == 1,
        session_id,
        epoch,
        topics,
        [],
        "",
        isolation not in _ISOLATION_LEVELS,
    )


def _follower(version: int, body: bytes) -> FetchBody | None:
    """Read the request of a follower with one partition; None if it has another form."""
    if (
        body[_MARKS_AT:_STATE_AT] != _MARKS
        or body[_TOPIC_AT - 1] != _ONE
        or body[_ROW_AT - 1] != _ONE
        or body[-1]
    ):
        return None
    replica_id, replica_epoch = _REPLICA_STATE.unpack_from(body, _STATE_AT)
    row = FetchPartition._make(_LAYOUTS[version].partition.unpack_from(body, _ROW_AT))
    topic = Uuid(body[_TOPIC_AT : _ROW_AT - 1])
    return _of_head(version, body, replica_id, replica_epoch, [(topic, [row])])


class _Reader:
    """Reads one body from front to back."""

    __slots__ = ("_body", "_is_flexible", "_layout", "_position", "_version")

    def __init__(self, version: int, body: bytes) -> None:
        self._version = version
        self._layout = _LAYOUTS[version]
        self._is_flexible = version >= FLEXIBLE_SINCE
        self._body = body
        self._position = 0

    def read(self) -> FetchBody:
        """Read a small body at once."""
        head = self._head()
        topics = [self._topic_row() for _ in range(self._count(self._layout.topic_bytes_min))]
        forgotten: list[tuple[Topic, list[int]]] = []
        if self._version >= SESSIONS_SINCE:
            rows = range(self._count(self._layout.topic_bytes_min))
            forgotten = [self._forgotten_row() for _ in rows]
        return self._tail(head, topics, forgotten)

    def read_steps(self) -> Steps[FetchBody]:
        """Read a body that may name many partitions, and yield often."""
        head = self._head()
        topics = yield from self._topics()
        forgotten = (yield from self._forgotten()) if self._version >= SESSIONS_SINCE else []
        return self._tail(head, topics, forgotten)

    def _head(self) -> tuple[int, ...]:
        """Read the fields before the topics: as in `_HEAD_SESSION`, absent ones by default."""
        version, body = self._version, self._body
        if version >= 15:
            self._position = _HEAD_NEW.size
            return (CONSUMER, *_HEAD_NEW.unpack_from(body))
        if version >= SESSIONS_SINCE:
            self._position = _HEAD_SESSION.size
            return _HEAD_SESSION.unpack_from(body)
        self._position = _HEAD_OLD.size
        return (*_HEAD_OLD.unpack_from(body), 0, -1)

    def _tail(
        self,
        head: tuple[int, ...],
        topics: list[tuple[Topic, list[FetchPartition]]],
        forgotten: list[tuple[Topic, list[int]]],
    ) -> FetchBody:
        """Read the fields after the topics, and return the whole request."""
        replica_id, wait_ms, bytes_min, bytes_max, isolation, session_id, session_epoch = head
        replica_epoch = -1
        rack_id = self._string() if self._version >= 11 else ""
        if self._is_flexible:
            replica_id, replica_epoch = self._replica_state(replica_id)
        return FetchBody(
            self._version,
            replica_id,
            replica_epoch,
            wait_ms,
            bytes_min,
            bytes_max,
            isolation == 1,
            session_id,
            session_epoch,
            topics,
            forgotten,
            rack_id,
            isolation not in _ISOLATION_LEVELS,
        )

    def _topic_row(self) -> tuple[Topic, list[FetchPartition]]:
        topic = self._topic()
        count = self._count(self._layout.partition.size + self._is_flexible)
        partitions = self._partitions(count)
        self._skip_tags()
        return topic, partitions

    def _forgotten_row(self) -> tuple[Topic, list[int]]:
        topic = self._topic()
        count = self._count(4)
        numbers = Struct(f">{count}i").unpack_from(self._body, self._position)
        self._position += 4 * count
        self._skip_tags()
        return topic, list(numbers)

    def _topics(self) -> Steps[list[tuple[Topic, list[FetchPartition]]]]:
        found: list[tuple[Topic, list[FetchPartition]]] = []
        for _ in range(self._count(self._layout.topic_bytes_min)):
            topic = self._topic()
            count = self._count(self._layout.partition.size + self._is_flexible)
            partitions = self._partitions(min(count, ITEMS_PER_READ))
            for start in range(ITEMS_PER_READ, count, ITEMS_PER_READ):
                yield
                partitions += self._partitions(min(count - start, ITEMS_PER_READ))
            found.append((topic, partitions))
            self._skip_tags()
            if not len(found) % ITEMS_PER_READ:
                yield
        return found

    def _partitions(self, count: int) -> list[FetchPartition]:
        struct, blanks, _ = self._layout
        body, flexible = self._body, self._is_flexible
        found: list[FetchPartition] = []
        for _ in range(count):
            fields = struct.unpack_from(body, self._position)
            self._position += struct.size
            if flexible:
                if body[self._position]:
                    self._skip_tags()
                else:
                    self._position += 1
            if blanks:
                filled = list(fields)
                for blank in blanks:
                    filled.insert(blank, NO_EPOCH)
                fields = tuple(filled)
            found.append(FetchPartition._make(fields))
        return found

    def _forgotten(self) -> Steps[list[tuple[Topic, list[int]]]]:
        found: list[tuple[Topic, list[int]]] = []
        for _ in range(self._count(self._layout.topic_bytes_min)):
            found.append(self._forgotten_row())
            if not len(found) % ITEMS_PER_READ:
                yield
        return found

    def _topic(self) -> Topic:
        if self._version < IDS_SINCE:
            return self._string()
        start, self._position = self._position, self._position + 16
        if self._position > len(self._body):
            raise IndexError
        return Uuid(self._body[start : self._position])

    def _replica_state(self, replica_id: int) -> tuple[int, int]:
        """Read the tags at the end; return the replica id and its broker epoch."""
        body, end, replica_epoch = self._body, len(self._body), -1
        if not body[self._position]:
            self._position += 1
            return replica_id, replica_epoch
        count, self._position = read_tag_count(body, self._position, end)
        last = -1
        for _ in range(count):
            last, start, stop = read_tag(body, self._position, end, last)
            if last == _REPLICA_STATE_TAG and self._version >= 15:
                replica_id, replica_epoch = _REPLICA_STATE.unpack_from(body, start)
                if skip_tags(body, start + _REPLICA_STATE.size, stop) != stop:
                    raise ProtocolFault("Fetch: replica_state does not end where its size says")
            self._position = stop
        return replica_id, replica_epoch

    def _count(self, bytes_min: int) -> int:
        """Read the length of an array whose elements have at least ``bytes_min`` bytes each."""
        if self._is_flexible:
            count, self._position = read_uvarint(self._body, self._position)
            count -= 1
        else:
            (count,) = _INT32.unpack_from(self._body, self._position)
            self._position += 4
        remaining = len(self._body) - self._position
        if count < 0 or count * bytes_min > remaining or count > ARRAY_LENGTH_MAX:
            refuse_count("Fetch: array", count, remaining // bytes_min)
        return count

    def _string(self) -> str:
        if self._is_flexible:
            length, start = read_uvarint(self._body, self._position)
            length -= 1
        else:
            (length,) = _INT16.unpack_from(self._body, self._position)
            start = self._position + 2
        self._position = start + length
        if not 0 <= length <= STRING_LENGTH_MAX or self._position > len(self._body):
            raise ProtocolFault(f"Fetch: string of {length} bytes")
        return self._body[start : self._position].decode()

    def _skip_tags(self) -> None:
        if self._is_flexible:
            self._position = skip_tags(self._body, self._position, len(self._body))
