# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The fast path of a small Produce: from the bytes of a frame to the bytes of its reply.

It serves requests of one form:

    header     Produce, version 3 to 13, same client id as the previous request, no tags
    body       no transaction, acks 0, 1 or all, one topic, one partition of it, no tags
    records    one batch, uncompressed, outside of transactions, that is appended unchanged
    topic      without schema validation
    producer   none, or an idempotent one whose next batch this is
    access     the general path has allowed the caller to write to the topic
    partition  led here
    order      no request of any connection waits for its turn

Such a request is parsed, validated and appended in one call, by C if this module is compiled. With
acks=all the reply is pending until the followers have the batch. `ProduceFastPath.serve` returns
None for requests of another form, having changed nothing; the general path (`handler.py`) serves
them and returns their errors. Both paths use the same record rules (`record_validation.py`); a test
compares their replies and logs request by request.

Every index is compared with the bounds before it is used, and all integers of the wire are handled
as 64 bits, so that the compiled and the plain form agree.
"""

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from google_crc32c import value as crc32c

from ottla.api.cluster.metadata import INTERNAL_TOPICS
from ottla.api.produce.append_order import AppendOrder
from ottla.api.produce.record_validation import RecordRules, allows_records
from ottla.api.produce.reply import LOG_START_VERSION_FIRST, PartitionResult, pack_produce
from ottla.api.produce.request import FLEXIBLE_VERSION_FIRST, TOPIC_ID_VERSION_FIRST
from ottla.api.security.access_decisions import AccessDecisions
from ottla.api.surface.routes import Caller
from ottla.observability.topic_events import TopicEvents
from ottla.protocol.faults import Fault, InvalidRecord, StorageFailed
from ottla.protocol.records.batch import BatchHeader, read_header
from ottla.protocol.records.walker import check_records_at
from ottla.protocol.types import Millis, Offset, Uuid
from ottla.replication.hosted_partitions import Partitions
from ottla.runtime.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.api.surface.replies import Reply, Result
    from ottla.config.generated import TopicConfig
    from ottla.protocol import cython_stub as cython
    from ottla.replication.partition import Partition
    from ottla.runtime.ports import Clock
    from ottla.storage.log.log import Log
else:
    try:
        import cython
    except ImportError:
        from ottla.protocol import cython_stub as cython

IS_COMPILED: Final[bool] = cython.compiled

FRAME_BYTES_MAX: Final = 16 << 10
"""Larger requests take the general path, whose overhead is small for them."""

HANDLES_MAX: Final = 1000
"""Partition handles cached by the bytes that name them, per version; a full cache is dropped."""

# C integers: comparing with them creates no Python object.
_FRAME_MAX: cython.Py_ssize_t = FRAME_BYTES_MAX
_VERSION_FIRST: cython.int = 3
_VERSION_FLEXIBLE: cython.int = FLEXIBLE_VERSION_FIRST
_VERSION_LAST: cython.int = TOPIC_ID_VERSION_FIRST

# A reply: length and correlation id, no tags from version 9 on, then the body.
_REPLY_HEAD: Final = Struct(">ii")
_REPLY_HEAD_FLEXIBLE: Final = Struct(">iiB")
_CORRELATION_ID_AT: cython.Py_ssize_t = 4
# In the body: the counts of topics and partitions around the topic, then index and error code.
_FIELDS_BEFORE_OFFSET: Final = Struct(">iiih").size
_FIELDS_BEFORE_OFFSET_FLEXIBLE: Final = Struct(">BBih").size
_OFFSET_TO_LOG_START: Final = 16  # the offset and the append time


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _uint32(data: bytearray, at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = data[at]
    value = value << 8 | data[at + 1]
    value = value << 8 | data[at + 2]
    return value << 8 | data[at + 3]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int32(data: bytearray, at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = _uint32(data, at)
    return value - ((value >> 31) << 32)  # every intermediate value fits into C's integer


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int64(data: bytearray, at: cython.Py_ssize_t) -> cython.longlong:
    return (_int32(data, at) << 32) + _uint32(data, at + 4)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_int64(data: bytearray, at: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    shift: cython.int = 56
    while shift >= 0:
        data[at] = (value >> shift) & 0xFF
        at += 1
        shift -= 8


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_at(data: bytearray, at: cython.Py_ssize_t, text: bytes) -> cython.bint:
    """Return whether ``text`` is at this position; the caller has checked that it fits."""
    left: cython.Py_ssize_t = len(text)
    while left > 0 and data[at + left - 1] == text[left - 1]:
        left -= 1
    return left == 0


@cython.final
@cython.cclass
class _Plain:
    """The fields of a request of the expected form. Positions are in the receive buffer."""

    version: cython.int
    acks: cython.int
    timeout_ms: cython.longlong
    topic_start: cython.Py_ssize_t  # with its length, as a reply repeats it
    topic_end: cython.Py_ssize_t
    key_end: cython.Py_ssize_t  # after the count of partitions and the index of the only one
    start: cython.Py_ssize_t  # of the batch
    end: cython.Py_ssize_t
    offset_delta: cython.longlong
    base_timestamp: cython.longlong
    max_timestamp: cython.longlong
    is_idempotent: cython.bint


class AppendedBatch(NamedTuple):
    """A batch that has been appended with acks=all, and how its request wants to be answered."""

    partition: "Partition"
    first: Offset
    last: Offset
    version: int
    timeout_ms: int


WaitReplicated: TypeAlias = "Callable[[Caller, AppendedBatch], Reply]"
"""Return the reply to a request with one batch, pending until the followers have it."""


@cython.final
@cython.cclass
class PartitionHandle:
    """A partition led here, its topic's record rules, and a template of its reply.

    Valid while partition, log and configuration are the objects it was made of.
    """

    partition: "Partition"
    log: "Log"
    config: "TopicConfig"
    topic: str
    rules: RecordRules
    size_max: cython.longlong  # of a batch; -1 if the topic changes or validates every batch
    reply: bytearray
    offset_at: cython.Py_ssize_t  # in the reply
    log_start_at: cython.Py_ssize_t  # 0 if the version has none


@cython.cfunc
@cython.exceptval(check=False)
def _read_header(
    plain: _Plain,
    data: bytearray,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    client: bytes,
) -> cython.bint:
    """Return whether the header has the expected form and is followed by at least one byte.

    From version 9 on that byte is its number of tags, which has to be 0.
    """
    if end - at < 10 + len(client) or end - at > _FRAME_MAX:
        return False
    plain.version = data[at + 3]
    if data[at] or data[at + 1] or data[at + 2]:  # of Produce, and of the version's upper half
        return False
    if plain.version < _VERSION_FIRST or plain.version > _VERSION_LAST:
        return False
    if plain.version >= _VERSION_FLEXIBLE and data[at + 8 + len(client)] != 0:
        return False
    return _is_at(data, at + 8, client)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _read_acks(plain: _Plain, data: bytearray, at: cython.Py_ssize_t) -> cython.bint:
    plain.acks = data[at] << 8 | data[at + 1]
    if plain.acks == 0xFFFF:
        plain.acks = -1
    return plain.acks <= 1


@cython.cfunc
@cython.exceptval(check=False)
def _read_classic_body(
    plain: _Plain, data: bytearray, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Locate the fields of a body of version 3 to 8; False if it has another form."""
    length: cython.Py_ssize_t
    # No transactional id, acks, timeout, one topic, the upper half of its name's length.
    if end - position < 30 or data[position] != 0xFF or data[position + 1] != 0xFF:
        return False
    if _int32(data, position + 8) != 1 or data[position + 12] != 0:
        return False
    if not _read_acks(plain, data, position + 2):
        return False
    plain.timeout_ms = _int32(data, position + 4)
    length = data[position + 13]
    plain.topic_start = position + 12
    plain.topic_end = position = position + 14 + length
    # One partition, its index, the length of the batch, which is the rest.
    if length < 1 or end - position < 12 or _int32(data, position) != 1:
        return False
    plain.key_end = position + 8
    plain.start = position + 12
    plain.end = end
    return _int32(data, position + 8) == end - plain.start


