"""Registration, fencing, controlled shutdown and unregistration of brokers."""

import pytest
from controller_cluster import CLUSTER, ControllerCluster, directory, incarnation, registration

from ottla.controller import brokers
from ottla.controller.broker_liveness import HeartbeatContext
from ottla.controller.brokers import decide_fence, decide_unregister_broker
from ottla.controller.decision import Decision
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.broker_registration import Feature
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.types import Offset, Uuid

# -- registration ---------------------------------------------------------------------------


def test_new_broker_is_fenced_and_its_epoch_is_its_record_offset() -> None:
    cluster = ControllerCluster()
    at = cluster.offset
    reply = cluster.register(3, rack="r1")
    broker = cluster.image.cluster.brokers[3]
    assert reply.error_code == 0
    assert reply.broker_epoch == broker.epoch == at
    assert broker.fenced and not broker.in_controlled_shutdown
    assert broker.rack == "r1"
    assert broker.incarnation_id == incarnation(3)
    assert broker.log_dirs == (directory(3),)


def test_same_incarnation_registers_at_once_under_a_new_epoch() -> None:
    """It may be a restart that lost unsynced records: it leads nothing by its old epoch."""
    cluster = ControllerCluster(2)
    cluster.create("t", [0, 1])
    epoch, leader_epoch = cluster.image.cluster.broker_epoch(0), cluster.partition().leader_epoch
    reply = cluster.register(0, has_session=True, rack="moved")
    broker = cluster.image.cluster.brokers[0]
    assert reply.error_code == 0 and reply.broker_epoch == broker.epoch > epoch
    assert broker.rack == "moved" and broker.fenced
    assert cluster.partition().isr == (1,) and cluster.partition().leader == 1
    assert cluster.partition().leader_epoch > leader_epoch


def test_new_incarnation_gets_a_higher_epoch_and_is_fenced() -> None:
    cluster = ControllerCluster(1)
    epoch = cluster.image.cluster.broker_epoch(0)
    assert cluster.register(0, 1).broker_epoch > epoch
    assert cluster.image.cluster.brokers[0].fenced


def refused(cluster: ControllerCluster, **more: object) -> ErrorCode:
    before = cluster.image
    reply = cluster.register(more.pop("broker_id", 0), **more)
    assert cluster.image == before and reply.broker_epoch == -1
    return ErrorCode(reply.error_code)


def test_broker_of_another_cluster_is_rejected() -> None:
    assert refused(ControllerCluster(), cluster_id="other") is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert CLUSTER != "other"


def test_duplicate_broker_id_is_rejected_while_the_first_has_a_session() -> None:
    cluster = ControllerCluster(1)
    code = refused(cluster, number=1, has_session=True)
    assert code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.register(0, 1, has_session=False).error_code == 0


def test_restarted_broker_registers_although_its_old_session_has_not_ended() -> None:
    cluster = ControllerCluster(1)
    before = cluster.image.cluster.brokers[0]
    restarted = Uuid(incarnation(0)[:8] + b"started.")
    reply = cluster.register(0, has_session=True, incarnation_id=restarted)
    assert reply.error_code == 0 and reply.broker_epoch > before.epoch
    assert cluster.image.cluster.brokers[0].incarnation_id == restarted


@pytest.mark.parametrize(
    "log_dirs",
    [[], [directory(0), directory(0)], [bytes(15) + b"\x63"], [directory(1)]],
    ids=["none", "twice", "reserved", "another broker's"],
)
def test_invalid_log_directories_are_rejected(log_dirs: list) -> None:
    cluster = ControllerCluster(2)
    assert refused(cluster, number=1, log_dirs=log_dirs) is ErrorCode.INVALID_REGISTRATION


def test_registration_without_metadata_version_is_rejected() -> None:
    assert refused(ControllerCluster(), features=[]) is ErrorCode.INVALID_REGISTRATION


def test_registration_requires_support_of_every_finalized_level() -> None:
    cluster = ControllerCluster(elr=True)
    newest = int(MetadataVersion.IBP_4_2_IV1)
    only_version = [Feature("metadata.version", 7, newest)]
    assert refused(cluster, features=only_version) is ErrorCode.UNSUPPORTED_VERSION
    too_old = [Feature("metadata.version", 7, newest - 1)]
    assert refused(ControllerCluster(), features=too_old) is ErrorCode.UNSUPPORTED_VERSION
    # The broker need not support a feature that is disabled.
    needy = [*only_version, Feature("group.version", 1, 1)]
    assert refused(ControllerCluster(), features=needy) is ErrorCode.UNSUPPORTED_VERSION


def test_registration_from_zookeeper_is_rejected() -> None:
    code = refused(ControllerCluster(), is_migrating_zk_broker=True)
    assert code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_registration_has_no_directories_at_old_levels() -> None:
    cluster = ControllerCluster(level=MetadataVersion.IBP_3_6_IV2)
    cluster.register(0, log_dirs=[])
    assert cluster.image.cluster.brokers[0].log_dirs == ()


