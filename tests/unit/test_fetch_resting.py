"""Resting partitions of a session are not checked, and replies do not change."""

import asyncio
from collections.abc import Generator
from random import Random

import pytest
from fetch_harness import Broker, only, part, response_of, rows, values_of, want
from msgspec.structs import replace
from partition_fixtures import LAG_MS, append, registration

from ottla.api.fetch import handler
from ottla.api.surface.replies import finish
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import fetch
from ottla.protocol.types import Offset
from ottla.replication.partition import Partition
from ottla.runtime.pending import Pending

THREE = (0, 1, 2)
SOON = 30_000
# A fetch that nothing wakes is answered when its time is over: too late for these tests.
BEFORE_TIME_OUT_S = SOON / 2_000


class Fetcher:
    """A consumer, or follower 1, that fetches in a session and keeps up with what it gets."""

    def __init__(self, broker: Broker, count: int, replica: int = -1) -> None:
        self.broker, self.replica = broker, replica
        self.epoch, self.broker_epoch = 1, 101
        self.offsets = dict.fromkeys(range(count), 0)
        self.sent: dict[int, int] = dict(self.offsets)
        parts = [self._part(index) for index in self.offsets]
        response = broker.get(self._want(*parts, session_epoch=0), 16)
        self.session_id = response.session_id
        self.take(response)

    def _part(self, index: int) -> fetch.FetchPartition:
        return part(index, self.offsets[index], log_start_offset=0, current_leader_epoch=-1)

    def _want(self, *parts: fetch.FetchPartition, **more) -> fetch.FetchRequest:
        request = want(*parts, replica_id=self.replica, **more)
        request.replica_state = fetch.ReplicaState(self.replica, self.broker_epoch)
        if not parts:
            request.topics = []
        return request

    def request(self, **more) -> fetch.FetchRequest:
        moved = [i for i, offset in self.offsets.items() if self.sent[i] != offset]
        self.sent = dict(self.offsets)
        epoch, self.epoch = self.epoch, self.epoch + 1
        parts = [self._part(index) for index in moved]
        return self._want(*parts, session_id=self.session_id, session_epoch=epoch, **more)

    def poll(self) -> dict[int, tuple]:
        response = self.broker.get(self.request(), 16)
        self.take(response)
        assert response.error_code == 0
        return {
            row.partition_index: (
                row.error_code,
                row.high_watermark,
                row.log_start_offset,
                bytes(row.records or b""),
            )
            for row in rows(response)
        }

    def take(self, response: fetch.FetchResponse) -> None:
        for row in rows(response):
            if row.records:
                self.offsets[row.partition_index] += len(values_of(row))
            if row.log_start_offset > self.offsets[row.partition_index]:
                self.offsets[row.partition_index] = row.log_start_offset

    def resting(self) -> list[int]:
        session = self.broker.sessions.get(self.session_id)
        assert session is not None
        return sorted(each.requested.partition for each in session.partitions.resting)

    def looked_at(self) -> list[int]:
        session = self.broker.sessions.get(self.session_id)
        assert session is not None
        return sorted(each.requested.partition for each in session.partitions.awake)


def hosted(broker: Broker, count: int = 3) -> list[Partition]:
    return [broker.host(index=index, replicas=THREE, isr=THREE) for index in range(count)]


def settled(broker: Broker, replica: int = -1, count: int = 3) -> Fetcher:
    """A fetcher that has received everything, and polled once more."""
    fetcher = Fetcher(broker, count, replica)
    fetcher.poll()
    return fetcher


# -- who rests ----------------------------------------------------------------------


def test_partition_without_news_rests_until_an_append() -> None:
    broker = Broker()
    partitions = hosted(broker)
    follower = settled(broker, replica=1)
    assert follower.resting() == [0, 1, 2]
    append(partitions[1], b"a")
    assert follower.resting() == [0, 2]
    assert list(follower.poll()) == [1]
    follower.poll()
    assert follower.resting() == [0, 1, 2]


def test_partly_read_partition_does_not_rest() -> None:
    broker = Broker()
    (partition,) = hosted(broker, 1)
    append(partition, b"a")
    append(partition, b"b")
    follower = Fetcher(broker, 1, replica=1)
    follower.offsets[0] = 0
    assert follower.resting() == []
    follower.offsets[0] = 1
    follower.poll()
    assert follower.resting() == []


def test_partition_beyond_max_bytes_does_not_rest() -> None:
    broker = Broker()
    for partition in hosted(broker, 2):
        append(partition, b"a")
    follower = Fetcher(broker, 2, replica=1)
    follower.poll()
    for partition in broker.partitions:
        append(partition, b"b")
    first = broker.get(follower.request(max_bytes=1), 16)
    follower.take(first)
    assert [bool(row.records) for row in rows(first)] == [True]
    assert follower.resting() == []
    assert sum(bool(row[3]) for row in follower.poll().values()) == 1


def test_partition_with_changed_parameters_is_checked() -> None:
    broker = Broker()
    (partition,) = hosted(broker, 1)
    append(partition, b"a")
    follower = settled(broker, replica=1, count=1)
    assert follower.resting() == [0]
    follower.offsets[0] = 0
    assert follower.poll()[0][3]


