"""ListOffsets and OffsetForLeaderEpoch on a broker's own partitions."""

from typing import Any

import pytest
from fetch_harness import CALLER, Broker
from msgspec.structs import replace
from partition_fixtures import batch_of, registration

from ottla.api.partitions.list_offsets import ListOffsetsHandlers
from ottla.api.partitions.offset_for_leader_epoch import EpochHandlers
from ottla.api.surface.replies import finish
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import StorageFailed
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.records.batch import Compression
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import Millis, Offset
from ottla.replication.partition import Partition

LATEST, EARLIEST, MAX, LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6
THREE = (0, 1, 2)


def append_at(partition: Partition, *timestamps: int) -> None:
    """Append a batch with a record for each timestamp."""
    records = [
        Record(Offset(at), Millis(timestamp), b"k", b"v") for at, timestamp in enumerate(timestamps)
    ]
    partition.append(build_batch(records), now=1)


def listed(
    broker: Broker,
    timestamp: int,
    *,
    version: int = 11,
    replica: int = -1,
    isolation: int = 0,
    epoch: int = -1,
    topic: str = "orders",
    **more: Any,
) -> ListOffsetsPartitionResponse:
    request = ListOffsetsRequest(
        replica, isolation, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, epoch, timestamp)])]
    )
    handlers = ListOffsetsHandlers(broker.partitions, **more)
    response = finish(handlers.list_offsets_steps(CALLER, request, version))
    (row,) = response.topics[0].partitions
    return row


def found(row: ListOffsetsPartitionResponse) -> tuple[int, int, int]:
    assert row.error_code == 0
    return row.timestamp, row.offset, row.leader_epoch


def filled(epoch: int = 3, **how: Any) -> tuple[Broker, Partition]:
    broker = Broker()
    partition = broker.host(epoch=epoch, **how)
    append_at(partition, 100, 105)
    append_at(partition, 300, 200, 300)
    append_at(partition, 150)
    return broker, partition


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [
        (LATEST, (-1, 6, 3)),
        (EARLIEST, (-1, 0, 3)),
        (MAX, (300, 2, 3)),
        (LOCAL, (-1, 0, 3)),
        (TIERED, (-1, -1, -1)),
        (PENDING, (-1, -1, -1)),
        (0, (100, 0, 3)),
        (101, (105, 1, 3)),
        (105, (105, 1, 3)),
        (106, (300, 2, 3)),
        (300, (300, 2, 3)),
        (301, (-1, -1, -1)),
        (2**63 - 1, (-1, -1, -1)),
    ],
)
def test_what_a_timestamp_stands_for(timestamp: int, offset: tuple[int, int, int]) -> None:
    broker, _ = filled()
    assert found(listed(broker, timestamp)) == offset


@pytest.mark.parametrize("timestamp", [200, MAX])
def test_lookup_that_reaches_an_oversized_record_is_an_invalid_record(timestamp: int) -> None:
    """Kafka 4.4 decodes no record above max.decompressed.message.bytes, and reads no further."""
    broker = Broker()
    partition = broker.host(epoch=3)
    records = [
        Record(Offset(0), Millis(100), b"k", b"v"),
        Record(Offset(1), Millis(150), b"k", bytes(500)),
        Record(Offset(2), Millis(200), b"k", b"v"),
    ]
    partition.append(build_batch(records, compression=Compression.ZSTD), now=1)
    assert found(listed(broker, timestamp)) == (200, 2, 3)
    partition.log.configure(replace(partition.log.config, max_decompressed_message_bytes=100))
    assert listed(broker, timestamp).error_code == ErrorCode.INVALID_RECORD
    assert found(listed(broker, 100)) == (100, 0, 3), "the record is not reached"


@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, LOCAL])
def test_an_empty_log_begins_where_it_ends(timestamp: int) -> None:
    broker = Broker()
    broker.host()
    assert found(listed(broker, timestamp))[:2] == (-1, 0)
    assert found(listed(broker, MAX))[:2] == (-1, -1)


