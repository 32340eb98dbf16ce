"""The contents of the files of a log directory as rows, without checking them.

    *.log, *.checkpoint (of the metadata log)   batches, or with records every record
    *.index  *.timeindex  *.txnindex  *.snapshot
    *-checkpoint  meta.properties  partition.metadata  quorum-state

Records of internal topics are decoded; the directory's name says which topic it is.
"""

from collections.abc import Callable, Iterator
from typing import Final

from ottla.cli.commands.message_format import headers_text
from ottla.cli.terminal.rendering import Plain, Row
from ottla.operations.escaping import readable
from ottla.protocol.faults import Fault
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.internal.metadata_records import decode_metadata_record
from ottla.protocol.internal.quorum_state import from_json
from ottla.protocol.internal.transaction_records import decode_transaction_record
from ottla.protocol.records.batch import BatchHeader, is_crc_valid
from ottla.protocol.records.control import parse_control_type
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.schema import SECRET_FIELDS, Message
from ottla.protocol.types import Offset
from ottla.protocol.uuids import uuid_text
from ottla.runtime.ports import Disk, OpenMode
from ottla.storage.directory import checkpoints, meta_properties, partition_metadata
from ottla.storage.log import inventory, producer_snapshot_format
from ottla.storage.log.files import Kind, parse_name
from ottla.storage.log.offset_index import OffsetIndex
from ottla.storage.log.scan import whole_batches
from ottla.storage.log.time_index import TimeIndex
from ottla.storage.log.transaction_index import CorruptIndex, TransactionIndex

METADATA_TOPIC: Final = "__cluster_metadata"
_UNBOUNDED: Final = 2**31 - 1


class NotDumpable(ValueError):
    """The file is not one of a log directory."""


DAMAGE: Final = (
    Fault,
    ValueError,
    checkpoints.CorruptCheckpoint,
    meta_properties.MetaPropertiesRefused,
    partition_metadata.CorruptPartitionMetadata,
    producer_snapshot_format.CorruptSnapshot,
    CorruptIndex,
)
"""Errors of damaged files; each format has its own."""


def dump_file(disk: Disk, path: str, *, with_records: bool = False) -> Iterator[Row]:
    """Yield the rows of a file.

    Raises:
        NotDumpable: the type of the file is unknown. Fault, CorruptSnapshot and the like: the
            file is damaged from this row on; see ``log verify``. OSError: it cannot be read.
    """
    directory, _, name = path.rpartition("/")
    found = parse_name(name)
    if name.endswith(".checkpoint") or (found is not None and found.kind is Kind.LOG):
        topic = METADATA_TOPIC if name.endswith(".checkpoint") else directory.rpartition("/")[2]
        return dump_batches(disk, path, _value_of(topic), with_records=with_records)
    if found is not None:
        return _of_log(disk, path, found.kind, found.offset)
    if name in _TEXTS:
        return iter(_TEXTS[name](disk.read(path)))
    raise NotDumpable(f"{path}: not a file of a log directory")


# -- batches -----------------------------------------------------------------------

Decode = Callable[[Record], Plain]


def dump_batches(disk: Disk, path: str, decode: Decode, *, with_records: bool) -> Iterator[Row]:
    """Yield the batches of a segment or snapshot, or their records."""
    file = disk.open(path, OpenMode.READ)
    try:
        for position, header, buffer, start in whole_batches(file, 0, file.size()):
            if with_records:
                yield from _records(header, read_records(buffer, start), decode)
            else:
                yield _batch_row(position, header, is_crc_valid(buffer, start, header))
    finally:
        file.close()


def _batch_row(position: int, header: BatchHeader, is_valid: bool) -> Row:
    kind = [
        name
        for name, is_so in (
            ("control", header.is_control),
            ("transactional", header.is_transactional),
            ("log-append-time", header.is_log_append_time),
        )
        if is_so
    ]
    return {
        "position": position,
        "first_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.records_count,
        "bytes": header.size,
        "epoch": header.leader_epoch,
        "compression": header.compression.name.lower(),
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id if header.has_producer_id else None,
        "producer_epoch": header.producer_epoch if header.has_producer_id else None,
        "sequence": header.base_sequence if header.base_sequence >= 0 else None,
        "kind": kind,
        "crc": "ok" if is_valid else "WRONG",
    }


def _records(header: BatchHeader, records: list[Record], decode: Decode) -> Iterator[Row]:
    for record in records:
        if header.is_control:
            kind: Plain = parse_control_type(record.key).name.lower()
            yield {"offset": record.offset, "timestamp": record.timestamp, "control": kind}
            continue
        yield {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": None if record.key is None else readable(record.key),
            "headers": readable(headers_text(record.headers)) or None,
            "value": decode(record),
        }


