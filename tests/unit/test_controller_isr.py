"""AlterPartition, and eligible leader replicas."""

import pytest
from controller_world import World

from ottla.controller.alter_partition import decide_alter_partition
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.metadata.topics import LeaderRecoveryState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.protocol.types import Uuid


def three(elr: bool = False, min_isr: int = 1, **more: object) -> World:
    world = World(3, elr=elr, **more)
    world.create("t", [0, 1, 2], configs={"min.insync.replicas": str(min_isr)})
    return world


# -- epochs ---------------------------------------------------------------------------------


def test_leader_shrinks_and_expands_its_isr() -> None:
    world = three()
    told = world.isr(0, 2)
    assert (told.error_code, told.isr, told.partition_epoch, told.leader_epoch) == (0, [0, 2], 1, 0)
    assert world.partition().isr == (0, 2)
    assert world.isr(0, 2, 1).partition_epoch == 2
    assert world.partition().isr == (0, 2, 1)


def test_unchanged_isr_writes_nothing() -> None:
    world = three()
    told = world.isr(0, 1, 2)
    assert (told.error_code, told.partition_epoch) == (0, 0)
    assert world.partition().partition_epoch == 0


def test_shrinking_isr_raises_the_leader_epoch_at_old_levels() -> None:
    world = three(level=MetadataVersion.IBP_3_5_IV2)
    assert world.isr(0, 1).leader_epoch == 1
    assert world.isr(0, 1, 2).leader_epoch == 1


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"leader_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 3}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"leader": 2}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
    ],
    ids=str,
)
def test_stale_or_newer_epochs_are_rejected(said: dict, code: ErrorCode) -> None:
    world = three()
    world.kill(0)
    world.start(0, 1)
    assert (world.partition().leader, world.partition().leader_epoch) == (1, 1)
    assert world.partition().partition_epoch == 1
    before = world.image
    assert world.isr(1, 2, 0, **said).error_code == code
    assert world.image == before


@pytest.mark.parametrize("members", [(), (1, 2), (0, 0), (0, 9)], ids=str)
def test_isr_must_contain_the_leader_and_each_replica_once(members: tuple[int, ...]) -> None:
    world = three()
    assert world.isr(*members).error_code == ErrorCode.INVALID_REQUEST
    assert world.partition().isr == (0, 1, 2)


def test_unknown_topic_or_partition_is_rejected() -> None:
    world = three()
    data = RequestPartitionData(partition_index=7)
    topics = [
        RequestTopicData(Uuid(b"x" * 16), [data]),
        RequestTopicData(world.topic("t").id, [data]),
    ]
    epoch = world.image.cluster.broker_epoch(0)
    request = AlterPartitionRequest(broker_id=0, broker_epoch=epoch, topics=topics)
    decision = decide_alter_partition(world.image, request, world.settings)
    assert [t.partitions[0].error_code for t in decision.reply.topics] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_older_incarnation_of_the_leader_is_rejected() -> None:
    world = three()
    request = AlterPartitionRequest(broker_id=0, broker_epoch=0)
    decision = decide_alter_partition(world.image, request, world.settings)
    assert decision.reply.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_repeated_partition_is_changed_once() -> None:
    world = three()
    old = world.partition()
    data = [
        RequestPartitionData(
            partition_index=0, new_isr=isr, partition_epoch=old.partition_epoch, leader_epoch=0
        )
        for isr in ([0, 1], [0, 2])
    ]
    request = AlterPartitionRequest(
        broker_id=0,
        broker_epoch=world.image.cluster.broker_epoch(0),
        topics=[RequestTopicData(world.topic("t").id, data)],
    )
    reply = world.take(decide_alter_partition(world.image, request, world.settings))
    codes = [p.error_code for p in reply.topics[0].partitions]
    assert codes == [0, ErrorCode.INVALID_UPDATE_VERSION]
    assert world.partition().isr == (0, 1) and world.partition().partition_epoch == 1


# -- who may join (KIP-903) -----------------------------------------------------------------


def test_fenced_or_unregistered_broker_cannot_join_an_isr() -> None:
    world = three()
    world.kill(1)
    assert world.isr(0, 2, 1).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert world.partition().isr == (0, 2)


