"""Revoked rights over the wire: no later request delivers records appended after the revocation.

Kafka authorizes a fetch when it arrives; one that waits then completes without another check. A
node looks again whenever the ACLs have changed.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from authorized_requests import GROUP, TOPIC
from authorized_session import ALLOW, Session, authorized_node, run
from secure_node import SecureNode

from ottla.api.surface.row import Permission
from ottla.client.connection import Connection
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import share_fetch as sharing
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.records.batch import batches
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Offset
from ottla.security.acl import AclOperation, ResourceType

READ_TOPIC = (Permission(ResourceType.TOPIC, AclOperation.READ), ALLOW)
READ_GROUP = (Permission(ResourceType.GROUP, AclOperation.READ), ALLOW)
FETCH_MAX = 50


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    found = authorized_node(tmp_path_factory.mktemp("revoked"))
    running = found.start()
    try:
        yield found
    finally:
        running.stop()


async def produce(session: Session, value: bytes) -> int:
    """Append a record as the administrator; return its offset."""
    batch = bytes(build_batch([Record(Offset(0), 1, None, value)]))
    data = TopicProduceData(partition_data=[PartitionProduceData(0, batch)])
    data.topic_id, data.name = session.topic_id, TOPIC
    reply: Any = await session.admin.send(ProduceRequest(None, 1, 9000, [data]))
    (row,) = reply.responses[0].partition_responses
    assert row.error_code == ErrorCode.NONE
    return int(row.base_offset)


class FetchSession:
    """A fetch session of one partition; its requests list the partition only when it is new."""

    def __init__(self, connection: Connection, session: Session, offset: int) -> None:
        self._connection, self._session = connection, session
        self.offset = offset
        self._id = self._epoch = 0
        self._listed = -1

    async def fetch(self, wait_ms: int = 0) -> list[Any]:
        """Fetch; return the rows of the reply."""
        topics = []
        if self._listed != self.offset:
            partition = FetchPartition(0, fetch_offset=self.offset, partition_max_bytes=1 << 20)
            topics = [FetchTopic(TOPIC, self._session.topic_id, [partition])]
            self._listed = self.offset
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=topics)
        request.session_id, request.session_epoch = self._id, self._epoch
        reply: Any = await self._connection.send(request)
        assert reply.error_code == ErrorCode.NONE
        self._id, self._epoch = reply.session_id, self._epoch + 1
        return [row for topic in reply.responses for row in topic.partitions]


def values(rows: list[Any]) -> list[bytes]:
    return [
        bytes(record.value)
        for row in rows
        for position, header in batches(row.records or b"")
        for record in read_records(row.records[position : position + header.size])
    ]


def errors(rows: list[Any]) -> list[int]:
    return [row.error_code for row in rows]


@pytest.mark.parametrize("fetches", [1, 2, 4])
@pytest.mark.parametrize("append", ["before", "after", "never"])
def test_session_delivers_nothing_after_the_revocation(
    secure: SecureNode, fetches: int, append: str
) -> None:
    """Idle partitions of a session are not read: the requests after a few list no partition."""

    async def test(session: Session) -> None:
        await session.set_acls(READ_TOPIC)
        first = await produce(session, b"allowed")
        reader = FetchSession(session.alice, session, first)
        assert values(await reader.fetch()) == [b"allowed"]
        reader.offset = first + 1
        for _ in range(fetches):
            assert values(await reader.fetch()) == []
        if append == "before":
            await produce(session, b"secret")
        await session.set_acls()
        if append == "after":
            await produce(session, b"secret")
        rows = await reader.fetch(wait_ms=200)
        assert errors(rows) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        for _ in range(2):
            await produce(session, b"secret")
            assert values(rows := await reader.fetch(wait_ms=100)) == []
            assert errors(rows) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        await session.set_acls(READ_TOPIC)
        assert b"secret" in values(await reader.fetch())

    run(secure, test)


@pytest.mark.parametrize("has_session", [True, False])
def test_waiting_fetch_delivers_nothing_after_the_revocation(
    secure: SecureNode, has_session: bool
) -> None:
    """The read that a waiting fetch has prepared does not outlive the ACLs that allowed it."""

    async def test(session: Session) -> None:
        await session.set_acls(READ_TOPIC)
        end = await produce(session, b"allowed") + 1
        reader = FetchSession(session.alice, session, end)
        for _ in range(3 if has_session else 0):
            assert values(await reader.fetch()) == []
        waiting = asyncio.ensure_future(reader.fetch(wait_ms=3000))
        # A request behind it on the same connection is read after it: then the fetch waits.
        again = FetchSession(session.alice, session, end)
        behind = asyncio.ensure_future(again.fetch())
        await asyncio.sleep(0)
        await session.set_acls()
        await produce(session, b"secret")
        rows = await waiting
        assert values(rows) == []
        assert errors(rows) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert values(await behind) == []

    run(secure, test)


def test_other_user_reads_nothing_by_the_session_of_a_reader(secure: SecureNode) -> None:
    async def test(session: Session) -> None:
        await session.set_acls()
        end = await produce(session, b"secret") + 1
        reader = FetchSession(session.admin, session, end)
        for _ in range(3):
            assert values(await reader.fetch()) == []
        reader._connection = session.alice
        assert errors(await reader.fetch()) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        await produce(session, b"secret")
        assert values(await reader.fetch()) == []

    run(secure, test)


@pytest.mark.parametrize(
    ("kept", "code"),
    [
        ([READ_GROUP], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ([READ_TOPIC], ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
    ids=["topic", "group"],
)
def test_share_session_delivers_nothing_after_the_revocation(
    secure: SecureNode, kept: list[Any], code: ErrorCode
) -> None:
    async def test(session: Session) -> None:
        describe = (Permission(ResourceType.TOPIC, AclOperation.DESCRIBE), ALLOW)
        await session.set_acls(READ_TOPIC, READ_GROUP, describe)
        group = f"{GROUP}-share-{code.name}"
        join = ShareGroupHeartbeatRequest(group, "member-1", 0, None, [TOPIC])
        reply: Any = await session.alice.send(join)
        while reply.assignment is None or not reply.assignment.topic_partitions:
            assert reply.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            await asyncio.sleep(0.05)
            join = ShareGroupHeartbeatRequest(group, "member-1", reply.member_epoch, None, None)
            reply = await session.alice.send(join)

        async def fetch(epoch: int) -> Any:
            topics = [sharing.FetchTopic(session.topic_id, [sharing.FetchPartition(0, [])])]
            return await session.alice.send(
                sharing.ShareFetchRequest(
                    *(group, "member-1", epoch),
                    **{"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20},
                    **{"max_records": 100, "batch_size": 100},
                    topics=topics if epoch == 0 else [],
                )
            )

        reply = await fetch(0)
        assert reply.error_code == ErrorCode.NONE
        got: list[bytes] = []
        epoch = 1
        while b"allowed" not in got:
            assert epoch < FETCH_MAX
            await produce(session, b"allowed")
            reply = await fetch(epoch)
            assert reply.error_code == ErrorCode.NONE
            got += values([row for topic in reply.responses for row in topic.partitions])
            epoch += 1
        await session.set_acls(*kept)
        await produce(session, b"secret")
        for turn in range(2):
            reply = await fetch(epoch + turn)
            rows = [row for topic in reply.responses for row in topic.partitions]
            assert values(rows) == []
            assert {reply.error_code, *errors(rows)} - {0} == {code}

    run(secure, test)


def test_forgotten_acls_close_every_version_of_fetch(secure: SecureNode) -> None:
    async def test(session: Session) -> None:
        await session.set_acls()
        offset = await produce(session, b"secret")
        lowest, highest = 4, session.alice.version_for(ApiKey.FETCH)
        for version in range(lowest, highest + 1):
            partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(topics=[FetchTopic(TOPIC, session.topic_id, [partition])])
            reply: Any = await session.alice.send(request, version=version)
            rows = [row for topic in reply.responses for row in topic.partitions]
            assert errors(rows) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            assert values(rows) == []

    run(secure, test)
