"""A waiting fetch of one partition gets the reply that a whole pass would have made.

It is sent before the acknowledgement of the append that it waited for.
"""

import asyncio
import gc
from collections.abc import Sequence

import pytest
from fetch_harness import Broker, count_calls, only, part, response_of, rows, values_of, want
from msgspec.structs import replace
from partition_fixtures import NOW, append, batch_of, registration
from produce_pair import Transport, batch, frozen_scheduler, receive
from produce_pair import frame as produce_frame

from ottla.api.fetch.reply import INLINE_BYTES_MAX
from ottla.api.produce.handler import ProduceHandler
from ottla.api.surface.binding import bind_routes, handlers_of
from ottla.api.surface.routes import Routes
from ottla.observability.request_meter import RequestMeter
from ottla.observability.topic_events import TopicMeter
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import StorageFailed
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import fetch
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import Offset
from ottla.runtime.pending import Pending
from ottla.runtime.ports import Address
from ottla.server.api_versions import ApiVersions
from ottla.server.connection import Connection
from ottla.server.dispatch import Dispatcher, Outgoing
from ottla.server.listener_context import ConnectionLimits, ListenerContext
from ottla.server.request_memory import RequestMemory

SOON = 30_000
VERSIONS = (4, 7, 11, 12, 13, 16, 18)


def bytes_of(chunks: Sequence[object]) -> bytes:
    return b"".join(
        bytes(each)
        if isinstance(each, bytes | bytearray)
        else each.file.pread(each.length, each.position)  # type: ignore[attr-defined]
        for each in chunks
    )


async def waited(broker: Broker, request: fetch.FetchRequest, version: int, value: bytes) -> bytes:
    """Send a request that waits, append, and return the bytes of its reply."""
    reply = broker.ask(request, version)
    assert isinstance(reply, Pending)
    append(broker.partitions.find("orders", 0), value)
    return bytes_of(await reply)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("size", [1, INLINE_BYTES_MAX, 3 * INLINE_BYTES_MAX])
def test_waiting_fetch_gets_the_reply_of_a_pass(version: int, isolation: int, size: int) -> None:
    async def story() -> None:
        broker = Broker()
        append(broker.host(), b"earlier")
        asked = want(part(offset=1), max_wait_ms=SOON, isolation_level=isolation)
        found = await waited(broker, asked, version, b"v" * size)
        passed = broker.ask(asked, version)
        assert isinstance(passed, list)
        assert found == bytes_of(passed)
        assert values_of(only(response_of([found], version))) == [b"v" * size]

    asyncio.run(story())


def test_waiting_follower_gets_the_reply_of_a_pass() -> None:
    async def story() -> None:
        broker = Broker()
        partition = broker.host(replicas=(0, 1))
        append(partition, b"earlier")
        asked = want(part(offset=1, last_fetched_epoch=0), max_wait_ms=SOON, replica_id=1)
        reads: list[str] = []
        count_calls(partition.log, "read_recent", reads)
        found = await waited(broker, asked, 12, b"v")
        assert reads == ["read_recent"]
        passed = broker.ask(asked, 12)
        assert isinstance(passed, list)
        assert found == bytes_of(passed)
        assert only(response_of([found], 12)).high_watermark == 1

    asyncio.run(story())


def test_fetch_of_a_former_follower_is_rejected_after_the_wait() -> None:
    async def story() -> None:
        broker = Broker()
        partition = broker.host(replicas=(0, 1))
        reply = broker.ask(want(part(), max_wait_ms=SOON, replica_id=1))
        assert isinstance(reply, Pending)
        partition.followers.pop(1)
        append(partition, b"v")
        row = only(await broker.wait(reply))
        assert (row.error_code, row.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")

    asyncio.run(story())


def test_fetch_whose_session_has_moved_on_gets_no_records() -> None:
    async def story() -> None:
        broker = Broker()
        partition = broker.host()
        begun = broker.get(want(part(), session_epoch=0))
        asked = want(part(), max_wait_ms=SOON, session_id=begun.session_id, session_epoch=1)
        reply = broker.ask(asked)
        session = broker.sessions.get(begun.session_id)
        assert session is not None
        session.epoch += 1
        append(partition, b"v")
        response = await broker.wait(reply)
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert not rows(response)

    asyncio.run(story())


@pytest.mark.parametrize("is_committed", [True, False])
def test_waiting_read_committed_consumer_learns_of_aborted_transactions(
    is_committed: bool,
) -> None:
    async def story() -> None:
        broker = Broker()
        partition = broker.host()
        asked = want(part(), max_wait_ms=SOON, isolation_level=1)
        reply = broker.ask(asked)
        assert isinstance(reply, Pending)
        open_batch = batch_of(b"v", producer=Producer(7, 0, 0), is_transactional=True)
        partition.append(open_batch, now=NOW)
        await asyncio.sleep(0)
        assert not reply.is_done
        marker = build_end_txn_marker(EndTxnMarker(is_committed, 0), Producer(7, 0), NOW)
        partition.append(marker, now=NOW, from_client=False)
        row = only(await broker.wait(reply))
        aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions]
        assert aborted == ([] if is_committed else [(7, 0)])
        assert row == only(broker.get(asked))

    asyncio.run(story())


