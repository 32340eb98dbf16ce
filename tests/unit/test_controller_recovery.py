"""Unclean recovery: replicas are polled, and the most complete log leads (KIP-966)."""

import asyncio
from collections.abc import Sequence

import pytest
from controller_cluster import ControllerCluster
from tests.patience import SECONDS_MAX

from ottla.controller.active_controller import Moment
from ottla.controller.brokers import decide_fence
from ottla.controller.recovery_loop import UncleanRecovery
from ottla.controller.unclean_recovery import (
    ASKED_MAX,
    LeaderlessPartition,
    LogState,
    decide_recoveries,
    most_complete,
    partitions_to_recover,
    polls_by_broker,
    recoveries,
)
from ottla.protocol.faults import NotController
from ottla.protocol.types import LeaderEpoch, Millis, Offset, TopicIdPartition

UNCLEAN = {"unclean.leader.election.enable": "true"}


def leaderless_cluster(elr: bool = False, **configs: str) -> ControllerCluster:
    """Return a cluster where only the leader of three replicas was in sync, and failed."""
    cluster = ControllerCluster(4, elr=elr)
    cluster.create("t", [0, 1, 2], configs={**UNCLEAN, **configs})
    cluster.isr(0)
    cluster.kill(0)
    assert cluster.partition().leader == -1
    return cluster


# -- the most complete log -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({1: (3, 50), 2: (3, 60)}, 2),
        ({1: (4, 10), 2: (3, 60)}, 1),
        ({1: (3, 60), 2: (3, 60)}, 1),
        ({2: (3, 1)}, 2),
        ({1: (-1, 0), 2: (0, 1)}, 2),
        ({1: (-1, 90), 2: (5, 80)}, 1),
        ({1: (-1, 70), 2: (5, 80)}, 2),
        ({}, -1),
    ],
    ids=[
        "the longer log",
        "a later leadership beats a longer log",
        "of equals the first replica",
        "the replica that answered",
        "an empty log has nothing",
        "an epoch that is gone is not an old one",
        "ends alone count then",
        "nobody answered",
    ],
)
def test_most_complete_log_is_chosen(states: dict[int, tuple[int, int]], expected: int) -> None:
    replies = {replica: LogState(*state) for replica, state in states.items()}
    assert most_complete((1, 2), replies) == expected


# -- polls and elections ---------------------------------------------------------------------


def test_only_live_replicas_are_polled() -> None:
    cluster = leaderless_cluster()
    (leaderless,) = partitions_to_recover(cluster.state, cluster.settings)
    assert list(leaderless.candidates) == [1, 2]
    assert leaderless.topic == "t"
    cluster.kill(2)
    assert list(polls_by_broker(partitions_to_recover(cluster.state, cluster.settings))) == [1]


def test_most_complete_replica_is_elected_not_the_first() -> None:
    cluster = leaderless_cluster()
    cluster.recover(b1=(0, 10), b2=(0, 11))
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))


def test_unanswering_replica_is_not_elected() -> None:
    cluster = leaderless_cluster()
    cluster.recover(b1=(0, 10))
    assert cluster.partition().leader == 1


def test_no_leader_is_elected_without_an_answer() -> None:
    cluster = leaderless_cluster()
    cluster.recover()
    assert cluster.partition().leader == -1


def test_topics_without_unclean_election_are_not_recovered() -> None:
    cluster = ControllerCluster(2)
    cluster.create("t", [0, 1])
    cluster.isr(0)
    cluster.kill(0)
    assert partitions_to_recover(cluster.state, cluster.settings) == []


def test_partitions_without_live_replicas_are_not_polled() -> None:
    cluster = leaderless_cluster()
    cluster.kill(1)
    cluster.kill(2)
    assert partitions_to_recover(cluster.state, cluster.settings) == []


def found_in(cluster: ControllerCluster) -> dict:
    leaderless = partitions_to_recover(cluster.state, cluster.settings)
    answers = {1: {each.at: LogState(0, 9) for each in leaderless}}
    return recoveries(leaderless, answers)


def test_complete_replica_that_returned_meanwhile_leads() -> None:
    cluster = leaderless_cluster()
    found = found_in(cluster)
    cluster.heartbeat(0)
    assert cluster.partition().leader == 0
    assert decide_recoveries(cluster.image, found, cluster.settings).records == []


def test_broker_restarted_since_its_answer_is_not_elected() -> None:
    cluster = leaderless_cluster()
    found = found_in(cluster)
    cluster.kill(1)
    cluster.start(1, 1)
    assert decide_recoveries(cluster.image, found, cluster.settings).records == []


def test_broker_fenced_since_its_answer_is_not_elected() -> None:
    cluster = leaderless_cluster()
    found = found_in(cluster)
    cluster.kill(1)
    assert decide_recoveries(cluster.image, found, cluster.settings).records == []


def test_partition_changed_since_the_poll_is_not_recovered() -> None:
    cluster = leaderless_cluster(elr=True)
    found = {
        at: recovery._replace(partition_epoch=recovery.partition_epoch - 1)
        for at, recovery in found_in(cluster).items()
    }
    assert found
    assert decide_recoveries(cluster.image, found, cluster.settings).records == []


