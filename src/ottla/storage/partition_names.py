"""Names of partition directories, as Kafka writes them.

    <topic>-<partition>                      a log
    <topic>-<partition>.<32 hex>-future      a copy being moved here from another directory
    <topic>-<partition>.<32 hex>-delete      given up, removed a little later
    <topic>-<partition>.<32 hex>-stray       not ours by the metadata; kept for the operator

Topic names hold dashes and dots themselves, so a name is read from its end. A topic is cut
where a deleted or stray name would pass 255 bytes; nothing reads those back as a topic.
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
    """What a partition directory is for; the value is the end of its name."""

    CURRENT = ""
    FUTURE = "-future"
    DELETE = "-delete"
    STRAY = "-stray"


class PartitionDirectory(NamedTuple):
    """A directory's name, taken apart."""

    partition: TopicPartition
    kind: DirectoryKind


def is_topic_name(topic: str) -> bool:
    """Say whether Kafka allows the name, and so whether a path may be built from it."""
    return _TOPIC.fullmatch(topic) is not None and topic not in {".", ".."}


def format_name(
    partition: TopicPartition,
    kind: DirectoryKind = DirectoryKind.CURRENT,
    unique: Uuid | None = None,
) -> str:
    """Return a directory's name; every kind but the current one carries a ``unique`` id.

    Raises:
        ValueError: no topic name, or no partition number.
    """
    if not is_topic_name(partition.topic) or not 0 <= partition.partition <= PARTITION_MAX:
        raise ValueError(f"no partition: {partition.topic!r} {partition.partition}")
    if kind is DirectoryKind.CURRENT:
        return str(partition)
    assert unique is not None, "only the current directory goes without a unique id"
    rest = f"-{partition.partition}.{unique.hex()}{kind.value}"
    return partition.topic[: NAME_BYTES_MAX - len(rest)] + rest


def has_room_for_future(partition: TopicPartition) -> bool:
    """Say whether the directory of a future log can be named after the whole topic."""
    rest = f"-{partition.partition}.{ZERO_UUID.hex()}{DirectoryKind.FUTURE.value}"
    return len(partition.topic) + len(rest) <= NAME_BYTES_MAX


def parse_name(name: str) -> PartitionDirectory | None:
    """Take a name apart; None when it is not a partition directory's.

    A future copy is also taken without its unique id.
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
