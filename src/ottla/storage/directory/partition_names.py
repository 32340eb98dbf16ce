"""Names of partition directories, as in Kafka.

    <topic>-<partition>                      a log
    <topic>-<partition>.<32 hex>-future      a copy being moved here from another directory
    <topic>-<partition>.<32 hex>-delete      deleted, removed after a delay
    <topic>-<partition>.<32 hex>-stray       unknown to the metadata; kept for the operator

Topic names may contain dashes and dots, so a name is parsed from its end. A topic is truncated
where a deleted or stray name would exceed 255 bytes; those names are never parsed for the topic.
"""

import enum
import re
from typing import NamedTuple

from ottla.protocol.types import ZERO_UUID, TopicPartition, Uuid

NAME_BYTES_MAX = 255
PARTITION_MAX = 2**31 - 1

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


class DirectoryKind(enum.Enum):
    """What a partition directory is for; the value is the suffix of its name."""

    CURRENT = ""
    FUTURE = "-future"
    DELETE = "-delete"
    STRAY = "-stray"


class PartitionDirectory(NamedTuple):
    """A parsed directory name."""

    partition: TopicPartition
    kind: DirectoryKind


def is_topic_name(topic: str) -> bool:
    """Whether Kafka allows the topic name, and so whether it may be part of a path."""
    return _TOPIC.fullmatch(topic) is not None and topic not in {".", ".."}


def format_name(
    partition: TopicPartition,
    kind: DirectoryKind = DirectoryKind.CURRENT,
    unique: Uuid | None = None,
) -> str:
    """Return a directory's name; every kind but the current one carries a ``unique`` id.

    Raises:
        ValueError: an invalid topic name or partition number.
    """
    if not is_topic_name(partition.topic) or not 0 <= partition.partition <= PARTITION_MAX:
        raise ValueError(f"invalid partition: {partition.topic!r} {partition.partition}")
    if kind is DirectoryKind.CURRENT:
        return str(partition)
    assert unique is not None, "only the current directory has no unique id"
    rest = f"-{partition.partition}.{unique.hex()}{kind.value}"
    return partition.topic[: NAME_BYTES_MAX - len(rest)] + rest


def has_room_for_future(partition: TopicPartition) -> bool:
    """Whether the directory name of a future log can hold the whole topic name."""
    rest = f"-{partition.partition}.{ZERO_UUID.hex()}{DirectoryKind.FUTURE.value}"
    return len(partition.topic) + len(rest) <= NAME_BYTES_MAX


def parse_name(name: str) -> PartitionDirectory | None:
    """Parse a name; None when it is not a partition directory's.

    A future log is also accepted without its unique id.
    """
    kind = DirectoryKind.CURRENT
    for candidate in (DirectoryKind.FUTURE, DirectoryKind.DELETE, DirectoryKind.STRAY):
        if name.endswith(candidate.value):
            kind = candidate
            name = name.removesuffix(candidate.value)
            partition, dot, unique = name.rpartition(".")
            if dot and "-" not in unique:
                name = partition
            elif candidate is not DirectoryKind.FUTURE:
                return None
    topic, dash, number = name.rpartition("-")
    if not dash or not is_topic_name(topic) or _NUMBER.fullmatch(number) is None:
        return None
    if int(number) > PARTITION_MAX:
        return None
    return PartitionDirectory(TopicPartition(topic, int(number)), kind)
