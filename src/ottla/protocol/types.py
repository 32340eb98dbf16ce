"""The words everybody uses: ids, offsets and times as distinct types.

They cost nothing at run time; they keep an offset from being taken for an epoch.
"""

from typing import NewType, TypeAlias

# What may be read as bytes without copying. ``memoryview`` is what frames are sliced into.
Buffer: TypeAlias = bytes | bytearray | memoryview

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
PartitionId = NewType("PartitionId", int)
NodeId = NewType("NodeId", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Sequence = NewType("Sequence", int)
MemberId = NewType("MemberId", str)

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
