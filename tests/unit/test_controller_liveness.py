"""Broker sessions by the time of the last heartbeat."""

from controller_cluster import ControllerCluster

from ottla.controller.broker_liveness import (
    CLOSED_MAX,
    OFFSET_MAX,
    HeartbeatContext,
    Liveness,
    SessionChange,
    Transition,
)
from ottla.protocol.types import Millis, Offset
from ottla.runtime.ports import Address

TIMEOUT = 9000


def seeded(cluster: ControllerCluster, now: int = 0) -> Liveness:
    liveness = Liveness(TIMEOUT)
    liveness.seed(cluster.image, Millis(now))
    return liveness


def touch(
    liveness: Liveness, cluster: ControllerCluster, broker_id: int, now: int, offset: int = 0
) -> None:
    epoch = cluster.image.cluster.broker_epoch(broker_id)
    liveness.touch(broker_id, epoch, Offset(offset), Millis(now))


def test_broker_has_a_session_while_heartbeats_arrive_in_time() -> None:
    cluster = ControllerCluster(1)
    liveness = seeded(cluster)
    assert liveness.tick(Millis(TIMEOUT)) == []
    touch(liveness, cluster, 0, TIMEOUT)
    assert liveness.tick(Millis(2 * TIMEOUT)) == []
    epoch = cluster.image.cluster.broker_epoch(0)
    assert liveness.has_session(0, epoch, Millis(2 * TIMEOUT))
    assert not liveness.has_session(0, epoch, Millis(2 * TIMEOUT + 1))


def test_expiry_and_renewal_are_reported_once_each() -> None:
    cluster = ControllerCluster(2)
    liveness = seeded(cluster)
    touch(liveness, cluster, 1, 5000)
    epoch = cluster.image.cluster.broker_epoch(0)
    assert liveness.tick(Millis(TIMEOUT + 1)) == [SessionChange(0, epoch, Transition.ALIVE_TO_DEAD)]
    assert liveness.tick(Millis(TIMEOUT + 2)) == []
    touch(liveness, cluster, 0, TIMEOUT + 3)
    assert liveness.tick(Millis(TIMEOUT + 4)) == [SessionChange(0, epoch, Transition.DEAD_TO_ALIVE)]
    assert liveness.tick(Millis(TIMEOUT + 5)) == []
    assert (liveness.expirations, liveness.renewals) == (1, 1)


def test_new_controller_starts_all_sessions_at_its_start() -> None:
    """A broker that only ever contacted the old leader must be able to time out."""
    cluster = ControllerCluster(2)
    liveness = seeded(cluster, now=50_000)
    assert liveness.tick(Millis(50_000 + TIMEOUT)) == []
    dead = [turn.broker_id for turn in liveness.tick(Millis(50_001 + TIMEOUT))]
    assert dead == [0, 1]


def test_no_session_expires_while_the_controller_is_stalled() -> None:
    cluster = ControllerCluster(1)
    liveness = seeded(cluster)
    epoch = cluster.image.cluster.broker_epoch(0)
    for now in range(1000, 5000, 1000):
        liveness.look(Millis(now), 1000)
    # Four seconds without heartbeats count, and one of the ten that follow.
    liveness.look(Millis(14_000), 1000)
    assert liveness.has_session(0, epoch, Millis(14_000))
    assert liveness.has_session(0, epoch, Millis(18_000))
    assert not liveness.has_session(0, epoch, Millis(18_001))


def test_slightly_late_check_extends_no_session() -> None:
    cluster = ControllerCluster(1)
    liveness = seeded(cluster)
    for now in range(2000, TIMEOUT + 2001, 2000):
        liveness.look(Millis(now), 1000)
    epoch = cluster.image.cluster.broker_epoch(0)
    assert not liveness.has_session(0, epoch, Millis(TIMEOUT + 1))


def test_contact_time_is_never_in_the_future() -> None:
    cluster = ControllerCluster(1)
    liveness = seeded(cluster)
    touch(liveness, cluster, 0, 9_900)
    liveness.look(Millis(10_000), 1000)
    epoch = cluster.image.cluster.broker_epoch(0)
    assert not liveness.has_session(0, epoch, Millis(10_001 + TIMEOUT))


def test_fenced_broker_has_no_session() -> None:
    cluster = ControllerCluster(1)
    cluster.kill(0)
    liveness = seeded(cluster)
    assert not liveness.has_session(0, cluster.image.cluster.broker_epoch(0), Millis(0))
    assert liveness.tick(Millis(10**6)) == []


def test_heartbeat_of_an_older_incarnation_is_ignored() -> None:
    cluster = ControllerCluster(1)
    liveness = seeded(cluster)
    liveness.touch(0, cluster.image.cluster.broker_epoch(0) - 1, Offset(0), Millis(TIMEOUT))
    assert len(liveness.tick(Millis(TIMEOUT + 1))) == 1
    assert liveness.heartbeats == 0


def test_session_begins_with_the_first_heartbeat() -> None:
    liveness = Liveness(TIMEOUT)
    liveness.register(4, 10, Millis(0))
    assert not liveness.has_session(4, 10, Millis(0))
    liveness.touch(4, 10, Offset(10), Millis(1))
    assert liveness.has_session(4, 10, Millis(1))
    liveness.register(4, 20, Millis(2))
    assert not liveness.has_session(4, 10, Millis(2))
    assert not liveness.has_session(4, 20, Millis(2))