@pytest.mark.parametrize(
    ("timestamp", "since"),
    [(LATEST, 1), (EARLIEST, 1), (MAX, 7), (LOCAL, 8), (TIERED, 9), (-6, 11)],
)
def test_a_version_knows_the_special_ones_of_its_time(timestamp: int, since: int) -> None:
    broker, _ = filled()
    assert listed(broker, timestamp, version=since).error_code == 0
    if since > 1:
        before = listed(broker, timestamp, version=since - 1)
        assert before.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (before.offset, before.timestamp) == (-1, -1)


@pytest.mark.parametrize("timestamp", [-7, -(2**63)])
def test_what_stands_for_nothing_is_refused(timestamp: int) -> None:
    broker, _ = filled()
    assert listed(broker, timestamp).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_records_that_were_deleted_are_not_found() -> None:
    broker, partition = filled()
    partition.delete_records(Offset(1))
    assert found(listed(broker, EARLIEST))[1] == 1
    assert found(listed(broker, 0)) == (105, 1, 3)


def test_the_latest_offset_is_as_far_as_the_asker_may_read() -> None:
    broker = Broker()
    partition = broker.host(replicas=THREE)
    batch = batch_of(b"a", producer=Producer(7, 0, 0), is_transactional=True)
    partition.append(batch, now=1)
    append_at(partition, 400)
    for follower in (1, 2):
        partition.follower_fetched(follower, Offset(1), log_start=Offset(0))
    assert found(listed(broker, LATEST, isolation=0))[1] == 1
    assert found(listed(broker, LATEST, isolation=1))[1] == 0
    assert found(listed(broker, LATEST, replica=1))[1] == 2


def test_latest_offset_of_read_committed_is_never_below_the_earliest() -> None:
    broker = Broker()
    partition = broker.host()
    append_at(partition, 100)
    partition.append(batch_of(b"a", producer=Producer(7, 0, 0), is_transactional=True), now=1)
    append_at(partition, 300, 400)
    assert found(listed(broker, LATEST, isolation=1))[1] == 1
    partition.delete_records(Offset(3))
    assert found(listed(broker, EARLIEST))[1] == 3
    assert found(listed(broker, LATEST, isolation=1))[1] == 3


def test_a_record_that_the_asker_may_not_read_is_not_found() -> None:
    broker = Broker()
    partition = broker.host(replicas=THREE)
    append_at(partition, 400)
    assert found(listed(broker, 300)) == (-1, -1, -1)
    assert found(listed(broker, MAX)) == (-1, -1, -1)
    assert found(listed(broker, 300, replica=1))[:2] == (400, 0)


def lagging() -> tuple[Broker, Partition]:
    """A leader that does not know yet what the one before it had committed."""
    broker = Broker()
    partition = broker.host(replicas=THREE)
    append_at(partition, 400)
    partition.apply(registration(replicas=THREE, epoch=1, partition_epoch=1))
    return broker, partition


@pytest.mark.parametrize("timestamp", [LATEST, MAX, 300, 500])
def test_a_new_leader_does_not_guess(timestamp: int) -> None:
    broker, partition = lagging()
    row = listed(broker, timestamp)
    assert (row.error_code, row.offset) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert listed(broker, timestamp, version=5).error_code in (
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSUPPORTED_VERSION,
    )
    for follower in (1, 2):
        partition.follower_fetched(follower, Offset(1), log_start=Offset(0))
    assert listed(broker, timestamp).error_code == 0


def test_old_clients_know_that_only_as_a_missing_leader() -> None:
    broker, _ = lagging()
    assert listed(broker, LATEST, version=4).error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_a_new_leader_knows_where_its_log_begins() -> None:
    broker, _ = lagging()
    assert found(listed(broker, EARLIEST))[1] == 0
    assert found(listed(broker, LATEST, replica=1))[1] == 1


@pytest.mark.parametrize("isolation", [-1, 2, 127])
def test_an_unknown_isolation_level_is_rejected(isolation: int) -> None:
    broker, _ = filled()
    row = listed(broker, LATEST, isolation=isolation)
    assert (row.error_code, row.offset) == (ErrorCode.INVALID_REQUEST, -1)