@pytest.mark.parametrize("replica_id", [-1, 1])
def test_records_of_a_waiting_fetch_are_counted(replica_id: int) -> None:
    async def story() -> None:
        broker = Broker()
        broker.host(replicas=(0,) if replica_id < 0 else (0, 1))
        meter = TopicMeter()
        broker.handlers = replace(broker.handlers, events=meter)
        asked = want(part(), max_wait_ms=SOON, replica_id=replica_id)
        row = only(response_of([await waited(broker, asked, 12, b"v")], 12))
        counts, size = meter.of("orders"), len(row.records or b"")
        assert size
        assert (counts.bytesout, counts.replicationbytesout) == (
            (size, 0) if replica_id < 0 else (0, size)
        )

    asyncio.run(story())


@pytest.mark.parametrize("neighbours", [(), (1, 2)])
def test_waiting_fetch_of_a_session_gets_only_what_changed(neighbours: tuple[int, ...]) -> None:
    async def story() -> None:
        broker = Broker()
        for index in (0, *neighbours):
            broker.host(index=index)
        begun = broker.get(want(*map(part, (0, *neighbours)), session_epoch=0))
        for epoch, offset in ((1, 0), (2, 1), (3, 2)):
            asked = want(
                part(offset=offset),
                max_wait_ms=SOON,
                session_id=begun.session_id,
                session_epoch=epoch,
            )
            response = response_of([await waited(broker, asked, 12, b"v")], 12)
            session = broker.sessions.get(begun.session_id)
            assert session is not None
            (first, *_) = [each for each in session.partitions.awake if each.key[1] == 0]
            assert (first.high_watermark, first.log_start_offset) == (offset + 1, 0)
            assert (response.error_code, response.session_id) == (0, begun.session_id)
            row = only(response)
            assert (row.high_watermark, values_of(row)) == (offset + 1, [b"v"])

    asyncio.run(story())


def test_changes_of_the_metadata_while_a_fetch_waits_count() -> None:
    async def story() -> None:
        may_read = True
        broker = Broker(sources={"may_read": lambda *_: may_read})
        partition = broker.host()
        reply = broker.ask(want(part(), max_wait_ms=SOON))
        may_read = False
        broker.know("another", 0, registration())  # any change of the image, as of an ACL
        append(partition, b"a")
        row = only(await broker.wait(reply))
        assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    asyncio.run(story())


def test_new_leader_epoch_while_a_fetch_waits_is_an_error() -> None:
    async def story() -> None:
        broker = Broker()
        partition = broker.host()
        reply = broker.ask(want(part(current_leader_epoch=0), max_wait_ms=SOON))
        partition.apply(registration(epoch=1, partition_epoch=1))
        append(partition, b"a")
        assert only(await broker.wait(reply)).error_code == ErrorCode.FENCED_LEADER_EPOCH

    asyncio.run(story())


def test_two_partitions_that_change_are_in_one_reply() -> None:
    async def story() -> None:
        broker = Broker()
        first, second = broker.host(), broker.host(index=1)
        begun = broker.get(want(part(), part(1), session_epoch=0))
        asked = fetch.FetchRequest(
            session_id=begun.session_id, session_epoch=1, max_wait_ms=SOON, min_bytes=1
        )
        asked = replace(asked, max_bytes=1 << 20)
        reply = broker.ask(asked)
        append(first, b"a")
        append(second, b"b")
        found = {row.partition_index: values_of(row) for row in rows(await broker.wait(reply))}
        assert found == {0: [b"a"], 1: [b"b"]}

    asyncio.run(story())


