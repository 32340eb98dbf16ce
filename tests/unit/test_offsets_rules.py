"""Commit, fetch, delete and expire offsets, also in transactions."""

from typing import Any

import pytest
from classic_harness import FORMING_MS, Harness
from immutables import Map

from ottla.coordinators.groups.describe import describe_group, list_groups
from ottla.coordinators.groups.offsets.committed import CommittedOffset, Offsets
from ottla.coordinators.groups.requests import (
    decide_offset_delete,
    decide_partitions_deleted,
    decide_stable_fetch,
    read_offsets,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotEnoughReplicas
from ottla.protocol.internal.offset_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.types import ZERO_UUID, Uuid

ID = Uuid(bytes(range(16)))


def fetched(harness: Harness, group: str = "g", topic_id: Uuid = ZERO_UUID) -> tuple[int, int, str]:
    """The offset of partition 0 of t that a plain fetch returns."""
    topics = [OffsetFetchRequestTopics("t", topic_id, [0])]
    view: Any = harness.shard.committed()
    (topic,) = read_offsets(view, OffsetFetchRequestGroup(group, topics=topics)).topics
    (found,) = topic.partitions
    assert found.error_code == ErrorCode.NONE
    return found.committed_offset, found.committed_leader_epoch, found.metadata or ""


def stable(harness: Harness, group: str = "g") -> Any:
    """The future of a fetch that requires stable offsets."""
    request = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics("t", ZERO_UUID, [0])])
    return harness.submit(lambda m, now, _: decide_stable_fetch(m, request))


def only(future: Any) -> Any:
    return future.reply.topics[0].partitions[0]


# -- commit and read -----------------------------------------------------------------------


def test_committed_offset_keeps_epoch_and_metadata_after_a_restart() -> None:
    harness = Harness()
    assert harness.commit_code(7, metadata="note") == ErrorCode.NONE
    assert fetched(harness) == (7, 5, "note")
    assert fetched(harness.reload()) == (7, 5, "note")
    assert fetched(harness.reload(), "other") == (-1, -1, "")


def test_an_offset_without_epoch_stays_without_after_a_restart() -> None:
    harness = Harness()
    record = _offset(3, epoch=-1)
    harness.machine.offsets.replay(*record, 0, -1)
    assert harness.machine.offsets.get("g", ("t", 0)).leader_epoch == -1
    old = OffsetCommitValue(offset=3, metadata="", commit_timestamp=1)
    assert old.leader_epoch == -1  # versions before 3 have none


def _offset(offset: int, epoch: int = 0) -> Any:
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    return key, OffsetCommitValue(offset=offset, leader_epoch=epoch)


def test_only_committed_offsets_are_read() -> None:
    harness = Harness()
    harness.commit(1)
    harness.log.follows = False
    second = harness.commit(2)
    assert fetched(harness) == (1, 5, "")
    waiting = stable(harness)
    assert not (second.is_done or waiting.is_done)
    harness.log.commit()
    assert fetched(harness) == (2, 5, "")
    assert only(waiting).committed_offset == 2


def test_the_record_is_as_kafka_writes_it() -> None:
    harness = Harness()
    harness.commit(7, metadata="note")
    (record,) = harness.records()
    assert record.key == OffsetCommitKey(group="g", topic="t", partition=0)
    assert record.value.version == 4
    assert record.value.message == OffsetCommitValue(7, 5, "note", harness.clock.wall)
    harness.commit(8, retention_time_ms=1000, version=4)
    record = harness.records()[-1]
    assert record.value.version == 1
    assert record.value.message.expire_timestamp == harness.clock.wall + 1000


@pytest.mark.parametrize(
    ("retention_ms", "expires"), [((1 << 63) - 1, (1 << 63) - 1), (-(1 << 63), 0), (-2, None)]
)
def test_an_extreme_retention_time_is_kept_within_the_record(
    retention_ms: int, expires: int | None
) -> None:
    harness = Harness()
    assert harness.commit_code(8, retention_time_ms=retention_ms, version=4) == ErrorCode.NONE
    written = harness.records()[-1].value.message.expire_timestamp
    assert written == (harness.clock.wall - 2 if expires is None else expires)


