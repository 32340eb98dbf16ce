"""Authorization of Produce: the same decision on the general path and on the fast path."""

import asyncio

import pytest
from produce_pair import TOPIC, Broker, batch, broken, frame

from ottla.api.security.access_decisions import ProduceAccess
from ottla.api.surface.routes import Caller
from ottla.config.generated import TopicConfig
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.records.batch import TRANSACTIONAL
from ottla.protocol.records.writer import Producer
from ottla.storage.log.log_config import LogConfig

pytestmark = pytest.mark.engine

PLAIN = batch(b"a")


class Rules:
    """ACLs that allow or deny writes to every topic; counts the questions."""

    def __init__(self, *, is_allowed: bool = True, is_id_allowed: bool = True) -> None:
        self.is_allowed = is_allowed
        self.is_id_allowed = is_id_allowed
        self.version = 0
        self.questions = 0

    def change(self, *, is_allowed: bool) -> None:
        self.is_allowed = is_allowed
        self.version += 1

    def may_write(self, caller: Caller, topic: str) -> bool:
        assert caller.principal == "User:ANONYMOUS"
        self.questions += 1
        return self.is_allowed

    def access(self) -> ProduceAccess:
        return ProduceAccess(
            self.may_write, lambda caller, name: self.is_id_allowed, lambda: self.version
        )


def broker_of(rules: Rules, *, has_fast_path: bool = True) -> Broker:
    return Broker(has_fast_path, TopicConfig(), LogConfig(), access=rules.access())


def error_of(broker: Broker) -> ErrorCode:
    """The error of the only partition in the only reply of version 9 so far."""
    reply = decode(ProduceResponse, 9, bytes(broker.transport.written[9:]))
    broker.transport.written.clear()
    return ErrorCode(reply.responses[0].partition_responses[0].error_code)


def test_fast_path_serves_a_caller_once_the_general_path_has_allowed_it() -> None:
    async def story() -> None:
        rules = Rules()
        broker = broker_of(rules)
        for number in range(5):
            broker.receive(frame(PLAIN), 1 << 20)
            assert error_of(broker) is ErrorCode.NONE
            assert broker.taken == number
        assert rules.questions == 1
        assert broker.hosted[0].log.log_end_offset == 5

    asyncio.run(story())


@pytest.mark.parametrize("has_fast_path", [True, False])
def test_denied_write_appends_nothing_and_is_decided_once(has_fast_path: bool) -> None:
    async def story() -> None:
        rules = Rules()
        broker = broker_of(rules, has_fast_path=has_fast_path)
        for _ in range(2):
            broker.receive(frame(PLAIN), 1 << 20)
            assert error_of(broker) is ErrorCode.NONE
        rules.change(is_allowed=False)
        rules.questions = 0
        broker.receive(frame(PLAIN), 1 << 20)
        assert error_of(broker) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert rules.questions == 1
        assert broker.hosted[0].log.log_end_offset == 2
        rules.change(is_allowed=True)
        broker.receive(frame(PLAIN), 1 << 20)
        assert error_of(broker) is ErrorCode.NONE

    asyncio.run(story())


def test_denied_topic_is_rejected_before_its_existence_is_checked() -> None:
    async def story() -> None:
        broker = broker_of(Rules(is_allowed=False))
        broker.receive(frame(PLAIN, topic="nobody"), 1 << 20)
        assert error_of(broker) is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    asyncio.run(story())


def test_denied_write_without_acks_closes_the_connection() -> None:
    async def story() -> None:
        broker = broker_of(Rules(is_allowed=False))
        broker.receive(frame(PLAIN, acks=0), 1 << 20)
        assert broker.transport.is_closed
        assert broker.hosted[0].log.log_end_offset == 0

    asyncio.run(story())


def test_denied_transactional_id_rejects_the_request() -> None:
    async def story() -> None:
        broker = broker_of(Rules(is_id_allowed=False))
        data = broken(batch(b"a", producer=Producer(7, 0, 0)), ">h", 21, TRANSACTIONAL)
        broker.receive(frame(data, transactional_id="t", topic=TOPIC), 1 << 20)
        assert error_of(broker) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert broker.hosted[0].log.log_end_offset == 0

    asyncio.run(story())