def _value_of(directory: str) -> Decode:
    """Return the decoder of a partition's values, chosen by its directory's name."""
    topic = directory.rpartition("-")[0] or directory
    if topic == METADATA_TOPIC:
        return _metadata_value
    if topic == "__consumer_offsets":
        return lambda record: _coordinator_value(record, decode_group_record)
    if topic == "__transaction_state":
        return lambda record: _coordinator_value(record, decode_transaction_record)
    return lambda record: None if record.value is None else readable(record.value)


def _metadata_value(record: Record) -> Plain:
    if record.value is None:
        return None
    try:
        return plain(decode_metadata_record(record.value).message)
    except Fault as error:
        return f"cannot be decoded: {error}"


def _coordinator_value(
    record: Record, decode: Callable[[bytes | None, bytes | None], CoordinatorRecord]
) -> Plain:
    try:
        found = decode(record.key, record.value)
    except Fault as error:
        return f"cannot be decoded: {error}"
    value = None if found.value is None else plain(found.value.message)
    return {"key": plain(found.key), "value": value}


def plain(message: Message) -> dict[str, Plain]:
    """Return a message as names and values, its type first; secrets are not shown."""
    found: dict[str, Plain] = {"type": type(message).__name__}
    for name in message.__struct_fields__:
        found[name] = "(hidden)" if name in SECRET_FIELDS else _plain(getattr(message, name))
    return found


def _plain(value: object) -> Plain:
    if isinstance(value, Message):
        return {name: each for name, each in plain(value).items() if name != "type"}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return uuid_text(data) if len(data) == 16 else readable(data)  # type: ignore[arg-type]
    assert value is None or isinstance(value, str | int | float)
    return value


# -- everything else ---------------------------------------------------------------


def _of_log(disk: Disk, path: str, kind: Kind, base: Offset) -> Iterator[Row]:
    match kind:
        case Kind.OFFSET_INDEX:
            for relative, position in OffsetIndex(disk, path, base, _UNBOUNDED).entries():
                yield {"offset": base + relative, "position": position}
        case Kind.TIME_INDEX:
            for timestamp, relative in TimeIndex(disk, path, base, _UNBOUNDED).entries():
                yield {"timestamp": timestamp, "offset": base + relative}
        case Kind.TXN_INDEX:
            for txn in TransactionIndex(disk, path, base, exists=True).entries():
                yield dict(txn._asdict())
        case Kind.SNAPSHOT:
            for entry in producer_snapshot_format.decode(disk.read(path)):
                yield dict(entry._asdict())


def _offsets(data: bytes) -> list[Row]:
    table = checkpoints.decode_offsets(data)
    return [{"topic": tp.topic, "partition": tp.partition, "offset": table[tp]} for tp in table]


def _epochs(data: bytes) -> list[Row]:
    found = checkpoints.decode_epochs(data)
    return [{"epoch": each.epoch, "start_offset": each.start_offset} for each in found]


def _inventory(data: bytes) -> list[Row]:
    found = inventory.decode(data)
    if found is None:
        raise checkpoints.CorruptCheckpoint("the CRC does not match, or the version is unknown")
    head: Row = {"log_start": found.log_start, "known_end": found.log_end}
    return [head, *(dict(entry._asdict()) for entry in found.segments)]


def _meta(data: bytes) -> list[Row]:
    meta = meta_properties.decode(data)
    directory = None if meta.directory_id is None else uuid_text(meta.directory_id)
    return [{"node": meta.node_id, "cluster": meta.cluster_id, "directory": directory}]


def _partition(data: bytes) -> list[Row]:
    return [{"topic_id": uuid_text(partition_metadata.decode(data))}]


def _quorum(data: bytes) -> list[Row]:
    state = from_json(data.decode("utf-8", "replace"))
    return [
        {
            "leader": state.leader_id,
            "epoch": state.leader_epoch,
            "voted": state.voted_id,
            "voted_directory": uuid_text(state.voted_directory_id),
        }
    ]


_TEXTS: Final[dict[str, Callable[[bytes], list[Row]]]] = {
    checkpoints.RECOVERY_POINT: _offsets,
    checkpoints.HIGH_WATERMARK: _offsets,
    checkpoints.LOG_START: _offsets,
    checkpoints.CLEANER: _offsets,
    checkpoints.LEADER_EPOCH: _epochs,
    inventory.FILE_NAME: _inventory,
    "meta.properties": _meta,
    "partition.metadata": _partition,
    "quorum-state": _quorum,
}
TEXT_NAMES: Final = frozenset(_TEXTS)
