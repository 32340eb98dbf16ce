"""Directories of replicas, and directories that fail (KIP-858)."""

from controller_world import World, directory

from ottla.controller.replica_dirs import decide_assign_replicas
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.protocol.types import Uuid


def two() -> World:
    """Broker 0 and 1 with two directories each, and a partition on both."""
    world = World()
    for broker_id in (0, 1):
        world.start(broker_id, directories=2)
    world.create("t", [0, 1])
    return world


def assign(world: World, broker_id: int, where: Uuid, topic_id=None, partition_id: int = 0) -> int:
    topic_id = world.topic("t").id if topic_id is None else topic_id
    partitions = [RequestPartitionData(partition_id)]
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=world.image.cluster.broker_epoch(broker_id),
        directories=[RequestDirectoryData(where, [RequestTopicData(topic_id, partitions)])],
    )
    reply = world.take(decide_assign_replicas(world.image, request, world.settings))
    assert reply.error_code == 0
    return reply.directories[0].topics[0].partitions[0].error_code


def test_assign_replicas_records_the_directory() -> None:
    world = two()
    assert assign(world, 1, directory(1, 1)) == 0
    partition = world.partition()
    assert partition.directories == (DIRECTORY_UNASSIGNED, directory(1, 1))
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)
    assert assign(world, 1, directory(1, 1)) == 0
    assert world.partition().partition_epoch == 1


def test_replica_in_a_failed_directory_leaves_the_isr() -> None:
    world = two()
    assert assign(world, 0, DIRECTORY_LOST) == 0
    partition = world.partition()
    assert (partition.leader, partition.isr) == (1, (1,))
    assert partition.directories[0] == DIRECTORY_LOST


def test_assignment_of_a_non_replica_is_rejected() -> None:
    world = two()
    world.start(2)
    assert assign(world, 2, directory(2)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert assign(world, 0, directory(0), Uuid(b"x" * 16)) == ErrorCode.UNKNOWN_TOPIC_ID
    code = assign(world, 0, directory(0), partition_id=4)
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_assignment_of_an_older_incarnation_is_rejected() -> None:
    world = two()
    request = AssignReplicasToDirsRequest(broker_id=0, broker_epoch=0)
    decision = decide_assign_replicas(world.image, request, world.settings)
    assert decision.reply.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_assignment_is_rejected_at_old_levels() -> None:
    world = World(1, level=MetadataVersion.IBP_3_6_IV2)
    request = AssignReplicasToDirsRequest(
        broker_id=0, broker_epoch=world.image.cluster.broker_epoch(0)
    )
    decision = decide_assign_replicas(world.image, request, world.settings)
    assert decision.reply.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_failed_directory_removes_its_replicas_from_isrs_and_is_recorded() -> None:
    world = two()
    world.create("u", [0, 1])
    assign(world, 0, directory(0, 0))
    failed = [directory(0, 0)]
    assert world.heartbeat(0, offline_log_dirs=failed).error_code == 0
    assert world.image.cluster.brokers[0].log_dirs == (directory(0, 1),)
    assert (world.partition().leader, world.partition().isr) == (1, (1,))
    assert world.partition("u").leader == 0, "it is elsewhere"
    before = world.image
    world.heartbeat(0, offline_log_dirs=failed)
    assert world.image == before


def test_replica_in_a_failed_directory_is_not_elected() -> None:
    world = two()
    assign(world, 0, directory(0, 0))
    world.heartbeat(0, offline_log_dirs=[directory(0, 0)])
    world.configure(2, "t", "unclean.leader.election.enable", "true")
    world.kill(1)
    assert world.partition().leader == -1


def test_broker_without_online_directories_leads_nothing() -> None:
    world = two()
    assign(world, 0, directory(0, 0))
    world.heartbeat(0, offline_log_dirs=[directory(0, 0), directory(0, 1)])
    assert world.partition().leader == 1


def test_unfenced_broker_does_not_lead_from_a_failed_directory() -> None:
    world = two()
    assign(world, 0, directory(0, 0))
    world.kill(1)
    world.kill(0)
    assert world.partition().leader == -1 and world.partition().isr == (0,)
    world.heartbeat(0, offline_log_dirs=[directory(0, 0)])
    assert not world.image.cluster.brokers[0].fenced
    assert world.partition().leader == -1


def test_leaving_broker_changes_each_partition_once() -> None:
    world = two()
    assign(world, 0, directory(0, 0))
    epoch = world.partition().partition_epoch
    world.heartbeat(0, want_fence=True, offline_log_dirs=[directory(0, 0)])
    assert world.partition().partition_epoch == epoch + 1
    assert world.image.cluster.brokers[0].log_dirs == (directory(0, 1),)


def test_reserved_directory_ids_equal_kafkas() -> None:
    assert tuple(Uuid(value.to_bytes(16)) for value in (0, 1, 2)) == (
        DIRECTORY_MIGRATING,
        DIRECTORY_UNASSIGNED,
        DIRECTORY_LOST,
    )
