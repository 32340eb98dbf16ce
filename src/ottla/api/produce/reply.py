"""The results of a Produce request, and the body of its response by hand: versions 3 to 13.

    responses             array of
        name              string, up to version 12
        topic_id          16 bytes, from version 13
        partitions        array of
            index         int32
            error_code    int16
            base_offset   int64    -1 if nothing was appended
            append_time   int64    -1 unless the topic has LogAppendTime
            log_start     int64    from version 5
            record_errors array of (batch_index int32, message nullable string), from 8
            error_message nullable string, from 8
            tag 0: current_leader (leader_id int32, leader_epoch int32), from 10 (KIP-951)
    throttle_time_ms      int32
    tag 0: node_endpoints array of (id int32, host string, port int32, rack nullable string)

From version 9 lengths are compact and structs end with tagged fields.
"""

import logging
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from ottla.api.partitions.current_leaders import CurrentLeader, NodeEndpoint
from ottla.api.partitions.partition_wait import Subscribe
from ottla.api.produce.record_validation import RecordError
from ottla.api.produce.request import FLEXIBLE_VERSION_FIRST
from ottla.api.surface.replies import NO_REPLY, Answer, Result, Steps, finish
from ottla.api.surface.routes import Caller
from ottla.protocol.codec.primitives import uvarint
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, NotLeader, UnknownTopicId, UnknownTopicOrPartition
from ottla.protocol.types import Uuid

log = logging.getLogger(__name__)

CURRENT_LEADER_VERSION_FIRST: Final = 10
LOG_START_VERSION_FIRST: Final = 5
_RECORD_ERRORS_VERSION_FIRST: Final = 8

_OLD: Final = Struct(">ihqq")
_WITH_LOG_START: Final = Struct(">ihqqq")
# The same, then no record errors and no message; the second with compact lengths and no tags.
_PLAIN: Final = Struct(">ihqqqih")
_COMPACT: Final = Struct(">ihqqqBBB")
_LEADER: Final = Struct(">iiB")
_INT32: Final = Struct(">i")
_INT16: Final = Struct(">h")
_NO_TAGS: Final = b"\x00"
_STRING_BYTES_MAX: Final = 0x7FFF


class PartitionResult(NamedTuple):
    """The result of one partition's batch."""

    partition: int
    error_code: int = ErrorCode.NONE
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: CurrentLeader | None = None


class ProduceResults(msgspec.Struct):
    """The results of a request in its order, and what they wait for; holds no request bytes."""

    caller: Caller
    version: int
    acks: int
    topics: list[tuple[str | Uuid, int]] = []
    """Each topic with the number of its partitions."""
    results: list[PartitionResult] = []
    waits: dict[int, Subscribe] = {}
    """What a result waits for, by its index."""
    rejection: tuple[tuple[str, int], Fault] | None = None
    """The first batch that was rejected for what it contains, and why."""
    rejections: int = 0

    def reject(self, name: str, index: int, fault: Fault) -> None:
        """Count a rejected batch, unless it is only in the wrong place."""
        if not isinstance(fault, NotLeader | UnknownTopicOrPartition | UnknownTopicId):
            self.rejections += 1
            self.rejection = self.rejection or ((name, index), fault)

    def add_topic(self, topic: str | Uuid, count: int) -> None:
        """Announce ``count`` results of a topic; a piece may continue the topic of the last one."""
        if self.topics and self.topics[-1][0] == topic:
            count += self.topics.pop()[1]
        self.topics.append((topic, count))

    def ended(self, slot: int, code: ErrorCode) -> None:
        """Store the outcome of waiting for replication; a failed result keeps its offsets."""
        if code is not ErrorCode.NONE:
            self.results[slot] = self.results[slot]._replace(error_code=code)

    def nothing(self) -> Result:
        """Return the reply to acks=0: none, or a closed connection after an error."""
        failed = any(each.error_code for each in self.results)
        return Answer(NO_REPLY, close=True) if failed else NO_REPLY

    def log_rejected(self) -> None:
        """Log once per request why batches were not appended."""
        if self.rejection is not None:
            (name, index), fault = self.rejection
            log.info(
                "append rejected partition=%r-%d peer=%s client_id=%r error=%s reason=%s count=%d",
                *(name, index, self.caller.peer, self.caller.client_id, fault.code.name, fault),
                self.rejections,
            )


TOPICS_PER_STEP: Final = 200
"""Topics that are encoded between two yields."""

TopicResult = tuple[str | Uuid, Sequence[PartitionResult]]


