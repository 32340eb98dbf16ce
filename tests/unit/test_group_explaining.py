"""Explanations of a group: why it rebalanced, what it waits for, and recent events."""

from typing import Any

from classic_harness import FORMING_MS
from classic_harness import Harness as ClassicHarness
from consumer_harness import REBALANCE_MS, ConsumerHarness, image_with, topic_id
from immutables import Map
from streams_harness import StreamsHarness, image_with_topics
from test_share_groups import Harness as ShareHarness

from ottla.coordinators.groups.classic.group import ClassicState
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.coordinators.groups.epoch_group.member import MemberState
from ottla.coordinators.groups.explain import (
    WAITS_MAX,
    Story,
    Waiting,
    consumer_waits,
    sentences,
    span_words,
    story_of,
)
from ottla.coordinators.groups.recent_events import (
    EVENTS_MAX,
    GROUPS_MAX,
    EventKind,
    Note,
    RecentEvents,
    noted,
)
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.metadata.image import Image
from ottla.protocol.types import NO_TIMESTAMP, Millis


def watched(harness: Any) -> Any:
    """Return a harness whose machine records events by the harness's clock."""
    machine = harness.shard.machine
    machine.notes = RecentEvents(harness.clock.now)
    machine.notes.begin(harness.clock.now())
    return harness


def explained(harness: Any, image: Image | None = None) -> list[str]:
    """Return the sentences about group g; times are seconds since the start."""
    began = harness.shard.machine.notes.began_at
    story = story_of(harness.shard.machine, "g", image or image_with(), harness.clock.now())
    assert story is not None
    return sentences(story, lambda at: f"T+{(at - began) // 1000}")


# -- classic ---------------------------------------------------------------------------------


def stable(harness: ClassicHarness) -> tuple[str, str]:
    first, second = harness.join(), harness.join()
    harness.pass_ms(FORMING_MS)
    leader, follower = first.reply.member_id, second.reply.member_id
    harness.sync(follower, 1)
    harness.sync(leader, 1, m1=b"one", m2=b"two")
    return leader, follower


def test_stable_classic_group_is_not_waiting() -> None:
    harness = watched(ClassicHarness())
    stable(harness)
    harness.clock.advance(5000)

    said = explained(harness)

    assert (
        said[0]
        == "g is a classic group, Stable since T+2 (5.0 s ago), with 2 members in generation 1."
    )
    assert said[1].startswith("It rebalanced last at T+0 (7.0 s ago): adding new member m1")
    assert said[2] == "It waits for no member."
    assert said[-1] == "  T+2  generation 1 is stable"


def test_classic_group_waits_for_members_that_have_not_rejoined() -> None:
    harness = watched(ClassicHarness())
    leader, follower = stable(harness)
    harness.pass_ms(1000)
    harness.leave(leader)
    harness.pass_ms(3000)

    said = explained(harness)

    assert f"explicit LeaveGroup of {leader}" in said[1]
    waits = (
        f"It waits for member {follower} (client client at 1.2.3.4) to join again,"
        " since T+3 (3.0 s ago), until T+33."
    )
    assert said[2] == waits


def test_a_classic_group_waits_for_its_leader_to_assign() -> None:
    harness = watched(ClassicHarness())
    leader = harness.join()
    harness.pass_ms(FORMING_MS)

    (waits,) = [each for each in explained(harness) if each.startswith("It waits")]

    name = leader.reply.member_id
    assert f"member {name} (client client at 1.2.3.4) as the leader to say who reads what" in waits


def test_a_first_generation_waits_for_more_members() -> None:
    harness = watched(ClassicHarness())
    harness.join()

    assert any("It waits for more members" in each for each in explained(harness))