def test_changed_registration_keeps_its_session() -> None:
    liveness = Liveness(TIMEOUT)
    liveness.register(4, 10, Millis(0))
    liveness.touch(4, 10, Offset(10), Millis(1))
    liveness.register(4, 10, Millis(TIMEOUT))
    assert liveness.has_session(4, 10, Millis(2 * TIMEOUT))


def test_fenced_and_unregistered_brokers_have_no_session() -> None:
    cluster = ControllerCluster(2)
    liveness = seeded(cluster)
    epochs = [cluster.image.cluster.broker_epoch(i) for i in range(2)]
    liveness.fence(0)
    liveness.forget(1)
    assert not liveness.has_session(0, epochs[0], Millis(0))
    assert not liveness.has_session(1, epochs[1], Millis(0))
    # It was fenced by a record: the registry has no change to report.
    assert liveness.tick(Millis(10**6)) == []


def test_shutdown_waits_for_the_slowest_remaining_broker() -> None:
    cluster = ControllerCluster(3)
    liveness = seeded(cluster)
    for broker_id, offset in ((0, 1), (1, 50), (2, 70)):
        touch(liveness, cluster, broker_id, 1, offset)
    assert liveness.heartbeat_context(0, cluster.image) == HeartbeatContext(Offset(-1), Offset(1))
    liveness.enter_shutdown(0, Offset(60))
    liveness.enter_shutdown(0, Offset(99))
    assert liveness.heartbeat_context(0, cluster.image) == HeartbeatContext(Offset(60), Offset(50))
    cluster.kill(1)
    assert liveness.heartbeat_context(0, cluster.image) == HeartbeatContext(Offset(60), Offset(70))


def test_shutdown_of_the_last_broker_waits_for_no_broker() -> None:
    cluster = ControllerCluster(1)
    liveness = seeded(cluster)
    liveness.enter_shutdown(0, Offset(5))
    assert liveness.heartbeat_context(0, cluster.image) == HeartbeatContext(Offset(5), OFFSET_MAX)
    liveness.fence(0)
    assert liveness.heartbeat_context(0, cluster.image).shutdown_offset == -1


# -- suspicion -------------------------------------------------------------------------------

PEER = ("CONTROLLER", Address("10.0.0.1", 5000))
OTHER = ("CONTROLLER", Address("10.0.0.1", 5001))


def beat(
    liveness: Liveness, cluster: ControllerCluster, connection: tuple[str, Address], now: int = 1
) -> None:
    epoch = cluster.image.cluster.broker_epoch(0)
    liveness.touch(0, epoch, Offset(0), Millis(now), connection)


def suspected(liveness: Liveness, now: int = 1) -> list[int]:
    found = liveness.suspicions()
    return [each.broker_id for each in found if liveness.is_suspected(each, Millis(now))]


def test_new_controller_suspects_every_unfenced_broker_until_its_heartbeat() -> None:
    cluster = ControllerCluster(3)
    cluster.kill(2)
    liveness = seeded(cluster)
    assert suspected(liveness) == [0, 1]
    beat(liveness, cluster, PEER)
    assert suspected(liveness) == [1]


def test_closed_heartbeat_connection_makes_a_broker_suspected_until_its_heartbeat() -> None:
    cluster = ControllerCluster(1)
    liveness = seeded(cluster)
    beat(liveness, cluster, PEER)
    assert not liveness.connection_closed(("CONTROLLER", Address("10.0.0.1", 5002)))
    assert liveness.connection_closed(PEER)
    (suspicion,) = liveness.suspicions()
    beat(liveness, cluster, OTHER)
    assert suspected(liveness) == []
    assert not liveness.is_suspected(suspicion, Millis(1))


def test_connection_that_closes_before_its_heartbeat_is_decided_makes_a_broker_suspected() -> None:
    cluster = ControllerCluster(1)
    liveness = seeded(cluster)
    assert not liveness.connection_closed(PEER)
    beat(liveness, cluster, PEER)
    assert suspected(liveness) == [0]


def test_closed_connections_are_forgotten_beyond_their_bound() -> None:
    cluster = ControllerCluster(1)
    liveness = seeded(cluster)
    liveness.connection_closed(PEER)
    for port in range(CLOSED_MAX):
        liveness.connection_closed(("CONTROLLER", Address("10.0.0.2", port)))
    beat(liveness, cluster, PEER)
    assert suspected(liveness) == []


def test_new_incarnation_is_not_suspected_for_the_old_one() -> None:
    cluster = ControllerCluster(1)
    liveness = seeded(cluster)
    (suspicion,) = liveness.suspicions()
    liveness.register(0, suspicion.epoch + 1, Millis(1))
    assert suspected(liveness) == []
    assert not liveness.is_suspected(suspicion, Millis(1))


def test_suspicion_ends_with_the_session_and_with_the_leadership() -> None:
    cluster = ControllerCluster(1)
    liveness = seeded(cluster)
    (suspicion,) = liveness.suspicions()
    assert liveness.is_suspected(suspicion, Millis(TIMEOUT))
    assert not liveness.is_suspected(suspicion, Millis(TIMEOUT + 1))
    liveness.seed(cluster.image, Millis(0))
    assert not liveness.is_suspected(suspicion, Millis(1))
    (suspicion,) = liveness.suspicions()
    liveness.acquit(suspicion)
    assert liveness.suspicions() == []
    assert liveness.has_session(0, suspicion.epoch, Millis(1))