def pack_produce(
    version: int,
    topics: Sequence[TopicResult],
    throttle_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Encode the body of a response."""
    if version < FLEXIBLE_VERSION_FIRST:
        parts = [_INT32.pack(len(topics))]
        for name, partitions in topics:
            assert isinstance(name, str)
            parts += (_string(name), _INT32.pack(len(partitions)))
            parts += [_classic(each, version) for each in partitions]
        parts.append(_INT32.pack(throttle_ms))
        return b"".join(parts)
    if len(topics) == 1 and not endpoints:
        name, partitions = topics[0]
        if len(partitions) == 1:
            return _single(name, _flexible(partitions[0], version), throttle_ms)
    return finish(_pack_flexible(version, topics, throttle_ms, endpoints))


def pack_produce_steps(
    version: int,
    topics: Sequence[TopicResult],
    throttle_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> Steps[bytes]:
    """Encode the body of a response with many topics, and yield often."""
    if version >= FLEXIBLE_VERSION_FIRST:
        return (yield from _pack_flexible(version, topics, throttle_ms, endpoints))
    parts = []
    for start in range(0, len(topics), TOPICS_PER_STEP):
        packed = pack_produce(version, topics[start : start + TOPICS_PER_STEP])
        parts.append(packed[_INT32.size : -_INT32.size])
        yield
    return b"".join((_INT32.pack(len(topics)), *parts, _INT32.pack(throttle_ms)))


def _pack_flexible(
    version: int,
    topics: Sequence[TopicResult],
    throttle_ms: int,
    endpoints: Sequence[NodeEndpoint],
) -> Steps[bytes]:
    groups: list[bytes] = []
    parts = [uvarint(len(topics) + 1)]
    for count, (name, partitions) in enumerate(topics, 1):
        if not count % TOPICS_PER_STEP:
            groups.append(b"".join(parts))
            parts.clear()
            yield
        parts.append(_compact_string(name) if isinstance(name, str) else name)
        parts.append(uvarint(len(partitions) + 1))
        parts += [_flexible(each, version) for each in partitions]
        parts.append(_NO_TAGS)
    return b"".join((*groups, *parts, _INT32.pack(throttle_ms), _endpoints(endpoints)))


# -- versions 3 to 8 ---------------------------------------------------------


def _classic(result: PartitionResult, version: int) -> bytes:
    if version < LOG_START_VERSION_FIRST:
        return _OLD.pack(*result[:4])
    if version < _RECORD_ERRORS_VERSION_FIRST:
        return _WITH_LOG_START.pack(*result[:5])
    if not result.record_errors and result.error_message is None:
        return _PLAIN.pack(*result[:5], 0, -1)
    parts = [_WITH_LOG_START.pack(*result[:5]), _INT32.pack(len(result.record_errors))]
    for each in result.record_errors:
        parts += (_INT32.pack(each.batch_index), _string(each.message))
    parts.append(_string(result.error_message))
    return b"".join(parts)


def _string(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    encoded = _bounded(text)
    return _INT16.pack(len(encoded)) + encoded


# -- versions 9 to 13 --------------------------------------------------------


def _flexible(result: PartitionResult, version: int) -> bytes:
    leader = result.current_leader if version >= CURRENT_LEADER_VERSION_FIRST else None
    if not result.record_errors and result.error_message is None and leader is None:
        return _COMPACT.pack(*result[:5], 1, 0, 0)
    parts = [_WITH_LOG_START.pack(*result[:5]), uvarint(len(result.record_errors) + 1)]
    for each in result.record_errors:
        parts += (_INT32.pack(each.batch_index), _compact_string(each.message), _NO_TAGS)
    parts.append(_compact_string(result.error_message))
    parts.append(_NO_TAGS if leader is None else _tagged(_LEADER.pack(*leader, 0)))
    return b"".join(parts)


def _single(name: str | Uuid, result: bytes, throttle_ms: int) -> bytes:
    """Encode the most frequent body: one topic with one partition."""
    packed = _compact_string(name) if isinstance(name, str) else name
    return b"\x02%b\x02%b\x00%b\x00" % (packed, result, _INT32.pack(throttle_ms))


def _compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    encoded = _bounded(text)
    return uvarint(len(encoded) + 1) + encoded


def _endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    if not endpoints:
        return _NO_TAGS
    parts = [uvarint(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        parts += (_INT32.pack(node_id), _compact_string(host), _INT32.pack(port))
        parts += (_compact_string(rack), _NO_TAGS)
    return _tagged(b"".join(parts))


def _tagged(value: bytes) -> bytes:
    """Return the tagged fields of a struct that has only tag 0."""
    return b"\x01\x00" + uvarint(len(value)) + value


def _bounded(text: str) -> bytes:
    encoded = text.encode()
    assert len(encoded) <= _STRING_BYTES_MAX, "names come from requests and reasons are short"
    return encoded
