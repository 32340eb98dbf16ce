"""Groups and offsets of a running node, in every version of their APIs."""

import itertools
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.patience import SECONDS_MAX

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import parse_response_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import response_class
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.schema import Message
from ottla.testing import Cluster, run_node

NAMES = (f"group-{number}" for number in itertools.count())


class Wire:
    """A blocking connection that speaks any version."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        self._numbers = itertools.count(1)

    def ask(self, request: Message, version: int | None = None) -> Any:
        key = ApiKey(request.SCHEMA.api_key or 0)
        version = APIS[key].versions[1] if version is None else version
        header = RequestHeader(key, version, next(self._numbers), "wire")
        self._socket.sendall(bytes(request_frame(header, request)))
        body = self._read(struct.unpack(">i", self._read(4))[0])
        correlation_id, rest = parse_response_header(key, version, body)
        assert correlation_id == header.correlation_id
        return decode(response_class(key), version, rest)

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = self._socket.recv(count - len(found))
            assert piece, "the node hung up"
            found += piece
        return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    config = {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
    }
    with run_node(config=config) as cluster:
        yield cluster


@pytest.fixture
def wire(node: Cluster) -> Iterator[Wire]:
    wire = Wire(node.bootstrap)
    try:
        wait_coordinator(wire)
        yield wire
    finally:
        wire.close()


def wait_coordinator(wire: Wire) -> None:
    """Ask until the topic is there and its shards are read."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        found = wire.ask(FindCoordinatorRequest(key="any"), 0)
        if found.error_code == ErrorCode.NONE:
            listed = wire.ask(ListGroupsRequest())
            if listed.error_code == ErrorCode.NONE:
                return
        assert found.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    raise AssertionError("nobody coordinates")


def versions(key: ApiKey) -> list[int]:
    first, last = APIS[key].versions
    return list(range(first, last + 1))


@pytest.fixture
def topic(wire: Wire) -> tuple[str, bytes]:
    """A topic of two partitions, by name and id."""
    name = f"topic-{next(NAMES)}"
    (made,) = wire.ask(CreateTopicsRequest([CreatableTopic(name, 2, 1)], 10_000)).topics
    assert made.error_code == ErrorCode.NONE
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        (found,) = wire.ask(MetadataRequest([MetadataRequestTopic(name=name)])).topics
        if found.error_code == ErrorCode.NONE:
            break
    return name, made.topic_id


# -- finding the coordinator -------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_find_coordinator_works_in_every_version(wire: Wire, node: Cluster, version: int) -> None:
    if version < 4:
        found = wire.ask(FindCoordinatorRequest(key="g"), version)
        assert (found.error_code, found.node_id) == (ErrorCode.NONE, 1)
        assert f"{found.host}:{found.port}" == node.bootstrap
        return
    found = wire.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), version)
    assert [each.key for each in found.coordinators] == ["g", "h"]
    assert {each.node_id for each in found.coordinators} == {1}


@pytest.mark.parametrize(("key_type", "version"), [(2, 5), (3, 6), (-1, 6)])
def test_unknown_coordinator_type_is_rejected(wire: Wire, key_type: int, version: int) -> None:
    (found,) = wire.ask(
        FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"]), version
    ).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)


ID = "AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.parametrize(
    "key", ["g", "g:topic", f"g:{ID}:x", f":{ID}:1", "g:topic:1", f"g:{ID}AAA:1"]
)
def test_share_coordinator_key_is_validated(wire: Wire, key: str) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    assert wire.ask(request).coordinators[0].error_code == ErrorCode.INVALID_REQUEST


# -- a member's life -----------------------------------------------------------------------


def joining(group: str, member: str = "", **fields: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        group,
        10_000,
        20_000,
        member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"meta")],
        **fields,
    )


def join(wire: Wire, group: str, version: int = 9, **fields: Any) -> Any:
    joined = wire.ask(joining(group, **fields), version)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = wire.ask(joining(group, joined.member_id, **fields), version)
    return joined


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_rejected_join_has_a_null_protocol_name_if_nullable(wire: Wire, version: int) -> None:
    group = next(NAMES)
    refused = wire.ask(joining(group, "stranger"), version)
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused.protocol_name == (None if version >= 7 else "")
    no_group = wire.ask(joining(""), version)
    assert no_group.error_code == ErrorCode.INVALID_GROUP_ID
    assert no_group.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_member_joins_heartbeats_and_leaves_in_every_version(wire: Wire, version: int) -> None:
    group = next(NAMES)
    joined = join(wire, group, version)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
    assert joined.leader == joined.member_id
    assert joined.protocol_name == "range"
    assert [each.metadata for each in joined.members] == [b"meta"]
    member = joined.member_id
    assert member.startswith("wire-")
    given = [SyncGroupRequestAssignment(member, b"yours")]
    sync_version = min(version, 5)
    synced = wire.ask(
        SyncGroupRequest(group, 1, member, None, "consumer", "range", given), sync_version
    )
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"yours")
    beat_version = min(version, 4)
    assert wire.ask(HeartbeatRequest(group, 1, member), beat_version).error_code == 0
    stale = wire.ask(HeartbeatRequest(group, 0, member), beat_version)
    assert stale.error_code == ErrorCode.ILLEGAL_GENERATION
    leaving = LeaveGroupRequest(group, member, [MemberIdentity(member)])
    left = wire.ask(leaving, min(version, 5))
    assert left.error_code == ErrorCode.NONE
    assert [each.error_code for each in left.members] == ([] if version < 3 else [0])
    gone = wire.ask(HeartbeatRequest(group, 1, member), beat_version)
    assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [0, 2, 3, 5])
