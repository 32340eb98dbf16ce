"""Error replies for every API and version that has a field for an error."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.api.surface.error_reply import error_reply
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import request_class, response_class
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.schema import Kind, Message, Type, covers

CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
# Versions that list directories and nothing else; see `error_reply`.
SILENT = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}
EVERY = [(key, v) for key, api in APIS.items() for v in range(api.versions[0], api.versions[1] + 1)]


def value(of: Type, version: int) -> object:
    if of.kind is Kind.ARRAY:
        assert of.element
        return [value(of.element, version)]
    if of.kind is Kind.STRUCT:
        assert of.struct
        return filled(of.struct, version)
    samples = {Kind.BOOL: True, Kind.FLOAT64: 1.0, Kind.UUID: b"u" * 16, Kind.STRING: "name"}
    return samples.get(of.kind, b"" if of.kind in (Kind.BYTES, Kind.RECORDS) else 9)


def filled(kind: type[Message], version: int) -> Message:
    message = kind()
    for field in kind.SCHEMA.fields:
        if covers(field.versions, version):
            setattr(message, field.name, value(field.type, version))
    return message


def codes(message: object) -> Iterator[int]:
    if isinstance(message, list):
        for each in message:
            yield from codes(each)
    elif isinstance(message, Message):
        for name in message.__struct_fields__:
            if name in ("error_code", "partition_error_code"):
                yield getattr(message, name)
            else:
                yield from codes(getattr(message, name))


@pytest.mark.parametrize(("key", "version"), EVERY, ids=lambda x: getattr(x, "name", str(x)))
def test_every_version_of_every_api_can_report_an_error(key: ApiKey, version: int) -> None:
    reply = error_reply(key, version, filled(request_class(key), version), CODE)
    if (key, version) in SILENT:
        assert reply is None
        return
    assert reply is not None
    read = decode(response_class(key), version, encode(reply, version))
    assert CODE in set(codes(read))


def test_error_reply_names_the_requested_partitions() -> None:
    topic = TopicProduceData(
        name="t", partition_data=[PartitionProduceData(index=3), PartitionProduceData(index=5)]
    )
    reply = error_reply(ApiKey.PRODUCE, 9, ProduceRequest(topic_data=[topic]), CODE)
    [answer] = reply.responses  # type: ignore[union-attr]
    assert answer.name == "t"
    replies = [(p.index, p.error_code, p.base_offset) for p in answer.partition_responses]
    assert replies == [(3, CODE, -1), (5, CODE, -1)]


def test_fields_with_different_names_are_matched() -> None:
    topic = FetchTopic(topic="t", partitions=[FetchPartition(partition=4)])
    reply = error_reply(ApiKey.FETCH, 4, FetchRequest(topics=[topic]), CODE)
    [partition] = reply.responses[0].partitions  # type: ignore[union-attr]
    assert (partition.partition_index, partition.error_code) == (4, CODE)
    assert (partition.high_watermark, partition.records) == (-1, b"")
    plain = OffsetFetchRequest(topics=[OffsetFetchRequestTopic("t", partition_indexes=[6])])
    reply = error_reply(ApiKey.OFFSET_FETCH, 1, plain, CODE)
    [partition] = reply.topics[0].partitions  # type: ignore[union-attr]
    assert (partition.partition_index, partition.committed_offset) == (6, -1)


def test_plain_names_become_elements_with_a_name() -> None:
    request = DescribeGroupsRequest(groups=["a", "b"])
    reply = error_reply(ApiKey.DESCRIBE_GROUPS, 0, request, CODE)
    assert [(g.group_id, g.error_code) for g in reply.groups] == [("a", CODE), ("b", CODE)]  # type: ignore[union-attr]


def test_nested_arrays_are_flattened_if_the_response_is_flat() -> None:
    topics = [AlterReplicaLogDirTopic("t", [1, 2])]
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDir("/d", topics)])
    reply = error_reply(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request, CODE)
    [result] = reply.results  # type: ignore[union-attr]
    assert result.topic_name == "t"
    assert [(p.partition_index, p.error_code) for p in result.partitions] == [(1, CODE), (2, CODE)]


def test_metadata_error_is_set_on_each_topic_and_on_the_response() -> None:
    request = MetadataRequest([MetadataRequestTopic(name="t")])
    reply = error_reply(ApiKey.METADATA, 13, request, CODE)
    assert reply.error_code == CODE  # type: ignore[union-attr]
    assert [(t.name, t.error_code) for t in reply.topics] == [("t", CODE)]  # type: ignore[union-attr]


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_topic_requested_by_id_has_an_empty_name(version: int) -> None:
    request = MetadataRequest([MetadataRequestTopic(name=None)])
    reply = error_reply(ApiKey.METADATA, version, request, CODE)
    assert reply is not None
    assert encode(reply, version)
    assert [(t.name, t.error_code) for t in reply.topics] == [("", CODE)]  # type: ignore[attr-defined]


def test_response_without_a_field_for_the_error_is_none() -> None:
    assert error_reply(ApiKey.METADATA, 0, MetadataRequest(), CODE) is None
    assert error_reply(ApiKey.METADATA, 0, None, CODE) is None
    assert error_reply(ApiKey.METADATA, 13, None, CODE) is not None


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None), (9, None)])
def test_failed_join_has_a_null_protocol_name_if_the_version_allows(
    version: int, name: str | None
) -> None:
    reply = error_reply(ApiKey.JOIN_GROUP, version, None, CODE)
    assert reply.protocol_name == name  # type: ignore[union-attr]


def test_refused_markers_are_one_per_producer_with_each_partition_once() -> None:
    topics = [WritableTxnMarkerTopic("t", [1, 1]), WritableTxnMarkerTopic("t", [2])]
    empty = WritableTxnMarker(producer_id=8, topics=[WritableTxnMarkerTopic("t", [])])
    first = WritableTxnMarker(producer_id=7, topics=[WritableTxnMarkerTopic("u", [0])])
    request = WriteTxnMarkersRequest(
        [first, WritableTxnMarker(producer_id=7, topics=topics), empty]
    )
    reply: Any = error_reply(ApiKey.WRITE_TXN_MARKERS, 1, request, CODE)
    found = [
        (marker.producer_id, topic.name, [p.partition_index for p in topic.partitions])
        for marker in reply.markers
        for topic in marker.topics
    ]
    assert found == [(7, "t", [1, 2])]
    assert [marker.producer_id for marker in reply.markers] == [7, 8]
    assert error_reply(ApiKey.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(), CODE) is not None


def test_topics_without_partitions_stay_where_kafka_keeps_them() -> None:
    request = OffsetCommitRequest(topics=[OffsetCommitRequestTopic(name="t")])
    reply: Any = error_reply(ApiKey.OFFSET_COMMIT, 8, request, CODE)
    assert [(topic.name, topic.partitions) for topic in reply.topics] == [("t", [])]


def test_error_responses_of_single_apis_have_what_kafkas_have() -> None:
    quotas: Any = error_reply(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, None, CODE)
    assert quotas.entries is None
    users: Any = error_reply(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        DescribeUserScramCredentialsRequest([UserName("a")]),
        CODE,
    )
    assert [(row.user, row.error_code) for row in users.results] == [("", CODE)]
    asked = ListPartitionReassignmentsRequest(topics=[ListPartitionReassignmentsTopics("t", [3])])
    moves: Any = error_reply(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, asked, CODE)
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in moves.topics] == [
        ("t", [3])
    ]
