"""Share groups of a running node: join, fetch, acknowledge, release (KIP-932)."""

# ruff: noqa: F401, F811 - fixtures of `share_members` are found by name

import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from share_members import (
    ACCEPT,
    EARLIEST,
    REJECT,
    RELEASE,
    RENEW,
    SECONDS_MAX,
    STATE,
    Member,
    Wire,
    acquired,
    configure,
    create,
    group,
    leave,
    node,
    offsets,
    other_wire,
    produce,
    rows,
    summary,
    topic,
    until,
    values,
    wire,
)

from ottla.metadata.configs import ConfigResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import share_acknowledge as acknowledging
from ottla.protocol.messages import share_fetch as fetching
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.testing import Cluster


def test_accepted_records_are_not_fetched_again(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()

    reply = member.fetch()

    assert acquired(reply) == [(0, 9, 1)]
    assert values(reply) == [str(number).encode() for number in range(10)]
    reply = member.fetch([(0, 9, ACCEPT)], wait_ms=10)
    assert [row.acknowledge_error_code for row in rows(reply)] == [ErrorCode.NONE]
    assert acquired(reply) == []
    assert summary(wire, group, member.assigned[0])[:2] == (ErrorCode.NONE, 10), "it is durable"


@pytest.mark.parametrize("version", [1, 2])
def test_two_members_never_acquire_the_same_record(
    wire: Wire, group: str, topic: str, version: int
) -> None:
    first, second = (Member(wire, group, topic).join() for _ in range(2))

    assert first.got(version=version) == [(0, 9, 1)]
    assert second.got(version=version, wait_ms=10) == []

    assert rows(first.acknowledge((2, 3, RELEASE)))[0].error_code == ErrorCode.NONE
    assert second.got(version=version) == [(2, 3, 2)]
    refused = first.acknowledge((2, 2, ACCEPT))
    assert rows(refused)[0].error_code == ErrorCode.INVALID_RECORD_STATE


def test_strict_fetch_acquires_no_more_than_requested(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()

    assert member.got(records=4, share_acquire_mode=1) == [(0, 3, 1)]
    assert member.got(records=4, share_acquire_mode=1) == [(4, 7, 1)]


def test_waiting_share_fetch_is_woken_by_an_append(
    wire: Wire, node: Cluster, group: str, topic: str
) -> None:
    member = Member(wire, group, topic).join()
    assert member.got() == [(0, 9, 1)]
    began = time.monotonic()

    produce(node, topic, range(10, 12))

    assert member.got(wait_ms=50_000) == [(10, 11, 1)]
    assert time.monotonic() - began < 45


def test_expired_lock_releases_records_to_another_member(
    wire: Wire, node: Cluster, group: str, topic: str
) -> None:
    configure(wire, group, share_record_lock_duration_ms="1000")
    first, second = (Member(wire, group, topic).join() for _ in range(2))
    reply = first.fetch()
    assert acquired(reply) == [(0, 9, 1)]
    assert reply.acquisition_lock_timeout_ms == 1000

    assert second.got(wait_ms=10_000) == [(0, 9, 2)]
    late = first.acknowledge((0, 9, ACCEPT))
    assert rows(late)[0].error_code == ErrorCode.INVALID_RECORD_STATE


def test_closing_a_session_releases_acquired_records(wire: Wire, group: str, topic: str) -> None:
    first, second = (Member(wire, group, topic).join() for _ in range(2))
    assert first.got() == [(0, 9, 1)]

    assert first.acknowledge((0, 4, ACCEPT), session=-1).error_code == ErrorCode.NONE

    assert second.got() == [(5, 9, 2)]
    gone = first.acknowledge((5, 9, ACCEPT), session=3)
    assert gone.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize("by", ["ShareFetch", "ShareAcknowledge"])
def test_closing_a_session_during_its_own_fetch_releases_records_to_other_members(
    wire: Wire, other_wire: Wire, group: str, topic: str, by: str
) -> None:
    closing = other_wire
    first, second = Member(closing, group, topic).join(), Member(wire, group, topic).join()
    assert first.got() == [(0, 9, 1)]

    waiting = closing.send(first.fetch_request(wait_ms=50_000), 2)
    if by == "ShareFetch":
        closed = closing.send(first.fetch_request(session=-1, wait_ms=0), 2)
    else:
        closed = closing.send(first.acknowledge_request(session=-1))

    began = time.monotonic()
    assert acquired(waiting()) == [], "the member that closes gets nothing more"
    assert closed().error_code == ErrorCode.NONE
    assert time.monotonic() - began < 45, "the fetch ends with its session"
    assert second.got(wait_ms=10_000) == [(0, 9, 2)], "long before the lock of a minute is over"


def test_closing_a_session_releases_records_of_partitions_it_no_longer_fetches(
    wire: Wire, group: str, topic: str
) -> None:
    first, second = (Member(wire, group, topic).join() for _ in range(2))
    assert first.got() == [(0, 9, 1)]
    topic_id, partition = first.assigned[0]
    forget = fetching.ShareFetchRequest(
        group_id=group,
        member_id=first.id,
        share_session_epoch=first.session,
        forgotten_topics_data=[fetching.ForgottenTopic(topic_id, [partition])],
    )
    assert wire.ask(forget).error_code == ErrorCode.NONE
    closed = acknowledging.ShareAcknowledgeRequest(group, first.id, -1)

    assert wire.ask(closed).error_code == ErrorCode.NONE

    assert second.got(wait_ms=10_000) == [(0, 9, 2)]


def test_share_session_epochs_are_validated(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()

    assert member.fetch(session=5).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    with_acks = member.fetch([(0, 0, ACCEPT)], session=0)
    assert with_acks.error_code == ErrorCode.INVALID_REQUEST
    assert member.got() == [(0, 9, 1)]
    assert member.fetch(session=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    first = member.acknowledge((0, 0, ACCEPT), session=0)
    assert first.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_unknown_acquire_modes_and_long_member_ids_are_refused(wire: Wire, group: str) -> None:
    def code(member: str, mode: int) -> int:
        request = fetching.ShareFetchRequest(
            group_id=group, member_id=member, share_session_epoch=0, share_acquire_mode=mode
        )
        return wire.ask(request).error_code

    assert code("m" * 36, 1) == ErrorCode.NONE
    assert code("m" * 37, 1) == ErrorCode.INVALID_REQUEST
    assert code("m", 2) == ErrorCode.INVALID_REQUEST
    assert code("m", -1) == ErrorCode.INVALID_REQUEST
    late = acknowledging.ShareAcknowledgeRequest(group, "m" * 37, 1)
    assert wire.ask(late).error_code == ErrorCode.INVALID_REQUEST


def test_renewed_lock_returns_its_timeout(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()
    member.fetch()

    reply = member.acknowledge((0, 9, RENEW), is_renew_ack=True)

    assert rows(reply)[0].error_code == ErrorCode.NONE
    assert reply.acquisition_lock_timeout_ms == 60_000
    unasked = member.acknowledge((0, 9, RENEW))
    assert rows(unasked)[0].error_code == ErrorCode.INVALID_REQUEST


def test_share_group_is_described_and_left(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()

    (found,) = wire.ask(ShareGroupDescribeRequest([group])).groups

    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "simple")
    assert [m.member_id for m in found.members] == [member.id]
    assert found.members[0].assignment.topic_partitions[0].topic_name == topic
    listed = {g.group_id: g for g in wire.ask(ListGroupsRequest()).groups}
    assert (listed[group].protocol_type, listed[group].group_type) == ("share", "share")

    member.epoch = -1
    assert member.beat().error_code == ErrorCode.NONE
    (found,) = wire.ask(ShareGroupDescribeRequest([group])).groups
    assert found.group_state == "Empty"


def test_unknown_members_and_wrong_epochs_are_rejected(wire: Wire, group: str, topic: str) -> None:
    stranger = Member(wire, group, topic)
    stranger.epoch = 3
    assert stranger.beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    member = Member(wire, group, topic).join()
    assert stranger.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    member.epoch += 5
    assert member.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_fetch_lists_partitions_that_are_new_to_the_session_without_records(
    wire: Wire, node: Cluster, group: str, topic: str
) -> None:
    first, second = (Member(wire, group, topic).join() for _ in range(2))
    assert first.got() == [(0, 9, 1)]

    reply = second.fetch(wait_ms=10)

    assert [(row.partition_index, row.error_code, len(row.records)) for row in rows(reply)] == [
        (0, 0, 0)
    ]
    assert rows(second.fetch(wait_ms=10)) == [], "it is listed once"


def test_acknowledging_an_offset_twice_in_one_request_is_an_invalid_record_state(
    wire: Wire, group: str, topic: str
) -> None:
    member = Member(wire, group, topic).join()
    member.fetch()

    refused = member.acknowledge((0, 3, ACCEPT), (3, 5, ACCEPT))

    assert rows(refused)[0].error_code == ErrorCode.INVALID_RECORD_STATE
    backwards = member.acknowledge((3, 5, ACCEPT), (4, 6, ACCEPT))
    assert rows(backwards)[0].error_code == ErrorCode.INVALID_REQUEST
    assert rows(member.acknowledge((0, 9, ACCEPT)))[0].error_code == ErrorCode.NONE


def test_recreated_share_group_starts_without_state(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()
    member.fetch()
    member.acknowledge((0, 3, ACCEPT))
    leave(member)
    (deleted,) = wire.ask(DeleteGroupsRequest([group])).results
    assert deleted.error_code == ErrorCode.NONE

    assert summary(wire, group, member.assigned[0]) == (ErrorCode.NONE, -1, 0), "no state is left"

    again = Member(wire, group, topic).join()

    assert again.got() == [(0, 9, 1)]


def test_share_group_with_members_is_not_deleted(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()
    member.fetch([])
    member.acknowledge((0, 3, ACCEPT))

    (refused,) = wire.ask(DeleteGroupsRequest([group])).results

    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    assert summary(wire, group, member.assigned[0])[:2] == (ErrorCode.NONE, 4), "it keeps its state"


def test_share_state_of_a_deleted_topic_is_deleted(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()
    member.fetch()
    member.acknowledge((0, 3, ACCEPT))
    before = set(member.assigned)

    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic)], timeout_ms=10_000)
    (deleted,) = wire.ask(request).responses
    assert deleted.error_code == ErrorCode.NONE

    until(lambda: offsets(wire, group) == [])
    create(wire, topic)
    until(lambda: member.beat().error_code == 0 and set(member.assigned) - before != set())
    assert offsets(wire, group) == [(0, -1, -1)], "begun anew, under another id"


def test_share_state_log_is_trimmed(wire: Wire, group: str, topic: str) -> None:
    """Snapshots every other update: what is before them goes."""
    member = Member(wire, group, topic).join()
    member.fetch()

    def starts() -> list[int]:
        asked = [ListOffsetsPartition(index, -1, EARLIEST) for index in range(2)]
        reply = wire.ask(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(STATE, asked)]), 10)
        return [part.offset for part in reply.topics[0].partitions]

    before = starts()
    for offset in range(10):
        assert rows(member.acknowledge((offset, offset, ACCEPT)))[0].error_code == ErrorCode.NONE

    until(lambda: starts() != before)
    assert summary(wire, group, member.assigned[0])[:2] == (ErrorCode.NONE, 10)


def test_closed_connection_releases_the_records_of_its_member(
    wire: Wire, node: Cluster, group: str, topic: str
) -> None:
    lost = Wire(node.bootstrap)
    first, second = Member(lost, group, topic).join(), Member(wire, group, topic).join()
    assert first.got() == [(0, 9, 1)]

    lost.close()

    assert second.got(wait_ms=10_000) == [(0, 9, 2)], "long before the lock of a minute is over"
    back = Member(wire, group, topic)
    back.id, back.epoch, back.assigned, back.session = first.id, first.epoch, first.assigned, 1
    assert back.fetch().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_member_on_a_new_connection_keeps_its_session(
    wire: Wire, node: Cluster, group: str, topic: str
) -> None:
    lost = Wire(node.bootstrap)
    member = Member(lost, group, topic).join()
    member.fetch(records=1, share_acquire_mode=1)
    member.wire, member.session = wire, 0
    assert member.got(records=1, share_acquire_mode=1) == [(1, 1, 1)]

    lost.close()

    assert member.got(records=1, share_acquire_mode=1) == [(2, 2, 1)]
    assert rows(member.acknowledge((0, 2, ACCEPT)))[0].error_code == ErrorCode.NONE


# -- dead letters ------------------------------------------------------------------------


def letters(node: Cluster, topic: str, count: int) -> list[tuple[bytes | None, dict[str, str]]]:
    """Return what is in a dead-letter topic, once there are so many."""
    reader = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "reader"})
    reader.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes | None, dict[str, str]]] = []

    def is_enough() -> bool:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            headers = {name: value.decode() for name, value in message.headers() or ()}
            found.append((message.value(), headers))
        return len(found) >= count

    try:
        until(is_enough)
    finally:
        reader.close()
    return found


