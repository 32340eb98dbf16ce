"""Markers: sent to the current leaders until every partition has its own, durably."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from coordinator_harness import FakeClock, FakeLog
from partition_fixtures import (
    ORDERS,
    HandClock,
    Machine,
    append,
    batch_of,
    registration,
)

from ottla.coordinators.broker_links import BrokerLinks
from ottla.coordinators.runtime import CoordinatorRuntime, RuntimeParts
from ottla.coordinators.shard import ShardSettings
from ottla.coordinators.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.coordinators.transactions.machine import TransactionMachine
from ottla.coordinators.transactions.marker_sender import MarkerSender
from ottla.coordinators.transactions.marker_writer import Codes, Ending, MarkerWriter
from ottla.coordinators.transactions.markers import GONE, NO_LEADER, Markers
from ottla.coordinators.transactions.rules import decide_add, decide_end, decide_init
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.stale_end_txn import Client
from ottla.coordinators.transactions.transaction import Status
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    CoordinatorLoading,
    Fault,
    InvalidProducerEpoch,
    NotCoordinator,
)
from ottla.protocol.internal.transaction_records import decode_transaction_record
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import LeaderEpoch, ProducerId, TopicPartition
from ottla.runtime.pending import Pending, completed
from simulation.loop import run_simulated

A, B, C = (TopicPartition("t", index) for index in range(3))
NEW = Client(2)


class LoopClock(FakeClock):
    def monotonic(self) -> Any:
        return round(asyncio.get_running_loop().time() * 1000)


class Bench:
    """A coordinator whose markers go to brokers with scripted replies."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.leaders = {A: 1, B: 2, C: 2}
        self.codes: dict[TopicPartition, list[ErrorCode]] = {}
        self.sent: list[tuple[int, Ending, list[TopicPartition]]] = []
        self.runtime = CoordinatorRuntime[TransactionMachine](
            RuntimeParts(
                "transaction-coordinator",
                TRANSACTION_STATE,
                lambda index: self.log,
                lambda index: TransactionMachine(TransactionSettings(), self),
                ShardSettings(LoopClock(), decode_transaction_record),
            )
        )
        self.markers = Markers(self.runtime, lambda at: self.leaders.get(at, GONE), self.send)

    def answer(self, reply: object) -> None:
        self.markers.wake()

    def fail(self, fault: Fault) -> None:
        pass

    async def send(self, broker: int, ending: Ending, places: list[TopicPartition]) -> Codes:
        self.sent.append((broker, ending, places))
        await asyncio.sleep(0.01)
        return {
            at: self.codes[at].pop(0) if self.codes.get(at) else ErrorCode.NONE for at in places
        }

    def lead(self, epoch: int) -> None:
        self.runtime.on_led(TRANSACTION_STATE, 0, LeaderEpoch(epoch))

    def ask(self, decide: Callable[[TransactionMachine, Any], Any]) -> Any:
        return self.runtime.submit(0, lambda machine, now, future: decide(machine, now))

    def commit(self, *places: TopicPartition, name: str = "x", producer: int = 7) -> None:
        fresh = ProducerId(producer)
        self.ask(lambda m, now: decide_init(m, InitProducerIdRequest(name, 60_000), fresh, now))
        by = Producer(producer, 0)
        self.ask(lambda m, now: decide_add(m, name, by, frozenset(places), NEW, now))
        request = EndTxnRequest(name, producer, 0, True)
        reply = self.ask(lambda m, now: decide_end(m, request, NEW, None, now))
        if reply.is_done:
            assert reply.outcome().error_code == ErrorCode.NONE

    def status(self, name: str = "x") -> Status:
        return self.runtime.shard(0).machine.transactions[name].status


def run(story: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        async with asyncio.TaskGroup() as group:
            services = [
                group.create_task(bench.runtime.run(lambda: None)),
                group.create_task(bench.markers.run(lambda: None)),
            ]
            bench.lead(5)
            await asyncio.sleep(0.01)
            await story(bench)
            for service in services:
                service.cancel()

    run_simulated(main())


def test_each_leader_gets_its_partitions_and_the_transaction_completes() -> None:
    async def story(bench: Bench) -> None:
        bench.commit(A, B, C)
        assert bench.status() is Status.PREPARE_COMMIT
        await asyncio.sleep(1)
        assert bench.status() is Status.COMPLETE_COMMIT
        ending = Ending(Producer(7, 1), EndTxnMarker(True, 5), 2)
        assert bench.sent == [(1, ending, [A]), (2, ending, [B, C])]

    run(story)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    ],
)
def test_failed_markers_are_sent_again_to_the_current_leader(code: ErrorCode) -> None:
    async def story(bench: Bench) -> None:
        bench.codes[B] = [code, code]
        bench.commit(A, B)
        await asyncio.sleep(0.05)
        bench.leaders[B] = 3
        await asyncio.sleep(1)
        assert [(broker, places) for broker, _, places in bench.sent] == [
            *((1, [A]), (2, [B])),
            *((3, [B]), (3, [B])),
        ]
        assert bench.status() is Status.COMPLETE_COMMIT

    run(story)


