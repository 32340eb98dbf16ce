"""Registration, fencing, controlled shutdown and unregistration of brokers."""

import pytest
from controller_world import CLUSTER, World, directory, incarnation, registration

from ottla.controller.broker_liveness import HeartbeatContext
from ottla.controller.brokers import decide_fence, decide_unregister_broker
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.broker_registration import Feature
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.types import Offset

# -- registration ---------------------------------------------------------------------------


def test_new_broker_is_fenced_and_its_epoch_is_its_record_offset() -> None:
    world = World()
    at = world.offset
    reply = world.register(3, rack="r1")
    broker = world.image.cluster.brokers[3]
    assert reply.error_code == 0
    assert reply.broker_epoch == broker.epoch == at
    assert broker.fenced and not broker.in_controlled_shutdown
    assert broker.rack == "r1"
    assert broker.incarnation_id == incarnation(3)
    assert broker.log_dirs == (directory(3),)


def test_same_incarnation_registers_at_once_under_a_new_epoch() -> None:
    """It may be a restart that lost what was not synced: it leads nothing by its old epoch."""
    world = World(2)
    world.create("t", [0, 1])
    epoch, leader_epoch = world.image.cluster.broker_epoch(0), world.partition().leader_epoch
    reply = world.register(0, has_session=True, rack="moved")
    broker = world.image.cluster.brokers[0]
    assert reply.error_code == 0 and reply.broker_epoch == broker.epoch > epoch
    assert broker.rack == "moved" and broker.fenced
    assert world.partition().isr == (1,) and world.partition().leader == 1
    assert world.partition().leader_epoch > leader_epoch


def test_new_incarnation_gets_a_higher_epoch_and_is_fenced() -> None:
    world = World(1)
    epoch = world.image.cluster.broker_epoch(0)
    assert world.register(0, 1).broker_epoch > epoch
    assert world.image.cluster.brokers[0].fenced


def refused(world: World, **more: object) -> ErrorCode:
    before = world.image
    reply = world.register(more.pop("broker_id", 0), **more)
    assert world.image == before and reply.broker_epoch == -1
    return ErrorCode(reply.error_code)


def test_broker_of_another_cluster_is_rejected() -> None:
    assert refused(World(), cluster_id="other") is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert CLUSTER != "other"


def test_duplicate_broker_id_is_rejected_while_the_first_has_a_session() -> None:
    world = World(1)
    code = refused(world, number=1, has_session=True)
    assert code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert world.register(0, 1, has_session=False).error_code == 0


@pytest.mark.parametrize(
    "log_dirs",
    [[], [directory(0), directory(0)], [bytes(15) + b"\x63"], [directory(1)]],
    ids=["none", "twice", "reserved", "another broker's"],
)
def test_invalid_log_directories_are_rejected(log_dirs: list) -> None:
    world = World(2)
    assert refused(world, number=1, log_dirs=log_dirs) is ErrorCode.INVALID_REGISTRATION


def test_registration_without_metadata_version_is_rejected() -> None:
    assert refused(World(), features=[]) is ErrorCode.INVALID_REGISTRATION


def test_registration_requires_support_of_every_finalized_level() -> None:
    world = World(elr=True)
    newest = int(MetadataVersion.IBP_4_2_IV1)
    only_version = [Feature("metadata.version", 7, newest)]
    assert refused(world, features=only_version) is ErrorCode.UNSUPPORTED_VERSION
    too_old = [Feature("metadata.version", 7, newest - 1)]
    assert refused(World(), features=too_old) is ErrorCode.UNSUPPORTED_VERSION
    # A feature that is off must be one that the broker can do without.
    needy = [*only_version, Feature("group.version", 1, 1)]
    assert refused(World(), features=needy) is ErrorCode.UNSUPPORTED_VERSION


def test_registration_from_zookeeper_is_rejected() -> None:
    code = refused(World(), is_migrating_zk_broker=True)
    assert code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_registration_has_no_directories_at_old_levels() -> None:
    world = World(level=MetadataVersion.IBP_3_6_IV2)
    world.register(0, log_dirs=[])
    assert world.image.cluster.brokers[0].log_dirs == ()