def test_partition_that_becomes_active_during_the_wait_is_in_the_reply() -> None:
    async def story() -> None:
        broker = Broker()
        first, second = broker.host(), broker.host(index=1)
        begun = broker.get(want(part(), part(1), session_epoch=0))
        append(first, b"0")

        def asked(epoch: int, *parts: fetch.FetchPartition) -> fetch.FetchRequest:
            changed = want(*parts, session_id=begun.session_id, session_epoch=epoch)
            return replace(changed, max_wait_ms=SOON, min_bytes=1)

        answered = broker.get(asked(1, part(), part(1)))
        assert {row.partition_index: values_of(row) for row in rows(answered)} == {0: [b"0"]}
        # Only the first partition is active now, and is read alone when the wait begins.
        reply = broker.ask(asked(2, part(offset=1)))
        append(first, b"a")
        append(second, b"b")
        found = {row.partition_index: values_of(row) for row in rows(await broker.wait(reply))}
        assert found == {0: [b"a"], 1: [b"b"]}

    asyncio.run(story())


# -- before the acknowledgement -----------------------------------------------


class Wire(Transport):
    """Notes in ``order`` when something is written to it."""

    def __init__(self, name: str, order: list[str]) -> None:
        super().__init__()
        self._name, self._order = name, order

    def write(self, data: bytes) -> None:
        super().write(data)
        self._order.append(self._name)