def test_broker_in_controlled_shutdown_cannot_join_an_isr() -> None:
    world = three()
    world.create("u", [1, 0])
    world.heartbeat(1, want_shut_down=True)
    assert world.image.cluster.brokers[1].in_controlled_shutdown
    assert world.isr(0, 2, 1).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_isr_member_must_be_the_incarnation_that_the_leader_saw() -> None:
    world = three()
    seen = world.image.cluster.broker_epoch(1)
    world.start(1, 1)
    members = [BrokerState(0, -1), BrokerState(1, seen)]
    refused = world.isr(new_isr_with_epochs=members)
    assert refused.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert world.isr(0, 1).error_code == 0
    # An old leader names no epochs.
    assert world.isr(new_isr_with_epochs=[], new_isr=[0, 2, 1]).error_code == 0


# -- recovery after an unclean election -----------------------------------------------------


def test_recovering_leader_has_no_in_sync_follower() -> None:
    world = three()
    world.configure(2, "t", "unclean.leader.election.enable", "true")
    world.isr(0)
    world.kill(0)
    world.recover(b1=(0, 5), b2=(0, 4))
    recovering = LeaderRecoveryState.RECOVERING
    assert world.partition().leader_recovery_state is recovering
    assert world.partition().isr == (1,)
    assert world.isr(1, 2, leader_recovery_state=1).error_code == ErrorCode.INVALID_REQUEST
    assert world.isr(1, leader_recovery_state=1).leader_recovery_state == 1
    assert world.isr(1, leader_recovery_state=0).leader_recovery_state == 0
    assert world.partition().leader_recovery_state is LeaderRecoveryState.RECOVERED
    assert world.isr(1, 2).error_code == 0


# -- eligible leader replicas (KIP-966) -----------------------------------------------------


def test_replica_that_leaves_an_isr_below_the_minimum_stays_eligible() -> None:
    world = three(elr=True, min_isr=2)
    world.isr(0, 1)
    assert world.partition().elr == ()
    world.isr(0)
    assert world.partition().isr == (0,) and world.partition().elr == (1,)
    world.isr(0, 2)
    assert world.partition().elr == (), "with the minimum in sync, others fall behind"


def test_last_in_sync_replica_stays_eligible() -> None:
    world = three(elr=True, min_isr=2)
    world.kill(2)
    world.kill(1)
    world.kill(0)
    partition = world.partition()
    assert (partition.isr, partition.leader, partition.elr) == ((), -1, (0, 1))
    assert partition.last_known_elr == (0,)
    world.heartbeat(2)
    assert world.partition().leader == -1, "2 does not have all records"
    world.heartbeat(1)
    partition = world.partition()
    assert (partition.isr, partition.leader, partition.elr) == ((1,), 1, (0,))
    assert partition.last_known_elr == ()
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_last_isr_member_stays_without_elr() -> None:
    world = three()
    for broker_id in (2, 1, 0):
        world.kill(broker_id)
    partition = world.partition()
    assert (partition.isr, partition.leader, partition.elr) == ((0,), -1, ())
    world.heartbeat(1)
    assert world.partition().leader == -1


def test_last_known_leader_is_elected_and_recovers_without_eligible_replicas() -> None:
    world = three(elr=True, min_isr=1)
    world.isr(0)
    world.kill(0)
    assert world.partition().elr == (0,) and world.partition().last_known_elr == (0,)
    world.register(0, 1)
    assert world.partition().elr == (), "it may have lost records"
    world.heartbeat(1)
    assert world.partition().leader == -1
    world.heartbeat(0)
    partition = world.partition()
    assert (partition.leader, partition.isr) == (0, (0,))
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert partition.last_known_elr == ()


def test_min_isr_is_bounded_by_the_number_of_replicas() -> None:
    world = World(2, elr=True)
    world.create("t", [0, 1], configs={"min.insync.replicas": "5"})
    assert world.partition().elr == ()
    world.isr(0)
    assert world.partition().elr == (1,)
    world.isr(0, 1)
    assert world.partition().elr == ()


def test_min_isr_may_come_from_the_cluster_config() -> None:
    world = World(2, elr=True)
    world.configure(4, "", "min.insync.replicas", "2")
    world.create("t", [0, 1])
    world.isr(0)
    assert world.partition().elr == (1,)


def test_disabled_elr_has_no_eligible_replicas() -> None:
    world = three(min_isr=2)
    world.isr(0)
    assert world.partition().elr == ()
