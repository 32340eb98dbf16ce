"""Share groups: their members and targets."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from consumer_harness import image_with, topic_id
from coordinator_harness import FakeClock, FakeLog
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.decision import Decision
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.offsets.rules import expire_offsets
from ottla.coordinators.groups.service import Client
from ottla.coordinators.groups.share import service as share_service
from ottla.coordinators.groups.share.assignor import assign_shared
from ottla.coordinators.groups.share.context import ShareContext
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.heartbeat import (
    Heartbeat,
    HeartbeatResult,
    check_share_heartbeat,
    decide_initialized,
    decide_reset,
    decide_share_heartbeat,
    decide_uninitialized,
)
from ottla.coordinators.groups.share.kind import ShareKind
from ottla.coordinators.groups.share.service import ShareGroups
from ottla.coordinators.groups.share.settings import ShareSettings
from ottla.coordinators.shard import Shard, ShardSettings
from ottla.coordinators.share_state.rules import StateResult
from ottla.coordinators.share_state.state import ShareKey, ShareState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.protocol.types import LeaderEpoch, Millis, Uuid

PAYMENTS = topic_id("payments")


class Harness:
    """One shard with share groups, and a topic of two partitions."""

    def __init__(self) -> None:
        self.image = image_with(payments=2)
        self.context = ShareContext(ShareSettings(max_size=3), lambda: self.image)
        self.log, self.clock = FakeLog(), FakeClock()
        self.shard = self.loaded()

    def loaded(self) -> Shard[GroupMachine]:
        machine = GroupMachine(kinds=(ShareKind(self.context),))
        shard = Shard(
            "s", LeaderEpoch(1), self.log, machine, ShardSettings(self.clock, decode_group_record)
        )
        while not shard.load_step():
            pass
        return shard

    def submit(self, decide: Any) -> Any:
        answers: list[Any] = []

        class ReplyFuture:
            def answer(self, reply: Any) -> None:
                answers.append(reply)

            def fail(self, fault: Fault) -> None:
                answers.append(fault)

        self.shard.submit(lambda machine, now: decide(machine), ReplyFuture())
        if isinstance(answers[0], Fault):
            raise answers[0]
        return answers[0]

    def beat(self, member: str, epoch: int = 0, *topics: str) -> HeartbeatResult:
        names = list(topics) or (["payments"] if epoch == 0 else None)
        request = ShareGroupHeartbeatRequest("g", member, epoch, None, names)
        result = self.submit(
            lambda m: decide_share_heartbeat(self.context, m, Heartbeat(request, "client", "/host"))
        )
        assert isinstance(result, HeartbeatResult)
        return result

    def initialize(self, places: Any) -> None:
        self.submit(lambda m: decide_initialized(self.context, m, "g", frozenset(places)))

    @property
    def group(self) -> ShareGroup:
        group = self.shard.machine.groups["g"]
        assert isinstance(group, ShareGroup)
        return group


def reads(result: HeartbeatResult) -> set[int] | None:
    assignment = result.response.assignment
    if assignment is None:
        return None
    return {index for topic in assignment.topic_partitions for index in topic.partitions}


def joined(harness: Harness, member: str) -> HeartbeatResult:
    """Return the reply to a member of a group whose partitions are all initialized."""
    result = harness.beat(member)
    harness.initialize(result.pending)
    return harness.beat(member, result.response.member_epoch) if result.pending else result


def test_a_partition_is_read_once_it_has_state() -> None:
    harness = Harness()

    first = harness.beat("m1")

    assert reads(first) == set()
    assert first.pending == {(PAYMENTS, 0), (PAYMENTS, 1)}
    harness.initialize(first.pending)
    after = harness.beat("m1", first.response.member_epoch)
    assert (reads(after), after.pending) == ({0, 1}, frozenset())


def test_members_share_what_is_too_little() -> None:
    harness = Harness()
    joined(harness, "m1")
    joined(harness, "m2")
    joined(harness, "m3")

    targets = harness.group.targets
    assert sorted(len(places) for places in targets.values()) == [1, 1, 1]
    assert {place for places in targets.values() for place in places} == harness.group.initialized


def test_group_rejects_members_above_its_size() -> None:
    harness = Harness()
    for member in ("m1", "m2", "m3"):
        harness.beat(member)

    with pytest.raises(Fault) as refused:
        harness.beat("m4")

    assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.beat("m3").response.error_code == ErrorCode.NONE, "who is in may join again"


def test_unchanged_heartbeat_writes_nothing_and_returns_no_assignment() -> None:
    harness = Harness()
    epoch = joined(harness, "m1").response.member_epoch
    written = len(harness.log.batches)

    again = harness.beat("m1", epoch)

    assert (reads(again), again.response.member_epoch) == (None, epoch)
    assert len(harness.log.batches) == written


def test_lost_reply_is_repeated() -> None:
    harness = Harness()
    first = harness.beat("m1")
    harness.initialize(first.pending)
    harness.beat("m1", first.response.member_epoch)

    again = harness.beat("m1", first.response.member_epoch, "payments")

    assert reads(again) == {0, 1}
    silent = harness.beat("m1", first.response.member_epoch)
    assert silent.response.assignment is None, "as Kafka, unless the client sends its subscription"


def test_wrong_member_epochs_are_fenced() -> None:
    harness = Harness()
    for epoch in (1, -1):
        with pytest.raises(Fault) as refused:
            harness.beat("m1", epoch)
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    epoch = joined(harness, "m1").response.member_epoch
    with pytest.raises(Fault) as refused:
        harness.beat("m1", epoch + 1)
    assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    for wrong in (epoch, -1):
        with pytest.raises(Fault) as refused:
            harness.beat("stranger", wrong)
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_partitions_of_a_leaving_member_go_to_others() -> None:
    harness = Harness()
    joined(harness, "m1")
    joined(harness, "m2")

    assert harness.beat("m1", -1).response.member_epoch == -1

    assert set(harness.group.members) == {"m2"}
    assert dict(harness.group.targets) == {"m2": harness.group.initialized}


def test_empty_group_keeps_its_position_for_ever() -> None:
    harness = Harness()
    joined(harness, "m1")
    harness.beat("m1", -1)
    machine = harness.shard.machine
    assert machine.groups["g"].is_empty()
    later = Millis(harness.clock.now() + 10**12)
    assert list(expire_offsets(machine.groups, machine.offsets, machine.settings, later)) == []


def test_member_without_heartbeats_is_removed() -> None:
    harness = Harness()
    joined(harness, "m1")

    harness.clock.advance(44_000)
    harness.shard.on_due()
    assert not harness.group.is_empty()
    harness.clock.advance(2000)
    harness.shard.on_due()

    assert harness.group.is_empty()
    assert harness.group.state_name() == "Empty"


def test_a_topic_that_grows_is_read_whole() -> None:
    harness = Harness()
    epoch = joined(harness, "m1").response.member_epoch
    harness.image = image_with(payments=3)

    grown = harness.beat("m1", epoch)

    assert grown.pending == {(PAYMENTS, 2)}
    harness.initialize(grown.pending)
    assert reads(harness.beat("m1", grown.response.member_epoch)) == {0, 1, 2}


def test_the_log_gives_the_same_group() -> None:
    harness = Harness()
    joined(harness, "m1")
    joined(harness, "m2")
    before = harness.group

    harness.shard = harness.loaded()

    assert harness.group == before


def test_deleted_group_leaves_no_records() -> None:
    harness = Harness()
    joined(harness, "m1")
    harness.beat("m1", -1)
    tombstones = harness.group.tombstones()
    harness.submit(lambda machine: Decision(tombstones))

    assert "g" not in harness.shard.machine.groups
    harness.shard = harness.loaded()
    assert "g" not in harness.shard.machine.groups


def test_a_reset_raises_the_epoch_and_forgetting_takes_partitions_away() -> None:
    harness = Harness()
    joined(harness, "m1")
    epoch = harness.group.epoch

    harness.submit(lambda m: decide_reset(harness.context, m, "g", frozenset({(PAYMENTS, 0)})))
    assert harness.group.epoch == epoch + 1
    gone = frozenset({(PAYMENTS, 0)})
    harness.submit(lambda m: decide_uninitialized(harness.context, m, "g", gone))

    assert harness.group.initialized == {(PAYMENTS, 1)}
    assert harness.group.targets["m1"] == {(PAYMENTS, 1)}


def test_invalid_heartbeats_are_rejected() -> None:
    good = ShareGroupHeartbeatRequest("g", "m", 0, None, ["t"])
    check_share_heartbeat(good)
    for bad in (
        ShareGroupHeartbeatRequest("", "m", 0, None, ["t"]),
        ShareGroupHeartbeatRequest("g", "", 0, None, ["t"]),
        ShareGroupHeartbeatRequest("g", "m" * 37, 0, None, ["t"]),
        ShareGroupHeartbeatRequest("g", "m", 0, "", ["t"]),
        ShareGroupHeartbeatRequest("g", "m", 0, None, None),
        ShareGroupHeartbeatRequest("g", "m", -2, None, None),
    ):
        with pytest.raises(Fault) as refused:
            check_share_heartbeat(bad)
        assert refused.value.code is ErrorCode.INVALID_REQUEST


TOPICS = [Uuid(bytes([number]) * 16) for number in range(3)]


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.frozensets(st.sampled_from(TOPICS)), max_size=6),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7)),
)
@settings(max_examples=100, deadline=None)
def test_every_partition_has_a_reader_and_every_member_a_partition(
    subscriptions: dict[str, frozenset[Uuid]], counts: dict[Uuid, int]
) -> None:
    partitions = {topic: list(range(count)) for topic, count in counts.items()}

    targets = assign_shared(subscriptions, partitions)

    assert set(targets) == set(subscriptions)
    for topic, count in counts.items():
        members = [m for m, topics in subscriptions.items() if topic in topics]
        readers = {index: 0 for index in range(count)}
        for member in targets:
            held = [index for t, index in targets[member] if t == topic]
            assert bool(held) == (member in members)
            for index in held:
                readers[index] += 1
        if members:
            assert max(readers.values()) - min(readers.values()) <= 1
            assert min(readers.values()) >= 1


# -- state that is set up while a heartbeat waits -----------------------------------------


class FakeKeeper:
    """Initializes state, rejects it, or never answers."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []
        self.is_hanging = False
        self.asked: list[ShareKey] = []

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> ErrorCode:
        self.asked.append(key)
        await asyncio.sleep(0)
        if self.is_hanging:
            await asyncio.Event().wait()
        return self.codes.pop(0) if self.codes else ErrorCode.NONE

    async def delete(self, key: ShareKey) -> ErrorCode:
        return ErrorCode.NONE

    async def summary(self, key: ShareKey) -> StateResult:
        return StateResult(ErrorCode.NONE, ShareState(state_epoch=7))


