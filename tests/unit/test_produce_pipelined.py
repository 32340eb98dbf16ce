"""Pipelined Produce requests of a connection are appended in order, also behind a long one."""

import asyncio

import pytest
from partition_fixtures import values_in
from produce_pair import Broker, batch, frame
from tests.patience import SECONDS_MAX

from ottla.api.produce.request import PARTITIONS_PER_PIECE
from ottla.config.generated import TopicConfig
from ottla.protocol.records.writer import Producer
from ottla.storage.log.log_config import LogConfig

pytestmark = pytest.mark.engine

TURNS_MAX = 1000
OTHERS = [None] * (2 * PARTITIONS_PER_PIECE)
"""Partitions without records: they make a request long."""


def broker_of(*, has_fast_path: bool, replicas: tuple[int, ...] = (0,)) -> Broker:
    return Broker(has_fast_path, TopicConfig(), LogConfig(), replicas)


async def turns_until_appended(broker: Broker, count: int) -> None:
    """Run the event loop until the first partition has ``count`` records."""
    for _ in range(TURNS_MAX):
        if len(values_in(broker.hosted[0].log)) >= count:
            return
        await asyncio.sleep(0)
    raise AssertionError(values_in(broker.hosted[0].log))


async def end_of_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    async with asyncio.timeout(SECONDS_MAX):
        await asyncio.gather(*others, return_exceptions=True)


@pytest.mark.parametrize("has_fast_path", [True, False])
@pytest.mark.parametrize("step", [1 << 20, 100])
@pytest.mark.parametrize("acks", [0, 1])
def test_request_behind_a_long_one_is_appended_after_it(
    has_fast_path: bool, step: int, acks: int
) -> None:
    async def story() -> None:
        broker = broker_of(has_fast_path=has_fast_path)
        long = frame(batch(b"first"), batch(b"other"), *OTHERS, acks=1, number=1)
        broker.receive(long + frame(batch(b"second"), acks=acks, number=2), step)
        await turns_until_appended(broker, 2)
        assert values_in(broker.hosted[0].log) == [b"first", b"second"]
        await end_of_tasks()
        broker.receive(frame(batch(b"third"), number=3), step)
        await turns_until_appended(broker, 3)
        assert broker.transport.is_reading and not broker.transport.is_closed

    asyncio.run(story())


def test_sequences_of_an_idempotent_producer_stay_in_order_behind_a_long_request() -> None:
    async def story() -> None:
        broker = broker_of(has_fast_path=True)
        first = batch(b"first", producer=Producer(7, 0, 0))
        second = batch(b"second", producer=Producer(7, 0, 1))
        broker.receive(frame(first, *OTHERS, number=1) + frame(second, number=2), 1 << 20)
        await turns_until_appended(broker, 2)
        assert values_in(broker.hosted[0].log) == [b"first", b"second"]

    asyncio.run(story())


def test_request_behind_a_long_one_does_not_wait_for_its_replication() -> None:
    async def story() -> None:
        broker = broker_of(has_fast_path=True, replicas=(0, 1))
        long = frame(batch(b"first"), *OTHERS, acks=-1, number=1)
        broker.receive(long + frame(batch(b"second"), acks=-1, number=2), 1 << 20)
        await turns_until_appended(broker, 2)
        assert values_in(broker.hosted[0].log) == [b"first", b"second"]
        assert not broker.transport.written, "neither is replicated"
        broker.connection.cancel_pending()
        await end_of_tasks()

    asyncio.run(story())


def test_connection_lost_during_a_long_request_lets_it_run_to_its_end() -> None:
    async def story() -> None:
        broker = broker_of(has_fast_path=True)
        long = frame(batch(b"first"), *OTHERS, number=1)
        broker.receive(long + frame(batch(b"second"), number=2), 1 << 20)
        broker.connection.connection_lost(None)
        await turns_until_appended(broker, 1)
        await end_of_tasks()
        assert values_in(broker.hosted[0].log) == [b"first"], "the rest is no longer read"

    asyncio.run(story())


def test_drain_during_a_long_request_closes_after_its_reply() -> None:
    async def story() -> None:
        broker = broker_of(has_fast_path=True)
        long = frame(batch(b"first"), *OTHERS, number=1)
        broker.receive(long + frame(batch(b"second"), number=2), 1 << 20)
        broker.connection.drain()
        await end_of_tasks()
        assert broker.transport.written and broker.transport.is_closed
        assert values_in(broker.hosted[0].log) == [b"first"]

    asyncio.run(story())


def test_failed_long_request_lets_the_next_one_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        broker = broker_of(has_fast_path=True)
        monkeypatch.setattr(broker.handler, "_append_in_slices", _fail)
        broker.receive(frame(batch(b"first"), *OTHERS, number=1), 1 << 20)
        assert not broker.transport.is_reading, "the next request waits"
        broker.receive(frame(batch(b"second"), number=2), 1 << 20)
        await end_of_tasks()
        await turns_until_appended(broker, 1)
        assert values_in(broker.hosted[0].log) == [b"second"]
        assert broker.transport.is_reading

    asyncio.run(story())


def test_cancelled_long_request_lets_the_next_one_be_served() -> None:
    async def story() -> None:
        broker = broker_of(has_fast_path=True)
        long = frame(batch(b"first"), *OTHERS, acks=-1, number=1)
        broker.receive(long + frame(batch(b"second"), number=2), 1 << 20)
        await asyncio.sleep(0)
        assert values_in(broker.hosted[0].log) == [b"first"], "only the first piece is appended"
        broker.connection.cancel_pending()
        await end_of_tasks()
        await turns_until_appended(broker, 2)
        assert values_in(broker.hosted[0].log) == [b"first", b"second"]

    asyncio.run(story())


async def _fail(*_: object) -> None:
    raise OSError("the disk is broken")