def test_a_topic_without_partitions_is_left_out_of_the_answer() -> None:
    broker, _ = filled()
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("orders", [])])
    handlers = ListOffsetsHandlers(broker.partitions)
    assert finish(handlers.list_offsets_steps(CALLER, request, 11)).topics == []


def test_refusals_are_never_an_offset() -> None:
    broker, partition = filled()
    broker.know("elsewhere", 0, registration(leader=2, replicas=(2,)))
    rows = {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: listed(broker, LATEST, topic="nope"),
        ErrorCode.NOT_LEADER_OR_FOLLOWER: listed(broker, LATEST, topic="elsewhere"),
        ErrorCode.FENCED_LEADER_EPOCH: listed(broker, LATEST, epoch=2),
        ErrorCode.UNKNOWN_LEADER_EPOCH: listed(broker, LATEST, epoch=4),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: listed(
            broker, LATEST, may_describe=lambda caller, topic: False
        ),
    }
    partition.go_offline(StorageFailed("/d", "gone"))
    rows[ErrorCode.KAFKA_STORAGE_ERROR] = listed(broker, LATEST)
    for code, row in rows.items():
        assert (row.error_code, row.offset, row.timestamp) == (code, -1, -1)


@pytest.mark.parametrize("timestamp", [5, MAX])
def test_a_disk_that_fails_a_search_takes_the_directory_offline(timestamp: int) -> None:
    broker = Broker()
    partition = broker.host()
    append_at(partition, 1, 7)
    broker.machine.disk.fail("read")
    assert listed(broker, timestamp).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.machine.fake_host.failed == [broker.machine.directory.path]
    assert partition.offline is not None


def test_only_the_leader_answers_but_to_who_debugs() -> None:
    broker = Broker()
    partition = broker.host(replicas=THREE, leader=2)
    partition.log.append_at(bytes(batch_of(b"a", leader_epoch=0)), now=1)
    assert listed(broker, LATEST).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert found(listed(broker, LATEST, replica=-2))[1] == 1


def test_a_partition_asked_for_twice_is_refused_once() -> None:
    broker, _ = filled()
    twice = [ListOffsetsPartition(0, -1, LATEST), ListOffsetsPartition(0, -1, EARLIEST)]
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("orders", twice)])
    response = finish(
        ListOffsetsHandlers(broker.partitions).list_offsets_steps(CALLER, request, 11)
    )
    (row,) = response.topics[0].partitions
    assert row.error_code == ErrorCode.INVALID_REQUEST


# -- OffsetForLeaderEpoch --------------------------------------------------------


def epoch_end(
    broker: Broker, epoch: int, current: int = -1, topic: str = "orders", **more: Any
) -> EpochEndOffset:
    asked = OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, current, epoch)])
    handlers = EpochHandlers(broker.partitions, **more)
    request = OffsetForLeaderEpochRequest(-1, [asked])
    (row,) = finish(handlers.offset_for_leader_epoch_steps(CALLER, request, 4)).topics[0].partitions
    return row


def test_where_epochs_end() -> None:
    broker, partition = filled(epoch=3)
    partition.apply(registration(epoch=5, partition_epoch=1))
    append_at(partition, 1)
    ends = {epoch: epoch_end(broker, epoch) for epoch in (2, 3, 4, 5, 6, -1)}
    assert {epoch: (row.leader_epoch, row.end_offset) for epoch, row in ends.items()} == {
        2: (2, 0),
        3: (3, 6),
        4: (3, 6),
        5: (5, 7),
        6: (-1, -1),
        -1: (-1, -1),
    }
    assert not any(row.error_code for row in ends.values())


def test_refusals_of_epochs() -> None:
    broker, partition = filled(epoch=3)
    assert epoch_end(broker, 3, current=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert epoch_end(broker, 3, current=4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    unknown = epoch_end(broker, 3, topic="nope")
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (unknown.leader_epoch, unknown.end_offset) == (-1, -1)
    denied = epoch_end(broker, 3, may_describe=lambda caller, topic: False)
    assert denied.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partition.apply(registration(leader=1, epoch=4, replicas=THREE, partition_epoch=1))
    assert epoch_end(broker, 3).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
