"""Plans for moving replicas: as few as possible, spread over brokers and racks."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.commands.reassign_plan import BadPlan, Brokers, Location, plan_drain, plan_onto
from ottla.cli.commands.reassign_throttle import Move, limits, no_limits
from ottla.protocol.types import TopicPartition


def named(*replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("t", at): each for at, each in enumerate(replicas)}


def brokers(*ids: int, racks: dict[int, str] | None = None) -> Brokers:
    return Brokers({each: Location((racks or {}).get(each)) for each in ids}, {})


def test_what_may_stay_stays() -> None:
    assert plan_onto(named((1, 2), (2, 1)), brokers(1, 2, 3)) == {}


def test_the_preferred_leader_stays_where_it_can() -> None:
    assert plan_onto(named((1, 2)), brokers(1, 3)) == named((1, 3))
    assert plan_onto(named((1, 2)), brokers(2, 3)) == named((2, 3))


def test_new_replicas_are_spread() -> None:
    planned = plan_onto(named(*[(1,)] * 6), brokers(2, 3, 4))
    assert Counter(planned.values()) == {(2,): 2, (3,): 2, (4,): 2}


def test_what_brokers_have_already_counts() -> None:
    planned = plan_onto(named((1,)), Brokers({2: Location(), 3: Location()}, {2: 9, 3: 1}))
    assert planned == named((3,))


def test_a_rack_without_a_replica_comes_first() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    made = brokers(1, 2, 3, racks=racks)
    assert plan_onto(named((1,)), made, replication_factor=2) == named((1, 3))


def on_hosts(*hosts: str, rack: str | None = None) -> dict[int, Location]:
    return {at + 1: Location(rack, host) for at, host in enumerate(hosts)}


def test_new_replica_goes_to_a_host_without_one_even_if_it_is_loaded() -> None:
    made = Brokers(on_hosts("a", "a", "b"), {3: 9})
    assert plan_onto(named((1,)), made, replication_factor=2) == named((1, 3))
    assert plan_onto(named((1,)), made, replication_factor=3) == named((1, 3, 2))


def test_rack_without_a_replica_comes_before_a_host_without_one() -> None:
    locations = {1: Location("x", "a"), 2: Location("x", "b"), 3: Location("y", "a")}
    assert plan_onto(named((1,)), Brokers(locations, {}), 2) == named((1, 3))


def test_replica_of_a_drained_broker_goes_to_a_host_without_one() -> None:
    current = {**named((1, 4)), TopicPartition("u", 0): (3,)}
    locations = {2: Location(None, "b"), 3: Location(None, "a"), 4: Location(None, "b")}
    assert plan_drain(current, locations, 1) == named((3, 4))


def test_more_and_fewer_replicas() -> None:
    assert plan_onto(named((1, 2, 3)), brokers(1, 2, 3), 2) == named((1, 2))
    assert plan_onto(named((1,)), brokers(1, 2, 3), 3) == named((1, 2, 3))


def test_more_replicas_than_brokers() -> None:
    with pytest.raises(BadPlan, match="t-0: 3 replicas"):
        plan_onto(named((1, 2, 3)), brokers(1, 2))


def test_a_broker_is_drained_in_place() -> None:
    locations = dict.fromkeys((2, 3, 4), Location())
    planned = plan_drain(named((1, 2), (3, 1), (2, 3)), locations, 1)
    assert set(planned) == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert planned[TopicPartition("t", 0)][1] == 2
    assert planned[TopicPartition("t", 1)][0] == 3
    assert Counter(b for each in planned.values() for b in each)[1] == 0


def test_nowhere_to_go() -> None:
    with pytest.raises(BadPlan, match="every other broker"):
        plan_drain(named((1, 2)), {2: Location()}, 1)


@given(
    st.lists(st.permutations([1, 2, 3, 4]).map(lambda each: tuple(each[:2])), max_size=12),
    st.sets(st.integers(1, 6), min_size=2),
)
def test_a_plan_is_what_was_asked_for(current: list[tuple[int, ...]], targets: set[int]) -> None:
    before = named(*current)
    after = {**before, **plan_onto(before, brokers(*sorted(targets)))}
    for name, replicas in after.items():
        assert len(replicas) == len(set(replicas)) == 2 and set(replicas) <= targets
        assert set(before[name]) & targets <= set(replicas)


# -- throttles -------------------------------------------------------------------


def settings(changed: list) -> dict[tuple[str, str], dict[str, str | None]]:
    return {
        (each.kind.name, each.name): {c.name: c.value for c in each.changes} for each in changed
    }


def test_a_throttled_move_names_sources_and_newcomers_and_every_broker_of_both() -> None:
    moves = {
        TopicPartition("t", 0): Move((1, 2), (2, 3)),
        TopicPartition("t", 1): Move((1,), (4,)),
        TopicPartition("u", 0): Move((2, 1), (1, 2)),
    }
    set_to = settings(limits(moves, 5000))
    leaders = "leader.replication.throttled.replicas"
    followers = "follower.replication.throttled.replicas"
    assert set_to["TOPIC", "t"] == {leaders: "0:1,0:2,1:1", followers: "0:3,1:4"}
    assert set_to["TOPIC", "u"] == {leaders: "0:2,0:1", followers: ""}
    rate = {
        "leader.replication.throttled.rate": "5000",
        "follower.replication.throttled.rate": "5000",
    }
    assert {
        name: keys for (kind, name), keys in set_to.items() if kind == "BROKER"
    } == dict.fromkeys("1234", rate)


def test_all_that_was_set_is_removed_again() -> None:
    moves = {TopicPartition("t", 0): Move((1, 2), (2, 3))}
    removed = no_limits(["t", "t"], [3, 1, 2])
    assert {key: set(of) for key, of in settings(removed).items()} == {
        key: set(of) for key, of in settings(limits(moves, 1)).items()
    }
    assert all(change.operation.name == "DELETE" for each in removed for change in each.changes)
    assert len(removed) == 4
