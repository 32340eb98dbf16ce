"""Control records, which brokers write for each other and for clients.

Every key: version int16, type int16. Later versions of keys and values may only add fields at the
end, so a reader ignores bytes after those it knows. Value of a transaction marker
(types 0 and 1)::

    0  version           int16   0, or 1 with tagged fields after it
    2  coordinatorEpoch  int32

The values of other types are declared as messages; this module has only what a log needs to
process transactions.
"""

import enum
from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple, Unpack

from ottla.protocol.faults import InvalidRecord
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import BatchFields, Producer, build_batch
from ottla.protocol.types import Buffer, Millis, Offset

_KEY: Final = Struct(">hh")
_MARKER: Final = Struct(">hi")
_VERSION: Final = 0


class ControlType(enum.IntEnum):
    """The second half of a control record's key."""

    UNKNOWN = -1  # a type of a later Kafka; never written
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(NamedTuple):
    """The end (commit or abort) of a producer's transaction in this partition."""

    is_commit: bool
    coordinator_epoch: int  # leader epoch of the transaction's coordinator when it decided


def build_end_txn_marker(
    marker: EndTxnMarker,
    producer: Producer,
    timestamp: Millis | int,
    *,
    base_offset: Offset | int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Build the batch of one marker. Markers have no sequence, even if ``producer`` has one."""
    return build_control_batch(
        ControlType.COMMIT if marker.is_commit else ControlType.ABORT,
        [_MARKER.pack(_VERSION, marker.coordinator_epoch)],
        timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer=producer._replace(base_sequence=-1),
        is_transactional=True,
    )


def build_control_batch(
    kind: ControlType,
    values: Iterable[bytes],
    timestamp: Millis | int,
    **fields: Unpack[BatchFields],
) -> bytearray:
    """Build a batch of control records of one type, one per encoded value."""
    key = control_key(kind)
    base_offset = fields.get("base_offset", 0)
    records = [
        Record(Offset(base_offset + index), Millis(timestamp), key, value)
        for index, value in enumerate(values)
    ]
    fields["is_control"] = True
    return build_batch(records, **fields)


def control_key(kind: ControlType) -> bytes:
    """The key of a control record."""
    assert kind is not ControlType.UNKNOWN
    return _KEY.pack(_VERSION, kind)


def parse_control_type(key: bytes | None) -> ControlType:
    """Return the type in the key of a control record; ``UNKNOWN`` for a type of a later Kafka.

    Raises:
        InvalidRecord: the key is null, short, or of a version below 0.
    """
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord("a control record without a key of 4 bytes")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"a control record's key of version {version}")
    if kind < 0 or kind > ControlType.KRAFT_VOTERS:
        return ControlType.UNKNOWN
    return ControlType(kind)


def parse_end_txn_marker(record: Record) -> EndTxnMarker:
    """Parse a transaction marker.

    Raises:
        InvalidRecord: it is not a transaction marker, too short, or of a version below 0.
    """
    kind = parse_control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise InvalidRecord(f"control record {kind.name} is no transaction marker")
    if record.value is None or len(record.value) < _MARKER.size:
        raise InvalidRecord("a transaction marker without a value of 6 bytes")
    version, coordinator_epoch = _MARKER.unpack_from(record.value)
    if version < 0:
        raise InvalidRecord(f"a transaction marker of version {version}")
    return EndTxnMarker(kind is ControlType.COMMIT, coordinator_epoch)


def read_control_type(buffer: Buffer, position: int = 0) -> ControlType:
    """Return the type of the first record of the control batch at ``position``.

    Raises:
        InvalidRecord: not a control batch, no record, or an invalid key.
        CorruptBatch, UnsupportedMagic: as `read_records`.
    """
    return parse_control_type(_first_control_record(buffer, position).key)


def read_end_txn_marker(buffer: Buffer, position: int = 0) -> EndTxnMarker:
    """Return the transaction marker in the control batch at ``position``.

    Raises:
        InvalidRecord: it is another kind of batch, or malformed.
        CorruptBatch, UnsupportedMagic: as `read_records`.
    """
    return parse_end_txn_marker(_first_control_record(buffer, position))


def _first_control_record(buffer: Buffer, position: int) -> Record:
    if not read_header(buffer, position).is_control:
        raise InvalidRecord(f"the batch at {position} is no control batch")
    records = read_records(buffer, position)
    if not records:
        raise InvalidRecord(f"the control batch at {position} is empty")
    return records[0]