def test_marker_waits_for_a_partition_leader() -> None:
    async def story(bench: Bench) -> None:
        bench.leaders[A] = NO_LEADER
        bench.commit(A)
        await asyncio.sleep(5)
        assert bench.status() is Status.PREPARE_COMMIT
        bench.leaders[A] = 1
        await asyncio.sleep(1)
        assert bench.status() is Status.COMPLETE_COMMIT

    run(story)


def test_deleted_partition_needs_no_marker() -> None:
    async def story(bench: Bench) -> None:
        del bench.leaders[A]
        bench.commit(A, B)
        await asyncio.sleep(1)
        assert [places for _, _, places in bench.sent] == [[B]]
        assert bench.status() is Status.COMPLETE_COMMIT

    run(story)


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
)
def test_newer_epoch_in_a_partition_ends_the_attempt(code: ErrorCode) -> None:
    async def story(bench: Bench) -> None:
        bench.codes[A] = [code]
        bench.commit(A)
        await asyncio.sleep(60)
        assert len(bench.sent) == 1
        assert bench.status() is Status.PREPARE_COMMIT
        # The next leadership tries again.
        bench.lead(6)
        bench.markers.wake()
        await asyncio.sleep(1)
        assert bench.sent[1][1].marker.coordinator_epoch == 6
        assert bench.status() is Status.COMPLETE_COMMIT

    run(story)


def test_nothing_is_sent_before_the_decision_is_committed() -> None:
    async def story(bench: Bench) -> None:
        bench.commit(A, name="before")
        await asyncio.sleep(1)
        bench.sent.clear()
        bench.log.follows = False
        bench.commit(B, name="x", producer=8)
        bench.markers.wake()
        await asyncio.sleep(1)
        assert bench.sent == []
        bench.log.follows = True
        bench.log.commit()
        await asyncio.sleep(1)
        assert [places for _, _, places in bench.sent] == [[B]]

    run(story)


def test_markers_stop_when_the_shard_is_lost() -> None:
    async def story(bench: Bench) -> None:
        bench.codes[A] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
        bench.commit(A)
        await asyncio.sleep(0.05)
        bench.runtime.on_unled(TRANSACTION_STATE, 0, LeaderEpoch(6))
        await asyncio.sleep(10)
        assert len(bench.sent) <= 2
        bench.lead(7)
        await asyncio.sleep(1)
        assert bench.sent[-1][1].marker.coordinator_epoch == 7
        assert bench.status() is Status.COMPLETE_COMMIT

    run(story)


# -- the sender ------------------------------------------------------------------------------