class Meter(RequestMeter):
    """Notes in ``order`` when an answered request is metered."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self._order = order

    def answered(self, listener: str, key: ApiKey, micros: int) -> None:
        self._order.append("bookkeeping")


def connect(context: ListenerContext, name: str, order: list[str]) -> tuple[Connection, Wire]:
    wire = Wire(name, order)
    connection = Connection(context, Address("127.0.0.1", 2), lambda *_: None)
    connection.connection_made(wire)  # type: ignore[arg-type]
    return connection, wire


def serving(broker: Broker, order: list[str]) -> ListenerContext:
    """Serve Produce and Fetch."""
    produce = ProduceHandler(broker.partitions, lambda: broker.image, broker.clock)
    routes = Routes(
        Listener.BROKER,
        tuple(
            route
            for handlers in (handlers_of(produce=produce), handlers_of(fetch=broker.handlers))
            for route in bind_routes(Listener.BROKER, handlers)
        ),
    )
    meter = Meter(order)
    return ListenerContext(
        Dispatcher("CLIENT", routes, ApiVersions(routes), meter),
        RequestMemory(),
        ConnectionLimits(frame_bytes_max=1 << 20),
        broker.clock,
        meter,
        asyncio.get_running_loop(),
        scheduler=frozen_scheduler(),
    )


@pytest.mark.parametrize("version", [7, 9])
def test_waiting_fetch_is_answered_before_bookkeeping_and_acknowledgement(version: int) -> None:
    async def story() -> None:
        broker = Broker()
        broker.host()
        order: list[str] = []
        context = serving(broker, order)
        producer, consumer = (connect(context, name, order) for name in ("produce", "fetch"))
        value = bytes(batch(b"v"))
        receive(*producer, produce_frame(value, version=version, topic="orders"), 1 << 20)
        await asyncio.sleep(0)
        for offset in (1, 2, 3):
            asked = want(part(offset=offset), max_wait_ms=SOON, session_epoch=-1)
            header = RequestHeader(ApiKey.FETCH, 11, 1, "c")
            receive(*consumer, bytes(request_frame(header, asked)), 1 << 20)
            order.clear()
            receive(*producer, produce_frame(value, version=version, topic="orders"), 1 << 20)
            await asyncio.sleep(0)
            assert order == ["fetch", "bookkeeping", "produce"]

    asyncio.run(story())


def test_failed_send_ends_the_connection_and_nothing_behind_it_is_sent() -> None:
    async def story() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, found: failures.append(found))
        broker = Broker()
        partition = broker.host()
        connection, wire = connect(serving(broker, []), "fetch", [])

        def fail(reply: bytearray) -> bool:
            connection._write_failed(OSError("broken pipe"))
            return False

        connection._send_queue.send = fail  # type: ignore[method-assign]
        for _ in range(2):
            asked = want(part(), max_wait_ms=SOON, session_epoch=-1)
            header = RequestHeader(ApiKey.FETCH, 11, 1, "c")
            receive(connection, wire, bytes(request_frame(header, asked)), 1 << 20)
        # A reply behind the first one that closes the connection when it is sent.
        order = connection._order
        order.complete(order.slots[1], Outgoing((), close=True), 0)
        append(partition, b"v")
        await asyncio.sleep(0)
        assert failures == []
        assert wire.is_closed

    asyncio.run(story())


@pytest.mark.parametrize("replicas", [(0,), (0, 1)])
def test_waiting_requests_leave_nothing_to_the_garbage_collector(replicas: tuple[int, ...]) -> None:
    """A collection of what thousands of requests leave pauses all others for milliseconds."""

    async def story() -> None:
        broker = Broker()
        partition = broker.host(replicas=replicas)
        context = serving(broker, [])
        producer, consumer = (connect(context, name, []) for name in ("produce", "fetch"))
        asked = produce_frame(bytes(batch(b"v")), topic="orders", acks=-1)
        for offset in range(20):
            if offset == 10:
                gc.collect()
                gc.disable()
            fetched = want(part(offset=offset), max_wait_ms=SOON, session_epoch=-1)
            header = RequestHeader(ApiKey.FETCH, 11, 1, "c")
            receive(*consumer, bytes(request_frame(header, fetched)), 1 << 20)
            receive(*producer, asked, 1 << 20)
            if len(replicas) > 1:
                partition.follower_fetched(1, Offset(offset + 1), log_start=Offset(0))
            for _ in range(3):
                await asyncio.sleep(0)
            assert partition.log.high_watermark == offset + 1
        try:
            assert gc.collect() == 0
        finally:
            gc.enable()

    asyncio.run(story())


# -- with followers -----------------------------------------------------------


def test_append_that_consumers_may_not_see_yet_is_not_read_for_them() -> None:
    async def story() -> None:
        broker = Broker()
        partition = broker.host(replicas=(0, 1))
        reply = broker.ask(want(part(), max_wait_ms=SOON))
        assert isinstance(reply, Pending)
        reads: list[str] = []
        count_calls(partition, "read", reads)
        count_calls(partition.log, "read_recent", reads)
        append(partition, b"a")
        await asyncio.sleep(0)
        assert (reads, reply.is_done) == ([], False)
        partition.follower_fetched(1, Offset(1), log_start=Offset(0))
        assert values_of(only(await broker.wait(reply))) == [b"a"]
        assert reads == ["read_recent"]

    asyncio.run(story())


@pytest.mark.parametrize("change", ["log start", "offline", "leader"])
def test_wait_ends_if_the_partition_cannot_be_read_any_more(change: str) -> None:
    async def story() -> None:
        broker = Broker()
        partition = broker.host(replicas=(0, 1))
        append(partition, b"a")
        partition.follower_fetched(1, Offset(1), log_start=Offset(0))
        reply = broker.ask(want(part(offset=1, current_leader_epoch=0), max_wait_ms=SOON))
        append(partition, b"b")
        if change == "log start":
            partition.follower_fetched(1, Offset(2), log_start=Offset(0))
            partition.delete_records(Offset(2))
        elif change == "offline":
            partition.go_offline(StorageFailed("data", "broken"))
        else:
            partition.apply(registration(leader=1, epoch=1, partition_epoch=1, replicas=(0, 1)))
        row = only(await asyncio.wait_for(broker.wait(reply), 20))
        assert row.error_code != 0

    asyncio.run(story())


def test_consumers_are_woken_before_writers_are_answered() -> None:
    broker = Broker()
    partition = broker.host(replicas=(0, 1))
    append(partition, b"a")
    order: list[str] = []
    partition.when_replicated(Offset(1), lambda _: order.append("writer"))
    partition.on_appended(lambda: order.append("reader"))
    partition.follower_fetched(1, Offset(1), log_start=Offset(0))
    assert order == ["reader", "writer"]
