"""The body of a Fetch response, encoded by hand; records are sent from the page cache.

    throttle_time_ms int32
    error_code int16, session_id int32                                        v7+
    responses        name, or id from v13 on, and partitions:
        partition_index int32, error_code int16
        high_watermark, last_stable_offset int64
        log_start_offset int64                                                v5+
        aborted_transactions  null unless read_committed; empty if the log was not read:
                              producer_id, first_offset int64
        preferred_read_replica int32                                          v11+
        records          length, then whole batches, the last possibly cut off
        tagged: diverging_epoch (0: epoch int32, end_offset int64),
                current_leader (1: leader_id, leader_epoch int32)             v12+
    tagged: node_endpoints (0: node_id int32, host, port int32, rack)         v16+

From version 12 on lengths are varints of length + 1 and every struct ends with its tags.
A reply is a list of chunks; runs of bytes alternate with file slices.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

import msgspec

from ottla.api.fetch.request import FLEXIBLE_SINCE, SESSIONS_SINCE, Topic
from ottla.api.partitions.current_leaders import CurrentLeader, NodeEndpoint
from ottla.api.surface.replies import Chunk, FileSlice, Steps, finish
from ottla.protocol.codec.primitives import uvarint
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Buffer, LeaderEpoch, Offset
from ottla.storage.log.transaction_index import AbortedTxn

UNKNOWN: Final = Offset(-1)
NO_REPLICA: Final = -1
NO_SESSION: Final = 0
ENDPOINTS_SINCE: Final = 16
INLINE_BYTES_MAX: Final = 16 * 1024
"""Records up to this size are copied between the fields: one buffer is cheaper to send."""

ROWS_PER_STEP: Final = 500
"""Rows that are packed between two yields."""

TEMPLATES_MAX: Final = 1000
"""Templates of replies that are kept, the least recently used one goes first."""

_THROTTLE: Final = Struct(">i")
_HEAD: Final = Struct(">ihi")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_PARTITION_V4: Final = Struct(">ihqq")
_PARTITION: Final = Struct(">ihqqq")
_OFFSETS: Final = Struct(">qqq")
_OFFSETS_V4: Final = Struct(">qq")
_ABORTED: Final = Struct(">qq")
_ABORTED_FLEXIBLE: Final = Struct(">qqB")
_DIVERGING: Final = Struct(">iqB")
_LEADER: Final = Struct(">iiB")
_NULL_ARRAY: Final = _INT32.pack(-1)


class Row(msgspec.Struct):
    """The result of one partition. ``records`` is None or empty if there is nothing to read.

    ``data`` are records in memory, instead of ``records``: from remote storage, or loaded.
    """

    index: int
    error: int = 0
    high_watermark: Offset = UNKNOWN
    last_stable_offset: Offset = UNKNOWN
    log_start_offset: Offset = UNKNOWN
    records: FileSlice | None = None
    aborted: Sequence[AbortedTxn] | None = None
    preferred_replica: int = NO_REPLICA
    diverging: tuple[LeaderEpoch, Offset] | None = None
    leader: CurrentLeader | None = None
    data: Buffer = b""

    @property
    def size(self) -> int:
        """Size of the records in bytes."""
        return len(self.data) if self.records is None else self.records.length

    @property
    def is_plain(self) -> bool:
        """Whether the row has records in memory and offsets, and nothing else."""
        return (
            bool(self.data)
            and self.records is None
            and not self.aborted
            and not self.error
            and self.diverging is None
            and len(self.data) <= INLINE_BYTES_MAX
        )

    def load_records(self) -> None:
        """Read the records if they are few; a slice that cannot be read whole is left as it is.

        What is wrong with its file is found by sending it in the usual way.
        """
        records = self.records
        if records is None or not 0 < records.length <= INLINE_BYTES_MAX:
            return
        try:
            data = records.file.pread(records.length, records.position)
        except OSError:
            return
        if len(data) == records.length:
            self.records, self.data = None, data


class ReplyTemplate:
    """A packed reply with one partition, complete but for its offsets and records."""

    __slots__ = ("_flexible", "_head", "_offsets", "_offsets_at", "_tail")

    def __init__(
        self, topic: Topic, index: int, session_id: int, version: int, is_read_committed: bool
    ) -> None:
        row = Row(index, aborted=() if is_read_committed else None)
        reply = FetchReply(session_id=session_id, topics=[(topic, [row])])
        (packed,) = pack_fetch(reply, version)
        assert isinstance(packed, bytearray)
        # From the end: tags, the length of no records, the preferred replica, aborted transactions.
        self._flexible = version >= FLEXIBLE_SINCE
        self._offsets = _OFFSETS if version >= 5 else _OFFSETS_V4
        tags, length, between = 0, _INT32.size, _INT32.size * (1 + (version >= 11))
        if self._flexible:
            tags, length, between = 3, 1, 1 + _INT32.size
        end = len(packed) - tags
        self._tail = bytes(packed[end:])
        self._head = bytes(packed[: end - length])
        self._offsets_at = len(self._head) - between - self._offsets.size

    def fill(self, row: Row) -> bytearray:
        """Return the body of the reply with the offsets and records of a plain row."""
        out, data = bytearray(self._head), row.data
        numbers = (row.high_watermark, row.last_stable_offset, row.log_start_offset)
        self._offsets.pack_into(out, self._offsets_at, *numbers[: self._offsets.size // 8])
        out += uvarint(len(data) + 1) if self._flexible else _INT32.pack(len(data))
        out += data
        out += self._tail
        return out


class FetchReply(msgspec.Struct):
    """A reply. ``topics`` are in the order of reading; a topic may occur more than once."""

    error: ErrorCode = ErrorCode.NONE
    session_id: int = NO_SESSION
    topics: Sequence[tuple[Topic, Sequence[Row]]] = ()
    nodes: Sequence[NodeEndpoint] = ()
    throttle_ms: int = 0


template_of = lru_cache(maxsize=TEMPLATES_MAX)(ReplyTemplate)
"""Return the template for these arguments; consumers of a partition mostly share it."""


def pack_fetch(reply: FetchReply, version: int) -> list[Chunk]:
    """Return the body of a reply as chunks."""
    return finish(pack_fetch_steps(reply, version))


def pack_fetch_steps(reply: FetchReply, version: int) -> Steps[list[Chunk]]:
    """Return what `pack_fetch` does, and yield often."""
    chunks: list[Chunk] = []
    out = bytearray()
    if version >= SESSIONS_SINCE:
        out += _HEAD.pack(reply.throttle_ms, reply.error, reply.session_id)
    else:
        out += _THROTTLE.pack(reply.throttle_ms)
    flexible = version >= FLEXIBLE_SINCE
    pack = _pack_flexible if flexible else _pack_fixed
    out += _count(len(reply.topics), flexible)
    packed = 0
    for topic, rows in reply.topics:
        _pack_topic(out, topic, flexible)
        out += _count(len(rows), flexible)
        for row in rows:
            packed += 1
            if not packed % ROWS_PER_STEP:
                yield
            pack(out, row, version)
            if row.records is None and len(row.data) <= INLINE_BYTES_MAX:
                out += row.data
            elif row.size:
                chunks += (out, row.data if row.records is None else row.records)
                out = bytearray()
            if flexible:
                _pack_row_tags(out, row)
        if flexible:
            out.append(0)
    if flexible:
        _pack_nodes(out, reply.nodes if version >= ENDPOINTS_SINCE else ())
    if out:
        chunks.append(out)
    return chunks


def _pack_topic(out: bytearray, topic: Topic, flexible: bool) -> None:
    if isinstance(topic, str):
        name = topic.encode()
        out += uvarint(len(name) + 1) if flexible else _INT16.pack(len(name))
        out += name
    else:
        assert len(topic) == 16
        out += topic


def _pack_fixed(out: bytearray, row: Row, version: int) -> None:
    """Encode a partition up to its records, versions 4 to 11."""
    numbers = (row.index, row.error, row.high_watermark, row.last_stable_offset)
    if version < 5:
        out += _PARTITION_V4.pack(*numbers)
    else:
        out += _PARTITION.pack(*numbers, row.log_start_offset)
    if row.aborted is None:
        out += _NULL_ARRAY
    else:
        out += _INT32.pack(len(row.aborted))
        for txn in row.aborted:
            out += _ABORTED.pack(txn.producer_id, txn.first_offset)
    if version >= 11:
        out += _INT32.pack(row.preferred_replica)
    out += _INT32.pack(row.size)


def _pack_flexible(out: bytearray, row: Row, version: int) -> None:
    """Encode a partition up to its records, from version 12 on."""
    out += _PARTITION.pack(
        row.index, row.error, row.high_watermark, row.last_stable_offset, row.log_start_offset
    )
    if row.aborted is None:
        out.append(0)
    else:
        out += uvarint(len(row.aborted) + 1)
        for txn in row.aborted:
            out += _ABORTED_FLEXIBLE.pack(txn.producer_id, txn.first_offset, 0)
    out += _INT32.pack(row.preferred_replica)
    out += uvarint(row.size + 1)


def _pack_row_tags(out: bytearray, row: Row) -> None:
    if row.diverging is None and row.leader is None:
        out.append(0)
        return
    out.append((row.diverging is not None) + (row.leader is not None))
    if row.diverging is not None:
        out += bytes((0, _DIVERGING.size)) + _DIVERGING.pack(*row.diverging, 0)
    if row.leader is not None:
        out += bytes((1, _LEADER.size)) + _LEADER.pack(*row.leader, 0)


def _pack_nodes(out: bytearray, nodes: Sequence[NodeEndpoint]) -> None:
    if not nodes:
        out.append(0)
        return
    value = bytearray(uvarint(len(nodes) + 1))
    for node in nodes:
        value += _INT32.pack(node.node_id)
        value += _compact(node.host)
        value += _INT32.pack(node.port)
        value += b"\0" if node.rack is None else _compact(node.rack)
        value.append(0)
    out += b"\1\0" + uvarint(len(value)) + value


def _compact(text: str) -> bytes:
    data = text.encode()
    return uvarint(len(data) + 1) + data


def _count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT32.pack(count)
