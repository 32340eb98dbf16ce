"""AlterPartition, and eligible leader replicas."""

import pytest
from controller_cluster import ControllerCluster

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


def three(elr: bool = False, min_isr: int = 1, **more: object) -> ControllerCluster:
    cluster = ControllerCluster(3, elr=elr, **more)
    cluster.create("t", [0, 1, 2], configs={"min.insync.replicas": str(min_isr)})
    return cluster


# -- epochs ---------------------------------------------------------------------------------


def test_leader_shrinks_and_expands_its_isr() -> None:
    cluster = three()
    reply = cluster.isr(0, 2)
    assert (reply.error_code, reply.isr, reply.partition_epoch, reply.leader_epoch) == (
        0,
        [0, 2],
        1,
        0,
    )
    assert cluster.partition().isr == (0, 2)
    assert cluster.isr(0, 2, 1).partition_epoch == 2
    assert cluster.partition().isr == (0, 2, 1)


def test_unchanged_isr_writes_nothing() -> None:
    cluster = three()
    reply = cluster.isr(0, 1, 2)
    assert (reply.error_code, reply.partition_epoch) == (0, 0)
    assert cluster.partition().partition_epoch == 0


def test_shrinking_isr_raises_the_leader_epoch_at_old_levels() -> None:
    cluster = three(level=MetadataVersion.IBP_3_5_IV2)
    assert cluster.isr(0, 1).leader_epoch == 1
    assert cluster.isr(0, 1, 2).leader_epoch == 1


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
    cluster = three()
    cluster.kill(0)
    cluster.start(0, 1)
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (1, 1)
    assert cluster.partition().partition_epoch == 1
    before = cluster.image
    assert cluster.isr(1, 2, 0, **said).error_code == code
    assert cluster.image == before


@pytest.mark.parametrize("members", [(), (1, 2), (0, 0), (0, 9)], ids=str)
def test_isr_must_contain_the_leader_and_each_replica_once(members: tuple[int, ...]) -> None:
    cluster = three()
    assert cluster.isr(*members).error_code == ErrorCode.INVALID_REQUEST
    assert cluster.partition().isr == (0, 1, 2)


def test_unknown_topic_or_partition_is_rejected() -> None:
    cluster = three()
    data = RequestPartitionData(partition_index=7)
    topics = [
        RequestTopicData(Uuid(b"x" * 16), [data]),
        RequestTopicData(cluster.topic("t").id, [data]),
    ]
    epoch = cluster.image.cluster.broker_epoch(0)
    request = AlterPartitionRequest(broker_id=0, broker_epoch=epoch, topics=topics)
    decision = decide_alter_partition(cluster.image, request, cluster.settings)
    assert [t.partitions[0].error_code for t in decision.reply.topics] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_older_incarnation_of_the_leader_is_rejected() -> None:
    cluster = three()
    request = AlterPartitionRequest(broker_id=0, broker_epoch=0)
    decision = decide_alter_partition(cluster.image, request, cluster.settings)
    assert decision.reply.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_repeated_partition_is_changed_once() -> None:
    cluster = three()
    old = cluster.partition()
    data = [
        RequestPartitionData(
            partition_index=0, new_isr=isr, partition_epoch=old.partition_epoch, leader_epoch=0
        )
        for isr in ([0, 1], [0, 2])
    ]
    request = AlterPartitionRequest(
        broker_id=0,
        broker_epoch=cluster.image.cluster.broker_epoch(0),
        topics=[RequestTopicData(cluster.topic("t").id, data)],
    )
    reply = cluster.take(decide_alter_partition(cluster.image, request, cluster.settings))
    codes = [p.error_code for p in reply.topics[0].partitions]
    assert codes == [0, ErrorCode.INVALID_UPDATE_VERSION]
    assert cluster.partition().isr == (0, 1) and cluster.partition().partition_epoch == 1


# -- eligible members (KIP-903) -------------------------------------------------------------


def test_fenced_or_unregistered_broker_cannot_join_an_isr() -> None:
    cluster = three()
    cluster.kill(1)
    assert cluster.isr(0, 2, 1).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert cluster.partition().isr == (0, 2)