# -- the effect of a restart on partitions --------------------------------------------------


@pytest.mark.parametrize("elr", [False, True])
def test_new_incarnation_is_in_no_isr(elr: bool) -> None:
    cluster = ControllerCluster(2, elr=elr)
    cluster.create("t", [0, 1])
    cluster.register(0, 1)
    assert cluster.partition().isr == (1,)
    assert cluster.partition().leader == 1


def test_unclean_restart_leaves_the_elr_and_clean_one_does_not() -> None:
    for is_clean in (False, True):
        cluster = ControllerCluster(2, elr=True)
        cluster.create("t", [0, 1], configs={"min.insync.replicas": "2"})
        epoch = cluster.image.cluster.broker_epoch(0)
        cluster.kill(0)
        assert cluster.partition().elr == (0,)
        cluster.register(0, 1, previous_broker_epoch=epoch if is_clean else epoch + 1)
        assert cluster.partition().elr == ((0,) if is_clean else ())


def test_registration_by_an_old_request_counts_as_unclean() -> None:
    cluster = ControllerCluster(2, elr=True)
    cluster.create("t", [0, 1], configs={"min.insync.replicas": "2"})
    cluster.kill(0)
    cluster.register(0, 1)
    assert cluster.partition().elr == ()


# -- heartbeats -----------------------------------------------------------------------------


def test_broker_is_unfenced_once_it_has_read_its_registration() -> None:
    cluster = ControllerCluster()
    epoch = cluster.register(0).broker_epoch
    reply = cluster.heartbeat(0, current_metadata_offset=epoch - 1)
    assert (reply.is_fenced, reply.is_caught_up) == (True, False)
    assert cluster.image.cluster.brokers[0].fenced
    reply = cluster.heartbeat(0, current_metadata_offset=epoch)
    assert (reply.is_fenced, reply.is_caught_up) == (False, True)
    assert not cluster.image.cluster.brokers[0].fenced


def test_broker_that_requests_fencing_stays_fenced() -> None:
    cluster = ControllerCluster()
    cluster.register(0)
    assert cluster.heartbeat(0, want_fence=True).is_fenced
    assert cluster.image.cluster.brokers[0].fenced


def test_heartbeat_of_an_older_incarnation_is_rejected() -> None:
    cluster = ControllerCluster(1)
    before = cluster.image
    reply = cluster.heartbeat(0, broker_epoch=cluster.image.cluster.broker_epoch(0) - 1)
    assert reply.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.heartbeat(7, broker_epoch=-1).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.image == before


def test_heartbeat_without_change_writes_nothing() -> None:
    cluster = ControllerCluster(1)
    before = cluster.image
    assert not cluster.heartbeat(0).is_fenced
    assert cluster.image is before


def test_broker_that_requests_fencing_loses_its_leaderships() -> None:
    cluster = ControllerCluster(2)
    cluster.create("t", [0, 1])
    reply = cluster.heartbeat(0, want_fence=True)
    assert reply.is_fenced and not reply.should_shut_down
    assert cluster.partition().leader == 1 and cluster.partition().isr == (1,)


def test_unfencing_elects_leaders_for_leaderless_partitions() -> None:
    cluster = ControllerCluster(2)
    cluster.create("t", [0, 1])
    cluster.kill(0)
    cluster.kill(1)
    assert cluster.partition().leader == -1 and cluster.partition().isr == (1,)
    cluster.heartbeat(0)
    assert cluster.partition().leader == -1
    cluster.heartbeat(1)
    assert cluster.partition().leader == 1


# -- controlled shutdown --------------------------------------------------------------------


def test_fenced_broker_may_shut_down_at_once() -> None:
    cluster = ControllerCluster()
    cluster.register(0)
    reply = cluster.heartbeat(0, want_shut_down=True)
    assert reply.should_shut_down and reply.is_fenced


def test_broker_without_leaderships_is_fenced_and_may_shut_down() -> None:
    cluster = ControllerCluster(2)
    cluster.create("t", [1, 0])
    reply = cluster.heartbeat(0, want_shut_down=True)
    assert reply.should_shut_down
    assert cluster.image.cluster.brokers[0].fenced
    assert cluster.partition().isr == (1,)


def test_leaderships_are_moved_before_shutdown_is_granted() -> None:
    cluster = ControllerCluster(2)
    cluster.create("t", [0, 1])
    reply = cluster.heartbeat(0, want_shut_down=True)
    assert not reply.should_shut_down and not reply.is_fenced
    broker = cluster.image.cluster.brokers[0]
    assert broker.in_controlled_shutdown and not broker.fenced
    assert cluster.partition().leader == 1 and cluster.partition().isr == (1,)
    moved = Offset(cluster.offset)
    behind = HeartbeatContext(moved, Offset(moved - 1))
    assert not cluster.heartbeat(0, behind, want_shut_down=True).should_shut_down
    assert not cluster.image.cluster.brokers[0].fenced
    reply = cluster.heartbeat(0, HeartbeatContext(moved, moved), want_shut_down=True)
    assert reply.should_shut_down
    assert cluster.image.cluster.brokers[0].fenced


