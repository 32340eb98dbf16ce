"""The lag of groups in records and seconds."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.observability.consumer_lag import GroupLag, PartitionLag, lag_families
from ottla.observability.exposition import WALKED_PER_STEP, Registry
from ottla.observability.offset_history import OBSERVATIONS_MAX, OffsetHistory


def history(*observations: tuple[int, int]) -> OffsetHistory:
    found = OffsetHistory()
    for now_ms, end in observations:
        found.observe(now_ms, end)
    return found


def test_age_is_interpolated_between_two_observations() -> None:
    ends = history((0, 0), (10_000, 100), (20_000, 200))
    assert ends.seconds_behind(150, 30_000) == 15
    assert ends.seconds_behind(100, 30_000) == 20
    assert ends.seconds_behind(0, 30_000) == 30


def test_group_at_the_end_is_not_behind() -> None:
    ends = history((0, 0), (10_000, 100))
    assert ends.seconds_behind(100, 60_000) == 0
    assert ends.seconds_behind(500, 60_000) == 0
    assert OffsetHistory().seconds_behind(0, 60_000) == 0


def test_record_before_the_first_observation_is_at_least_that_old() -> None:
    assert history((5_000, 100), (6_000, 110)).seconds_behind(3, 65_000) == 60


def test_pause_does_not_make_a_new_record_old() -> None:
    ends = history((0, 100), (10_000, 100), (20_000, 100), (3_600_000, 100), (3_610_000, 101))
    assert ends.seconds_behind(100, 3_610_000) == 10


def test_smaller_end_starts_over() -> None:
    assert history((0, 100), (1_000, 5)).seconds_behind(2, 11_000) == 10


@given(st.lists(st.integers(0, 50), min_size=1, max_size=300))
def test_age_is_bounded_by_the_observations_around_the_record(steps: list[int]) -> None:
    """Whatever was thinned: never younger than the end's last growth, never older than the first
    observation, and ordered by offset.
    """
    found, end = OffsetHistory(), 0
    for number, step in enumerate(steps):
        end += step
        found.observe(number * 1_000, end)
    now = len(steps) * 1_000
    ages = [found.seconds_behind(offset, now) for offset in range(steps[0], end)]
    assert ages == sorted(ages, reverse=True)
    assert all(0 < age <= len(steps) for age in ages)
    assert len(found._ends) <= OBSERVATIONS_MAX


def test_families_have_the_names_of_kafka_exporter() -> None:
    rows = (PartitionLag("t", 0, 90, 10, 4, 1.5), PartitionLag("t", 1, 5, 0, 0, 0.0))
    page = Registry([lambda: lag_families([GroupLag("g", "consumer", 2, rows)])]).render().decode()
    where = 'consumergroup="g",topic="t"'
    for line in (
        f'kafka_consumergroup_current_offset{{{where},partition="0"}} 90',
        f'kafka_consumergroup_lag{{{where},partition="0"}} 10',
        f'kafka_consumergroup_lag_seconds{{{where},partition="0"}} 1.5',
        f'ottla_consumergroup_stable_lag{{{where},partition="0"}} 4',
        f"kafka_consumergroup_lag_sum{{{where}}} 10",
        f"kafka_consumergroup_current_offset_sum{{{where}}} 95",
        'kafka_consumergroup_members{consumergroup="g"} 2',
    ):
        assert line in page.splitlines()


def test_walk_over_many_groups_pauses() -> None:
    rows = tuple(PartitionLag("t", number, 0, 0, 0, 0.0) for number in range(10))
    groups = [GroupLag(f"g{number}", "classic", 0, rows) for number in range(100)]
    pauses = sum(each is None for each in lag_families(groups))
    assert pauses == 100 * len(rows) // WALKED_PER_STEP
