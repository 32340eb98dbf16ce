"""Large consumer groups: targets are computed for many joins at once (KIP-848)."""

from consumer_harness import CONSUMER_SETTINGS, ConsumerHarness, image_with, named
from msgspec.structs import replace

from ottla.coordinators.groups.consumer.assignment_interval import (
    PAUSE_MS_PER_MEMBER,
    SMALL_GROUP_MEMBERS_MAX,
    UNASSIGNED_MAX,
)

PARTITIONS = 2 * SMALL_GROUP_MEMBERS_MAX


def group_of(size: int) -> ConsumerHarness:
    """A group of so many members that all joined at the same moment."""
    settings = replace(CONSUMER_SETTINGS, max_size=10_000)
    harness = ConsumerHarness(consumer=settings, image=image_with(t=PARTITIONS, u=2))
    for number in range(size):
        harness.enter(f"m{number:04}")
    return harness


def test_a_small_group_is_assigned_by_the_heartbeat_that_changes_it() -> None:
    harness = group_of(SMALL_GROUP_MEMBERS_MAX)

    group = harness.consumers()

    assert group.assignment_epoch == group.epoch == SMALL_GROUP_MEMBERS_MAX


def test_joins_to_a_large_group_wait_for_one_assignment() -> None:
    harness = group_of(SMALL_GROUP_MEMBERS_MAX)
    made = harness.consumers().assignment_epoch

    replies = [harness.enter(f"n{number}") for number in range(20)]

    assert {(reply.member_epoch, tuple(named(reply))) for reply in replies} == {(made, ())}
    assert harness.consumers().state_name() == "Assigning"
    harness.clock.advance(int(len(harness.consumers().members) * PAUSE_MS_PER_MEMBER) + 1)
    harness.beat("n0", made)
    group = harness.consumers()
    assert group.assignment_epoch == group.epoch == made + 20
    harness.settle({member: {} for member in group.members}, rounds=3)
    held = [place for member in group.members for place in harness.assigned(member).get("t", [])]
    assert sorted(held) == list(range(PARTITIONS)), "each partition has one reader"


def test_many_joins_to_a_large_group_do_not_wait_longer_than_one_batch_can_hold() -> None:
    harness = group_of(SMALL_GROUP_MEMBERS_MAX)

    for number in range(UNASSIGNED_MAX + 1):
        harness.enter(f"n{number:04}")

    group = harness.consumers()
    assert len(group.targets) >= SMALL_GROUP_MEMBERS_MAX + UNASSIGNED_MAX


def test_a_changed_subscription_in_a_large_group_takes_effect_at_once() -> None:
    harness = group_of(SMALL_GROUP_MEMBERS_MAX + 1)

    reply = harness.beat("m0000", 1, {"t": []}, subscribed_topic_names=["u"])

    group = harness.consumers()
    assert reply.assignment is not None
    assert group.assignment_epoch == group.epoch


def test_clock_going_back_does_not_delay_assignment_of_a_large_group() -> None:
    harness = group_of(SMALL_GROUP_MEMBERS_MAX + 1)
    harness.context.note_assigned("g", harness.shard.now() + 3_600_000)

    harness.enter("late")

    group = harness.consumers()
    assert group.assignment_epoch == group.epoch


def test_a_group_counts_what_its_members_subscribe_to() -> None:
    harness = group_of(2)
    harness.enter("x", "u")
    harness.enter("y", subscribed_topic_regex="u.*")
    assert dict(harness.consumers().topic_counts) == {"t": 2, "u": 1}
    assert dict(harness.consumers().expressions) == {"u.*": 1}

    harness.beat("m0000", harness.consumers().members["m0000"].epoch, subscribed_topic_names=["u"])
    harness.beat("y", -1)
    harness.beat("x", -1)

    assert dict(harness.consumers().topic_counts) == {"t": 1, "u": 1}
    assert dict(harness.consumers().expressions) == {}
    assert harness.reload().consumers().topic_counts == harness.consumers().topic_counts
