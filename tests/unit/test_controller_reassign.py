"""Reassignment of partitions (KIP-455)."""

import pytest
from controller_world import World, directory

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
    world: World, target: list[int] | None, name: str = "t", partition_id: int = 0, **more: object
) -> int:
    topics = [ReassignableTopic(name, [ReassignablePartition(partition_id, target)])]
    request = AlterPartitionReassignmentsRequest(topics=topics, **more)
    reply = world.take(decide_alter_reassignments(world.image, request, world.settings))
    assert reply.error_code == 0 and reply.error_message is None
    result = reply.responses[0].partitions[0]
    is_silent = result.error_code in (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    assert is_silent == (result.error_message is None)
    return result.error_code


def five(*replicas: int, **more: object) -> World:
    world = World(5, **more)
    world.create("t", list(replicas))
    return world


def test_old_replicas_are_removed_once_new_ones_are_in_sync() -> None:
    world = five(0, 1)
    assert reassign(world, [2, 3]) == 0
    partition = world.partition()
    assert partition.replicas == (2, 3, 0, 1)
    assert (partition.adding_replicas, partition.removing_replicas) == ((2, 3), (0, 1))
    assert (partition.leader, partition.isr, partition.leader_epoch) == (0, (0, 1), 0)
    assert partition.directories == tuple(directory(i) for i in (2, 3, 0, 1))
    world.isr(0, 1, 2)
    assert world.partition().is_reassigning()
    told = world.isr(0, 1, 2, 3)
    assert told.error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = world.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 3), (2, 3), 2)
    assert not partition.is_reassigning()
    assert partition.directories == (directory(2), directory(3))


def test_remaining_leader_continues_in_a_new_epoch() -> None:
    world = five(0, 1)
    reassign(world, [0, 2])
    told = world.isr(0, 1, 2)
    assert (told.error_code, told.leader_id, told.leader_epoch) == (0, 0, 1)
    assert world.partition().replicas == (0, 2)


def test_reordering_completes_at_once() -> None:
    world = five(0, 1, 2)
    assert reassign(world, [2, 1, 0]) == 0
    partition = world.partition()
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ((2, 1, 0), 0, 0)
    assert not partition.is_reassigning()


def test_removing_replicas_completes_at_once_if_the_rest_is_in_sync() -> None:
    world = five(0, 1, 2)
    reassign(world, [1])
    partition = world.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((1,), (1,), 1)
    world = five(0, 1, 2)
    world.isr(0, 1)
    reassign(world, [2, 1])
    assert world.partition().is_reassigning() and world.partition().leader == 0


def test_unchanged_assignment_writes_nothing() -> None:
    world = five(0, 1)
    before = world.image
    assert reassign(world, [0, 1]) == 0
    assert world.image == before


def test_cancelled_reassignment_restores_the_old_replicas() -> None:
    world = five(0, 1)
    reassign(world, [2, 3])
    world.isr(0, 1, 2)
    assert reassign(world, None) == 0
    partition = world.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((0, 1), (0, 1), 0)
    assert not partition.is_reassigning()
    assert reassign(world, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_cancellation_that_would_lose_records_is_rejected() -> None:
    world = five(0, 1)
    reassign(world, [2, 3])
    world.isr(0, 2)
    world.kill(0)
    assert (world.partition().isr, world.partition().leader) == ((2,), 2)
    assert reassign(world, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.partition().is_reassigning()
    world.configure(2, "t", "unclean.leader.election.enable", "true")
    assert reassign(world, None) == 0
    assert world.partition().replicas == (0, 1)


def test_added_replica_is_not_eligible_after_a_cancellation() -> None:
    world = five(0, 1, elr=True)
    world.configure(2, "t", "min.insync.replicas", "2")
    reassign(world, [2, 3])
    world.isr(0, 2)
    reassign(world, None)
    assert (world.partition().isr, world.partition().elr) == ((0,), ())


def test_newer_target_replaces_an_older_one() -> None:
    world = five(0, 1)
    reassign(world, [2, 3])
    reassign(world, [4, 1])
    partition = world.partition()
    assert set(partition.replicas) == {0, 1, 2, 3, 4}
    assert (partition.adding_replicas, partition.removing_replicas) == ((4,), (0, 2, 3))
    world.isr(0, 1, 4)
    assert world.partition().replicas == (4, 1)


def test_replicas_of_the_newest_target_are_not_removed() -> None:
    world = five(0, 1)
    reassign(world, [1, 2])
    reassign(world, [0, 1, 2])
    assert world.partition().removing_replicas == ()
    world.isr(0, 1, 2)
    assert world.partition().replicas == (0, 1, 2)


def test_reassigning_to_the_original_replicas_cancels() -> None:
    world = five(0, 1)
    reassign(world, [2, 3])
    reassign(world, [0, 1])
    partition = world.partition()
    assert partition.replicas == (0, 1) and not partition.is_reassigning()


def test_fenced_removed_replica_does_not_block_completion() -> None:
    world = five(0, 1)
    reassign(world, [1, 2])
    world.kill(0)
    world.isr(1, 2)
    assert world.partition().replicas == (1, 2)


@pytest.mark.parametrize("target", [[], [2, 2], [2, 9]], ids=str)
def test_invalid_targets_are_rejected(target: list[int]) -> None:
    world = five(0, 1)
    assert reassign(world, target) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert not world.partition().is_reassigning()


def test_reassignment_of_an_unknown_partition_is_rejected() -> None:
    world = five(0, 1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(world, [2], name="none") == unknown
    assert reassign(world, [2], partition_id=1) == unknown


def test_replication_factor_changes_only_if_allowed() -> None:
    world = five(0, 1)
    refused = ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(world, [2], allow_replication_factor_change=False) == refused
    assert reassign(world, [2, 3], allow_replication_factor_change=False) == 0
    assert reassign(world, [4, 3], allow_replication_factor_change=False) == 0
    assert reassign(world, [4, 3, 2], allow_replication_factor_change=False) == refused
    assert reassign(world, [4, 3, 2]) == 0


def test_ongoing_reassignments_are_listed() -> None:
    world = five(0, 1)
    world.create("u", [0], [1])
    reassign(world, [2, 1])
    reassign(world, [4], name="u", partition_id=1)
    everything = list_reassignments(world.state, ListPartitionReassignmentsRequest(topics=None))
    assert [t.name for t in everything.topics] == ["t", "u"]
    (partition,) = everything.topics[0].partitions
    assert (partition.partition_index, partition.replicas) == (0, [2, 1, 0])
    assert (partition.adding_replicas, partition.removing_replicas) == ([2], [0])
    named = [ListPartitionReassignmentsTopics(name, [0, 1, 7]) for name in ("u", "none")]
    some = list_reassignments(world.state, ListPartitionReassignmentsRequest(topics=named))
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in some.topics] == [
        ("u", [1])
    ]
