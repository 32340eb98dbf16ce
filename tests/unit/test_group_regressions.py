"""What hurt users of other brokers in groups, and what no client may get away with."""

from collections.abc import Callable
from typing import Any

import pytest
from classic_world import World, lenient
from consumer_world import ConsumerWorld

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault

MEMBERS = 60


def form(world: World, count: int) -> list[str]:
    """Let so many members join at once, each sent back once for its id, and sync them all."""
    ids = [world.join(version=9).reply.member_id for _ in range(count)]
    futures = [world.join(each, version=9) for each in ids]
    world.pass_ms(10_000)
    assert {future.reply.error_code for future in futures} == {ErrorCode.NONE}
    (leader,) = {future.reply.leader for future in futures}
    (generation,) = {future.reply.generation_id for future in futures}
    (known,) = (len(t.reply.members) for t in futures if t.reply.member_id == leader)
    assert known == count
    waiting = {each: world.sync(each, generation) for each in ids if each != leader}
    given = {each: each.encode() * 20 for each in ids}
    waiting[leader] = world.sync(leader, generation, **given)
    assert {each: future.reply.assignment for each, future in waiting.items()} == given
    return ids


def test_members_that_join_at_once_are_one_generation_with_whole_assignments() -> None:
    world = World(settings=lenient(max_size=MEMBERS))
    ids = form(world, MEMBERS)
    assert world.group.generation == 1
    assert {world.heartbeat(each, 1) for each in ids} == {ErrorCode.NONE}


def test_a_group_rebalances_as_often_as_it_has_reason_to() -> None:
    """Once for those who come first, once for one more, once for one who leaves; then never."""
    world = World(settings=lenient(max_size=5))
    ids = form(world, 3)
    assert world.group.generation == 1
    newcomer = world.join(world.join(version=9).reply.member_id, version=9)
    assert {world.heartbeat(each, 1) for each in ids} == {ErrorCode.REBALANCE_IN_PROGRESS}
    joined = [world.join(each, version=9) for each in ids]
    ids.append(newcomer.reply.member_id)
    assert {future.reply.generation_id for future in (*joined, newcomer)} == {2}
    synced(world, ids, 2)
    assert world.leave(ids.pop()) == [ErrorCode.NONE]
    joined = [world.join(each, version=9) for each in ids]
    assert {future.reply.generation_id for future in joined} == {3}
    synced(world, ids, 3)
    written = len(world.log.batches)
    for _ in range(20):
        world.pass_ms(3000)
        assert {world.heartbeat(each, 3) for each in ids} == {ErrorCode.NONE}
    assert (world.group.generation, len(world.log.batches)) == (3, written)


def synced(world: World, ids: list[str], generation: int) -> None:
    leader = world.group.leader_id
    assert leader is not None
    for each in ids:
        if each != leader:
            world.sync(each, generation)
    world.sync(leader, generation, **{each: b"a" for each in ids})
    assert {world.heartbeat(each, generation) for each in ids} == {ErrorCode.NONE}


# -- bad input: Kafka's code, and nothing changes ------------------------------------------


def code_of(future: Any) -> int:
    """The code of a reply."""
    return int(future.reply.error_code)


def fault_of(ask: Callable[[], object]) -> int:
    """The code that a heartbeat is refused with."""
    with pytest.raises(Fault) as raised:
        ask()
    return int(raised.value.code)


CLASSIC: dict[str, tuple[Callable[[World, str], int], ErrorCode]] = {
    "a heartbeat of a stranger": (
        lambda world, _: world.heartbeat("ghost", 1),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "a heartbeat of another generation": (
        lambda world, member: world.heartbeat(member, 7),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    "a sync of a stranger": (
        lambda world, _: code_of(world.sync("ghost", 1)),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "a sync of another generation": (
        lambda world, member: code_of(world.sync(member, 0)),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    "a stranger that leaves": (
        lambda world, _: world.leave("ghost")[0],
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "a stranger that joins": (
        lambda world, _: code_of(world.join("ghost")),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "a protocol that nobody else offers": (
        lambda world, _: code_of(world.join(protocols="sticky")),
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    "offsets of a stranger": (
        lambda world, _: world.commit_code(5, "ghost", 1),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "offsets of another generation": (
        lambda world, member: world.commit_code(5, member, 7),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    "offsets of nobody while there are members": (
        lambda world, _: world.commit_code(5),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "metadata that is too long": (
        lambda world, member: world.commit_code(5, member, 1, metadata="x" * 11),
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ),
    "a group with members that is deleted": (
        lambda world, _: world.delete("g")[0],
        ErrorCode.NON_EMPTY_GROUP,
    ),
}


@pytest.mark.parametrize(("ask", "code"), CLASSIC.values(), ids=CLASSIC)
def test_bad_input_to_a_classic_group_changes_nothing(
    ask: Callable[[World, str], int], code: ErrorCode
) -> None:
    world = World()
    member, _ = world.stable(2)
    before, written = world.group.durable, len(world.log.batches)
    assert ask(world, member) == code
    assert len(world.log.batches) == written
    assert (world.group.durable, world.group.generation) == (before, 1)
    assert not world.machine.offsets.of_group("g")
    assert world.heartbeat(member, 1) == ErrorCode.NONE


CONSUMER: dict[str, tuple[Callable[[ConsumerWorld], int], ErrorCode]] = {
    "a stranger": (
        lambda world: fault_of(lambda: world.beat("ghost", 3)),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "an epoch of the past": (
        lambda world: fault_of(lambda: world.beat("a", 99)),
        ErrorCode.FENCED_MEMBER_EPOCH,
    ),
    "an assignor that does not exist": (
        lambda world: fault_of(lambda: world.enter("b", server_assignor="magic")),
        ErrorCode.UNSUPPORTED_ASSIGNOR,
    ),
    "an expression that is none": (
        lambda world: fault_of(lambda: world.enter("b", subscribed_topic_regex="t(")),
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    ),
    "offsets of a stranger": (
        lambda world: world.commit_code(5, "ghost", 1),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "offsets of another epoch": (
        lambda world: world.commit_code(5, "a", 99),
        ErrorCode.STALE_MEMBER_EPOCH,
    ),
    "metadata that is too long": (
        lambda world: world.commit_code(
            5, "a", world.consumers().members["a"].epoch, metadata="x" * 11
        ),
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ),
}


@pytest.mark.parametrize(("ask", "code"), CONSUMER.values(), ids=CONSUMER)
def test_bad_input_to_a_consumer_group_changes_nothing(
    ask: Callable[[ConsumerWorld], int], code: ErrorCode
) -> None:
    world = ConsumerWorld()
    world.enter("a")
    before, written = world.consumers(), len(world.log.batches)
    assert ask(world) == code
    assert len(world.log.batches) == written
    assert world.consumers() == before
    assert not world.machine.offsets.of_group("g")