def test_metadata_that_is_too_long_fails_its_partition_alone() -> None:
    harness = Harness()
    assert harness.commit_code(1, metadata="x" * 11) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert harness.log.batches == []
    assert harness.commit_code(1, metadata="x" * 10) == ErrorCode.NONE
    assert harness.commit_code(1, metadata=None) == ErrorCode.NONE


def test_a_topic_created_anew_does_not_inherit_offsets() -> None:
    offset = CommittedOffset(1, 0, "", 0, topic_id=ID)
    assert offset.is_of(ID) and offset.is_of(ZERO_UUID)
    assert not offset.is_of(Uuid(bytes(15) + b"1"))
    harness = Harness()
    key, value = _offset(3)
    value.topic_id = ID
    harness.machine.offsets.replay(key, value, 0, -1)
    harness.shard._views.committed = harness.machine.view()
    assert fetched(harness, topic_id=ID)[0] == 3
    assert fetched(harness, topic_id=Uuid(bytes(15) + b"1"))[0] == -1


# -- who may commit ------------------------------------------------------------------------


def test_commit_without_a_group_creates_a_simple_group() -> None:
    harness = Harness()
    assert harness.commit_code(1) == ErrorCode.NONE
    assert harness.group.protocol_type_or_none is None
    (listed,) = list_groups(harness.machine.view(), [], [])
    assert (listed.group_id, listed.protocol_type) == ("g", "")
    assert (listed.group_state, listed.group_type) == ("Empty", "classic")


