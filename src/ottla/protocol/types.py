"""The words everybody uses: ids, offsets and times as distinct types.

They cost nothing at run time; they keep an offset from being taken for an epoch.
"""

from typing import NamedTuple, NewType, TypeAlias

# What may be read as bytes without copying. ``memoryview`` is what frames are sliced into.
Buffer: TypeAlias = bytes | bytearray | memoryview

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
NodeId = NewType("NodeId", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Sequence = NewType("Sequence", int)

# Milliseconds; since 1970 for a wall clock, since some fixed start for a monotonic one.
Millis = NewType("Millis", int)

# Sixteen bytes. Kafka prints them as unpadded URL-safe base64; see `uuids.py`.
Uuid = NewType("Uuid", bytes)

ZERO_UUID = Uuid(bytes(16))

NO_LEADER = NodeId(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_SEQUENCE = Sequence(-1)
NO_TIMESTAMP = Millis(-1)


class TopicPartition(NamedTuple):
    """A partition by the name of its topic. Sorts by name, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition by the id of its topic: a topic created later under the same name differs."""

    topic_id: Uuid
    partition: int
