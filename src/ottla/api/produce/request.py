"""The body of a Produce request, decoded by hand without copying: versions 3 to 13.

    transactional_id  nullable string
    acks              int16
    timeout_ms        int32
    topics            array of
        name          string, up to version 12
        topic_id      16 bytes, from version 13
        partitions    array of
            index     int32
            records   nullable bytes: a record batch

From version 9 lengths are compact (a varint of length + 1, 0 for null) and every struct ends
with tagged fields, all of them ignored. Records are not copied: they are views into the body.

Pure, and all or nothing: a malformed body is a fault before anything is appended. Bytes after the
last field are ignored, as in Kafka.
"""

from collections.abc import Hashable, Iterator
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple, TypeVar

from ottla.api.surface.replies import Steps, collect, finish
from ottla.protocol.codec.primitives import (
    ARRAY_LENGTH_MAX,
    STRING_LENGTH_MAX,
    read_uvarint,
    refuse_count,
    refuse_length,
    skip_tags,
)
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.records.batch import HEADER_BYTES, PRODUCER_ID_AT
from ottla.protocol.types import Uuid

FLEXIBLE_VERSION_FIRST: Final = 9
TOPIC_ID_VERSION_FIRST: Final = 13
PARTITIONS_PER_PIECE: Final = 200
"""Partitions of a request that are served at once; one with more is served in pieces."""

_ACKS_AND_TIMEOUT: Final = Struct(">hi")
_INT64: Final = Struct(">q")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_TWO_INT32: Final = Struct(">ii")
_UUID_BYTES: Final = 16

T = TypeVar("T")
Partition = tuple[int, memoryview | None]
Topic = tuple[str | Uuid, list[Partition]]