def test_leave_of_an_unknown_group_is_rejected(wire: Wire, version: int) -> None:
    left = wire.ask(LeaveGroupRequest(next(NAMES), "m", [MemberIdentity("m")]), version)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    if version < 3:
        assert left.error_code == unknown
    else:
        assert (left.error_code, left.members[0].error_code) == (ErrorCode.NONE, unknown)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (joining(""), ErrorCode.INVALID_GROUP_ID),
        (JoinGroupRequest("g", 5999, 1, "m"), ErrorCode.INVALID_SESSION_TIMEOUT),
        (JoinGroupRequest("g", 1_800_001, 1, "m"), ErrorCode.INVALID_SESSION_TIMEOUT),
        (joining("nowhere", "ghost"), ErrorCode.UNKNOWN_MEMBER_ID),
        (SyncGroupRequest("", 1, "m", None, "c", "r"), ErrorCode.INVALID_GROUP_ID),
        (SyncGroupRequest("g", 1, "m"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (HeartbeatRequest("", 1, "m"), ErrorCode.INVALID_GROUP_ID),
        (LeaveGroupRequest(""), ErrorCode.INVALID_GROUP_ID),
        (OffsetDeleteRequest(""), ErrorCode.INVALID_GROUP_ID),
        (OffsetDeleteRequest("nowhere"), ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_invalid_group_requests_get_kafkas_error_codes(
    wire: Wire, request_: Message, expected: ErrorCode
) -> None:
    assert wire.ask(request_).error_code == expected


# -- offsets -------------------------------------------------------------------------------


def commit(
    wire: Wire,
    group: str,
    topic: tuple[str, bytes],
    offset: int,
    version: int = 9,
    partition: int = 0,
) -> int:
    where = OffsetCommitRequestPartition(partition, offset, 3, "note")
    named = OffsetCommitRequestTopic(topic[0], topic[1], [where])
    (answered,) = wire.ask(OffsetCommitRequest(group, topics=[named]), version).topics
    if version >= 10:
        assert answered.topic_id == topic[1]
    else:
        assert answered.name == topic[0]
    return int(answered.partitions[0].error_code)


def fetch(
    wire: Wire, group: str, topic: tuple[str, bytes] | None, version: int = 9
) -> dict[int, tuple[int, int, str, int]]:
    """Offset, epoch, metadata and code by partition; of all topics where none is named."""
    if version < 8:
        topics = None if topic is None else [OffsetFetchRequestTopic(topic[0], [0, 1])]
        reply = wire.ask(OffsetFetchRequest(group, topics), version)
        assert reply.error_code == ErrorCode.NONE
    else:
        wanted = None if topic is None else [OffsetFetchRequestTopics(*topic, [0, 1])]
        asked = OffsetFetchRequestGroup(group, topics=wanted)
        (reply,) = wire.ask(OffsetFetchRequest(groups=[asked]), version).groups
        assert (reply.group_id, reply.error_code) == (group, ErrorCode.NONE)
    return {
        each.partition_index: (
            each.committed_offset,
            each.committed_leader_epoch,
            each.metadata,
            each.error_code,
        )
        for named in reply.topics
        for each in named.partitions
    }


NONE_COMMITTED = (-1, -1, "", 0)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_offsets_are_committed_in_every_version(wire: Wire, topic: Any, version: int) -> None:
    group = next(NAMES)
    assert commit(wire, group, topic, 7, version) == ErrorCode.NONE
    epoch = 3 if version >= 6 else -1
    assert fetch(wire, group, topic) == {0: (7, epoch, "note", 0), 1: NONE_COMMITTED}


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_offsets_are_read_in_every_version(wire: Wire, topic: Any, version: int) -> None:
    group = next(NAMES)
    commit(wire, group, topic, 7)
    epoch = 3 if version >= 5 else -1
    found = fetch(wire, group, topic, version)
    assert found == {0: (7, epoch, "note", 0), 1: NONE_COMMITTED}
    if version >= 2:
        assert fetch(wire, group, None, version) == {0: (7, epoch, "note", 0)}


def test_offset_fetch_returns_several_groups(wire: Wire, topic: Any) -> None:
    groups = [next(NAMES) for _ in range(5)]
    for number, group in enumerate(groups):
        commit(wire, group, topic, number)
    asked = [OffsetFetchRequestGroup(group, topics=None) for group in groups]
    for stable in (False, True):
        reply = wire.ask(OffsetFetchRequest(groups=asked, require_stable=stable), 9)
        found = [each.topics[0].partitions[0].committed_offset for each in reply.groups]
        assert found == [0, 1, 2, 3, 4]


def test_offsets_of_unknown_topics_and_partitions_are_errors(wire: Wire, topic: Any) -> None:
    group = next(NAMES)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(wire, group, ("nowhere", bytes(16)), 1) == unknown
    assert commit(wire, group, topic, 1, partition=2) == unknown
    assert commit(wire, group, ("", b"x" * 16), 1, 10) == ErrorCode.UNKNOWN_TOPIC_ID
    found = fetch(wire, group, ("", b"x" * 16), 10)
    assert {each[3] for each in found.values()} == {ErrorCode.UNKNOWN_TOPIC_ID}
    both = OffsetCommitRequest(
        group,
        topics=[
            OffsetCommitRequestTopic(
                topic[0],
                partitions=[
                    OffsetCommitRequestPartition(9, 1),
                    OffsetCommitRequestPartition(1, 5),
                ],
            )
        ],
    )
    (answered,) = wire.ask(both, 9).topics
    codes = {each.partition_index: each.error_code for each in answered.partitions}
    assert codes == {9: unknown, 1: ErrorCode.NONE}
    assert fetch(wire, group, topic)[1][0] == 5


def test_offsets_are_deleted(wire: Wire, topic: Any) -> None:
    group = next(NAMES)
    commit(wire, group, topic, 7)
    partitions = [OffsetDeleteRequestPartition(index) for index in (0, 1, 5)]
    request = OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(topic[0], partitions)])
    (answered,) = wire.ask(request).topics
    codes = {each.partition_index: each.error_code for each in answered.partitions}
    assert codes == {0: 0, 1: 0, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert fetch(wire, group, topic)[0] == NONE_COMMITTED


# -- groups --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_groups_are_described_in_every_version(wire: Wire, version: int) -> None:
    group = next(NAMES)
    joined = join(wire, group)
    found, missing = wire.ask(DescribeGroupsRequest([group, "nowhere"], True), version).groups
    assert (found.group_state, found.protocol_type) == ("CompletingRebalance", "consumer")
    assert [each.member_id for each in found.members] == [joined.member_id]
    assert [each.client_host for each in found.members] == ["/127.0.0.1"]
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    if version >= 3:
        assert found.authorized_operations == 0b1101_0100_1000


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_groups_are_listed_in_every_version(wire: Wire, topic: Any, version: int) -> None:
    group = next(NAMES)
    commit(wire, group, topic, 1)
    (found,) = [
        each for each in wire.ask(ListGroupsRequest(), version).groups if each.group_id == group
    ]
    assert found.protocol_type == ""
    assert found.group_state == ("Empty" if version >= 4 else "")
    assert found.group_type == ("classic" if version >= 5 else "")
    if version >= 4:
        assert wire.ask(ListGroupsRequest(["Dead"]), version).groups == []


def test_groups_are_deleted_when_empty(wire: Wire, topic: Any) -> None:
    empty, busy = next(NAMES), next(NAMES)
    commit(wire, empty, topic, 1)
    join(wire, busy)
    results = wire.ask(DeleteGroupsRequest([empty, busy, "nowhere", empty])).results
    assert {each.group_id: each.error_code for each in results} == {
        empty: ErrorCode.NONE,
        busy: ErrorCode.NON_EMPTY_GROUP,
        "nowhere": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert fetch(wire, empty, topic)[0] == NONE_COMMITTED


def test_groups_and_offsets_survive_a_restart(wire: Wire, node: Cluster, topic: Any) -> None:
    group = next(NAMES)
    joined = join(wire, group)
    member = joined.member_id
    wire.ask(
        SyncGroupRequest(
            group,
            1,
            member,
            None,
            "consumer",
            "range",
            [SyncGroupRequestAssignment(member, b"yours")],
        )
    )
    simple = next(NAMES)
    commit(wire, simple, topic, 42)
    node.restart(1)
    again = Wire(node.bootstrap)
    wait_coordinator(again)
    assert fetch(again, simple, topic)[0] == (42, 3, "note", 0)
    assert again.ask(HeartbeatRequest(group, 1, member)).error_code == ErrorCode.NONE
    synced = again.ask(SyncGroupRequest(group, 1, member, None, "consumer", "range"))
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"yours")
    again.close()