def finalize(wire: Wire, feature: str, level: int) -> None:
    update = FeatureUpdateKey(feature, max_version_level=level, upgrade_type=1)
    reply = wire.ask(UpdateFeaturesRequest(feature_updates=[update]))
    assert reply.error_code == ErrorCode.NONE, reply


@pytest.mark.parametrize("keys", ["ottla_errors", "errors"])
def test_undelivered_records_are_written_to_the_dead_letter_topic(
    wire: Wire, node: Cluster, group: str, topic: str, keys: str
) -> None:
    if keys == "errors":
        finalize(wire, "share.version", 2)
    create(wire, f"dlq.{topic}", **{f"{keys}_deadletterqueue_group_enable": "true"})
    configure(
        wire,
        group,
        **{
            f"{keys}_deadletterqueue_topic_name": f"dlq.{topic}",
            f"{keys}_deadletterqueue_copy_record_enable": "true",
        },
    )
    member = Member(wire, group, topic).join()
    assert member.got() == [(0, 9, 1)]
    member.acknowledge((0, 2, ACCEPT), (3, 3, REJECT), (4, 8, ACCEPT), (9, 9, RELEASE))
    for delivery in range(2, 6):
        assert member.got() == [(9, 9, delivery)]
        member.acknowledge((9, 9, RELEASE))

    found = letters(node, f"dlq.{topic}", 2)

    assert [value for value, _ in found] == [b"3", b"9"]
    assert [headers["__dlq.errors.message"] for _, headers in found] == [
        "Offset rejected by client.",
        "Offset delivery count exceeded the threshold.",
    ]
    assert found[1][1] == {
        "__dlq.errors.topic": topic,
        "__dlq.errors.partition": "0",
        "__dlq.errors.offset": "9",
        "__dlq.errors.group": group,
        "__dlq.errors.delivery.count": "5",
        "__dlq.errors.message": "Offset delivery count exceeded the threshold.",
    }
    until(lambda: summary(wire, group, member.assigned[0])[:2] == (ErrorCode.NONE, 10))
    assert member.got(wait_ms=10) == [], "and it is delivered no more"


