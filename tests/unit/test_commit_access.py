"""Authorization of OffsetCommit: the same decision on the general path and on the fast path."""

import asyncio

import pytest
from commit_pair import Broker, commit, offset, topic_of

from ottla.api.groups.group_access import GroupAccess
from ottla.api.surface.routes import Caller
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_commit import OffsetCommitResponse

pytestmark = pytest.mark.engine


class Rules:
    """ACLs that allow reading groups and topics by name; counts the questions."""

    def __init__(self) -> None:
        self.denied = ""
        self.version = 0
        self.questions = 0

    def deny(self, name: str) -> None:
        self.denied = name
        self.version += 1
        self.questions = 0

    def may_read(self, caller: Caller, name: str) -> bool:
        assert caller.principal == "User:ANONYMOUS"
        self.questions += 1
        return name != self.denied

    def access(self) -> GroupAccess:
        return GroupAccess(
            read_group=self.may_read, read_topic=self.may_read, version=lambda: self.version
        )


def errors_of(broker: Broker) -> list[ErrorCode]:
    """The errors of all partitions in the only reply of version 9 so far."""
    reply = decode(OffsetCommitResponse, 9, bytes(broker.transport.written[9:]))
    broker.transport.written.clear()
    return [ErrorCode(each.error_code) for topic in reply.topics for each in topic.partitions]


def test_fast_path_serves_a_caller_once_the_general_path_has_allowed_it() -> None:
    async def story() -> None:
        rules = Rules()
        broker = Broker(True, access=rules.access())
        for number in range(4):
            broker.receive(commit())
            assert errors_of(broker) == [ErrorCode.NONE]
            assert broker.taken == number
        assert rules.questions == 2, "one for the group, one for the topic"

    asyncio.run(story())


@pytest.mark.parametrize("has_fast_path", [True, False])
@pytest.mark.parametrize(
    ("denied", "error"),
    [
        ("g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("orders", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_denied_commit_writes_nothing(denied: str, error: ErrorCode, has_fast_path: bool) -> None:
    async def story() -> None:
        rules = Rules()
        broker = Broker(has_fast_path, access=rules.access())
        for _ in range(2):
            broker.receive(commit())
            assert errors_of(broker) == [ErrorCode.NONE]
        end, taken = broker.partition.log.log_end_offset, broker.taken
        rules.deny(denied)
        broker.receive(commit())
        assert errors_of(broker) == [error]
        assert broker.taken == taken
        assert broker.partition.log.log_end_offset == end
        rules.deny("nothing")
        broker.receive(commit())
        assert errors_of(broker) == [ErrorCode.NONE]

    asyncio.run(story())


def test_denied_group_is_not_served_after_another_was_allowed() -> None:
    async def story() -> None:
        rules = Rules()
        broker = Broker(True, access=rules.access())
        for group in ("g", "h", "g", "h"):
            broker.receive(commit(group_id=group))
            broker.transport.written.clear()
        assert broker.taken == 2
        rules.deny("g")
        # The general path allows the topic again, by a commit to the other group.
        broker.receive(commit(group_id="h"))
        broker.transport.written.clear()
        broker.receive(commit(group_id="g"))
        assert errors_of(broker) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]

    asyncio.run(story())


def test_denied_topic_is_not_served_after_another_was_allowed() -> None:
    async def story() -> None:
        rules = Rules()
        rules.deny("ünï")
        broker = Broker(True, access=rules.access())
        for _ in range(2):
            broker.receive(commit())
            assert errors_of(broker) == [ErrorCode.NONE]
        broker.receive(commit(topic_of(offset(), name="ünï")))
        assert errors_of(broker) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert broker.taken == 1

    asyncio.run(story())
