"""Offsets of share groups: described, altered and deleted (KIP-932)."""

# ruff: noqa: F401, F811 - fixtures of `share_members` are found by name

from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from share_members import (
    ACCEPT,
    NUMBERS,
    Member,
    Wire,
    group,
    leave,
    node,
    offsets,
    topic,
    wire,
)

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.read_share_group_state import PartitionData as ReadStatePartition
from ottla.protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadStateData,
)
from ottla.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from ottla.protocol.types import Uuid
from ottla.testing import Cluster


def alter(wire: Wire, group: str, topic: str, start: int) -> Any:
    partitions = [AlterShareGroupOffsetsRequestPartition(0, start)]
    topics = [AlterShareGroupOffsetsRequestTopic(topic, partitions)]
    return wire.ask(AlterShareGroupOffsetsRequest(group, topics))


def test_offsets_are_described_reset_and_forgotten(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group, topic).join()
    member.fetch()
    member.acknowledge((0, 3, ACCEPT), (5, 6, ACCEPT))
    assert offsets(wire, group) == [(0, 4, 4)]
    assert alter(wire, group, topic, 1).error_code == ErrorCode.NON_EMPTY_GROUP
    leave(member)

    altered = alter(wire, group, topic, 1)

    assert altered.error_code == ErrorCode.NONE
    assert altered.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert offsets(wire, group) == [(0, 1, 9)]
    again = Member(wire, group, topic).join()
    assert again.got() == [(1, 9, 1)], "the window of before is gone, its acknowledgements too"
    leave(again)
    asked = [DeleteShareGroupOffsetsRequestTopic(topic)]
    deleted = wire.ask(DeleteShareGroupOffsetsRequest(group, asked))
    assert [row.error_code for row in deleted.responses] == [ErrorCode.NONE]
    assert offsets(wire, group) == []


def delete_offsets(wire: Wire, group: str, topic: str) -> Any:
    asked = [DeleteShareGroupOffsetsRequestTopic(topic)]
    return wire.ask(DeleteShareGroupOffsetsRequest(group, asked))


def test_partition_requested_twice_has_one_result(wire: Wire, group: str, topic: str) -> None:
    part = AlterShareGroupOffsetsRequestPartition(0, 4)
    topics = [AlterShareGroupOffsetsRequestTopic(topic, [part])] * 2
    altered = wire.ask(AlterShareGroupOffsetsRequest(group, topics))
    assert [(t.topic_name, len(t.partitions)) for t in altered.responses] == [(topic, 2)]

    twice = [DescribeShareGroupOffsetsRequestTopic(topic, [0, 0])] * 2
    asked = DescribeShareGroupOffsetsRequestGroup(group, twice)
    (described,) = wire.ask(DescribeShareGroupOffsetsRequest([asked])).groups
    assert [[p.start_offset for p in t.partitions] for t in described.topics] == [[4]]
    topic_id = described.topics[0].topic_id

    parts = [PartitionData(0, 0), PartitionData(0, 0)]
    states = [ReadStateSummaryData(topic_id, parts), ReadStateSummaryData(topic_id, parts)]
    read = wire.ask(ReadShareGroupStateSummaryRequest(group, states))
    assert [[p.start_offset for p in t.partitions] for t in read.results] == [[4]]
    none = [ReadStateSummaryData(topic_id, [])]
    assert wire.ask(ReadShareGroupStateSummaryRequest(group, none)).results == []

    deleted = wire.ask(
        DeleteShareGroupOffsetsRequest(group, [DeleteShareGroupOffsetsRequestTopic(topic)] * 2)
    )
    assert [row.error_code for row in deleted.responses] == [ErrorCode.NONE]


def test_offsets_of_a_group_without_name_are_refused(wire: Wire) -> None:
    asked = DescribeShareGroupOffsetsRequestGroup("", [])
    (described,) = wire.ask(DescribeShareGroupOffsetsRequest([asked])).groups
    assert described.error_code == ErrorCode.INVALID_GROUP_ID