def test_of_many_members_that_a_classic_group_waits_for_the_first_are_named() -> None:
    harness = watched(ClassicHarness())
    stable(harness)
    group = harness.shard.machine.groups["g"]
    group.state = ClassicState.PREPARING_REBALANCE
    member = next(iter(group.members.values()))
    group.members.update({f"n{number}": member for number in range(WAITS_MAX)})
    group.pending_join.update(f"{'x' * 2000}{number}" for number in range(WAITS_MAX + 7))

    waits = [sentence for sentence in explained(harness) if sentence.startswith("It waits")]

    assert len(waits) == 2 * WAITS_MAX + 2
    assert "It waits for 2 more members to join again." in waits
    assert waits[-1] == "It waits for 7 more members to come back with the ids they got."
    assert max(map(len, waits)) < 1000


# -- consumer ---------------------------------------------------------------------------------


def joined(harness: ConsumerHarness, member_id: str) -> Any:
    return harness.beat(
        member_id,
        0,
        owned={},
        subscribed_topic_names=["t"],
        rebalance_timeout_ms=REBALANCE_MS,
    )


def test_consumer_group_waits_for_members_that_have_not_revoked() -> None:
    harness = watched(ConsumerHarness())
    first = joined(harness, "m1")
    harness.clock.advance(4000)
    joined(harness, "m2")
    harness.beat("m1", first.member_epoch, owned={"t": [0, 1, 2, 3]})
    harness.clock.advance(6000)

    said = explained(harness, harness.image)

    assert said[0] == "g is a consumer group, Reconciling, with 2 members in epoch 2."
    assert said[1] == (
        "It rebalanced last at T+4 (6.0 s ago): member m2 (client client at 1.2.3.4) joined."
    )
    assert said[2].startswith("It waits for member m1 (client client at 1.2.3.4) to give up t-")
    assert said[2].endswith(", since T+4 (6.0 s ago), until T+34.")


def test_of_many_members_that_a_consumer_group_waits_for_the_first_are_named() -> None:
    topic, notes = topic_id("t"), RecentEvents(lambda: Millis(0))
    members = {f"m{number:03d}": ConsumerMember("", epoch=1) for number in range(WAITS_MAX + 3)}
    revoked = {topic: frozenset(range(20_000))}
    members["m000"] = ConsumerMember("", state=MemberState.UNREVOKED, pending_revocation=revoked)
    members["m001"] = ConsumerMember("", epoch=2)
    group = ConsumerGroup("g", epoch=2, assignment_epoch=2, members=Map(members))

    waits = list(consumer_waits(group, notes, image_with(t=10)))

    assert len(waits) == WAITS_MAX + 1
    names = ", ".join(f"t-{index}" for index in range(8))
    assert waits[0].what == f"to give up {names} and 19992 more"
    assert waits[1].who == "member m002 (client  at )"
    what = "to give up partitions or to ask for their assignment"
    assert waits[-1] == Waiting("2 more members", what)


def test_session_timeout_is_named_as_the_cause() -> None:
    harness = watched(ConsumerHarness())
    joined(harness, "m1")
    joined(harness, "m2")
    harness.clock.advance(46_000)
    harness.shard.on_due()

    said = explained(harness, harness.image)

    assert "was removed: it sent no heartbeat within its session timeout" in said[1]
    joined(harness, "m3")
    harness.beat("m3", -1)
    assert "member m3 (client client at 1.2.3.4) left." in explained(harness, harness.image)[1]


def test_changed_topics_are_named_as_the_cause() -> None:
    harness = watched(ConsumerHarness())
    first = joined(harness, "m1")
    harness.image = image_with(t=6)
    harness.clock.advance(1000)
    harness.beat("m1", first.member_epoch)

    assert explained(harness, harness.image)[1].endswith(
        ": the topics that it reads, or its settings, changed."
    )


def test_changed_subscription_is_named_as_the_cause() -> None:
    harness = watched(ConsumerHarness())
    first = joined(harness, "m1")
    harness.beat("m1", first.member_epoch, subscribed_topic_names=["t", "u"])

    assert (
        "m1 (client client at 1.2.3.4) subscribes to t, u now"
        in explained(harness, harness.image)[1]
    )


