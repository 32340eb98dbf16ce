"""Reassignment of partitions (KIP-455)."""

import pytest
from controller_cluster import ControllerCluster, directory

from ottla.controller.reassignments import decide_alter_reassignments, list_reassignments
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)


def reassign(
    cluster: ControllerCluster,
    target: list[int] | None,
    name: str = "t",
    partition_id: int = 0,
    **more: object,
) -> int:
    topics = [ReassignableTopic(name, [ReassignablePartition(partition_id, target)])]
    request = AlterPartitionReassignmentsRequest(topics=topics, **more)
    reply = cluster.take(decide_alter_reassignments(cluster.image, request, cluster.settings))
    assert reply.error_code == 0 and reply.error_message is None
    result = reply.responses[0].partitions[0]
    is_silent = result.error_code in (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    assert is_silent == (result.error_message is None)
    return result.error_code


def five(*replicas: int, **more: object) -> ControllerCluster:
    cluster = ControllerCluster(5, **more)
    cluster.create("t", list(replicas))
    return cluster


def test_old_replicas_are_removed_once_new_ones_are_in_sync() -> None:
    cluster = five(0, 1)
    assert reassign(cluster, [2, 3]) == 0
    partition = cluster.partition()
    assert partition.replicas == (2, 3, 0, 1)
    assert (partition.adding_replicas, partition.removing_replicas) == ((2, 3), (0, 1))
    assert (partition.leader, partition.isr, partition.leader_epoch) == (0, (0, 1), 0)
    assert partition.directories == tuple(directory(i) for i in (2, 3, 0, 1))
    cluster.isr(0, 1, 2)
    assert cluster.partition().is_reassigning()
    reply = cluster.isr(0, 1, 2, 3)
    assert reply.error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = cluster.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 3), (2, 3), 2)
    assert not partition.is_reassigning()
    assert partition.directories == (directory(2), directory(3))


def test_remaining_leader_continues_in_a_new_epoch() -> None:
    cluster = five(0, 1)
    reassign(cluster, [0, 2])
    reply = cluster.isr(0, 1, 2)
    assert (reply.error_code, reply.leader_id, reply.leader_epoch) == (0, 0, 1)
    assert cluster.partition().replicas == (0, 2)


def test_reordering_completes_at_once() -> None:
    cluster = five(0, 1, 2)
    assert reassign(cluster, [2, 1, 0]) == 0
    partition = cluster.partition()
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ((2, 1, 0), 0, 0)
    assert not partition.is_reassigning()


def test_removing_replicas_completes_at_once_if_the_rest_is_in_sync() -> None:
    cluster = five(0, 1, 2)
    reassign(cluster, [1])
    partition = cluster.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((1,), (1,), 1)
    cluster = five(0, 1, 2)
    cluster.isr(0, 1)
    reassign(cluster, [2, 1])
    assert cluster.partition().is_reassigning() and cluster.partition().leader == 0


def test_unchanged_assignment_writes_nothing() -> None:
    cluster = five(0, 1)
    before = cluster.image
    assert reassign(cluster, [0, 1]) == 0
    assert cluster.image == before


def test_cancelled_reassignment_restores_the_old_replicas() -> None:
    cluster = five(0, 1)
    reassign(cluster, [2, 3])
    cluster.isr(0, 1, 2)
    assert reassign(cluster, None) == 0
    partition = cluster.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((0, 1), (0, 1), 0)
    assert not partition.is_reassigning()
    assert reassign(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_cancellation_that_would_lose_records_is_rejected() -> None:
    cluster = five(0, 1)
    reassign(cluster, [2, 3])
    cluster.isr(0, 2)
    cluster.kill(0)
    assert (cluster.partition().isr, cluster.partition().leader) == ((2,), 2)
    assert reassign(cluster, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.partition().is_reassigning()
    cluster.configure(2, "t", "unclean.leader.election.enable", "true")
    assert reassign(cluster, None) == 0
    assert cluster.partition().replicas == (0, 1)


def test_added_replica_is_not_eligible_after_a_cancellation() -> None:
    cluster = five(0, 1, elr=True)
    cluster.configure(2, "t", "min.insync.replicas", "2")
    reassign(cluster, [2, 3])
    cluster.isr(0, 2)
    reassign(cluster, None)
    assert (cluster.partition().isr, cluster.partition().elr) == ((0,), ())


def test_newer_target_replaces_an_older_one() -> None:
    cluster = five(0, 1)
    reassign(cluster, [2, 3])
    reassign(cluster, [4, 1])
    partition = cluster.partition()
    assert set(partition.replicas) == {0, 1, 2, 3, 4}
    assert (partition.adding_replicas, partition.removing_replicas) == ((4,), (0, 2, 3))
    cluster.isr(0, 1, 4)
    assert cluster.partition().replicas == (4, 1)


def test_replicas_of_the_newest_target_are_not_removed() -> None:
    cluster = five(0, 1)
    reassign(cluster, [1, 2])
    reassign(cluster, [0, 1, 2])
    assert cluster.partition().removing_replicas == ()
    cluster.isr(0, 1, 2)
    assert cluster.partition().replicas == (0, 1, 2)


def test_reassigning_to_the_original_replicas_cancels() -> None:
    cluster = five(0, 1)
    reassign(cluster, [2, 3])
    reassign(cluster, [0, 1])
    partition = cluster.partition()
    assert partition.replicas == (0, 1) and not partition.is_reassigning()


def test_fenced_removed_replica_does_not_block_completion() -> None:
    cluster = five(0, 1)
    reassign(cluster, [1, 2])
    cluster.kill(0)
    cluster.isr(1, 2)
    assert cluster.partition().replicas == (1, 2)


@pytest.mark.parametrize("target", [[], [2, 2], [2, 9]], ids=str)
def test_invalid_targets_are_rejected(target: list[int]) -> None:
    cluster = five(0, 1)
    assert reassign(cluster, target) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert not cluster.partition().is_reassigning()


def test_reassignment_of_an_unknown_partition_is_rejected() -> None:
    cluster = five(0, 1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(cluster, [2], name="none") == unknown
    assert reassign(cluster, [2], partition_id=1) == unknown


def test_replication_factor_changes_only_if_allowed() -> None:
    cluster = five(0, 1)
    refused = ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, [2], allow_replication_factor_change=False) == refused
    assert reassign(cluster, [2, 3], allow_replication_factor_change=False) == 0
    assert reassign(cluster, [4, 3], allow_replication_factor_change=False) == 0
    assert reassign(cluster, [4, 3, 2], allow_replication_factor_change=False) == refused
    assert reassign(cluster, [4, 3, 2]) == 0


def test_ongoing_reassignments_are_listed() -> None:
    cluster = five(0, 1)
    cluster.create("u", [0], [1])
    reassign(cluster, [2, 1])
    reassign(cluster, [4], name="u", partition_id=1)
    everything = list_reassignments(cluster.state, ListPartitionReassignmentsRequest(topics=None))
    assert [t.name for t in everything.topics] == ["t", "u"]
    (partition,) = everything.topics[0].partitions
    assert (partition.partition_index, partition.replicas) == (0, [2, 1, 0])
    assert (partition.adding_replicas, partition.removing_replicas) == ([2], [0])
    named = [ListPartitionReassignmentsTopics(name, [0, 1, 7]) for name in ("u", "none")]
    some = list_reassignments(cluster.state, ListPartitionReassignmentsRequest(topics=named))
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in some.topics] == [
        ("u", [1])
    ]
