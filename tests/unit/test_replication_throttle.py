"""Replication throttles: the rule, and its use by leaders, followers and moves."""

import asyncio

import pytest
from fetch_harness import Broker, only, part
from moves_fixtures import ORDERS, Mover, led
from partition_fixtures import HandClock, append, batch_of
from replicas_fixtures import BROKER, NODE, image_of, partition_of
from test_fetch import as_follower

from ottla.config.generated import TopicConfig
from ottla.metadata.delta import delta_between
from ottla.metadata.image import EMPTY
from ottla.protocol.types import Millis, NodeId
from ottla.quotas.replication_throttle import UNLIMITED, Allowance, is_throttled
from ottla.replication.fetching.throttles import Throttles
from ottla.runtime.pending import Pending

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


# -- the rule ------------------------------------------------------------------


@pytest.mark.parametrize("rate", [UNLIMITED, 0])
def test_follower_without_a_rate_is_not_throttled(rate: int) -> None:
    free = Allowance(rate)
    free.spend(10**12, Millis(0))
    assert not free.is_limited and free.wait_ms(Millis(0)) == 0


def test_exceeded_rate_recovers_with_time() -> None:
    allowance = Allowance(1000)
    allowance.spend(3000, Millis(0))
    assert allowance.is_exceeded(Millis(0))
    assert allowance.wait_ms(Millis(0)) == 3001
    assert allowance.is_exceeded(Millis(2999))
    assert not allowance.is_exceeded(Millis(3000))


def test_unused_rate_is_kept_for_one_second() -> None:
    allowance = Allowance(1000)
    allowance.spend(1001, Millis(1_000_000))
    assert allowance.is_exceeded(Millis(1_000_000))
    assert not allowance.is_exceeded(Millis(1_000_001))


def test_over_time_the_rate_is_kept() -> None:
    allowance, now, sent = Allowance(10_000), 0, 0
    while now < 60_000:
        now += allowance.wait_ms(Millis(now))
        allowance.spend(7_777, Millis(now))
        sent += 7_777
    assert 590_000 < sent < 10_000 * 61 + 7_777


def test_new_rate_applies_at_once() -> None:
    allowance = Allowance(1000)
    allowance.spend(10_000, Millis(0))
    allowance.limit(10_000)
    assert allowance.wait_ms(Millis(0)) == 1001
    allowance.limit(UNLIMITED)
    assert allowance.wait_ms(Millis(0)) == 0


def test_which_replicas_are_listed() -> None:
    assert is_throttled(("*",), 3, 1)
    assert is_throttled(("0:1", "3:2"), 3, 2)
    assert not is_throttled(("0:1", "3:2"), 3, 1)
    assert not is_throttled((), 0, 1)
    assert not is_throttled(("none",), 0, 1)


# -- rates of the image --------------------------------------------------------


def rates(of: Throttles) -> list[int]:
    return [of.leader.rate, of.follower.rate, of.moves.rate]


def test_rates_come_from_the_file_the_cluster_and_the_broker() -> None:
    throttles = Throttles(NODE, {LEADER_RATE: "7"}, HandClock())
    first = image_of({}, {(BROKER, ""): {FOLLOWER_RATE: "5", MOVE_RATE: "6"}})
    throttles.on_image(delta_between(EMPTY, first), first)
    assert rates(throttles) == [7, 5, 6]
    own = {(BROKER, ""): {FOLLOWER_RATE: "5"}, (BROKER, str(NODE)): {FOLLOWER_RATE: "9"}}
    second = image_of({}, own)
    throttles.on_image(delta_between(first, second), second)
    assert rates(throttles) == [7, 9, UNLIMITED]
    throttles.on_image(delta_between(second, EMPTY), EMPTY)
    assert rates(throttles) == [7, UNLIMITED, UNLIMITED]


def test_invalid_rate_changes_nothing() -> None:
    throttles = Throttles(NODE, {}, HandClock())
    bad = image_of({}, {(BROKER, ""): {FOLLOWER_RATE: "much", LEADER_RATE: "3"}})
    throttles.on_image(delta_between(EMPTY, bad), bad)
    assert rates(throttles) == [3, UNLIMITED, UNLIMITED]


# -- on the leader -------------------------------------------------------------