def test_restarted_broker_leads_again() -> None:
    cluster = ControllerCluster(1)
    cluster.create("t", [0])
    cluster.heartbeat(0, want_shut_down=True)
    moved = Offset(cluster.offset)
    assert cluster.heartbeat(
        0, HeartbeatContext(moved, moved), want_shut_down=True
    ).should_shut_down
    cluster.register(0)
    assert not cluster.image.cluster.brokers[0].in_controlled_shutdown
    now = Offset(cluster.offset)
    cluster.heartbeat(0, HeartbeatContext(now, now))
    assert not cluster.image.cluster.brokers[0].fenced
    assert cluster.partition().leader == 0


def test_broker_that_still_leads_may_not_shut_down() -> None:
    cluster = ControllerCluster(1)
    cluster.create("t", [0])
    cluster.heartbeat(0, want_shut_down=True)
    # No other replica could lead: the partition has no leader.
    assert cluster.partition().leader == -1
    cluster = ControllerCluster(2)
    cluster.create("t", [0, 1])
    known = HeartbeatContext(Offset(0), Offset(10**6))
    assert not cluster.heartbeat(0, known, want_shut_down=True).should_shut_down


def test_controlled_shutdown_continues_under_a_new_controller() -> None:
    cluster = ControllerCluster(2)
    cluster.create("t", [0, 1])
    cluster.heartbeat(0, want_shut_down=True)
    reply = cluster.heartbeat(0, HeartbeatContext(), want_shut_down=True)
    assert reply.should_shut_down
    assert cluster.image.cluster.brokers[0].fenced


# -- fencing and unregistration -------------------------------------------------------------


def test_fencing_moves_leaderships_first() -> None:
    cluster = ControllerCluster(2)
    cluster.create("t", [0, 1])
    epoch = cluster.image.cluster.broker_epoch(0)
    decision = decide_fence(cluster.image, 0, epoch, cluster.settings)
    assert [type(r.message).__name__ for r in decision.records] == [
        "PartitionChangeRecord",
        "BrokerRegistrationChangeRecord",
    ]
    cluster.take(decision)
    assert cluster.partition().leader == 1


def test_broker_with_many_partitions_is_fenced_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "FENCE_SLICE_MAX", 2)
    cluster = ControllerCluster(2)
    for number in range(5):
        cluster.create(f"t{number}", [0] if number == 1 else [0, 1])
    epoch = cluster.image.cluster.broker_epoch(0)
    decision = decide_fence(cluster.image, 0, epoch, cluster.settings)
    names, is_fenced = [], []
    while decision is not None:
        names.append([type(each.message).__name__[:9] for each in decision.records])
        cluster.take(Decision(decision.records, None))
        is_fenced.append(cluster.image.cluster.brokers[0].fenced)
        decision = None if decision.then is None else decision.then(cluster.image)
    assert is_fenced == [False, False, True]
    assert names == [["Partition"] * 2, ["Partition"] * 2, ["Partition", "BrokerReg"]]
    leaders = [cluster.partition(f"t{number}").leader for number in range(5)]
    assert leaders == [1, -1, 1, 1, 1]


def test_expired_session_of_an_older_incarnation_fences_no_broker() -> None:
    cluster = ControllerCluster(1)
    epoch = cluster.image.cluster.broker_epoch(0)
    assert decide_fence(cluster.image, 0, epoch - 1, cluster.settings).records == []
    assert decide_fence(cluster.image, 5, 1, cluster.settings).records == []
    cluster.kill(0)
    assert decide_fence(cluster.image, 0, epoch, cluster.settings).records == []


def test_unregistered_broker_is_removed_from_every_isr() -> None:
    cluster = ControllerCluster(2)
    cluster.create("t", [0, 1])
    decision = decide_unregister_broker(cluster.image, UnregisterBrokerRequest(0), cluster.settings)
    assert cluster.take(decision).error_code == 0
    assert 0 not in cluster.image.cluster.brokers
    assert cluster.partition().isr == (1,) and cluster.partition().replicas == (0, 1)


def test_unregistering_an_unknown_broker_is_rejected() -> None:
    cluster = ControllerCluster(1)
    decision = decide_unregister_broker(cluster.image, UnregisterBrokerRequest(9), cluster.settings)
    assert decision.records == []
    assert decision.reply.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_cost_of_fencing_depends_only_on_the_brokers_partitions() -> None:
    cluster = ControllerCluster(3)
    for i in range(30):
        cluster.create(f"t{i}", [i % 2, 2] if i < 3 else [0, 1])
    epoch = cluster.image.cluster.broker_epoch(2)
    decision = decide_fence(cluster.image, 2, epoch, cluster.settings)
    assert len(decision.records) == 3 + 1
    assert registration(2).broker_id == 2