def served(harness: Harness, keeper: FakeKeeper) -> ShareGroups:
    async def write(group_id: str, decide: Any) -> Any:
        return harness.submit(lambda machine: decide(machine, harness.clock.now()))

    groups: Any = SimpleNamespace(runtime=SimpleNamespace(write=write))
    return ShareGroups(groups, keeper, lambda: harness.image)


def heartbeat(shares: ShareGroups, epoch: int = 0) -> ShareGroupHeartbeatResponse:
    names = ["payments"] if epoch == 0 else None
    request = ShareGroupHeartbeatRequest("g", "m1", epoch, None, names)
    return asyncio.run(shares.heartbeat(request, Client("client", "/host")))


def assigned(reply: ShareGroupHeartbeatResponse) -> list[int] | None:
    if reply.assignment is None:
        return None
    return [index for topic in reply.assignment.topic_partitions for index in topic.partitions]


def test_first_heartbeat_reply_contains_the_partitions() -> None:
    harness, keeper = Harness(), FakeKeeper()

    assert assigned(heartbeat(served(harness, keeper))) == [0, 1]
    assert [key.partition for key in keeper.asked] == [0, 1]


def test_state_that_could_not_be_set_up_is_tried_with_the_next_heartbeat() -> None:
    harness, keeper = Harness(), FakeKeeper()
    shares = served(harness, keeper)
    keeper.codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2

    first = heartbeat(shares)

    assert assigned(first) == []
    assert assigned(heartbeat(shares, first.member_epoch)) == [0, 1]


def test_heartbeat_waits_a_limited_time_for_share_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_service, "INITIALIZE_MS", 50)
    harness, keeper = Harness(), FakeKeeper()
    shares = served(harness, keeper)
    keeper.is_hanging = True

    first = heartbeat(shares)

    assert (first.error_code, assigned(first)) == (ErrorCode.NONE, [])
    keeper.is_hanging = False
    assert assigned(heartbeat(shares, first.member_epoch)) == [0, 1], "nobody is in its way"


def test_state_of_a_deleted_group_is_reinitialized_with_a_higher_epoch() -> None:
    harness, keeper = Harness(), FakeKeeper()
    keeper.codes = [ErrorCode.FENCED_STATE_EPOCH] * 2

    assert assigned(heartbeat(served(harness, keeper))) == [0, 1]
    assert len(keeper.asked) == 4
