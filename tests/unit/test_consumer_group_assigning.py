"""Large consumer groups: targets are made for many joins at once (KIP-848)."""

from consumer_world import CONSUMER_SETTINGS, ConsumerWorld, image_with, named
from msgspec.structs import replace

from ottla.coordinators.groups.consumer.assignment_interval import (
    PAUSE_MS_PER_MEMBER,
    SMALL_GROUP_MEMBERS_MAX,
    UNASSIGNED_MAX,
)

PARTITIONS = 2 * SMALL_GROUP_MEMBERS_MAX


def group_of(size: int) -> ConsumerWorld:
    """A group of so many members, all of which joined at the same moment."""
    settings = replace(CONSUMER_SETTINGS, max_size=10_000)
    world = ConsumerWorld(consumer=settings, image=image_with(t=PARTITIONS, u=2))
    for number in range(size):
        world.enter(f"m{number:04}")
    return world


def test_a_small_group_is_assigned_by_the_heartbeat_that_changes_it() -> None:
    world = group_of(SMALL_GROUP_MEMBERS_MAX)

    group = world.consumers()

    assert group.assignment_epoch == group.epoch == SMALL_GROUP_MEMBERS_MAX


def test_joins_to_a_large_group_wait_for_one_assignment() -> None:
    world = group_of(SMALL_GROUP_MEMBERS_MAX)
    made = world.consumers().assignment_epoch

    replies = [world.enter(f"n{number}") for number in range(20)]

    assert {(reply.member_epoch, tuple(named(reply))) for reply in replies} == {(made, ())}
    assert world.consumers().state_name() == "Assigning"
    world.clock.advance(int(len(world.consumers().members) * PAUSE_MS_PER_MEMBER) + 1)
    world.beat("n0", made)
    group = world.consumers()
    assert group.assignment_epoch == group.epoch == made + 20
    world.settle({member: {} for member in group.members}, rounds=3)
    held = [place for member in group.members for place in world.assigned(member).get("t", [])]
    assert sorted(held) == list(range(PARTITIONS)), "each partition has one reader"


def test_many_joins_to_a_large_group_do_not_wait_longer_than_one_batch_can_hold() -> None:
    world = group_of(SMALL_GROUP_MEMBERS_MAX)

    for number in range(UNASSIGNED_MAX + 1):
        world.enter(f"n{number:04}")

    group = world.consumers()
    assert len(group.targets) >= SMALL_GROUP_MEMBERS_MAX + UNASSIGNED_MAX


def test_a_changed_subscription_in_a_large_group_takes_effect_at_once() -> None:
    world = group_of(SMALL_GROUP_MEMBERS_MAX + 1)

    reply = world.beat("m0000", 1, {"t": []}, subscribed_topic_names=["u"])

    group = world.consumers()
    assert reply.assignment is not None
    assert group.assignment_epoch == group.epoch


def test_clock_going_back_does_not_delay_assignment_of_a_large_group() -> None:
    world = group_of(SMALL_GROUP_MEMBERS_MAX + 1)
    world.context.note_assigned("g", world.shard.now() + 3_600_000)

    world.enter("late")

    group = world.consumers()
    assert group.assignment_epoch == group.epoch


def test_a_group_counts_what_its_members_subscribe_to() -> None:
    world = group_of(2)
    world.enter("x", "u")
    world.enter("y", subscribed_topic_regex="u.*")
    assert dict(world.consumers().topic_counts) == {"t": 2, "u": 1}
    assert dict(world.consumers().expressions) == {"u.*": 1}

    world.beat("m0000", world.consumers().members["m0000"].epoch, subscribed_topic_names=["u"])
    world.beat("y", -1)
    world.beat("x", -1)

    assert dict(world.consumers().topic_counts) == {"t": 1, "u": 1}
    assert dict(world.consumers().expressions) == {}
    assert world.reload().consumers().topic_counts == world.consumers().topic_counts