@pytest.mark.parametrize(
    ("version", "expected"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_commit_with_generation_to_missing_group_is_rejected(
    version: int, expected: ErrorCode
) -> None:
    harness = Harness()
    assert harness.commit_code(1, "m", 3, version=version) == expected
    assert harness.log.batches == []


def test_only_members_of_the_generation_may_commit() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    assert harness.commit_code(1, member, 1) == ErrorCode.NONE
    assert harness.commit_code(2, member, 0) == ErrorCode.ILLEGAL_GENERATION
    assert harness.commit_code(2, "ghost", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.commit_code(2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetched(harness)[0] == 1


def test_commit_between_join_and_sync_is_rejected() -> None:
    harness = Harness()
    member = harness.join()
    harness.pass_ms(FORMING_MS)
    found = harness.commit_code(1, member.reply.member_id, 1)
    assert found == ErrorCode.REBALANCE_IN_PROGRESS


def test_while_members_join_again_the_old_generation_may_still_commit() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    harness.join()
    assert harness.commit_code(1, member, 1) == ErrorCode.NONE


def test_an_empty_group_takes_offsets_of_an_admin_and_not_of_a_past_member() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    harness.leave(member)
    assert harness.commit_code(5) == ErrorCode.NONE
    assert harness.commit_code(6, member, 1) == ErrorCode.UNKNOWN_MEMBER_ID


# -- transactions --------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_of_a_transaction_count_when_it_commits(is_commit: bool) -> None:
    harness = Harness()
    harness.commit(1)
    harness.txn_commit(9, 2)
    assert fetched(harness)[0] == 1
    assert only(stable(harness)).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    harness.end_txn(9, is_commit=is_commit)
    assert fetched(harness)[0] == (2 if is_commit else 1)
    assert only(stable(harness)).error_code == ErrorCode.NONE
    assert fetched(harness.reload())[0] == (2 if is_commit else 1)


def test_later_commit_overrides_pending_transactional_offset() -> None:
    harness = Harness()
    harness.txn_commit(9, 2)
    harness.commit(5)
    harness.end_txn(9, is_commit=True)
    assert fetched(harness)[0] == 5
    assert fetched(harness.reload())[0] == 5


def test_a_tombstone_also_removes_what_is_pending() -> None:
    harness = Harness()
    harness.txn_commit(9, 2)
    request = OffsetDeleteRequest(
        "g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
    )
    harness.submit(lambda m, now, _: decide_offset_delete(m, request))
    harness.end_txn(9, is_commit=True)
    assert fetched(harness)[0] == -1
    assert fetched(harness.reload())[0] == -1


def test_transactions_of_several_producers_stay_apart() -> None:
    harness = Harness()
    harness.txn_commit(1, 10)
    harness.txn_commit(2, 20)
    harness.end_txn(1, is_commit=True)
    assert fetched(harness)[0] == 10
    assert only(stable(harness)).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    harness.end_txn(2, is_commit=False)
    assert fetched(harness)[0] == 10


def test_marker_of_unknown_producer_changes_nothing() -> None:
    harness = Harness()
    harness.commit(1)
    harness.end_txn(77, is_commit=True)
    assert fetched(harness)[0] == 1


def test_a_transaction_is_fenced_by_generation_where_it_names_one() -> None:
    harness = Harness()
    harness.stable(1)
    code = only(harness.txn_commit(9, 2, generation=4)).error_code
    assert code == ErrorCode.UNKNOWN_MEMBER_ID  # a generation without a member
    assert only(harness.txn_commit(9, 2)).error_code == ErrorCode.NONE
    code = only(harness.txn_commit(9, 2, group="none", generation=4)).error_code
    assert code == ErrorCode.ILLEGAL_GENERATION


# -- delete --------------------------------------------------------------------------------


def delete_offset(harness: Harness, topic: str = "t") -> Any:
    request = OffsetDeleteRequest(
        "g",
        [
            OffsetDeleteRequestTopic(
                topic, [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(7)]
            )
        ],
    )
    return harness.submit(lambda m, now, _: decide_offset_delete(m, request)).reply


def test_offsets_of_topics_that_nobody_reads_may_be_deleted() -> None:
    harness = Harness()
    assert delete_offset(harness).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (member,) = harness.stable(1)
    harness.commit(1, member, 1)
    harness.commit(2, member, 1, topic="other")
    subscribed = delete_offset(harness).topics[0].partitions
    assert {each.error_code for each in subscribed} == {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert fetched(harness)[0] == 1
    before = len(harness.records())
    assert delete_offset(harness, "other").topics[0].partitions[0].error_code == ErrorCode.NONE
    assert len(harness.records()) == before + 1  # none for the partition without an offset
    harness.leave(member)
    delete_offset(harness)
    assert fetched(harness)[0] == -1


def test_offsets_of_active_non_consumer_groups_cannot_be_deleted() -> None:
    harness = Harness()
    (member,) = harness.stable(1, protocol_type="connect")
    harness.commit(1, member, 1)
    assert delete_offset(harness).error_code == ErrorCode.NON_EMPTY_GROUP


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    harness.commit(1, member, 1)
    assert harness.delete("g", "none") == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    harness.leave(member)
    assert harness.delete("g") == [ErrorCode.NONE]
    again = harness.reload()
    for each in (harness, again):
        assert each.machine.groups == Map()
        assert each.machine.offsets.committed == Map()


def test_offsets_of_deleted_partitions_are_forgotten_in_all_groups() -> None:
    harness = Harness()
    harness.commit(1, group="a")
    harness.commit(1, group="b", partition=1)
    harness.txn_commit(9, 3, group="c")
    harness.submit(lambda m, now, _: decide_partitions_deleted(m, [("t", 0)]))
    harness.end_txn(9, is_commit=True)
    assert fetched(harness, "a")[0] == -1
    assert fetched(harness, "c")[0] == -1
    assert harness.machine.offsets.get("b", ("t", 1)) is not None


# -- expiry --------------------------------------------------------------------------------


def test_a_simple_groups_offsets_expire_after_their_commit_and_it_with_them() -> None:
    harness = Harness()
    harness.commit(1)
    harness.pass_ms(50_000)
    harness.commit(2, partition=1)
    harness.pass_ms(50_000)
    assert fetched(harness)[0] == -1
    assert harness.machine.offsets.get("g", ("t", 1)) is not None
    assert "g" in harness.machine.groups
    harness.pass_ms(60_000)
    assert harness.machine.groups == Map()
    assert harness.reload().machine.groups == Map()


def test_a_groups_offsets_expire_after_it_became_empty() -> None:
    harness = Harness()
    (member,) = harness.stable(1, session_ms=1_000_000)
    harness.commit(1, member, 1, topic="t")
    harness.pass_ms(150_000)
    assert fetched(harness)[0] == 1  # a member reads it
    harness.leave(member)
    harness.pass_ms(90_000)
    assert fetched(harness)[0] == 1
    harness.pass_ms(20_000)
    assert fetched(harness)[0] == -1
    assert harness.machine.groups == Map()


def test_offsets_of_topics_nobody_reads_any_more_expire_under_members() -> None:
    harness = Harness()
    (member,) = harness.stable(1, session_ms=1_000_000)
    harness.commit(1, member, 1, topic="left")
    harness.commit(1, member, 1, topic="t")
    harness.pass_ms(110_000)
    assert harness.machine.offsets.get("g", ("left", 0)) is None
    assert harness.machine.offsets.get("g", ("t", 0)) is not None


def test_offset_commit_with_retention_time_expires_then() -> None:
    harness = Harness()
    harness.commit(1, retention_time_ms=15_000, version=4)
    harness.pass_ms(10_000)
    assert fetched(harness)[0] == 1
    harness.pass_ms(10_000)
    assert fetched(harness)[0] == -1


def test_an_open_transaction_keeps_offset_and_group() -> None:
    harness = Harness()
    harness.commit(1)
    harness.txn_commit(9, 2)
    harness.pass_ms(200_000)
    assert fetched(harness)[0] == 1
    harness.end_txn(9, is_commit=True)
    assert fetched(harness)[0] == 2
    bare = Harness()
    bare.txn_commit(9, 2)
    bare.pass_ms(200_000)
    assert "g" in bare.machine.groups


def test_an_expiry_that_cannot_be_written_is_tried_again() -> None:
    harness = Harness()
    harness.commit(1)
    harness.log.fault = NotEnoughReplicas("no")
    harness.pass_ms(150_000)
    assert fetched(harness)[0] == 1
    harness.log.fault = None
    harness.pass_ms(10_000)
    assert fetched(harness)[0] == -1


# -- list, describe --------------------------------------------------------------------------


def test_groups_are_listed_by_state_and_type() -> None:
    harness = Harness()
    harness.stable(1)
    harness.commit(1, group="simple")
    view = harness.machine.view()

    def listed(states: list[str], types: list[str]) -> list[str]:
        return [each.group_id for each in list_groups(view, states, types)]

    assert listed([], []) == ["g", "simple"]
    assert listed(["stable"], []) == ["g"]
    assert listed(["Empty", "Stable"], ["CLASSIC"]) == ["g", "simple"]
    assert listed([], ["consumer"]) == []


def test_a_group_is_described_with_members() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    found = describe_group(harness.machine.view(), "g", 5)
    assert (found.group_state, found.protocol_type, found.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (described,) = found.members
    assert (described.member_id, described.client_host) == (member, "/1.2.3.4")
    assert described.member_assignment == member.encode()
    assert described.member_metadata != b""
    harness.join()
    rebalancing = describe_group(harness.machine.view(), "g", 5)
    assert rebalancing.protocol_data == ""
    assert {each.member_metadata for each in rebalancing.members} == {b""}


@pytest.mark.parametrize(
    ("version", "expected"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_missing_group_is_described_as_dead(version: int, expected: ErrorCode) -> None:
    found = describe_group(Harness().machine.view(), "none", version)
    assert (found.group_state, found.error_code) == ("Dead", expected)


def test_an_empty_store_has_nothing() -> None:
    offsets = Offsets()
    assert offsets.of_group("g") == Map()
    assert list(offsets.places("g")) == []
