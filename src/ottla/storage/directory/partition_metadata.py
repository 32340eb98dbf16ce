"""``partition.metadata``: the id of the topic whose log a directory holds (KIP-516).

    version: 0
    topic_id: AAAAAAAAAAEAAAAAAAAAAg

A topic may be created again under the name of a deleted one; this file keeps the new topic from
using the log of the old one. There is no newline after the id, as Kafka writes it.
"""

from ottla.protocol.types import ZERO_UUID, Buffer, Uuid
from ottla.protocol.uuids import parse_uuid, uuid_text
from ottla.runtime.atomic_file import read_file, replace_file
from ottla.runtime.ports import Disk, OpenMode

FILE_NAME = "partition.metadata"
VERSION = 0


class CorruptPartitionMetadata(Exception):
    """The file is malformed, so the topic of the log is unknown."""


def read_topic_id(disk: Disk, log_directory: str) -> Uuid | None:
    """Return the id of the topic a log belongs to; None when there is no file.

    A file without contents is that of a log whose creation was not durable yet, so without records.

    Raises:
        CorruptPartitionMetadata: the file is malformed. OSError: it cannot be read.
    """
    path = f"{log_directory}/{FILE_NAME}"
    data = read_file(disk, path)
    if data is None or not data.strip(b"\0"):
        return None
    try:
        return decode(data)
    except ValueError as error:
        raise CorruptPartitionMetadata(f"{path}: {error}") from error


def write_topic_id(disk: Disk, log_directory: str, topic_id: Uuid) -> None:
    """Record a log's topic id, durably.

    Raises:
        OSError: the old file or the new one is there.
    """
    replace_file(disk, f"{log_directory}/{FILE_NAME}", encode(topic_id))


def write_new_topic_id(disk: Disk, log_directory: str, topic_id: Uuid) -> None:
    """Record the topic id of a new log. It is not durable: the log syncs it before a batch.

    Raises:
        OSError: nothing is there, or a part of it.
    """
    file = disk.open(f"{log_directory}/{FILE_NAME}", OpenMode.CREATE)
    try:
        file.pwrite(encode(topic_id), 0)
    finally:
        file.close()


def encode(topic_id: Uuid) -> bytes:
    """Return the file's text."""
    return f"version: {VERSION}\ntopic_id: {uuid_text(topic_id)}".encode()


def decode(data: Buffer) -> Uuid:
    """Parse the file's text. Later versions are accepted too: they only add lines.

    Raises:
        ValueError: not two lines of name and value, or not a valid id.
    """
    rows = [line.split() for line in bytes(data).decode("utf-8").splitlines()[:2]]
    if [len(row) for row in rows] != [2, 2] or (rows[0][0], rows[1][0]) != (
        "version:",
        "topic_id:",
    ):
        raise ValueError("expected the lines 'version: 0' and 'topic_id: ...'")
    if not rows[0][1].isascii() or not rows[0][1].isdigit():
        raise ValueError(f"unknown version {rows[0][1]!r}")
    topic_id = parse_uuid(rows[1][1])
    if topic_id == ZERO_UUID:
        raise ValueError("topic_id is zero")
    return topic_id