SLOW = TopicConfig(leader_replication_throttled_replicas=("0:0",))


def leading(
    config: TopicConfig, isr: tuple[int, ...] = (0,)
) -> tuple[Broker, Throttles, HandClock]:
    clock = HandClock()
    throttles = Throttles(NodeId(0), {}, clock)
    throttles.leader.limit(100)
    broker = Broker(sources={"throttles": throttles})
    partition = broker.host(config=config, replicas=(0, 1), isr=isr)
    for _ in range(3):
        append(partition, b"x" * 200)
    return broker, throttles, clock


def sizes(broker: Broker, count: int) -> list[int]:
    """Return what a follower receives by so many fetches from the start."""
    found = []
    for _ in range(count):
        row = only(broker.get(as_follower(part(log_start_offset=0)), 17))
        found.append(len(row.records or b""))
    return found


def test_out_of_sync_follower_is_throttled_while_the_rate_is_exceeded() -> None:
    broker, _, clock = leading(SLOW)
    first, second = sizes(broker, 2)
    assert first > 600 and second == 0
    clock.pass_ms(60_000)
    assert sizes(broker, 1) == [first]


def test_in_sync_follower_is_never_throttled() -> None:
    broker, _, _ = leading(SLOW, isr=(0, 1))
    assert 0 not in sizes(broker, 3)


def test_follower_of_an_unlisted_partition_is_never_throttled() -> None:
    broker, throttles, _ = leading(
        TopicConfig(leader_replication_throttled_replicas=("1:0", "0:1"))
    )
    assert 0 not in sizes(broker, 3)
    assert throttles.leader.wait_ms(Millis(0)) == 0


def test_throttled_follower_is_not_woken_by_growth() -> None:
    async def work() -> None:
        broker, _, _ = leading(SLOW)
        sizes(broker, 1)
        reply = broker.ask(as_follower(part(log_start_offset=0), max_wait_ms=50), 17)
        assert isinstance(reply, Pending)
        append(broker.partitions.find("orders", 0), b"more")
        assert not reply.is_done
        assert only(await broker.wait(reply, 17)).records == b""

    asyncio.run(work())


def test_consumer_is_never_throttled_by_replication_rates() -> None:
    broker, throttles, _ = leading(SLOW)
    throttles.leader.spend(10**6, Millis(0))
    broker.partitions.find("orders", 0).log.set_high_watermark(3)
    row = only(broker.get(as_follower(part(), replica=-1), 17))
    assert len(row.records or b"") > 600


# -- on the follower -----------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "isr", "is_held_back"),
    [
        (("0:1",), (2,), True),
        (("*",), (2,), True),
        (("0:2",), (2,), False),
        (("0:1",), (1, 2), False),
    ],
)
def test_follower_throttles_itself(
    listed: tuple[str, ...], isr: tuple[int, ...], is_held_back: bool
) -> None:
    key = "follower.replication.throttled.replicas"
    made = partition_of(2, 1, leader=2, isr=isr)
    mover = Mover().start(
        image_of({"orders": (1, {0: made})}, {(2, "orders"): {key: ",".join(listed)}})
    )
    throttles, partition = mover.host.throttles, mover.partition
    assert not throttles.holds_back(partition)
    throttles.follower.limit(100)
    throttles.fetched(partition, 5000)
    assert throttles.holds_back(partition) is is_held_back
    mover.broker.clock.pass_ms(60_000)
    assert not throttles.holds_back(partition)


# -- between directories -------------------------------------------------------


def test_move_waits_as_its_rate_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    mover = Mover().start(led(configs={"internal.segment.bytes": "400"}))
    mover.append(*[b"x" * 300] * 4)
    mover.host.throttles.moves.limit(1000)
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        mover.broker.clock.pass_ms(int(seconds * 1000))

    monkeypatch.setattr("ottla.replication.maintenance.log_dir_moves.asyncio.sleep", sleep)
    mover.move()
    mover.carry_out()
    size = len(batch_of(b"x" * 300))
    assert mover.here.path == "/d2" and ORDERS in mover.here.logs
    # The last chunk is swapped in at once, without waiting.
    assert sum(rests) == pytest.approx(3 * size / 1000, abs=0.01)
