"""A follower's fetch that finds nothing to read, compared with what a pass makes of it."""

import asyncio
from collections.abc import Sequence
from unittest.mock import patch

import pytest
from fetch_harness import Broker, count_calls, only, response_of, values_of, want
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from partition_fixtures import append, registration

from ottla.api.fetch.reading import Reading
from ottla.api.surface.replies import Result
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import StorageFailed
from ottla.protocol.messages import fetch
from ottla.replication.partition import Partition
from ottla.runtime.pending import Pending

VERSION = 18
LONG = 30_000
REPLICAS = (0, 1, 2)


class FollowerSession:
    """The session of one follower with two partitions, of which the second one stays idle."""

    def __init__(self, broker: Broker, replica_id: int) -> None:
        self.broker = broker
        self.replica_id = replica_id
        self.epoch = 1
        self.end = 0
        self.pending: list[Pending[Result]] = []
        self.replies: list[str] = []
        full = self.request([self.row(0, 0), self.row(1, 0)], max_wait_ms=0)
        self.session_id = broker.get(replace(full, session_epoch=0), VERSION).session_id

    def row(self, index: int, offset: int, **more: int) -> fetch.FetchPartition:
        fields = {"current_leader_epoch": 0, "last_fetched_epoch": 0, "log_start_offset": 0} | more
        return fetch.FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=1 << 20, **fields
        )

    def request(self, rows: list[fetch.FetchPartition], **more: int) -> fetch.FetchRequest:
        state = fetch.ReplicaState(self.replica_id, 7)
        request = want(*rows, replica_state=state, **{"max_wait_ms": LONG} | more)
        return request if rows else replace(request, topics=[])

    def fetch(self, rows: list[fetch.FetchPartition], **more: int) -> Pending[Result] | None:
        """Send the next request; its reply is appended to ``replies``, now or later."""
        asked = self.request(rows, session_id=self.session_id, session_epoch=self.epoch, **more)
        self.epoch += 1
        reply = self.broker.ask(asked, VERSION)
        if isinstance(reply, Pending):
            self.pending.append(reply)
            reply.when_done(self._done)
            return reply
        self._done(reply)  # type: ignore[arg-type]
        return None

    def _done(self, outcome: Result | BaseException) -> None:
        if isinstance(outcome, BaseException):
            self.replies.append(type(outcome).__name__)
            return
        assert isinstance(outcome, list)
        found = response_of(outcome, VERSION)
        for topic in found.responses:
            for row in topic.partitions:
                if row.partition_index == 0 and row.records:
                    self.end += len(values_of(row))
                row.records = bytes(row.records or b"")
        self.replies.append(repr(found))

    def close(self) -> None:
        for reply in self.pending:
            reply.cancel()


async def turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def hosted() -> tuple[Broker, Partition]:
    broker = Broker()
    partition = broker.host(replicas=REPLICAS)
    broker.host(index=1, replicas=REPLICAS)
    for replica in REPLICAS:
        broker.machine.fake_host.epochs[replica] = 7
    return broker, partition


def at_end(session: FollowerSession) -> list[fetch.FetchPartition]:
    return [session.row(0, session.end)]


Action = tuple[str, int, int]


async def play(actions: Sequence[Action]) -> tuple[object, ...]:
    """Return all that followers and clients can see of a broker after each action."""
    broker, partition = hosted()
    sessions = {each: FollowerSession(broker, each) for each in (1, 2)}
    seen: list[object] = []
    epoch = 0
    for what, replica, number in actions:
        session = sessions[replica]
        rows = [session.row(0, session.end, current_leader_epoch=epoch, last_fetched_epoch=epoch)]
        if what == "append" and partition.is_leader:
            append(partition, *[b"v"] * (number + 1))
        elif what == "fetch":
            session.fetch(rows)
        elif what == "fetch nothing":
            session.fetch([])
        elif what == "fetch some":
            session.fetch(rows, min_bytes=number * 50, max_wait_ms=LONG * (number % 2))
        elif what == "fetch elsewhere":
            session.fetch([replace(rows[0], fetch_offset=session.end + number - 1)])
        elif what == "fetch old":
            session.fetch([replace(rows[0], current_leader_epoch=epoch - 1)])
        elif what == "fetch other history":
            session.fetch([replace(rows[0], last_fetched_epoch=epoch - number)])
        elif what == "fetch idle":
            session.fetch([*rows, session.row(1, 0, log_start_offset=number)])
        elif what == "lead":
            epoch += 1
            partition.apply(registration(replicas=REPLICAS, epoch=epoch, partition_epoch=epoch))
        elif what == "image":
            broker.know("other", number, registration())
        elif what == "trim":
            partition.log.advance_log_start(partition.log.high_watermark)
            partition.log_trimmed()
        elif what == "restart":
            broker.machine.fake_host.epochs[replica] = 6 + number
        elif what == "gone":
            session.close()
        elif what == "offline" and number == 2:
            partition.go_offline(StorageFailed("/d", "failed"))
        await turns()
        seen.append((
            *(list(session.replies) for session in sessions.values()),
            *(partition.log.high_watermark, partition.isr, len(partition._wakers)),
            *(repr(each) for each in partition.followers.values()),
        ))  # fmt: skip
    for session in sessions.values():
        session.close()
    await turns()
    assert not len(partition._wakers) or broker.sessions.get(sessions[1].session_id) is not None
    return tuple(seen)


