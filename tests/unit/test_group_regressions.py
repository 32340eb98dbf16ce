"""Group bugs known from other brokers, and invalid input of clients."""

from collections.abc import Callable
from typing import Any

import pytest
from classic_harness import Harness, lenient
from consumer_harness import ConsumerHarness

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault

MEMBERS = 60


def form(harness: Harness, count: int) -> list[str]:
    """Let so many members join at once, each rejoining with its id, and sync them all."""
    ids = [harness.join(version=9).reply.member_id for _ in range(count)]
    futures = [harness.join(each, version=9) for each in ids]
    harness.pass_ms(10_000)
    assert {future.reply.error_code for future in futures} == {ErrorCode.NONE}
    (leader,) = {future.reply.leader for future in futures}
    (generation,) = {future.reply.generation_id for future in futures}
    (known,) = (len(t.reply.members) for t in futures if t.reply.member_id == leader)
    assert known == count
    waiting = {each: harness.sync(each, generation) for each in ids if each != leader}
    given = {each: each.encode() * 20 for each in ids}
    waiting[leader] = harness.sync(leader, generation, **given)
    assert {each: future.reply.assignment for each, future in waiting.items()} == given
    return ids


def test_members_that_join_at_once_are_one_generation_with_whole_assignments() -> None:
    harness = Harness(settings=lenient(max_size=MEMBERS))
    ids = form(harness, MEMBERS)
    assert harness.group.generation == 1
    assert {harness.heartbeat(each, 1) for each in ids} == {ErrorCode.NONE}


def test_a_group_rebalances_as_often_as_it_has_reason_to() -> None:
    """Once for the first members, once for one more, once for one that leaves; then never."""
    harness = Harness(settings=lenient(max_size=5))
    ids = form(harness, 3)
    assert harness.group.generation == 1
    newcomer = harness.join(harness.join(version=9).reply.member_id, version=9)
    assert {harness.heartbeat(each, 1) for each in ids} == {ErrorCode.REBALANCE_IN_PROGRESS}
    joined = [harness.join(each, version=9) for each in ids]
    ids.append(newcomer.reply.member_id)
    assert {future.reply.generation_id for future in (*joined, newcomer)} == {2}
    synced(harness, ids, 2)
    assert harness.leave(ids.pop()) == [ErrorCode.NONE]
    joined = [harness.join(each, version=9) for each in ids]
    assert {future.reply.generation_id for future in joined} == {3}
    synced(harness, ids, 3)
    written = len(harness.log.batches)
    for _ in range(20):
        harness.pass_ms(3000)
        assert {harness.heartbeat(each, 3) for each in ids} == {ErrorCode.NONE}
    assert (harness.group.generation, len(harness.log.batches)) == (3, written)


def synced(harness: Harness, ids: list[str], generation: int) -> None:
    leader = harness.group.leader_id
    assert leader is not None
    for each in ids:
        if each != leader:
            harness.sync(each, generation)
    harness.sync(leader, generation, **{each: b"a" for each in ids})
    assert {harness.heartbeat(each, generation) for each in ids} == {ErrorCode.NONE}


# -- bad input: Kafka's code, and nothing changes ------------------------------------------


def code_of(future: Any) -> int:
    """The error code of a reply."""
    return int(future.reply.error_code)


def fault_of(ask: Callable[[], object]) -> int:
    """The error code of a rejected heartbeat."""
    with pytest.raises(Fault) as raised:
        ask()
    return int(raised.value.code)


CLASSIC: dict[str, tuple[Callable[[Harness, str], int], ErrorCode]] = {
    "a heartbeat of a stranger": (
        lambda harness, _: harness.heartbeat("ghost", 1),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "a heartbeat of another generation": (
        lambda harness, member: harness.heartbeat(member, 7),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    "a sync of a stranger": (
        lambda harness, _: code_of(harness.sync("ghost", 1)),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "a sync of another generation": (
        lambda harness, member: code_of(harness.sync(member, 0)),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    "a stranger that leaves": (
        lambda harness, _: harness.leave("ghost")[0],
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "a stranger that joins": (
        lambda harness, _: code_of(harness.join("ghost")),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "a protocol that nobody else offers": (
        lambda harness, _: code_of(harness.join(protocols="sticky")),
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    "offsets of a stranger": (
        lambda harness, _: harness.commit_code(5, "ghost", 1),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "offsets of another generation": (
        lambda harness, member: harness.commit_code(5, member, 7),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    "offsets of nobody while there are members": (
        lambda harness, _: harness.commit_code(5),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "metadata that is too long": (
        lambda harness, member: harness.commit_code(5, member, 1, metadata="x" * 11),
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ),
    "a group with members that is deleted": (
        lambda harness, _: harness.delete("g")[0],
        ErrorCode.NON_EMPTY_GROUP,
    ),
}


@pytest.mark.parametrize(("ask", "code"), CLASSIC.values(), ids=CLASSIC)
def test_bad_input_to_a_classic_group_changes_nothing(
    ask: Callable[[Harness, str], int], code: ErrorCode
) -> None:
    harness = Harness()
    member, _ = harness.stable(2)
    before, written = harness.group.durable, len(harness.log.batches)
    assert ask(harness, member) == code
    assert len(harness.log.batches) == written
    assert (harness.group.durable, harness.group.generation) == (before, 1)
    assert not harness.machine.offsets.of_group("g")
    assert harness.heartbeat(member, 1) == ErrorCode.NONE


CONSUMER: dict[str, tuple[Callable[[ConsumerHarness], int], ErrorCode]] = {
    "a stranger": (
        lambda harness: fault_of(lambda: harness.beat("ghost", 3)),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "an epoch of the past": (
        lambda harness: fault_of(lambda: harness.beat("a", 99)),
        ErrorCode.FENCED_MEMBER_EPOCH,
    ),
    "an assignor that does not exist": (
        lambda harness: fault_of(lambda: harness.enter("b", server_assignor="magic")),
        ErrorCode.UNSUPPORTED_ASSIGNOR,
    ),
    "an expression that is none": (
        lambda harness: fault_of(lambda: harness.enter("b", subscribed_topic_regex="t(")),
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    ),
    "offsets of a stranger": (
        lambda harness: harness.commit_code(5, "ghost", 1),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "offsets of another epoch": (
        lambda harness: harness.commit_code(5, "a", 99),
        ErrorCode.STALE_MEMBER_EPOCH,
    ),
    "metadata that is too long": (
        lambda harness: harness.commit_code(
            5, "a", harness.consumers().members["a"].epoch, metadata="x" * 11
        ),
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ),
}


@pytest.mark.parametrize(("ask", "code"), CONSUMER.values(), ids=CONSUMER)
def test_bad_input_to_a_consumer_group_changes_nothing(
    ask: Callable[[ConsumerHarness], int], code: ErrorCode
) -> None:
    harness = ConsumerHarness()
    harness.enter("a")
    before, written = harness.consumers(), len(harness.log.batches)
    assert ask(harness) == code
    assert len(harness.log.batches) == written
    assert harness.consumers() == before
    assert not harness.machine.offsets.of_group("g")