class ProduceBody(NamedTuple):
    """A request. A topic is a name, or from version 13 on the bytes of its id."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[Topic]


def parse_produce(body: memoryview, version: int) -> ProduceBody:
    """Read a body.

    Raises:
        ProtocolFault: the body ends early, or contains an impossible length.
    """
    return finish(parse_produce_steps(body, version))


def parse_produce_steps(body: memoryview, version: int) -> Steps[ProduceBody]:
    """Read a body as `parse_produce` does; yield after `PARTITIONS_PER_PIECE` topics or partitions.

    So a request that does not yield is served at once, and one that does in pieces.
    """
    try:
        if version < FLEXIBLE_VERSION_FIRST:
            return (yield from _parse_classic(body))
        return (yield from _parse_flexible(body, version >= TOPIC_ID_VERSION_FIRST))
    except (IndexError, struct_error):
        raise ProtocolFault("Produce: the body ends within a field") from None
    except UnicodeDecodeError:
        raise ProtocolFault("Produce: a name is not UTF-8") from None


def pieces_of(produce: ProduceBody) -> Iterator[ProduceBody]:
    """Yield requests with a bounded number of topics and partitions, in order."""
    topics: list[Topic] = []
    free = PARTITIONS_PER_PIECE
    for topic, partitions in produce.topics:
        at = 0
        while True:
            taken = partitions[at : at + free]
            topics.append((topic, taken))
            at += len(taken)
            free -= len(taken) + 1
            if free <= 0:
                yield produce._replace(topics=topics)
                topics, free = [], PARTITIONS_PER_PIECE
            if at >= len(partitions):
                break
    if topics:
        yield produce._replace(topics=topics)


def each_once_steps(produce: ProduceBody) -> Steps[ProduceBody]:
    """Return what `each_once` does, and yield often; ``produce`` is empty afterwards."""
    merged: dict[str | Uuid, dict[int, memoryview | None]] = {}
    for count, (topic, partitions) in enumerate(produce.topics):
        merged.setdefault(topic, {}).update(partitions)
        if not count % PARTITIONS_PER_PIECE:
            yield
    yield from release_steps(produce.topics)
    rows = ((topic, list(merged.pop(topic).items())) for topic in list(merged))
    return produce._replace(topics=(yield from collect(rows)))


def release_steps(rows: list[T]) -> Steps[None]:
    """Empty a list, and yield often: to free hundreds of thousands of rows at once takes long."""
    while rows:
        del rows[-PARTITIONS_PER_PIECE:]
        yield


def each_once(produce: ProduceBody) -> ProduceBody:
    """Return a request that names each partition once: the last copy counts, as in Kafka.

    Kafka also checks every copy, and returns the error of a malformed one even if it has appended
    another. Here the result is that of the last copy.
    """
    topics = produce.topics
    if len(topics) == 1 and len(topics[0][1]) == 1:
        return produce  # by far the most frequent
    if len(topics) == len({topic for topic, _ in topics}) and all(
        len(partitions) == 1 or len(partitions) == len({index for index, _ in partitions})
        for _, partitions in topics
    ):
        return produce
    merged: dict[str | Uuid, dict[int, memoryview | None]] = {}
    for topic, partitions in topics:
        merged.setdefault(topic, {}).update(partitions)
    return produce._replace(topics=[(topic, list(rest.items())) for topic, rest in merged.items()])


# -- versions 3 to 8 ---------------------------------------------------------


def _parse_classic(body: memoryview) -> Steps[ProduceBody]:
    transactional_id, position = _string(body, 0)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(body, position)
    count, position = _count(body, position + _ACKS_AND_TIMEOUT.size)
    topics: list[Topic] = []
    for _ in range(count):
        name, position = _string(body, position)
        if name is None:
            refuse_length("name", -1, len(body) - position)
        partition_count, position = _count(body, position)
        partitions: list[Partition] = []
        for _ in range(partition_count):
            index, length = _TWO_INT32.unpack_from(body, position)
            position += _TWO_INT32.size
            records, position = _records(body, position, length)
            partitions.append((index, records))
            if not len(partitions) % PARTITIONS_PER_PIECE:
                yield
        topics.append((name, partitions))
        if not len(topics) % PARTITIONS_PER_PIECE:
            yield
    return ProduceBody(transactional_id, acks, timeout_ms, topics)


def _string(body: memoryview, position: int) -> tuple[str | None, int]:
    (length,) = _INT16.unpack_from(body, position)
    position += _INT16.size
    if length == -1:
        return None, position
    return _text(body, position, length)


def _count(body: memoryview, position: int) -> tuple[int, int]:
    """Return the length of an array whose elements take at least one byte each."""
    (count,) = _INT32.unpack_from(body, position)
    position += _INT32.size
    if not 0 <= count <= min(len(body) - position, ARRAY_LENGTH_MAX):
        refuse_count("array", count, len(body) - position)
    return count, position


def _text(body: memoryview, position: int, length: int) -> tuple[str, int]:
    stop = position + length
    if not 0 <= length <= STRING_LENGTH_MAX or stop > len(body):
        refuse_length("string", length, len(body) - position)
    return str(body[position:stop], "utf-8"), stop


def _records(body: memoryview, position: int, length: int) -> tuple[memoryview | None, int]:
    if length == -1:
        return None, position
    stop = position + length
    if length < 0 or stop > len(body):
        refuse_length("records", length, len(body) - position)
    return body[position:stop], stop


# -- versions 9 to 13 --------------------------------------------------------


def _parse_flexible(body: memoryview, has_topic_ids: bool) -> Steps[ProduceBody]:
    length, position = _uvarint(body, 0)
    transactional_id: str | None = None
    if length:
        transactional_id, position = _text(body, position, length - 1)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(body, position)
    count, position = _compact_count(body, position + _ACKS_AND_TIMEOUT.size)
    topics: list[Topic] = []
    for _ in range(count):
        name: str | Uuid
        if has_topic_ids:
            name, position = _topic_id(body, position)
        else:
            length, position = _uvarint(body, position)
            name, position = _text(body, position, length - 1)
        partitions, position = yield from _compact_partitions(body, position)
        position = _end_struct(body, position)
        topics.append((name, partitions))
        if not len(topics) % PARTITIONS_PER_PIECE:
            yield
    _end_struct(body, position)
    return ProduceBody(transactional_id, acks, timeout_ms, topics)


def _compact_partitions(body: memoryview, position: int) -> Steps[tuple[list[Partition], int]]:
    count, position = _compact_count(body, position)
    partitions: list[Partition] = []
    for _ in range(count):
        (index,) = _INT32.unpack_from(body, position)
        length, position = read_uvarint(body, position + _INT32.size)
        records, position = _records(body, position, length - 1)
        position = _end_struct(body, position)
        partitions.append((index, records))
        if not len(partitions) % PARTITIONS_PER_PIECE:
            yield
    return partitions, position


def _topic_id(body: memoryview, position: int) -> tuple[Uuid, int]:
    stop = position + _UUID_BYTES
    if stop > len(body):
        refuse_length("topic id", _UUID_BYTES, len(body) - position)
    return Uuid(bytes(body[position:stop])), stop


def _compact_count(body: memoryview, position: int) -> tuple[int, int]:
    count, position = _uvarint(body, position)
    count -= 1
    if not 0 <= count <= min(len(body) - position, ARRAY_LENGTH_MAX):
        refuse_count("array", count, len(body) - position)
    return count, position


def _uvarint(body: memoryview, position: int) -> tuple[int, int]:
    first = body[position]
    return (first, position + 1) if first < 0x80 else read_uvarint(body, position)


def _end_struct(body: memoryview, position: int) -> int:
    """Skip the tagged fields at the end of a struct; there are nearly always none."""
    return position + 1 if body[position] == 0 else skip_tags(body, position, len(body))


def owned(produce: ProduceBody) -> ProduceBody:
    """Return the request with copies of its records, to outlive the receive buffer."""
    topics = [
        (topic, [(i, None if r is None else memoryview(bytearray(r))) for i, r in partitions])
        for topic, partitions in produce.topics
    ]
    return produce._replace(topics=topics)


def producer_of(records: memoryview | None, connection: Hashable) -> Hashable:
    """Return what a batch must stay in order with: its producer, else the connection."""
    if records is None or len(records) < HEADER_BYTES:
        return connection
    (producer_id,) = _INT64.unpack_from(records, PRODUCER_ID_AT)
    return producer_id if producer_id >= 0 else connection