# -- what a restart means to partitions -----------------------------------------------------


@pytest.mark.parametrize("elr", [False, True])
def test_new_incarnation_is_in_no_isr(elr: bool) -> None:
    world = World(2, elr=elr)
    world.create("t", [0, 1])
    world.register(0, 1)
    assert world.partition().isr == (1,)
    assert world.partition().leader == 1


def test_unclean_restart_leaves_the_elr_and_clean_one_does_not() -> None:
    for is_clean in (False, True):
        world = World(2, elr=True)
        world.create("t", [0, 1], configs={"min.insync.replicas": "2"})
        epoch = world.image.cluster.broker_epoch(0)
        world.kill(0)
        assert world.partition().elr == (0,)
        world.register(0, 1, previous_broker_epoch=epoch if is_clean else epoch + 1)
        assert world.partition().elr == ((0,) if is_clean else ())


def test_registration_by_an_old_request_counts_as_unclean() -> None:
    world = World(2, elr=True)
    world.create("t", [0, 1], configs={"min.insync.replicas": "2"})
    world.kill(0)
    world.register(0, 1)
    assert world.partition().elr == ()


# -- heartbeats -----------------------------------------------------------------------------


def test_broker_is_unfenced_once_it_has_read_its_registration() -> None:
    world = World()
    epoch = world.register(0).broker_epoch
    reply = world.heartbeat(0, current_metadata_offset=epoch - 1)
    assert (reply.is_fenced, reply.is_caught_up) == (True, False)
    assert world.image.cluster.brokers[0].fenced
    reply = world.heartbeat(0, current_metadata_offset=epoch)
    assert (reply.is_fenced, reply.is_caught_up) == (False, True)
    assert not world.image.cluster.brokers[0].fenced


def test_broker_that_requests_fencing_stays_fenced() -> None:
    world = World()
    world.register(0)
    assert world.heartbeat(0, want_fence=True).is_fenced
    assert world.image.cluster.brokers[0].fenced


def test_heartbeat_of_an_older_incarnation_is_rejected() -> None:
    world = World(1)
    before = world.image
    reply = world.heartbeat(0, broker_epoch=world.image.cluster.broker_epoch(0) - 1)
    assert reply.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert world.heartbeat(7, broker_epoch=-1).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert world.image == before


def test_heartbeat_without_change_writes_nothing() -> None:
    world = World(1)
    before = world.image
    assert not world.heartbeat(0).is_fenced
    assert world.image is before


def test_broker_that_requests_fencing_loses_its_leaderships() -> None:
    world = World(2)
    world.create("t", [0, 1])
    reply = world.heartbeat(0, want_fence=True)
    assert reply.is_fenced and not reply.should_shut_down
    assert world.partition().leader == 1 and world.partition().isr == (1,)


def test_unfencing_elects_leaders_for_leaderless_partitions() -> None:
    world = World(2)
    world.create("t", [0, 1])
    world.kill(0)
    world.kill(1)
    assert world.partition().leader == -1 and world.partition().isr == (1,)
    world.heartbeat(0)
    assert world.partition().leader == -1
    world.heartbeat(1)
    assert world.partition().leader == 1


# -- controlled shutdown (LIV-09) -----------------------------------------------------------


def test_fenced_broker_may_shut_down_at_once() -> None:
    world = World()
    world.register(0)
    reply = world.heartbeat(0, want_shut_down=True)
    assert reply.should_shut_down and reply.is_fenced


def test_broker_without_leaderships_is_fenced_and_may_shut_down() -> None:
    world = World(2)
    world.create("t", [1, 0])
    reply = world.heartbeat(0, want_shut_down=True)
    assert reply.should_shut_down
    assert world.image.cluster.brokers[0].fenced
    assert world.partition().isr == (1,)