class Wire:
    """A broker that replies on request."""

    def __init__(self) -> None:
        self.requests: list[WriteTxnMarkersRequest] = []
        self.may_answer = asyncio.Event()
        self.fault: Exception | None = None

    async def ask(self, broker: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        self.requests.append(request)
        await self.may_answer.wait()
        if self.fault is not None:
            raise self.fault
        return WriteTxnMarkersResponse(
            [
                WritableTxnMarkerResult(
                    marker.producer_id,
                    [
                        WritableTxnMarkerTopicResult(
                            topic.name,
                            [
                                WritableTxnMarkerPartitionResult(index, marker.producer_id % 2)
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )


def ending(producer: int, version: int = 2) -> Ending:
    return Ending(Producer(producer, 1), EndTxnMarker(True, 5), version)


def test_markers_that_come_up_during_a_request_share_the_next() -> None:
    async def story() -> None:
        wire = Wire()
        writer: Any = None
        links: Any = wire
        sender = MarkerSender(1, writer, links)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(sender(2, ending(n), [A, B])) for n in range(4)]
            await asyncio.sleep(0.1)
            assert len(wire.requests) == 1
            wire.may_answer.set()
        assert [[m.producer_id for m in r.markers] for r in wire.requests] == [[0], [1, 2, 3]]
        for number, task in enumerate(tasks):
            assert task.result() == dict.fromkeys([A, B], ErrorCode(number % 2))
        # Later requests are not blocked.
        assert await sender(2, ending(0), [A]) == {A: ErrorCode.NONE}

    run_simulated(story())


def test_a_broker_that_cannot_be_reached_has_written_nothing() -> None:
    async def story() -> None:
        wire = Wire()
        wire.may_answer.set()
        writer: Any = None
        links: Any = wire
        sender = MarkerSender(1, writer, links)
        wire.fault = ConnectionRefusedError()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(sender(2, ending(n), [A])) for n in range(3)]
        assert [task.result() for task in tasks] == [{}, {}, {}]
        wire.fault = None
        assert await sender(2, ending(0), [A]) == {A: ErrorCode.NONE}

    run_simulated(story())


def test_a_link_is_opened_again_after_it_was_lost_and_closed_at_the_end() -> None:
    class Link:
        def __init__(self) -> None:
            self.is_open = True

        async def send(self, request: object, *, timeout_ms: int) -> object:
            return self

        async def close(self) -> None:
            self.is_open = False

    async def story() -> None:
        opened: list[Link] = []

        async def dial(broker: int) -> Any:
            await asyncio.sleep(0.1)
            opened.append(Link())
            return opened[-1]

        links = BrokerLinks(dial, 1000)
        request: Any = object()
        async with asyncio.TaskGroup() as group:
            service = group.create_task(links.run(lambda: None))
            async with asyncio.TaskGroup() as asking:
                for _ in range(3):
                    asking.create_task(links.ask(2, request))
            assert len(opened) == 1
            opened[0].is_open = False
            await links.ask(2, request)
            assert len(opened) == 2
            service.cancel()
        assert not opened[1].is_open

    run_simulated(story())


# -- the writer ------------------------------------------------------------------------------


class Hosted:
    """One partition on a simulated disk, as a registry."""

    def __init__(self, replicas: tuple[int, ...] = (0,)) -> None:
        self.partition = Machine().host()
        self.partition.apply(registration(replicas=replicas))

    def get(self, topic: str, index: int) -> Any:
        return self.partition if (topic, index) == ORDERS else None


def writer(hosted: Hosted, group: Callable[[int, Ending], Any] | None = None) -> MarkerWriter:
    def nobody(index: int, ending: Ending) -> Any:
        raise AssertionError("no marker for a group")

    partitions: Any = hosted
    return MarkerWriter(partitions, HandClock(), group or nobody, timeout_ms=500)


def open_transaction(hosted: Hosted, producer: Producer) -> None:
    batch = batch_of(b"v", producer=producer, is_transactional=True)
    hosted.partition.append(batch, now=HandClock().now())


def test_a_marker_ends_the_transaction_of_its_producer() -> None:
    async def story() -> None:
        hosted = Hosted()
        open_transaction(hosted, Producer(7, 0, 0))
        assert hosted.partition.log.last_stable_offset == 0
        assert await writer(hosted).write(ending(7), [ORDERS]) == {ORDERS: ErrorCode.NONE}
        assert hosted.partition.log.last_stable_offset == 2

    run_simulated(story())


def test_a_marker_counts_only_when_it_is_replicated() -> None:
    async def story() -> None:
        hosted = Hosted((0, 1))
        open_transaction(hosted, Producer(7, 0, 0))
        codes = await writer(hosted).write(ending(7), [ORDERS])
        assert codes == {ORDERS: ErrorCode.REQUEST_TIMED_OUT}
        async with asyncio.TaskGroup() as group:
            again = group.create_task(writer(hosted).write(ending(7), [ORDERS]))
            await asyncio.sleep(0.1)
            assert not again.done()
            end = hosted.partition.log.log_end_offset
            hosted.partition.follower_fetched(1, end, log_start=0)  # type: ignore[arg-type]
        assert again.result() == {ORDERS: ErrorCode.NONE}

    run_simulated(story())


def test_a_marker_is_refused_where_a_newer_producer_or_coordinator_has_written() -> None:
    async def story() -> None:
        hosted = Hosted()
        open_transaction(hosted, Producer(7, 1, 0))
        stale = await writer(hosted).write(ending(7, version=2), [ORDERS])
        assert stale == {ORDERS: ErrorCode.INVALID_PRODUCER_EPOCH}
        # Before version 2 the epoch of the data is the marker's own.
        assert await writer(hosted).write(ending(7, version=0), [ORDERS]) == {
            ORDERS: ErrorCode.NONE
        }
        older = Ending(Producer(7, 1), EndTxnMarker(False, 4))
        assert await writer(hosted).write(older, [ORDERS]) == {
            ORDERS: ErrorCode.TRANSACTION_COORDINATOR_FENCED
        }

    run_simulated(story())


def test_partitions_that_are_not_here_are_said_to_be_unknown() -> None:
    async def story() -> None:
        found = await writer(Hosted()).write(ending(7), [A, ORDERS])
        assert found == {A: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ORDERS: ErrorCode.NONE}

    run_simulated(story())


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (None, ErrorCode.NONE),
        (NotCoordinator("elsewhere"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (CoordinatorLoading("soon"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (InvalidProducerEpoch("old"), ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_offsets_are_ended_by_the_coordinator_of_groups(
    fault: Fault | None, code: ErrorCode, at_once: bool
) -> None:
    async def story() -> None:
        asked: list[tuple[int, Ending]] = []

        def group(index: int, ending: Ending) -> Any:
            asked.append((index, ending))
            if at_once:
                if fault is not None:
                    raise fault
                return completed(None)
            written: Pending[None] = Pending()
            asyncio.get_running_loop().call_later(0.1, written.answer_now, fault)
            return written

        place = TopicPartition(CONSUMER_OFFSETS, 3)
        assert await writer(Hosted(), group).write(ending(7), [place]) == {place: code}
        assert asked == [(3, ending(7))]

    run_simulated(story())


def test_partition_no_longer_led_returns_not_leader() -> None:
    async def story() -> None:
        hosted = Hosted()
        append(hosted.partition, b"a")
        hosted.partition.apply(registration(leader=1, epoch=1, replicas=(0, 1), partition_epoch=1))
        codes = await writer(hosted).write(ending(7), [ORDERS])
        assert codes == {ORDERS: ErrorCode.NOT_LEADER_OR_FOLLOWER}

    run_simulated(story())
