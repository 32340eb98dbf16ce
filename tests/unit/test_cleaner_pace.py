"""How long the log cleaner rests: by the load of the event loop, its backlog, and its rate."""

import asyncio

import pytest
from partition_fixtures import append
from replicas_fixtures import TOPIC, Broker, clean_once, image_of, partition_of

from ottla.config.generated import BrokerConfig
from ottla.replication.host import HostPorts
from ottla.replication.maintenance.cleaner_loop import LogCleanerService
from ottla.replication.maintenance.cleaner_pace import (
    BUSY_RESTS,
    BUSY_SHARE,
    IDLE_RESTS,
    REST_S_MAX,
    URGENT_RESTS,
    CleanerPace,
)
from ottla.replication.maintenance.maintenance_loop import LogMaintenance

WORKED_S = 0.002
UNLIMITED = 0.0


def rests_of(pace: CleanerPace) -> float:
    """Return how many times as long as it worked the cleaner rests."""
    return pace.rest_s(WORKED_S, 0, UNLIMITED) / WORKED_S


def idle_pace() -> CleanerPace:
    pace = CleanerPace()
    for _ in range(200):
        pace.rested(0.0, 0.001)
    return pace


def test_cleaner_rests_longest_until_the_load_is_known() -> None:
    assert rests_of(CleanerPace()) == BUSY_RESTS


def test_cleaner_rests_little_on_an_idle_loop() -> None:
    assert rests_of(idle_pace()) == pytest.approx(IDLE_RESTS)


def test_cleaner_rests_at_once_longer_when_requests_come() -> None:
    pace = idle_pace()
    pace.rested(0.001 * BUSY_SHARE / 2, 0.001)
    assert rests_of(pace) == pytest.approx((IDLE_RESTS + BUSY_RESTS) / 2)
    pace.rested(0.001, 0.001)
    assert rests_of(pace) == BUSY_RESTS


def test_pause_between_two_requests_shortens_the_rest_only_a_little() -> None:
    pace = CleanerPace()
    pace.rested(0.0, 0.001)
    assert BUSY_RESTS * 0.8 < rests_of(pace) < BUSY_RESTS


def test_rest_of_no_time_says_nothing_about_the_load() -> None:
    """As in a simulation, whose time does not pass while code runs."""
    pace = CleanerPace()
    pace.rested(0.0, 0.0)
    assert rests_of(pace) == BUSY_RESTS
    assert pace.rest_s(0.0, 1000, UNLIMITED) == 0.0


def test_cleaner_rests_as_long_as_its_rate_demands() -> None:
    pace = CleanerPace()
    assert pace.rest_s(WORKED_S, 100_000, 1.0e9) == WORKED_S * BUSY_RESTS
    assert pace.rest_s(WORKED_S, 100_000, 1.0e6) == 0.1
    assert pace.rest_s(WORKED_S, 10**6, 1.0e6) == 1.0


def test_rest_after_a_slow_step_is_bounded() -> None:
    assert CleanerPace().rest_s(60.0, 1, UNLIMITED) == REST_S_MAX


def test_cleaner_that_falls_behind_rests_less_but_never_too_little() -> None:
    pace, backlog = CleanerPace(), 1000
    pace.begin(backlog, is_overdue=False)
    assert rests_of(pace) == BUSY_RESTS
    found = []
    for _ in range(4):
        backlog += 1
        pace.begin(backlog, is_overdue=False)
        found.append(rests_of(pace))
    assert found == [4.0, URGENT_RESTS, URGENT_RESTS, URGENT_RESTS]


def test_cleaner_that_keeps_up_again_rests_longer_again() -> None:
    pace = CleanerPace()
    for backlog in (1, 2, 3, 4):
        pace.begin(backlog, is_overdue=False)
    pace.begin(4, is_overdue=False)
    assert rests_of(pace) == 2 * URGENT_RESTS
    pace.begin(3, is_overdue=False)
    pace.begin(2, is_overdue=False)
    assert rests_of(pace) == BUSY_RESTS


def test_backlog_is_forgotten_once_nothing_is_left_to_clean() -> None:
    pace = CleanerPace()
    for backlog in (1, 2, 3):
        pace.begin(backlog, is_overdue=False)
    pace.caught_up()
    pace.begin(10, is_overdue=False)
    assert rests_of(pace) == BUSY_RESTS


def test_log_past_its_maximum_lag_is_urgent_at_once() -> None:
    pace = CleanerPace()
    pace.begin(1, is_overdue=True)
    assert rests_of(pace) == URGENT_RESTS


# -- the service ---------------------------------------------------------------


class Cpu:
    """CPU time of a loop that is busy all the time, or never."""

    def __init__(self, *, is_busy: bool) -> None:
        self.is_busy = is_busy

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() if self.is_busy else 0.0


@pytest.mark.parametrize("is_busy", [True, False])
def test_service_measures_what_others_use_of_the_loop(
    is_busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = {
        "internal.segment.bytes": "200",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.1",
    }
    image = image_of({"orders": (1, {0: partition_of(1)})}, configs={(TOPIC, "orders"): configs})
    broker = Broker(paths=("/d1",)).start(image)
    partition = broker.partitions.get("orders", 0)
    for number in range(6):
        append(partition, b"%064d" % number)
    ports = broker.host.ports
    broker.host.ports = HostPorts(
        ports.clock, ports.disk, ports.random, ports.committer, ports.worker, Cpu(is_busy=is_busy)
    )
    loads: list[float] = []
    rested = CleanerPace.rested

    def recorded(self: CleanerPace, used_s: float, rested_s: float) -> None:
        loads.append(used_s / rested_s)
        rested(self, used_s, rested_s)

    monkeypatch.setattr(CleanerPace, "rested", recorded)
    config = BrokerConfig(
        node_id=1,
        process_roles=("broker",),
        controller_listener_names=("C",),
        log_cleaner_dedupe_buffer_size=1 << 16,
    )
    maintenance = LogMaintenance(broker.host, broker.replicas)
    cleaning = LogCleanerService(broker.host, config, maintenance.now)

    asyncio.run(clean_once(cleaning, partition))
    assert loads
    assert all(load > 0.5 for load in loads) if is_busy else not any(loads)