def test_altering_offsets_of_an_unknown_group_creates_it(
    wire: Wire, group: str, topic: str
) -> None:
    unknown = alter(wire, group, "no-such-topic", 4)
    assert (unknown.error_code, unknown.responses[0].partitions[0].error_code) == (
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert group not in {each.group_id for each in wire.ask(ListGroupsRequest()).groups}

    altered = alter(wire, group, topic, 4)

    assert altered.error_code == ErrorCode.NONE
    assert altered.responses[0].partitions[0].error_code == ErrorCode.NONE
    listed = {each.group_id: each for each in wire.ask(ListGroupsRequest()).groups}
    assert (listed[group].group_type, listed[group].group_state) == ("share", "Empty")
    assert offsets(wire, group) == [(0, 4, 6)]
    assert Member(wire, group, topic).join().got() == [(4, 9, 1)]


def test_altering_offsets_of_a_group_of_another_type_is_refused(
    wire: Wire, node: Cluster, topic: str
) -> None:
    name = f"group-{next(NUMBERS)}"
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    consumer.close()

    assert alter(wire, name, topic, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_altering_and_deleting_offsets_of_a_nameless_group_is_refused(
    wire: Wire, topic: str
) -> None:
    assert alter(wire, "", topic, 1).error_code == ErrorCode.INVALID_GROUP_ID
    assert delete_offsets(wire, "", topic).error_code == ErrorCode.INVALID_GROUP_ID


def test_deleting_offsets_twice_says_that_there_are_none(
    wire: Wire, group: str, topic: str
) -> None:
    assert alter(wire, group, topic, 4).error_code == ErrorCode.NONE
    assert [row.error_code for row in delete_offsets(wire, group, topic).responses] == [0]

    (row,) = delete_offsets(wire, group, topic).responses

    assert (row.error_code, row.topic_id) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Uuid(bytes(16)))


def test_offsets_of_an_unknown_group_or_topic_are_described_as_absent(
    wire: Wire, group: str, topic: str
) -> None:
    assert offsets(wire, group) == []
    asked = [
        DescribeShareGroupOffsetsRequestTopic(topic, [0]),
        DescribeShareGroupOffsetsRequestTopic("no-such-topic", [0, 7]),
    ]
    named = DescribeShareGroupOffsetsRequestGroup(group, asked)

    (found,) = wire.ask(DescribeShareGroupOffsetsRequest([named])).groups

    assert found.error_code == ErrorCode.NONE
    described = [
        (t.topic_name, p.partition_index, p.error_code, p.start_offset, p.lag)
        for t in found.topics
        for p in t.partitions
    ]
    assert described == [
        (topic, 0, 0, -1, -1),
        ("no-such-topic", 0, 0, -1, -1),
        ("no-such-topic", 7, 0, -1, -1),
    ]


def test_state_of_a_nameless_group_has_no_topics(wire: Wire, topic: str) -> None:
    part, data = ReadStatePartition(0), PartitionData(0)
    read = ReadShareGroupStateRequest("", [ReadStateData(Uuid(b"t" * 16), [part])])
    assert wire.ask(read).results == []
    asked = [ReadStateSummaryData(Uuid(b"t" * 16), [data])]
    assert wire.ask(ReadShareGroupStateSummaryRequest("", asked)).results == []


@pytest.mark.parametrize("require_stable", [False, True])
def test_committed_offsets_of_a_share_group_are_absent(
    wire: Wire, group: str, topic: str, require_stable: bool
) -> None:
    assert alter(wire, group, topic, 4).error_code == ErrorCode.NONE
    named = OffsetFetchRequestGroup(
        group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0])]
    )
    every = OffsetFetchRequestGroup(group, topics=None)

    reply = wire.ask(OffsetFetchRequest(groups=[named, every], require_stable=require_stable), 9)

    first, second = reply.groups
    assert (first.error_code, second.error_code, second.topics) == (0, 0, [])
    assert [(p.committed_offset, p.error_code) for p in first.topics[0].partitions] == [(-1, 0)]
