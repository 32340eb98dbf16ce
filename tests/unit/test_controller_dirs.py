"""Log directories of replicas, and failed directories (KIP-858)."""

from controller_cluster import ControllerCluster, directory

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


def two() -> ControllerCluster:
    """Return brokers 0 and 1 with two directories each, and a partition on both."""
    cluster = ControllerCluster()
    for broker_id in (0, 1):
        cluster.start(broker_id, directories=2)
    cluster.create("t", [0, 1])
    return cluster


def assign(
    cluster: ControllerCluster, broker_id: int, where: Uuid, topic_id=None, partition_id: int = 0
) -> int:
    topic_id = cluster.topic("t").id if topic_id is None else topic_id
    partitions = [RequestPartitionData(partition_id)]
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=cluster.image.cluster.broker_epoch(broker_id),
        directories=[RequestDirectoryData(where, [RequestTopicData(topic_id, partitions)])],
    )
    reply = cluster.take(decide_assign_replicas(cluster.image, request, cluster.settings))
    assert reply.error_code == 0
    return reply.directories[0].topics[0].partitions[0].error_code


def test_assign_replicas_records_the_directory() -> None:
    cluster = two()
    assert assign(cluster, 1, directory(1, 1)) == 0
    partition = cluster.partition()
    assert partition.directories == (DIRECTORY_UNASSIGNED, directory(1, 1))
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)
    assert assign(cluster, 1, directory(1, 1)) == 0
    assert cluster.partition().partition_epoch == 1


def test_replica_in_a_failed_directory_leaves_the_isr() -> None:
    cluster = two()
    assert assign(cluster, 0, DIRECTORY_LOST) == 0
    partition = cluster.partition()
    assert (partition.leader, partition.isr) == (1, (1,))
    assert partition.directories[0] == DIRECTORY_LOST


def test_assignment_of_a_non_replica_is_rejected() -> None:
    cluster = two()
    cluster.start(2)
    assert assign(cluster, 2, directory(2)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert assign(cluster, 0, directory(0), Uuid(b"x" * 16)) == ErrorCode.UNKNOWN_TOPIC_ID
    code = assign(cluster, 0, directory(0), partition_id=4)
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_assignment_of_an_older_incarnation_is_rejected() -> None:
    cluster = two()
    request = AssignReplicasToDirsRequest(broker_id=0, broker_epoch=0)
    decision = decide_assign_replicas(cluster.image, request, cluster.settings)
    assert decision.reply.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_assignment_is_rejected_at_old_levels() -> None:
    cluster = ControllerCluster(1, level=MetadataVersion.IBP_3_6_IV2)
    request = AssignReplicasToDirsRequest(
        broker_id=0, broker_epoch=cluster.image.cluster.broker_epoch(0)
    )
    decision = decide_assign_replicas(cluster.image, request, cluster.settings)
    assert decision.reply.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_failed_directory_removes_its_replicas_from_isrs_and_is_recorded() -> None:
    cluster = two()
    cluster.create("u", [0, 1])
    assign(cluster, 0, directory(0, 0))
    failed = [directory(0, 0)]
    assert cluster.heartbeat(0, offline_log_dirs=failed).error_code == 0
    assert cluster.image.cluster.brokers[0].log_dirs == (directory(0, 1),)
    assert (cluster.partition().leader, cluster.partition().isr) == (1, (1,))
    assert cluster.partition("u").leader == 0, "it is elsewhere"
    before = cluster.image
    cluster.heartbeat(0, offline_log_dirs=failed)
    assert cluster.image == before


def test_replica_in_a_failed_directory_is_not_elected() -> None:
    cluster = two()
    assign(cluster, 0, directory(0, 0))
    cluster.heartbeat(0, offline_log_dirs=[directory(0, 0)])
    cluster.configure(2, "t", "unclean.leader.election.enable", "true")
    cluster.kill(1)
    assert cluster.partition().leader == -1


def test_broker_without_online_directories_leads_nothing() -> None:
    cluster = two()
    assign(cluster, 0, directory(0, 0))
    cluster.heartbeat(0, offline_log_dirs=[directory(0, 0), directory(0, 1)])
    assert cluster.partition().leader == 1


def test_unfenced_broker_does_not_lead_from_a_failed_directory() -> None:
    cluster = two()
    assign(cluster, 0, directory(0, 0))
    cluster.kill(1)
    cluster.kill(0)
    assert cluster.partition().leader == -1 and cluster.partition().isr == (0,)
    cluster.heartbeat(0, offline_log_dirs=[directory(0, 0)])
    assert not cluster.image.cluster.brokers[0].fenced
    assert cluster.partition().leader == -1


def test_leaving_broker_changes_each_partition_once() -> None:
    cluster = two()
    assign(cluster, 0, directory(0, 0))
    epoch = cluster.partition().partition_epoch
    cluster.heartbeat(0, want_fence=True, offline_log_dirs=[directory(0, 0)])
    assert cluster.partition().partition_epoch == epoch + 1
    assert cluster.image.cluster.brokers[0].log_dirs == (directory(0, 1),)


def test_reserved_directory_ids_equal_kafkas() -> None:
    assert tuple(Uuid(value.to_bytes(16)) for value in (0, 1, 2)) == (
        DIRECTORY_MIGRATING,
        DIRECTORY_UNASSIGNED,
        DIRECTORY_LOST,
    )