def test_events_before_loading_are_unknown() -> None:
    harness = ConsumerHarness()
    joined(harness, "m1")
    loaded = harness.reload()
    assert loaded.machine.notes.of("g") == (), "reading the log is no event"
    again = watched(loaded)
    again.clock.advance(3000)

    assert explained(again, again.image)[1] == (
        "It has not rebalanced since this broker coordinates it: T+0 (3.0 s ago)."
    )


# -- share -------------------------------------------------------------------------------------


def test_share_group_waits_for_state_and_members() -> None:
    harness = watched(ShareHarness())
    result = harness.beat("m1")

    assert any(
        each == "It waits for the share coordinator to set up the state of payments-0, payments-1."
        for each in explained(harness, harness.image)
    )
    harness.initialize(result.pending)
    (waits,) = [each for each in explained(harness, harness.image) if each.startswith("It waits")]
    assert waits.startswith("It waits for member m1 (client client at host) to ask for its")


# -- streams -----------------------------------------------------------------------------------


def test_a_streams_group_waits_for_topics_and_for_tasks() -> None:
    harness = watched(StreamsHarness(image=image_with_topics({"t": 2})))
    harness.enter("m1")
    assert "It waits for the topics of its topology to be there as it needs them." in explained(
        harness
    )

    harness = watched(StreamsHarness())
    harness.enter("m1")
    harness.settle()
    assert explained(harness)[2] == "It waits for no member."
    harness.enter("m2")
    assert "member m2 (client" in explained(harness)[1]
    harness.beat("m1", harness.member("m1").epoch)
    waits = [each for each in explained(harness) if each.startswith("It waits")]
    assert [each for each in waits if "m1" in each and "to give up tasks" in each]


# -- notes -------------------------------------------------------------------------------------


def test_events_are_bounded() -> None:
    notes: tuple[Note, ...] = ()
    for number in range(EVENTS_MAX + 5):
        notes = noted(notes, Note(Millis(number), EventKind.EPOCH, "x"))
    assert [note.at for note in notes] == list(range(5, EVENTS_MAX + 5))

    kept = RecentEvents(lambda: Millis(1))
    for number in range(GROUPS_MAX + 2):
        kept.changed(None, ShareGroup(f"g{number}", epoch=1), "")
    assert kept.of("g0") == kept.of("g1") == ()
    assert len(kept.of("g2")) == len(kept.of(f"g{GROUPS_MAX + 1}")) == 1
    kept.forget("g2")
    assert kept.of("g2") == ()


def test_deleted_group_leaves_no_events() -> None:
    harness = watched(ConsumerHarness())
    joined(harness, "m1")
    machine = harness.machine
    assert machine.notes.of("g") != ()
    machine.forget("g")
    assert machine.notes.of("g") == ()
    assert story_of(machine, "g", harness.image, harness.clock.now()) is None


# -- words -------------------------------------------------------------------------------------


def test_many_partitions_are_counted_and_spans_are_in_human_units() -> None:
    spans = [0, 9_900, 119_000, 120_000, 7_140_000, 7_200_000, 172_800_000]
    words = ["0.0 s", "9.9 s", "119 s", "2 min", "119 min", "2 h", "2 days"]
    assert list(map(span_words, spans)) == words
    story = Story("g", "share", "Stable", 1, 3, Millis(5), NO_TIMESTAMP)
    assert sentences(story, str)[:3] == [
        "g is a share group, Stable, with 1 member in epoch 3.",
        "Why it rebalanced last is not known.",
        "It waits for no member.",
    ]
    waiting = (Waiting("somebody", "to act", Millis(1), Millis(9)),)
    asked = Story("g", "share", "Stable", 1, 3, Millis(5), NO_TIMESTAMP, waiting=waiting)
    assert sentences(asked, str)[2] == "It waits for somebody to act, since 1 (0.0 s ago), until 9."