@cython.cfunc
@cython.exceptval(check=False)
def _read_flexible_body(
    plain: _Plain, data: bytearray, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Locate the fields of a body of version 9 to 13; False if it has another form."""
    length: cython.Py_ssize_t
    shift: cython.int = 0
    # No transactional id, acks, timeout, one topic; the rest is located by its length.
    if end - position < 26 or data[position] != 0 or data[position + 7] != 2:
        return False
    if not _read_acks(plain, data, position + 1):
        return False
    plain.timeout_ms = _int32(data, position + 3)
    plain.topic_start = position = position + 8
    length = 16
    if plain.version < _VERSION_LAST:
        length = data[position]
        if length < 2 or length > 0x7F:
            return False
    plain.topic_end = position = position + length
    if end - position < 9 or data[position] != 2:
        return False
    plain.key_end = position = position + 5  # one partition, its index
    length = 0
    while shift <= 21 and position < end:
        length |= (data[position] & 0x7F) << shift
        shift += 7
        position += 1
        if data[position - 1] < 0x80:
            break
    plain.start = position
    plain.end = position = position + length - 1
    # Only the empty tags of partition, topic and request follow the batch.
    if length < 1 or position != end - 3:
        return False
    return data[position] == 0 and data[position + 1] == 0 and data[position + 2] == 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _read_body(
    plain: _Plain, data: bytearray, position: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Locate the fields of the body that follows the client id; False if it has another form."""
    if plain.version < _VERSION_FLEXIBLE:
        return _read_classic_body(plain, data, position, end)
    return _read_flexible_body(plain, data, position + 1, end)  # after the header's tags


@cython.cfunc
@cython.exceptval(check=False)
def _read_batch(plain: _Plain, data: bytearray) -> cython.bint:
    """Read the batch header; False if the batch has another form."""
    start: cython.Py_ssize_t = plain.start
    size: cython.Py_ssize_t = plain.end - start
    if size < 68 or _int32(data, start + 8) != size - 12 or data[start + 16] != 2:
        return False
    plain.offset_delta = _int32(data, start + 23)
    plain.base_timestamp = _int64(data, start + 27)
    plain.max_timestamp = _int64(data, start + 35)
    plain.is_idempotent = data[start + 43] < 0x80  # a producer id that is not below zero
    if plain.is_idempotent and (data[start + 51] >= 0x80 or data[start + 53] >= 0x80):
        return False  # without an epoch or a sequence number
    return (
        _int64(data, start) == 0
        and data[start + 21] == 0
        and data[start + 22] == 0
        and plain.offset_delta >= 0
        and _int32(data, start + 57) == plain.offset_delta + 1
        and plain.base_timestamp >= 0
        and plain.max_timestamp >= 0
    )


@cython.cfunc
def _is_valid(
    plain: _Plain, data: bytearray, handle: PartitionHandle, now: "Millis"
) -> cython.bint:
    """Return whether the batch is appended unchanged: size, CRC, records, timestamps."""
    start, end = plain.start, plain.end
    if end - start > handle.size_max:
        return False
    if crc32c(bytes(data[start + 21 : end])) != _uint32(data, start + 17):
        return False
    base = plain.base_timestamp
    try:
        summary = check_records_at(data, start + 61, end, plain.offset_delta + 1, base)
    except InvalidRecord:
        return False
    newest, oldest = base + summary[0], base + summary[3]
    if newest != plain.max_timestamp or oldest < 0:
        return False
    return allows_records(handle.rules, newest, oldest, summary[2], now)


@cython.cfunc
def _next_header(plain: _Plain, data: bytearray, handle: PartitionHandle) -> "BatchHeader | None":
    """Return the header of an idempotent producer's batch; None unless it is the next one."""
    try:
        header = read_header(memoryview(data)[plain.start : plain.end])
        duplicate = handle.log.producers.check(header, from_client=True)
    except Fault:
        return None
    return header if duplicate is None else None


@cython.final
@cython.cclass
class ProduceFastPath:
    """Serves the Produce requests of a broker that have the expected form, and no others."""

    _partitions: Partitions
    _now: "Callable[[], Millis]"
    _events: TopicEvents
    _rules_of: "Callable[[TopicConfig], RecordRules]"
    _topic_writes: AccessDecisions
    _order: AppendOrder
    _wait_replicated: "WaitReplicated"
    _handles: "list[dict[bytes, PartitionHandle]]"  # by version

    def __init__(
        self,
        partitions: Partitions,
        clock: "Clock",
        events: TopicEvents,
        rules_of: "Callable[[TopicConfig], RecordRules]",
        topic_writes: AccessDecisions,
        order: AppendOrder,
        wait_replicated: "WaitReplicated",
    ) -> None:
        self._partitions = partitions
        self._now = clock.now
        self._events = events
        self._rules_of = rules_of
        self._topic_writes = topic_writes
        self._order = order
        self._wait_replicated = wait_replicated
        self._handles = [{} for _ in range(TOPIC_ID_VERSION_FIRST + 1)]

    @cython.locals(
        at=cython.Py_ssize_t, end=cython.Py_ssize_t, plain=_Plain, handle=PartitionHandle
    )
    def serve(
        self, caller: Caller, client: bytes, data: bytearray, start: int, stop: int
    ) -> "bytearray | Pending[Result] | None":
        """Serve the frame ``data[start:stop]``, without its length; return the whole reply.

        ``client`` is the client id with its length as encoded in a header. The reply is empty
        for acks=0, and pending if followers have to be waited for: then its result is the body.
        None if the request has to take the general path: then nothing has changed. The batch is
        patched in the buffer, as on the general path.
        """
        at, end = start, stop
        plain = _Plain()
        if self._order.queues or not _read_header(plain, data, at, end, client):
            return None
        if not _read_body(plain, data, at + 8 + len(client), end) or not _read_batch(plain, data):
            return None
        handle = self._handle(plain, data)
        if handle is None or (plain.acks == -1 and handle.partition.is_under_min_isr):
            return None
        is_replicated = handle.partition.is_answered_at_once(plain.acks)
        correlation_id = data[start + 4 : start + 8]
        first = self._append(plain, data, handle, caller)
        if first is None:
            return None
        if not is_replicated:
            last = Offset(first + plain.offset_delta)
            batch = AppendedBatch(handle.partition, first, last, plain.version, plain.timeout_ms)
            reply = self._wait_replicated(caller, batch)
            if isinstance(reply, Pending):
                return reply
        return bytearray() if plain.acks == 0 else self._reply(handle, first, correlation_id)

    @cython.cfunc
    def _append(
        self, plain: _Plain, data: bytearray, handle: PartitionHandle, caller: Caller
    ) -> "Offset | None":
        """Append the batch and return its offset; None if the general path has to look at it."""
        now = self._now()
        if not _is_valid(plain, data, handle, now):
            return None
        if not self._topic_writes.is_allowed(caller, handle.topic):
            return None
        header = None
        if plain.is_idempotent:
            header = _next_header(plain, data, handle)
            if header is None:
                return None
        batch = memoryview(data)[plain.start : plain.end]
        # The append serves waiting fetches, which may call this again: read the values first.
        count, size = plain.offset_delta + 1, plain.end - plain.start
        try:
            if header is None:
                first = handle.partition.append_checked(
                    batch, plain.offset_delta, plain.max_timestamp, now
                )
            else:
                first = handle.partition.append_next(batch, header, now)
        except StorageFailed:
            return None  # the general path returns the partition's error
        self._events.produced(handle.topic, count, size)
        return first

    @cython.cfunc
    def _reply(
        self, handle: PartitionHandle, first: "Offset", correlation_id: bytearray
    ) -> bytearray:
        """Return the reply to a request whose batch was appended at ``first``."""
        reply = bytearray(handle.reply)
        reply[_CORRELATION_ID_AT : _CORRELATION_ID_AT + 4] = correlation_id
        _put_int64(reply, handle.offset_at, first)
        if handle.log_start_at:
            _put_int64(reply, handle.log_start_at, handle.log.log_start_offset)
        return reply

    @cython.cfunc
    @cython.locals(handle=PartitionHandle)
    def _handle(self, plain: _Plain, data: bytearray) -> "PartitionHandle | None":
        """Return the handle of the partition; None if the general path has to return its error."""
        handles: dict[bytes, PartitionHandle] = self._handles[plain.version]
        key = bytes(data[plain.topic_start : plain.key_end])
        handle = handles.get(key)
        if (
            handle is not None
            and handle.partition.is_leader
            and handle.config is handle.partition.config
            and handle.log is handle.partition.log
        ):
            return handle
        if len(handles) >= HANDLES_MAX:
            handles.clear()
        handle = self._make_handle(key, plain.topic_end - plain.topic_start, plain.version)
        if handle is None:
            handles.pop(key, None)
        else:
            handles[key] = handle
        return handle

    @cython.cfunc
    def _make_handle(self, key: bytes, length: int, version: int) -> "PartitionHandle | None":
        """Return the handle of the partition that ``key`` names: the topic has ``length`` bytes."""
        index = int.from_bytes(key[len(key) - 4 :], "big", signed=True)
        topic: str | Uuid
        if version >= _VERSION_LAST:
            topic = Uuid(key[:length])
            partition = self._partitions.by_id(topic, index)
        else:
            try:
                topic = key[1 if version >= _VERSION_FLEXIBLE else 2 : length].decode()
            except UnicodeDecodeError:
                return None
            partition = self._partitions.get(topic, index)
        if partition is None or not partition.is_leader or partition.topic in INTERNAL_TOPICS:
            return None
        handle = PartitionHandle()
        handle.partition, handle.log, handle.config = partition, partition.log, partition.config
        handle.topic = partition.topic
        self._set_rules(handle)
        body = pack_produce(version, [(topic, [PartitionResult(index)])])
        self._set_reply(handle, body, length, version)
        return handle

    @cython.cfunc
    def _set_reply(self, handle: PartitionHandle, body: bytes, length: int, version: int) -> None:
        """Keep the reply with its positions; ``length`` is that of the topic in it."""
        head, before = _REPLY_HEAD.pack(0, 0), _FIELDS_BEFORE_OFFSET
        if version >= _VERSION_FLEXIBLE:
            head, before = _REPLY_HEAD_FLEXIBLE.pack(0, 0, 0), _FIELDS_BEFORE_OFFSET_FLEXIBLE
        handle.reply = bytearray(head + body)
        handle.reply[:4] = (len(handle.reply) - 4).to_bytes(4, "big")
        handle.offset_at = len(head) + before + length
        has_log_start = version >= LOG_START_VERSION_FIRST
        handle.log_start_at = handle.offset_at + _OFFSET_TO_LOG_START if has_log_start else 0

    @cython.cfunc
    def _set_rules(self, handle: PartitionHandle) -> None:
        rules, config = self._rules_of(handle.config), handle.log.config
        handle.rules = rules
        handle.size_max = min(rules.batch_bytes_max, config.max_message_bytes, config.segment_bytes)
        is_changing = rules.codec or rules.is_log_append_time or config.is_log_append_time
        if is_changing or rules.schemas is not None:
            handle.size_max = -1
