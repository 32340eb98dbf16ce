"""An image as records: order, batch size, versions by level, and what a level cannot express."""

import gc

import pytest
from metadata_snapshots import snapshot_batches, snapshot_image

from ottla.metadata.image import EMPTY, Provenance
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.metadata.replay import replay_all
from ottla.metadata.snapshot_policy import (
    Reason,
    SinceSnapshot,
    SnapshotLimits,
    decide_snapshot,
)
from ottla.metadata.snapshot_records import (
    BATCH_RECORDS_MAX,
    UnwritableMetadata,
    losses,
    snapshot_values,
)
from ottla.protocol.internal.framing import encode_framed
from ottla.protocol.internal.metadata_cluster import (
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from ottla.protocol.internal.metadata_records import decode_metadata_record
from ottla.protocol.internal.metadata_security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.internal.metadata_topics import (
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.raft.core.log_view import LogPosition
from ottla.raft.snapshots import data_batch

VERSION = FeatureLevelRecord("metadata.version", 29)
ID = b"t" * 16
# In the order of a snapshot, one of each kind.
ALL: list[Message] = [
    VERSION,
    FeatureLevelRecord("group.version", 1),
    RegisterBrokerRecord(broker_id=1, log_dirs=[b"d" * 16], is_migrating_zk_broker=True),
    RegisterControllerRecord(controller_id=3),
    TopicRecord("t", ID),
    PartitionRecord(0, ID, [1], [1], leader=1, directories=[b"d" * 16], last_known_elr=[1]),
    ConfigRecord(2, "t", "k", "v"),
    ClientQuotaRecord([EntityData("user", None)], "k", 1.0),
    ProducerIdsRecord(-1, -1, 1000),
    AccessControlEntryRecord(b"a" * 16, 2, "t", 3, "User:u", "*", 3, 3),
    UserScramCredentialRecord("u", 1, b"s", b"k", b"v", 4096),
    DelegationTokenRecord("User:o", "User:o", [], 1, 9, 5, "token"),
]


def test_records_are_in_kafkas_order() -> None:
    image = replay_all(EMPTY, reversed([r for r in ALL if not isinstance(r, PartitionRecord)]))
    image = replay_all(image, ALL[5:6])
    [batch] = snapshot_batches(image)
    assert [record.message for record in batch] == ALL


def test_metadata_version_is_the_first_record() -> None:
    image = replay_all(EMPTY, [FeatureLevelRecord("a", 1), VERSION, FeatureLevelRecord("z", 1)])
    [batch] = snapshot_batches(image)
    assert [r.message.name for r in batch] == ["metadata.version", "a", "z"]  # type: ignore[attr-defined]


def test_batches_are_bounded_and_complete() -> None:
    records: list[Message] = [VERSION, TopicRecord("t", ID)]
    count = 2 * BATCH_RECORDS_MAX
    records += [PartitionRecord(n, ID, [1], [1], leader=1) for n in range(count)]
    image = replay_all(EMPTY, records)
    batches = list(snapshot_batches(image))
    assert [len(batch) for batch in batches] == [BATCH_RECORDS_MAX, BATCH_RECORDS_MAX, 2]
    numbers = [r.message.partition_id for b in batches for r in b if r.version == 2]  # type: ignore[attr-defined]
    assert numbers == list(range(count))
    values = list(snapshot_values(image))
    assert values == [[encode_framed(record) for record in batch] for batch in batches]
    messages = [[decode_metadata_record(value).message for value in batch] for batch in values]
    assert snapshot_image(messages, Provenance()) == image


def test_writing_a_snapshot_does_not_trigger_the_garbage_collector() -> None:
    records: list[Message] = [VERSION, TopicRecord("t", ID)]
    records += [PartitionRecord(n, ID, [1, 2], [1, 2], leader=1) for n in range(5000)]
    image = replay_all(EMPTY, records)
    position = LogPosition(LeaderEpoch(1), Offset(0))
    assert gc.isenabled()
    gc.collect()
    before = gc.get_stats()[0]["collections"]
    for values in snapshot_values(image):
        data_batch(position, Millis(0), values)
    # Other code may create a few objects: one collection, not one per 700 of ours.
    assert gc.get_stats()[0]["collections"] - before <= 1


@pytest.mark.parametrize(
    ("level", "broker", "partition"),
    [("IBP_3_4_IV0", 2, 0), ("IBP_3_7_IV2", 3, 1), ("IBP_4_2_IV1", 3, 2), ("IBP_4_3_IV0", 4, 2)],
)
def test_records_are_written_in_the_versions_of_the_level(
    level: str, broker: int, partition: int
) -> None:
    bare = [RegisterBrokerRecord(broker_id=1), *ALL[4:5], PartitionRecord(0, ID, [1], [1])]
    image = replay_all(EMPTY, [VERSION, *bare])
    [batch] = snapshot_batches(image, MetadataVersion[level])
    versions = {type(r.message).__name__: r.version for r in batch}
    assert versions["RegisterBrokerRecord"] == broker
    assert versions["PartitionRecord"] == partition
    assert batch[0].message == FeatureLevelRecord("metadata.version", MetadataVersion[level])


def test_metadata_that_a_level_cannot_express_is_rejected_or_reported() -> None:
    image = replay_all(EMPTY, ALL)
    assert losses(image, MetadataVersion.IBP_4_2_IV1) == []
    assert len(losses(image, MetadataVersion.IBP_3_6_IV2)) == 3
    assert losses(image, MetadataVersion.IBP_3_3_IV3) == [
        "that brokers are migrating from ZooKeeper",
        "the log directories of brokers",
        "controller registrations",
        "the directories of replicas",
        "SCRAM credentials",
        "delegation tokens",
    ]
    with pytest.raises(UnwritableMetadata, match="log directories"):
        list(snapshot_batches(image, MetadataVersion.IBP_3_6_IV2))


# -- when a snapshot is due --------------------------------------------------------------------

LIMITS = SnapshotLimits(bytes_max=100, interval_ms=1000, records_max=10)


@pytest.mark.parametrize(
    ("size", "records", "now", "reason"),
    [
        (99, 9, 1999, None),
        (100, 1, 1000, Reason.BYTES),
        (1, 10, 1000, Reason.RECORDS),
        (1, 1, 2000, Reason.TIME),
        (0, 0, 99999, None),
    ],
)
def test_snapshot_is_due_at_each_limit(
    size: int, records: int, now: int, reason: Reason | None
) -> None:
    since = SinceSnapshot(1000).with_batch(size, records)
    assert decide_snapshot(since, LIMITS, now) is reason


def test_limits_of_zero_are_disabled() -> None:
    limits = SnapshotLimits(bytes_max=100, interval_ms=0)
    assert decide_snapshot(SinceSnapshot(0).with_batch(99, 10**9), limits, 10**12) is None


def test_requested_snapshot_is_skipped_if_already_written() -> None:
    asked = SinceSnapshot(1000).with_request()
    assert decide_snapshot(asked, LIMITS, 1000) is None
    assert decide_snapshot(asked.with_batch(1, 1), LIMITS, 1000) is Reason.REQUESTED


def test_batch_sizes_accumulate() -> None:
    since = SinceSnapshot(1000).with_batch(60, 2).with_batch(40, 3)
    assert (since.bytes, since.records) == (100, 5)
    assert decide_snapshot(since, LIMITS, 1000) is Reason.BYTES
