"""Checkpoint files: small text tables, replaced as a whole, in exactly Kafka's format.

    0                  version
    2                  number of lines that follow
    orders 0 1500      topic, partition, offset     (offset checkpoints of a log directory)
    orders 1 20

A log's ``leader-epoch-checkpoint`` has lines of ``epoch start_offset``. Every line ends with
``\\n``, including the last. An empty file is an empty table: Kafka creates one before it writes.
"""

import re
from collections.abc import Iterable, Mapping

from ottla.protocol.types import Buffer, LeaderEpoch, Offset, TopicPartition
from ottla.runtime.atomic_file import read_file, replace_file, replace_unsynced
from ottla.runtime.ports import Disk
from ottla.storage.directory.partition_names import PARTITION_MAX, is_topic_name
from ottla.storage.log.leader_epochs import EpochEntry

RECOVERY_POINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
LEADER_EPOCH = "leader-epoch-checkpoint"

VERSION = "0"
EPOCH_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1

_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)


class CorruptCheckpoint(Exception):
    """A checkpoint file that cannot be parsed. Its content is recovered from the logs."""


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    """Return the table of an offset checkpoint; empty when there is no file.

    Raises:
        CorruptCheckpoint: the file is malformed. OSError: it cannot be read.
    """
    data = read_file(disk, path)
    return {} if data is None else decode_offsets(data)


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Replace an offset checkpoint, durably and as a whole.

    Raises:
        OSError: the file holds the old table or the new one.
    """
    replace_file(disk, path, encode_offsets(offsets))


def read_epochs(disk: Disk, log_directory: str) -> list[EpochEntry]:
    """Return the leader epochs of a log; empty when there is no file.

    Raises:
        CorruptCheckpoint: the file is malformed. OSError: it cannot be read.
    """
    data = read_file(disk, f"{log_directory}/{LEADER_EPOCH}")
    return [] if data is None else decode_epochs(data)


def write_epochs(disk: Disk, log_directory: str, entries: Iterable[EpochEntry]) -> None:
    """Replace a log's leader epochs, durably and as a whole.

    Raises:
        OSError: the file holds the old table or the new one.
    """
    replace_file(disk, f"{log_directory}/{LEADER_EPOCH}", encode_epochs(entries))


def write_epochs_unsynced(disk: Disk, log_directory: str, entries: Iterable[EpochEntry]) -> str:
    """Replace a log's leader epochs; return the path of the file, which is not durable yet.

    Raises:
        OSError: the file holds the old table.
    """
    path = f"{log_directory}/{LEADER_EPOCH}"
    replace_unsynced(disk, path, encode_epochs(entries))
    return path


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    """Return the text of an offset checkpoint, sorted by topic and partition."""
    return _encode([f"{tp.topic} {tp.partition} {offsets[tp]}" for tp in sorted(offsets)])


def decode_offsets(data: Buffer) -> dict[TopicPartition, Offset]:
    """Parse the text of an offset checkpoint; see `read_offsets`."""
    table: dict[TopicPartition, Offset] = {}
    for topic, partition, offset in _decode(data, columns=3):
        if not is_topic_name(topic):
            raise CorruptCheckpoint(f"not a topic name: {topic!r}")
        key = TopicPartition(topic, _number(partition, PARTITION_MAX))
        table[key] = Offset(_number(offset, OFFSET_MAX))
    return table


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Return the text of a leader-epoch checkpoint."""
    return _encode([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def decode_epochs(data: Buffer) -> list[EpochEntry]:
    """Parse the text of a leader-epoch checkpoint; see `read_epochs`."""
    return [
        EpochEntry(LeaderEpoch(_number(epoch, EPOCH_MAX)), Offset(_number(start, OFFSET_MAX)))
        for epoch, start in _decode(data, columns=2)
    ]


def _encode(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (VERSION, str(len(lines)), *lines)).encode()


def _decode(data: Buffer, columns: int) -> list[list[str]]:
    """Return the lines split into columns, after checking version and count."""
    try:
        lines = bytes(data).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint("not text") from error
    if not lines:
        return []
    if not bytes(data).endswith(b"\n"):
        raise CorruptCheckpoint("the last line is not complete")
    if lines[0] != VERSION:
        raise CorruptCheckpoint(f"unknown version {lines[0]!r}")
    if len(lines) == 1:
        return []
    rows = [line.split() for line in lines[2:]]
    if _number(lines[1], PARTITION_MAX) != len(rows):
        raise CorruptCheckpoint(f"{lines[1]} lines expected, {len(rows)} found")
    for row in rows:
        if len(row) != columns:
            raise CorruptCheckpoint(f"malformed line {' '.join(row)!r}")
    return rows


def _number(text: str, limit: int) -> int:
    if _NUMBER.fullmatch(text) is None or int(text) > limit:
        raise CorruptCheckpoint(f"not a number: {text!r}")
    return int(text)