def test_out_of_sync_follower_is_checked_each_time() -> None:
    broker = Broker()
    (partition,) = hosted(broker, 1)
    follower = settled(broker, replica=1, count=1)
    assert follower.resting() == [0]
    at = registration(replicas=THREE, isr=(0, 2), partition_epoch=5)
    broker.know("orders", 0, at)
    partition.apply(at)
    follower.poll()
    assert follower.resting() == []
    assert partition.proposal is not None and 1 in partition.proposal.isr


def test_changed_image_wakes_all_but_a_new_offset_wakes_none() -> None:
    broker = Broker()
    hosted(broker)
    consumer = settled(broker)
    assert consumer.resting() == [0, 1, 2]
    seen: list[str] = []
    allowed = replace(
        broker.handlers.sources, may_read=lambda caller, topic: bool(seen.append(topic)) or True
    )
    broker.handlers = replace(broker.handlers, sources=allowed)
    broker.image = replace(broker.image, provenance=replace(broker.image.provenance, offset=99))
    consumer.poll()
    assert (seen, consumer.resting()) == ([], [0, 1, 2])
    broker.know("others", 0, registration())
    consumer.poll()
    assert seen == ["orders"] * 3


def test_consumers_with_a_replica_selector_do_not_rest() -> None:
    broker = Broker(sources={"is_rack_aware": True})
    hosted(broker)
    assert settled(broker).resting() == []


def test_number_of_resting_partitions_is_bounded() -> None:
    broker = Broker()
    hosted(broker)
    broker.sessions._rest.count_max = 2
    first = settled(broker)
    assert first.resting() == [0, 1]
    assert settled(broker).resting() == []
    broker.sessions.remove(first.session_id)
    assert broker.sessions._rest.count == 0
    assert settled(broker).resting() == [0, 1]


def test_closed_session_removes_its_listeners() -> None:
    broker = Broker()
    partitions = hosted(broker)
    consumer = settled(broker)
    assert [len(each._wakers) for each in partitions] == [1, 1, 1]
    broker.sessions.remove(consumer.session_id)
    assert [len(each._wakers) for each in partitions] == [0, 0, 0]


def test_forgotten_partitions_neither_rest_nor_listen() -> None:
    broker = Broker()
    partitions = hosted(broker)
    consumer = settled(broker)
    request = consumer.request()
    request.forgotten_topics_data = [
        fetch.ForgottenTopic(topic_id=partitions[0].topic_id, partitions=[0, 2])
    ]
    broker.get(request, 16)
    assert (consumer.resting(), consumer.looked_at()) == ([1], [])
    assert [len(each._wakers) for each in partitions] == [0, 1, 0]


# -- waiting ------------------------------------------------------------------------


def test_fetch_with_only_resting_partitions_waits_and_wakes() -> None:
    async def main() -> None:
        broker = Broker()
        partitions = hosted(broker)
        consumer = settled(broker)
        reply = broker.ask(consumer.request(max_wait_ms=SOON), 16)
        assert isinstance(reply, Pending)
        append(partitions[2], b"late")
        for replica in (1, 2):
            partitions[2].follower_fetched(replica, Offset(1), log_start=Offset(0))
        response = await broker.wait(reply, 16)
        assert values_of(only(response)) == [b"late"]

    asyncio.run(asyncio.wait_for(main(), BEFORE_TIME_OUT_S))


def test_partition_woken_without_data_wakes_its_fetch_again() -> None:
    """A high watermark that moves has nothing for a follower; the append after it has."""

    async def main() -> None:
        broker = Broker()
        (partition,) = hosted(broker, 1)
        follower = settled(broker, replica=1, count=1)
        assert follower.resting() == [0]
        reply = broker.ask(follower.request(max_wait_ms=SOON), 16)
        partition.wake_readers()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        append(partition, b"a")
        response = await broker.wait(reply, 16)
        assert values_of(only(response)) == [b"a"]

    asyncio.run(asyncio.wait_for(main(), BEFORE_TIME_OUT_S))


def test_append_to_a_newly_resting_partition_wakes_its_fetch() -> None:
    async def main() -> None:
        broker = Broker()
        partitions = hosted(broker)
        follower = Fetcher(broker, 3, replica=1)
        reply = broker.ask(follower.request(max_wait_ms=SOON), 16)
        assert follower.resting() == [0, 1, 2]
        append(partitions[0], b"late")
        assert values_of(only(await broker.wait(reply, 16))) == [b"late"]

    asyncio.run(asyncio.wait_for(main(), BEFORE_TIME_OUT_S))


def test_cancelled_fetch_is_not_woken() -> None:
    async def main() -> None:
        broker = Broker()
        partitions = hosted(broker)
        consumer = settled(broker)
        reply = broker.ask(consumer.request(max_wait_ms=SOON), 16)
        assert isinstance(reply, Pending)
        reply.cancel()
        await asyncio.sleep(0)
        session = broker.sessions.get(consumer.session_id)
        assert session is not None and session.partitions.on_roused is None
        append(partitions[0], b"a")

    asyncio.run(main())