def test_broker_in_controlled_shutdown_cannot_join_an_isr() -> None:
    cluster = three()
    cluster.create("u", [1, 0])
    cluster.heartbeat(1, want_shut_down=True)
    assert cluster.image.cluster.brokers[1].in_controlled_shutdown
    assert cluster.isr(0, 2, 1).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_isr_member_must_be_the_incarnation_that_the_leader_saw() -> None:
    cluster = three()
    seen = cluster.image.cluster.broker_epoch(1)
    cluster.start(1, 1)
    members = [BrokerState(0, -1), BrokerState(1, seen)]
    refused = cluster.isr(new_isr_with_epochs=members)
    assert refused.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert cluster.isr(0, 1).error_code == 0
    # An old leader sends no epochs.
    assert cluster.isr(new_isr_with_epochs=[], new_isr=[0, 2, 1]).error_code == 0


# -- recovery after an unclean election -----------------------------------------------------


def test_recovering_leader_has_no_in_sync_follower() -> None:
    cluster = three()
    cluster.configure(2, "t", "unclean.leader.election.enable", "true")
    cluster.isr(0)
    cluster.kill(0)
    cluster.recover(b1=(0, 5), b2=(0, 4))
    recovering = LeaderRecoveryState.RECOVERING
    assert cluster.partition().leader_recovery_state is recovering
    assert cluster.partition().isr == (1,)
    assert cluster.isr(1, 2, leader_recovery_state=1).error_code == ErrorCode.INVALID_REQUEST
    assert cluster.isr(1, leader_recovery_state=1).leader_recovery_state == 1
    assert cluster.isr(1, leader_recovery_state=0).leader_recovery_state == 0
    assert cluster.partition().leader_recovery_state is LeaderRecoveryState.RECOVERED
    assert cluster.isr(1, 2).error_code == 0


# -- eligible leader replicas (KIP-966) -----------------------------------------------------


def test_replica_that_leaves_an_isr_below_the_minimum_stays_eligible() -> None:
    cluster = three(elr=True, min_isr=2)
    cluster.isr(0, 1)
    assert cluster.partition().elr == ()
    cluster.isr(0)
    assert cluster.partition().isr == (0,) and cluster.partition().elr == (1,)
    cluster.isr(0, 2)
    assert cluster.partition().elr == (), "with the minimum in sync, others fall behind"


def test_last_in_sync_replica_stays_eligible() -> None:
    cluster = three(elr=True, min_isr=2)
    cluster.kill(2)
    cluster.kill(1)
    cluster.kill(0)
    partition = cluster.partition()
    assert (partition.isr, partition.leader, partition.elr) == ((), -1, (0, 1))
    assert partition.last_known_elr == (0,)
    cluster.heartbeat(2)
    assert cluster.partition().leader == -1, "2 does not have all records"
    cluster.heartbeat(1)
    partition = cluster.partition()
    assert (partition.isr, partition.leader, partition.elr) == ((1,), 1, (0,))
    assert partition.last_known_elr == ()
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_last_isr_member_stays_without_elr() -> None:
    cluster = three()
    for broker_id in (2, 1, 0):
        cluster.kill(broker_id)
    partition = cluster.partition()
    assert (partition.isr, partition.leader, partition.elr) == ((0,), -1, ())
    cluster.heartbeat(1)
    assert cluster.partition().leader == -1


def test_last_known_leader_is_elected_and_recovers_without_eligible_replicas() -> None:
    cluster = three(elr=True, min_isr=1)
    cluster.isr(0)
    cluster.kill(0)
    assert cluster.partition().elr == (0,) and cluster.partition().last_known_elr == (0,)
    cluster.register(0, 1)
    assert cluster.partition().elr == (), "it may have lost records"
    cluster.heartbeat(1)
    assert cluster.partition().leader == -1
    cluster.heartbeat(0)
    partition = cluster.partition()
    assert (partition.leader, partition.isr) == (0, (0,))
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert partition.last_known_elr == ()


def test_min_isr_is_bounded_by_the_number_of_replicas() -> None:
    cluster = ControllerCluster(2, elr=True)
    cluster.create("t", [0, 1], configs={"min.insync.replicas": "5"})
    assert cluster.partition().elr == ()
    cluster.isr(0)
    assert cluster.partition().elr == (1,)
    cluster.isr(0, 1)
    assert cluster.partition().elr == ()


def test_min_isr_may_come_from_the_cluster_config() -> None:
    cluster = ControllerCluster(2, elr=True)
    cluster.configure(4, "", "min.insync.replicas", "2")
    cluster.create("t", [0, 1])
    cluster.isr(0)
    assert cluster.partition().elr == (1,)


def test_disabled_elr_has_no_eligible_replicas() -> None:
    cluster = three(min_isr=2)
    cluster.isr(0)
    assert cluster.partition().elr == ()
