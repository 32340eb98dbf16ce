"""The assignors: every partition has one reader, loads are balanced, and few partitions move."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.groups.consumer.assignors.range_assignor import assign_range
from ottla.coordinators.groups.consumer.assignors.spec import GroupSpec, MemberSpec, Targets
from ottla.coordinators.groups.consumer.assignors.uniform import assign_uniform
from ottla.protocol.types import Uuid

TOPICS = [Uuid(bytes([number]) * 16) for number in range(1, 5)]
T, U, V, W = TOPICS


def spec(counts: dict[Uuid, int], **topics: list[Uuid]) -> GroupSpec:
    members = {name: MemberSpec(frozenset(wanted)) for name, wanted in topics.items()}
    return GroupSpec(members, counts)


def after(group: GroupSpec, targets: Targets, **more: list[Uuid]) -> GroupSpec:
    """The same group with its targets computed, and some new members."""
    members = {
        name: MemberSpec(member.topics, targets[name], member.instance_id)
        for name, member in group.members.items()
    }
    members |= {name: MemberSpec(frozenset(wanted)) for name, wanted in more.items()}
    return GroupSpec(members, group.partition_counts)


def sizes(targets: Targets) -> dict[str, int]:
    return {name: sum(map(len, target.values())) for name, target in targets.items()}


def owners(targets: Targets) -> dict[tuple[Uuid, int], str]:
    found: dict[tuple[Uuid, int], str] = {}
    for name, target in targets.items():
        for topic, numbers in target.items():
            assert numbers, "a topic without partitions is left out"
            for number in numbers:
                assert (topic, number) not in found, "two members with one partition"
                found[topic, number] = name
    return found


def check(group: GroupSpec, targets: Targets) -> None:
    """Every readable partition is read by exactly one subscriber."""
    assert set(targets) == set(group.members)
    found = owners(targets)
    for (topic, _), name in found.items():
        assert topic in group.members[name].topics
    wanted = set().union(*(member.topics for member in group.members.values()))
    assert set(found) == {
        (topic, number) for topic in wanted for number in range(group.partition_counts[topic])
    }


# -- uniform -------------------------------------------------------------------------------


def test_equal_subscriptions_are_assigned_evenly() -> None:
    group = spec({T: 5, U: 2}, a=[T, U], b=[T, U], c=[T, U])
    targets = assign_uniform(group)
    check(group, targets)
    assert sorted(sizes(targets).values()) == [2, 2, 3]


def test_a_newcomer_takes_no_more_than_its_share() -> None:
    group = spec({T: 6}, a=[T], b=[T])
    before = owners(assign_uniform(group))
    grown = after(group, assign_uniform(group), c=[T])
    now = owners(assign_uniform(grown))
    assert sum(before[place] != now[place] for place in before) == 2


def test_nothing_moves_where_nothing_must() -> None:
    group = spec({T: 3}, a=[T], b=[T])
    odd: Targets = {"a": {T: frozenset((0,))}, "b": {T: frozenset((1, 2))}}
    assert assign_uniform(after(group, odd)) == odd


def test_partitions_of_a_leaving_member_are_spread_over_all() -> None:
    group = spec({T: 6}, a=[T], b=[T], c=[T])
    before = assign_uniform(group)
    left = GroupSpec(
        {name: MemberSpec(frozenset([T]), before[name]) for name in ("a", "b")}, {T: 6}
    )
    now = assign_uniform(left)
    assert sizes(now) == {"a": 3, "b": 3}
    assert all(before[name][T] <= now[name][T] for name in ("a", "b"))


def test_unsubscribed_and_deleted_topics_are_unassigned() -> None:
    old: Targets = {"a": {T: frozenset((0, 7)), U: frozenset((0,)), V: frozenset((0,))}}
    group = GroupSpec({"a": MemberSpec(frozenset([T, U]), old["a"])}, {T: 2, U: 1})
    assert assign_uniform(group) == {"a": {T: frozenset((0, 1)), U: frozenset((0,))}}


def test_different_subscriptions_are_balanced() -> None:
    group = spec({T: 6, U: 2}, a=[T], b=[T, U], c=[U])
    targets = assign_uniform(group)
    check(group, targets)
    assert sizes(targets) == {"a": 3, "b": 3, "c": 2}


def test_new_member_with_another_subscription_gets_its_share() -> None:
    alone = spec({T: 6}, a=[T])
    both = after(alone, assign_uniform(alone), b=[T, U])
    group = GroupSpec(both.members, {T: 6, U: 2})
    targets = assign_uniform(group)
    check(group, targets)
    assert sizes(targets) == {"a": 4, "b": 4}


def test_group_without_members_gets_no_targets() -> None:
    assert assign_uniform(GroupSpec({}, {})) == {}
    assert assign_range(GroupSpec({}, {})) == {}
    assert assign_uniform(spec({}, a=[], b=[])) == {"a": {}, "b": {}}


# -- range ---------------------------------------------------------------------------------


def test_runs_of_partitions_in_order_of_members() -> None:
    targets = assign_range(spec({T: 5, U: 5}, a=[T, U], b=[T, U]))
    first, rest = frozenset((0, 1, 2)), frozenset((3, 4))
    assert targets == {"a": {T: first, U: first}, "b": {T: rest, U: rest}}


def test_static_members_come_first_by_instance() -> None:
    request = frozenset([T])
    members = {
        "a": MemberSpec(request),
        "b": MemberSpec(request, instance_id="2"),
        "c": MemberSpec(request, instance_id="1"),
    }
    targets = assign_range(GroupSpec(members, {T: 3}))
    assert {name: min(target[T]) for name, target in targets.items()} == {"c": 0, "b": 1, "a": 2}


def test_only_readers_of_a_topic_count() -> None:
    targets = assign_range(spec({T: 4, U: 1}, a=[T], b=[T, U], c=[]))
    assert targets == {
        "a": {T: frozenset((0, 1))},
        "b": {T: frozenset((2, 3)), U: frozenset((0,))},
        "c": {},
    }


# -- both, over whole histories --------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
SUBSCRIPTIONS = st.frozensets(st.sampled_from(TOPICS), min_size=1)
COUNTS = st.fixed_dictionaries({topic: st.integers(1, 7) for topic in TOPICS})
GROUPS = st.dictionaries(NAMES, SUBSCRIPTIONS, min_size=1)


def read(requests: dict[str, frozenset[Uuid]], counts: dict[Uuid, int], had: Targets) -> GroupSpec:
    wanted = frozenset().union(*requests.values())
    members = {name: MemberSpec(target, had.get(name, {})) for name, target in requests.items()}
    return GroupSpec(members, {topic: counts[topic] for topic in wanted})


@settings(max_examples=150, deadline=None)
@given(st.lists(GROUPS, min_size=1, max_size=4), COUNTS, st.booleans())
def test_every_history_of_a_group_is_assigned(
    history: list[dict[str, frozenset[Uuid]]], counts: dict[Uuid, int], is_range: bool
) -> None:
    targets: Targets = {}
    assign = assign_range if is_range else assign_uniform
    for requests in history:
        group = read(requests, counts, targets)
        targets = assign(group)
        check(group, targets)
        assert assign(read(requests, counts, targets)) == targets, "nothing moves for nothing"
        if not is_range and group.is_homogeneous():
            found = sizes(targets).values()
            assert max(found) - min(found) <= 1


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.integers(1, 20), st.integers(1, 6))
def test_uniform_moves_only_what_it_must(before: int, partitions: int, now: int) -> None:
    names = [f"m{number}" for number in range(max(before, now))]
    counts = {T: partitions}
    target = frozenset([T])
    old = assign_uniform(read(dict.fromkeys(names[:before], target), counts, {}))
    new = assign_uniform(read(dict.fromkeys(names[:now], target), counts, old))
    was, became = owners(old), owners(new)
    moved = sum(was[place] != became[place] for place in was)
    least = sum(max(0, count - sizes(new).get(name, 0)) for name, count in sizes(old).items())
    assert moved == least
