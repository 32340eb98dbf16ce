"""Records of ``__remote_log_metadata``: Apache Kafka reads ours, and writes the same bytes."""

from pathlib import Path
from random import Random

import pytest

from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset, TopicIdPartition, Uuid
from ottla.storage.log.leader_epochs import EpochEntry
from ottla.tiering.metadata_records import RemoteLogEvent, encode_event, metadata_partition
from ottla.tiering.segment_metadata import (
    PartitionDeleteState,
    PartitionDeletion,
    SegmentId,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)

pytestmark = pytest.mark.jvm

ASK = Path(__file__).parent / "RemoteLogRecords.java"
CASES = 500


def draw(random: Random) -> tuple[TopicIdPartition, RemoteLogEvent]:
    at = TopicIdPartition(Uuid(random.randbytes(16)), random.randrange(1000))
    segment = SegmentId(at, Uuid(random.randbytes(16)))
    time, broker = Millis(random.randrange(2**41)), NodeId(random.randrange(9))
    custom = random.choice([None, random.randbytes(random.randrange(1, 128))])
    match random.randrange(3):
        case 0:
            start = random.randrange(2**40)
            entries = (EpochEntry(LeaderEpoch(random.randrange(9)), Offset(start)),)
            end, size = Offset(start + random.randrange(99)), random.randrange(2**31)
            return at, SegmentMetadata(
                segment, "orders", Offset(start), end, time, broker, time, size, entries,
                is_txn_index_empty=random.random() < 0.5,
            )  # fmt: skip
        case 1:
            state = random.choice(list(SegmentState)[1:])
            return at, SegmentUpdate(segment, "orders", time, state, broker, custom)
        case _:
            deletion = random.choice(list(PartitionDeleteState))
            return at, PartitionDeletion(at, "orders", deletion, time, broker)


def test_remote_log_records_and_their_partitions_are_kafkas(kafka) -> None:
    random = Random(17)
    cases = [draw(random) for _ in range(CASES)]
    ours = [f"{encode_event(event).hex()} {metadata_partition(at, 50)}" for at, event in cases]
    asked = "".join(f"{line.split()[0]}\n" for line in ours)
    assert kafka.run(str(ASK), stdin=asked).splitlines() == ours