# -- in steps -----------------------------------------------------------------------


def test_long_fetch_whose_session_was_removed_is_answered_without_subscriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handler, "PARTITIONS_PER_TURN", 1)
    broker = Broker()
    hosted(broker)
    follower = Fetcher(broker, 3, replica=1)
    session = broker.sessions.get(follower.session_id)
    assert session is not None

    async def main() -> None:
        steps = broker.ask(follower.request(max_wait_ms=SOON), 16)
        assert isinstance(steps, Generator)
        next(steps)
        broker.sessions.remove(session.id)
        reply = finish(steps)
        assert not list(session.partitions.resting), "nobody would remove the subscriptions"
        assert session.partitions.on_roused is None
        assert response_of(reply, 16).error_code == 0

    asyncio.run(main())


def test_long_fetch_that_was_overtaken_takes_no_notifications_from_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handler, "PARTITIONS_PER_TURN", 1)
    broker = Broker()
    partitions = hosted(broker)
    follower = Fetcher(broker, 3, replica=1)

    async def main() -> None:
        first = broker.ask(follower.request(max_wait_ms=SOON), 16)
        assert isinstance(first, Generator)
        next(first)
        second = finish(broker.ask(follower.request(max_wait_ms=SOON), 16))
        overtaken = finish(first)
        assert isinstance(overtaken, list), "it does not wait"
        code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert response_of(overtaken, 16).error_code == code
        append(partitions[1], b"a")
        assert values_of(only(await broker.wait(second, 16))) == [b"a"]

    asyncio.run(asyncio.wait_for(main(), BEFORE_TIME_OUT_S))


# -- followers' progress ------------------------------------------------------------


def test_resting_follower_stays_in_sync_while_it_fetches() -> None:
    broker = Broker()
    (partition,) = hosted(broker, 1)
    follower = settled(broker, replica=1, count=1)
    other = settled(broker, replica=2, count=1)
    for _ in range(10):
        broker.clock.pass_ms(LAG_MS // 2)
        follower.poll()
    assert follower.resting() == [0]
    append(partition, b"a")
    assert partition.shrink_isr() == (2,)
    assert other.resting() == []


def test_fetches_of_resting_partitions_are_counted() -> None:
    broker = Broker()
    hosted(broker)
    counted: list[tuple[str, int]] = []

    class Events:
        def fetched(self, topic: str, size: int) -> None:
            counted.append((topic, size))

    broker.handlers = replace(broker.handlers, events=Events())
    consumer = settled(broker)
    counted.clear()
    consumer.poll()
    assert counted == [("orders", 0)] * 3


# -- replies do not change -----------------------------------------------------------


class Pair:
    """A broker whose partitions rest beside one that looks at all of them each time."""

    def __init__(self, rng: Random) -> None:
        self.random = rng
        self.brokers = (Broker(), Broker())
        self.brokers[1].sessions._rest.count_max = 0
        self.partitions = [hosted(broker) for broker in self.brokers]
        self.fetchers = [
            [Fetcher(broker, 3, replica) for replica in (1, 2, -1)] for broker in self.brokers
        ]
        self.rested = 0

    def step(self) -> None:
        kinds = (self.append, self.delete, self.wait, self.expire, self.agree)
        self.random.choices((self.poll, *kinds), (8, 2, 1, 1, 1, 1))[0]()

    def append(self) -> None:
        index = self.random.randrange(3)
        for partitions in self.partitions:
            append(partitions[index], b"x")

    def delete(self) -> None:
        index = self.random.randrange(3)
        for partitions in self.partitions:
            partitions[index].delete_records(Offset(-1))

    def poll(self) -> None:
        at = self.random.randrange(3)
        resting, walking = (fetchers[at].poll() for fetchers in self.fetchers)
        assert resting == walking
        self.rested += len(self.fetchers[0][at].resting())
        assert self.fetchers[1][at].resting() == []

    def wait(self) -> None:
        ms = self.random.randrange(1, LAG_MS)
        for broker in self.brokers:
            broker.clock.pass_ms(ms)

    def expire(self) -> None:
        resting, walking = (
            [partition.shrink_isr() for partition in partitions] for partitions in self.partitions
        )
        assert resting == walking

    def agree(self) -> None:
        """The controller agrees to a proposal, and the image says so."""
        index = self.random.randrange(3)
        for broker, partitions in zip(self.brokers, self.partitions, strict=True):
            partition = partitions[index]
            if partition.proposal is not None:
                at = registration(
                    replicas=THREE,
                    isr=partition.proposal.isr,
                    partition_epoch=partition.partition_epoch + 1,
                )
                broker.know("orders", index, at)
                partition.apply(at)


@pytest.mark.parametrize("seed", range(30))
def test_resting_does_not_change_replies(seed: int) -> None:
    pair = Pair(Random(seed))
    for _ in range(150):
        pair.step()
    assert pair.rested > 0