def test_leaderships_are_moved_before_shutdown_is_granted() -> None:
    world = World(2)
    world.create("t", [0, 1])
    reply = world.heartbeat(0, want_shut_down=True)
    assert not reply.should_shut_down and not reply.is_fenced
    broker = world.image.cluster.brokers[0]
    assert broker.in_controlled_shutdown and not broker.fenced
    assert world.partition().leader == 1 and world.partition().isr == (1,)
    moved = Offset(world.offset)
    behind = HeartbeatContext(moved, Offset(moved - 1))
    assert not world.heartbeat(0, behind, want_shut_down=True).should_shut_down
    assert not world.image.cluster.brokers[0].fenced
    reply = world.heartbeat(0, HeartbeatContext(moved, moved), want_shut_down=True)
    assert reply.should_shut_down
    assert world.image.cluster.brokers[0].fenced


def test_restarted_broker_leads_again() -> None:
    world = World(1)
    world.create("t", [0])
    world.heartbeat(0, want_shut_down=True)
    moved = Offset(world.offset)
    assert world.heartbeat(0, HeartbeatContext(moved, moved), want_shut_down=True).should_shut_down
    world.register(0)
    assert not world.image.cluster.brokers[0].in_controlled_shutdown
    now = Offset(world.offset)
    world.heartbeat(0, HeartbeatContext(now, now))
    assert not world.image.cluster.brokers[0].fenced
    assert world.partition().leader == 0


def test_broker_that_still_leads_may_not_shut_down() -> None:
    world = World(1)
    world.create("t", [0])
    world.heartbeat(0, want_shut_down=True)
    # Nobody else could lead: with no other replica the partition has none.
    assert world.partition().leader == -1
    world = World(2)
    world.create("t", [0, 1])
    known = HeartbeatContext(Offset(0), Offset(10**6))
    assert not world.heartbeat(0, known, want_shut_down=True).should_shut_down


def test_controlled_shutdown_continues_under_a_new_controller() -> None:
    world = World(2)
    world.create("t", [0, 1])
    world.heartbeat(0, want_shut_down=True)
    reply = world.heartbeat(0, HeartbeatContext(), want_shut_down=True)
    assert reply.should_shut_down
    assert world.image.cluster.brokers[0].fenced


# -- fencing and unregistration -------------------------------------------------------------


def test_fencing_moves_leaderships_first() -> None:
    world = World(2)
    world.create("t", [0, 1])
    epoch = world.image.cluster.broker_epoch(0)
    decision = decide_fence(world.image, 0, epoch, world.settings)
    assert [type(r.message).__name__ for r in decision.records] == [
        "PartitionChangeRecord",
        "BrokerRegistrationChangeRecord",
    ]
    world.take(decision)
    assert world.partition().leader == 1


def test_expired_session_of_an_older_incarnation_fences_no_broker() -> None:
    world = World(1)
    epoch = world.image.cluster.broker_epoch(0)
    assert decide_fence(world.image, 0, epoch - 1, world.settings).records == []
    assert decide_fence(world.image, 5, 1, world.settings).records == []
    world.kill(0)
    assert decide_fence(world.image, 0, epoch, world.settings).records == []


def test_unregistered_broker_is_removed_from_every_isr() -> None:
    world = World(2)
    world.create("t", [0, 1])
    decision = decide_unregister_broker(world.image, UnregisterBrokerRequest(0), world.settings)
    assert world.take(decision).error_code == 0
    assert 0 not in world.image.cluster.brokers
    assert world.partition().isr == (1,) and world.partition().replicas == (0, 1)


def test_unregistering_an_unknown_broker_is_rejected() -> None:
    world = World(1)
    decision = decide_unregister_broker(world.image, UnregisterBrokerRequest(9), world.settings)
    assert decision.records == []
    assert decision.reply.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_cost_of_fencing_depends_only_on_the_brokers_partitions() -> None:
    world = World(3)
    for i in range(30):
        world.create(f"t{i}", [i % 2, 2] if i < 3 else [0, 1])
    epoch = world.image.cluster.broker_epoch(2)
    decision = decide_fence(world.image, 2, epoch, world.settings)
    assert len(decision.records) == 3 + 1
    assert registration(2).broker_id == 2