def test_most_complete_log_is_preferred_to_the_last_known_leader() -> None:
    cluster = ControllerCluster(3, elr=True)
    cluster.create("t", [0, 1], configs={**UNCLEAN, "min.insync.replicas": "1"})
    cluster.isr(0)
    cluster.kill(0)
    assert cluster.partition().last_known_elr == (0,)
    cluster.recover(b1=(0, 3))
    assert cluster.partition().leader == 1
    assert cluster.partition().elr == ()


# -- the loop --------------------------------------------------------------------------------


class FakeController:
    """A controller of a small cluster; it may lose its leadership."""

    def __init__(self, cluster: ControllerCluster) -> None:
        self.cluster = cluster
        self.is_active = True

    @property
    def newest(self):
        return self.cluster.state if self.is_active else None

    async def submit(self, decide):
        if not self.is_active:
            raise NotController("gone")
        moment = Moment(
            self.cluster.state, Millis(0), Millis(0), Millis(0), Offset(0), LeaderEpoch(0)
        )
        return self.cluster.take(decide(moment))


def looping(
    cluster: ControllerCluster, ends: dict[int, tuple[int, int]]
) -> tuple[UncleanRecovery, list[int]]:
    asked: list[int] = []

    async def ask(
        broker_id: int, leaderless: Sequence[LeaderlessPartition]
    ) -> dict[TopicIdPartition, LogState] | None:
        asked.append(broker_id)
        if broker_id not in ends:
            return None
        return {each.at: LogState(*ends[broker_id]) for each in leaderless}

    return UncleanRecovery(FakeController(cluster), ask, cluster.settings, 3_600_000), asked


async def until(condition) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)


def test_recovery_loop_runs_on_new_images() -> None:
    async def scenario() -> None:
        cluster = leaderless_cluster()
        recovery, asked = looping(cluster, {1: (0, 4), 2: (0, 5), 3: (0, 1)})
        running = asyncio.create_task(recovery.run(lambda: None))
        await until(lambda: cluster.partition().leader == 2)
        assert sorted(asked) == [1, 2]
        assert recovery.elected == 1
        cluster.create("u", [1, 3], configs=UNCLEAN)
        cluster.isr(1, name="u")
        cluster.kill(1)
        assert cluster.partition("u").leader == -1
        recovery.on_image(cluster.delta, cluster.image)
        await until(lambda: cluster.partition("u").leader == 3)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(scenario())


def test_inactive_controller_elects_no_leader() -> None:
    async def scenario() -> None:
        cluster = leaderless_cluster()
        recovery, asked = looping(cluster, {1: (0, 4)})
        recovery.controller.is_active = False
        assert not await recovery._round()
        assert await recovery.find([]) == {}
        assert asked == []

    asyncio.run(scenario())


def test_many_partitions_are_polled_in_portions() -> None:
    async def scenario() -> None:
        cluster = ControllerCluster(2)
        count = 2 * ASKED_MAX + 1
        cluster.create("t", *[[0, 1]] * count, configs=UNCLEAN)
        for index in range(count):
            cluster.isr(0, partition_id=index)
        cluster.kill(0)
        sizes: list[int] = []

        async def ask(
            broker_id: int, leaderless: Sequence[LeaderlessPartition]
        ) -> dict[TopicIdPartition, LogState] | None:
            sizes.append(len(leaderless))
            # No replica answers for the first ones: the others do not wait for that.
            return {each.at: LogState(0, 1) for each in leaderless} if len(sizes) > 1 else None

        recovery = UncleanRecovery(FakeController(cluster), ask, cluster.settings, 1)
        assert await recovery._round(), "some are left"
        assert sizes == [ASKED_MAX, ASKED_MAX, 1]
        led = [each for each in range(count) if cluster.partition("t", each).leader == 1]
        assert led == list(range(ASKED_MAX, count))

    asyncio.run(scenario())


def test_requested_election_ignores_the_topic_setting() -> None:
    async def scenario() -> None:
        cluster = ControllerCluster(2)
        cluster.create("t", [0, 1])
        cluster.isr(0)
        cluster.kill(0)
        recovery, _ = looping(cluster, {1: (2, 7)})
        at = TopicIdPartition(cluster.topic("t").id, 0)
        found = await recovery.find([at])
        assert found[at].leader == 1
        decision = decide_recoveries(cluster.image, found, cluster.settings)
        recovery.note(cluster.image, decision.records)
        assert recovery.elected == 1
        cluster.take(decision)
        assert cluster.partition().leader == 1
        assert await recovery.find([at]) == {}, "there is a leader now"
        cluster.heartbeat(0)
        clean = decide_fence(
            cluster.image, 1, cluster.image.cluster.broker_epoch(1), cluster.settings
        )
        recovery.note(cluster.image, clean.records)
        assert recovery.elected == 1, "nobody was elected"

    asyncio.run(scenario())
