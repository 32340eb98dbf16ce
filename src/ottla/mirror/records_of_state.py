"""The records of a mirror's state topic: JSON, one key per subject, compacted. Pure.

mirror                who copies, and with which producer id
partition/{topic}/{n} the offset map of a partition
acls                  the ACLs that were copied, so that they can be withdrawn
"""

from typing import Final, TypeVar

import msgspec

from ottla.mirror.offset_map import OffsetMap
from ottla.protocol.own_topics import MIRROR_PREFIX
from ottla.protocol.types import TopicPartition
from ottla.security.acl import Acl

OWNER_KEY: Final = b"mirror"
ACLS_KEY: Final = b"acls"
_PARTITION: Final = "partition/"
T = TypeVar("T")


class BadState(Exception):
    """A record of the state topic that this version cannot read."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Who copies. A new process writes a new ``instance``, which stops an older one."""

    producer_id: int
    producer_epoch: int
    source_cluster: str
    instance: str
    is_closed: bool = False


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that is copied.

    ``fill_to`` is the first offset of the source if the target was filled up to it. ``position`` is
    how far the source was read when the target ended at ``position_end``: markers at the end of the
    source are not in the map.
    """

    topic_id: str
    runs: OffsetMap
    fill_to: int = 0
    position: int = -1
    position_end: int = -1


class CopiedAcls(msgspec.Struct, frozen=True):
    """The ACLs that the mirror created in the target."""

    acls: tuple[Acl, ...] = ()


def state_topic(name: str) -> str:
    """Return the name of a mirror's state topic."""
    return f"{MIRROR_PREFIX}{name}"


def partition_key(partition: TopicPartition) -> bytes:
    """Return the key of a partition's record."""
    return f"{_PARTITION}{partition.topic}/{partition.partition}".encode()


def partition_of(key: bytes) -> TopicPartition | None:
    """Return the partition of a key; None if it is another kind of key."""
    text = key.decode()
    if not text.startswith(_PARTITION):
        return None
    topic, _, number = text.removeprefix(_PARTITION).rpartition("/")
    return TopicPartition(topic, int(number))


def encode(value: Owner | Link | CopiedAcls) -> bytes:
    """Return the value of a record."""
    return msgspec.json.encode(value)


def decode(data: bytes, kind: type[T]) -> T:
    """Return the value of a record. Raises `BadState`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadState(f"state of the mirror cannot be read: {error}") from error
