"""Authorization of requests that need members, sessions or transactions, on one node with ACLs."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from authorized_requests import TOPIC, TRANSACTIONAL_ID, codes
from authorized_session import ALL, DENY, Session, authorized_node, run
from secure_node import SecureNode
from tests.patience import SECONDS_MAX

from ottla.api.surface.row import Permission
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import add_partitions_to_txn as adding
from ottla.protocol.messages import alter_share_group_offsets as altering
from ottla.protocol.messages import delete_share_group_offsets as deleting
from ottla.protocol.messages import share_acknowledge as acknowledging
from ottla.protocol.messages import share_fetch as fetching
from ottla.protocol.messages import streams_group_heartbeat as streams
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.schema import Message
from ottla.security.acl import AclOperation, ResourceType

HIDDEN = (Permission(ResourceType.TOPIC, AclOperation.DESCRIBE), DENY)
UNREADABLE = (Permission(ResourceType.TOPIC, AclOperation.READ), DENY)
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MEMBER = "kLtpeYhHQGyrpyEjVqDWqA"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    found = authorized_node(tmp_path_factory.mktemp("authorized"))
    running = found.start()
    try:
        yield found
    finally:
        running.stop()


async def until(ask: Callable[[], Awaitable[Any]], is_so: Callable[[Any], bool]) -> Any:
    """Repeat a request until its reply is as wanted."""
    deadline = asyncio.get_running_loop().time() + SECONDS_MAX
    while not is_so(reply := await ask()):
        assert asyncio.get_running_loop().time() < deadline, reply
        await asyncio.sleep(0.02)
    return reply


def streams_member(group: str, *changelogs: str) -> Message:
    logs = [streams.TopicInfo(name) for name in changelogs]
    part = streams.Subtopology("0", source_topics=[TOPIC], state_changelog_topics=logs)
    return streams.StreamsGroupHeartbeatRequest(
        group,
        MEMBER,
        0,
        rebalance_timeout_ms=1000,
        topology=streams.Topology(0, [part]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
    )


GROUPS = {
    "consumer": (
        ConsumerGroupHeartbeatRequest(
            "hidden-consumer",
            MEMBER,
            0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        ),
        ConsumerGroupDescribeRequest(["hidden-consumer"]),
    ),
    "share": (
        ShareGroupHeartbeatRequest("hidden-share", MEMBER, 0, None, [TOPIC]),
        ShareGroupDescribeRequest(["hidden-share"]),
    ),
    "streams": (
        streams_member("hidden-streams"),
        StreamsGroupDescribeRequest(["hidden-streams"]),
    ),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_group_with_a_hidden_topic_is_not_described(secure: SecureNode, kind: str) -> None:
    join, describe = GROUPS[kind]

    async def test(session: Session) -> None:
        await until(lambda: session.admin.send(join), lambda reply: reply.error_code == 0)
        await session.set_acls(*ALL)

        def has_assignment(reply: Any) -> bool:
            return TOPIC in repr(reply.groups[0]) and not reply.groups[0].error_code

        await until(lambda: session.alice.send(describe), has_assignment)
        await session.set_acls(*ALL, HIDDEN)
        reply: Any = await session.alice.send(describe)
        (group,) = reply.groups
        assert group.error_code == DENIED
        assert TOPIC not in repr(group), "nor does the reply name the topic"

    run(secure, test)


def share_fetch(session: Session, epoch: int) -> Message:
    topics = [fetching.FetchTopic(session.topic_id, [fetching.FetchPartition(0)])]
    return fetching.ShareFetchRequest("readers", MEMBER, epoch, max_records=1, topics=topics)


def test_share_fetch_and_acknowledge_of_an_unreadable_topic_are_refused(
    secure: SecureNode,
) -> None:
    async def test(session: Session) -> None:
        await session.set_acls(*ALL)
        join = ShareGroupHeartbeatRequest("readers", MEMBER, 0, None, [TOPIC])
        await until(lambda: session.alice.send(join), lambda reply: reply.error_code == 0)
        reply: Any = await session.alice.send(share_fetch(session, 0))
        assert reply.error_code == 0 and DENIED not in set(codes(reply))
        await session.set_acls(*ALL, UNREADABLE)
        batch = acknowledging.AcknowledgementBatch(0, 0, [1])
        parts = [acknowledging.AcknowledgePartition(0, [batch])]
        replies = [acknowledging.AcknowledgeTopic(session.topic_id, parts)]
        reply = await session.alice.send(
            acknowledging.ShareAcknowledgeRequest("readers", MEMBER, 1, topics=replies)
        )
        assert reply.responses[0].partitions[0].error_code == DENIED
        reply = await session.alice.send(share_fetch(session, 2))
        (row,) = reply.responses[0].partitions
        assert (row.error_code, row.records or b"") == (DENIED, b"")

    run(secure, test)


def test_offsets_of_a_share_group_hide_topics_that_are_not_asked_for(secure: SecureNode) -> None:
    async def test(session: Session) -> None:
        join = ShareGroupHeartbeatRequest("hiders", MEMBER, 0, None, [TOPIC])
        await until(lambda: session.admin.send(join), lambda reply: reply.error_code == 0)
        everything = DescribeShareGroupOffsetsRequestGroup("hiders", None)
        asked = DescribeShareGroupOffsetsRequestTopic(TOPIC, [0])
        request = DescribeShareGroupOffsetsRequest([everything])
        await session.set_acls(*ALL)
        await until(lambda: session.alice.send(request), lambda reply: TOPIC in repr(reply))
        await session.set_acls(*ALL, HIDDEN)
        reply: Any = await session.alice.send(request)
        assert reply.groups[0].error_code == 0 and reply.groups[0].topics == []
        named = DescribeShareGroupOffsetsRequestGroup("hiders", [asked, asked])
        reply = await session.alice.send(DescribeShareGroupOffsetsRequest([named]))
        rows = [row for topic in reply.groups[0].topics for row in topic.partitions]
        assert [row.error_code for row in rows] == [DENIED, DENIED]

    run(secure, test)


def test_share_offsets_of_a_topic_that_is_not_readable_stay(secure: SecureNode) -> None:
    async def test(session: Session) -> None:
        join = ShareGroupHeartbeatRequest("resetters", MEMBER, 0, None, [TOPIC])
        leave = ShareGroupHeartbeatRequest("resetters", MEMBER, -1)
        await until(lambda: session.admin.send(join), lambda reply: reply.error_code == 0)
        await session.admin.send(leave)
        place = altering.AlterShareGroupOffsetsRequestPartition(0, 0)
        alter = altering.AlterShareGroupOffsetsRequest(
            "resetters", [altering.AlterShareGroupOffsetsRequestTopic(TOPIC, [place])]
        )
        delete = deleting.DeleteShareGroupOffsetsRequest(
            "resetters", [deleting.DeleteShareGroupOffsetsRequestTopic(TOPIC)]
        )
        for request in (alter, delete):
            await session.set_acls(*ALL)
            reply: Any = await until(
                lambda request=request: session.alice.send(request),
                lambda reply: not any(codes(reply)),
            )
            await session.set_acls(*ALL, UNREADABLE)
            reply = await session.alice.send(request)
            assert set(codes(reply)) == {ErrorCode.NONE, DENIED}

    run(secure, test)


def test_transaction_is_described_without_topics_that_are_hidden(secure: SecureNode) -> None:
    async def test(session: Session) -> None:
        init = InitProducerIdRequest(TRANSACTIONAL_ID, 60_000)
        producer: Any = await until(
            lambda: session.admin.send(init), lambda reply: reply.error_code == 0
        )
        add = adding.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[adding.AddPartitionsToTxnTopic(TOPIC, [0])],
        )
        await until(lambda: session.admin.send(add, version=3), lambda reply: not any(codes(reply)))
        describe = DescribeTransactionsRequest([TRANSACTIONAL_ID])
        for entries, names in ((ALL, [TOPIC]), ([*ALL, HIDDEN], [])):
            await session.set_acls(*entries)
            reply: Any = await session.alice.send(describe)
            (state,) = reply.transaction_states
            assert state.error_code == 0
            assert [topic.topic for topic in state.topics] == names

    run(secure, test)


def test_streams_group_does_not_create_topics_for_a_client_that_may_not(
    secure: SecureNode,
) -> None:
    async def test(session: Session) -> None:
        create = AclOperation.CREATE
        await session.set_acls(
            *ALL,
            (Permission(ResourceType.TOPIC, create), DENY),
            (Permission(ResourceType.CLUSTER, create), DENY),
        )
        join = streams_member("makers", "makers-changelog")
        reply: Any = await until(
            lambda: session.alice.send(join), lambda reply: reply.error_code == 0
        )
        assert "Unauthorized to CREATE" in repr(reply.status)
        named = [MetadataRequestTopic(name="makers-changelog")]
        reply = await session.admin.send(MetadataRequest(named, allow_auto_topic_creation=False))
        assert reply.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(secure, test)