COMMON = st.tuples(st.sampled_from(["append", "fetch", "fetch"]), st.sampled_from([1, 2]),
                   st.integers(0, 2))  # fmt: skip
RARE = st.tuples(
    st.sampled_from(
        [
            "fetch nothing",
            "fetch some",
            "fetch elsewhere",
            "fetch old",
            "fetch other history",
            "fetch idle",
            "lead",
            "image",
            "trim",
            "restart",
            "gone",
            "offline",
        ]
    ),
    st.sampled_from([1, 2]),
    st.integers(0, 2),
)


@settings(max_examples=60, deadline=None)
@given(actions=st.lists(st.one_of(COMMON, COMMON, COMMON, RARE), max_size=25))
def test_followers_see_what_a_pass_would_show_them(actions: list[Action]) -> None:
    found = asyncio.run(play(actions))
    with patch.object(Reading, "record_end", lambda *_: None):
        passed = asyncio.run(play(actions))
    assert found == passed


async def replicated(broker: Broker, partition: Partition) -> list[FollowerSession]:
    """Return two followers that have a record and wait for the next one."""
    sessions = [FollowerSession(broker, each) for each in (1, 2)]
    for _ in range(2):
        for session in sessions:
            session.fetch(at_end(session))
        append(partition, b"v")
        await turns()
    assert [session.end for session in sessions] == [2, 2]
    return sessions


def test_follower_that_has_everything_causes_no_read() -> None:
    async def story() -> None:
        broker, partition = hosted()
        sessions = await replicated(broker, partition)
        reads: list[str] = []
        count_calls(partition, "read", reads)
        for session in sessions:
            session.fetch(at_end(session))
        assert (reads, partition.log.high_watermark) == ([], 2)
        await turns()
        append(partition, b"v")
        await turns()
        assert [session.end for session in sessions] == [3, 3]
        assert reads == []

    asyncio.run(story())


@pytest.mark.parametrize("index", [0, 1])
def test_record_appended_before_the_new_wait_begins_is_sent(index: int) -> None:
    async def story() -> None:
        broker, partition = hosted()
        first, second = await replicated(broker, partition)
        first.fetch(at_end(first))
        second.fetch(at_end(second))
        other = broker.partitions.find("orders", index)
        append(other, b"next")  # in the same iteration of the event loop
        await turns()
        assert len(second.replies) == 3, "it does not wait for the record after it"
        assert f"partition_index={index}" in str(second.replies[-1])

    asyncio.run(story())


def test_follower_that_is_gone_before_its_wait_begins_leaves_no_waiter() -> None:
    async def story() -> None:
        broker, partition = hosted()
        first, second = await replicated(broker, partition)
        first.fetch(at_end(first))
        await turns()
        before = len(partition._wakers)
        reply = second.fetch(at_end(second))
        assert reply is not None
        reply.cancel()
        await turns()
        assert len(partition._wakers) == before

    asyncio.run(story())


def test_second_request_of_a_session_fails_the_first() -> None:
    async def story() -> None:
        broker, partition = hosted()
        first, second = await replicated(broker, partition)
        first.fetch(at_end(first))
        second.fetch(at_end(second))
        second.fetch(at_end(second))
        await turns()
        append(partition, b"next")
        await turns()
        error = f"error_code={int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)}"
        assert any(error in str(reply) for reply in second.replies)
        assert second.end == 3, "the second request waits"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"current_leader_epoch": 1}, f"error_code={int(ErrorCode.UNKNOWN_LEADER_EPOCH)}"),
        ({"last_fetched_epoch": 5}, f"error_code={int(ErrorCode.OFFSET_OUT_OF_RANGE)}"),
    ],
)
def test_follower_in_another_epoch_is_not_recorded(fields: dict[str, int], found: str) -> None:
    async def story() -> None:
        broker, partition = hosted()
        first, second = await replicated(broker, partition)
        first.fetch(at_end(first))
        second.fetch([second.row(0, second.end, **fields)])
        await turns()
        assert partition.log.high_watermark == 1
        assert found in second.replies[-1]

    asyncio.run(story())


def test_broker_with_an_old_registration_is_not_recorded() -> None:
    async def story() -> None:
        broker, partition = hosted()
        (first, second) = await replicated(broker, partition)
        partition.followers[2].broker_epoch = 8
        first.fetch(at_end(first))
        second.fetch(at_end(second))
        await turns()
        assert partition.log.high_watermark == 1
        assert f"error_code={int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}" in str(second.replies[-1])

    asyncio.run(story())


def test_change_without_news_for_a_waiting_fetch_schedules_nothing() -> None:
    async def story() -> None:
        broker, partition = hosted()
        await replicated(broker, partition)
        consumer = broker.ask(want(fetch.FetchPartition(0, fetch_offset=1, partition_max_bytes=99),
                                   max_wait_ms=LONG), VERSION)  # fmt: skip
        assert isinstance(consumer, Pending)
        announced: list[int] = []
        consumer.when_announced(lambda: announced.append(partition.log.high_watermark))
        append(partition, b"not replicated yet")
        assert announced == []
        partition.follower_fetched(1, 2, log_start=0, broker_epoch=7)
        partition.follower_fetched(2, 2, log_start=0, broker_epoch=7)
        assert announced == [2]
        assert values_of(only(response_of(list(await consumer), VERSION))) == [b"v"]

    asyncio.run(story())
