"""Where new partitions go."""

from collections import Counter

from controller_world import World
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.decision import Refusal
from ottla.controller.placement import place
from ottla.protocol.errors import ErrorCode
from simulation.random import SimRandom


def cluster(racks: list[str | None], fenced: set[int] | None = None) -> World:
    world = World()
    for broker_id, rack in enumerate(racks):
        world.register(broker_id, rack=rack)
        if broker_id not in (fenced or set()):
            world.heartbeat(broker_id)
    return world


def placed(world: World, partitions: int, factor: int, seed: int = 1) -> list[tuple[int, ...]]:
    found = place(world.image, partitions, factor, SimRandom(seed))
    assert not isinstance(found, Refusal)
    assert len(found) == partitions
    return found


@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=7),
    data=st.data(),
)
def test_every_placement_is_valid(racks: list, data: st.DataObject) -> None:
    count = len(racks)
    fenced = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    factor = data.draw(st.integers(1, count))
    world = cluster(racks, fenced)
    names = set(racks)
    for replicas in placed(world, data.draw(st.integers(1, 40)), factor, data.draw(st.integers())):
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(range(count))
        assert replicas[0] not in fenced, "a fenced broker cannot lead"
        used = {racks[replica] for replica in replicas}
        assert len(used) == min(factor, len(names)), "as many racks as there are"


def test_leaders_and_replicas_are_spread_evenly() -> None:
    world = cluster(["a", "a", "b", "b", "c", "c"])
    found = placed(world, 600, 3)
    leaders = Counter(replicas[0] for replicas in found)
    all_replicas = Counter(replica for replicas in found for replica in replicas)
    assert sorted(leaders) == sorted(all_replicas) == list(range(6))
    assert max(leaders.values()) <= 1.2 * min(leaders.values())
    assert max(all_replicas.values()) <= 1.2 * min(all_replicas.values())


def test_brokers_do_not_always_share_the_same_partitions() -> None:
    found = placed(cluster([None] * 5), 200, 2)
    assert len(set(found)) >= 15


def test_placement_depends_only_on_the_seed() -> None:
    world = cluster([None] * 5)
    assert placed(world, 10, 3, seed=4) == placed(world, 10, 3, seed=4)
    assert len({tuple(placed(world, 10, 3, seed=i)) for i in range(5)}) > 1


def test_fenced_brokers_are_used_only_if_there_are_no_others() -> None:
    world = cluster([None] * 4, fenced={3})
    assert all(3 not in replicas for replicas in placed(world, 50, 3))
    assert all(3 in replicas for replicas in placed(world, 50, 4))


def test_single_live_broker_leads_everything() -> None:
    world = cluster([None] * 3, fenced={0, 2})
    assert {replicas[0] for replicas in placed(world, 20, 3)} == {1}


def refused(world: World, factor: int) -> ErrorCode:
    found = place(world.image, 1, factor, SimRandom(1))
    assert isinstance(found, Refusal)
    return found.code


def test_more_replicas_than_brokers_are_rejected() -> None:
    world = cluster([None] * 2)
    for factor in (3, 0, -2):
        assert refused(world, factor) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused(cluster([None], fenced={0}), 1) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused(World(), 1) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_broker_in_controlled_shutdown_gets_no_new_replica() -> None:
    world = cluster([None] * 3)
    world.create("t", [0, 1])
    world.heartbeat(0, want_shut_down=True)
    assert all(0 not in replicas for replicas in placed(world, 30, 2))
    assert refused(world, 3) is ErrorCode.INVALID_REPLICATION_FACTOR