def end_of(node: Cluster, topic: str) -> int:
    reader = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "reader"})
    try:
        return reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS_MAX)[1]
    finally:
        reader.close()


@pytest.mark.parametrize("name", ["orders", "dlq.closed"])
def test_dead_letters_wait_for_a_topic_that_allows_them(
    wire: Wire, node: Cluster, group: str, topic: str, name: str
) -> None:
    dead = f"{name}-{topic}"
    enabled = {} if name == "dlq.closed" else {"ottla_errors_deadletterqueue_group_enable": "true"}
    create(wire, dead, **enabled)
    configure(wire, group, ottla_errors_deadletterqueue_topic_name=dead)
    member = Member(wire, group, topic).join()
    member.fetch()
    member.acknowledge((0, 4, REJECT), (5, 9, ACCEPT))
    assert end_of(node, dead) == 0

    allowed = f"dlq.allowed-{topic}"
    create(wire, allowed, ottla_errors_deadletterqueue_group_enable="true")
    configure(wire, group, ottla_errors_deadletterqueue_topic_name=allowed)

    until(lambda: summary(wire, group, member.assigned[0])[:2] == (ErrorCode.NONE, 10))
    assert (end_of(node, dead), end_of(node, allowed)) == (0, 5)


def test_dead_letter_topic_is_created_where_brokers_may_do_so(
    wire: Wire, node: Cluster, group: str, topic: str
) -> None:
    finalize(wire, "share.version", 2)
    enable = {"errors_deadletterqueue_auto_create_topics_enable": "true"}
    configure(wire, "", ConfigResourceType.BROKER, **enable)
    configure(wire, group, errors_deadletterqueue_topic_name=f"dlq.new-{topic}")
    member = Member(wire, group, topic).join()
    member.fetch()
    member.acknowledge((0, 9, REJECT))

    until(lambda: summary(wire, group, member.assigned[0])[:2] == (ErrorCode.NONE, 10))
    found = letters(node, f"dlq.new-{topic}", 10)
    assert [headers["__dlq.errors.offset"] for _, headers in found] == [str(n) for n in range(10)]
    assert {value for value, _ in found} == {None}
