"""Produce requests of one producer are appended in arrival order, whatever they wait for."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from partition_fixtures import values_in
from test_produce_handler import CALLER, Bench, codes, produce, read

from ottla.api.produce.transaction import InTransaction
from ottla.api.surface.routes import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import Offset, TopicPartition, Uuid
from ottla.runtime.ports import Address
from simulation.loop import run_simulated

OK, BUSY = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
PIPELINED = 6


class Coordinator:
    """Answers each verification after the next of ``delays_ms``, with the next of ``codes``."""

    def __init__(self, delays_ms: Iterator[int], answers: Iterator[ErrorCode]) -> None:
        self.delays_ms, self.answers = delays_ms, answers
        self.asked: list[InTransaction] = []

    async def verify(self, wanted: InTransaction) -> Mapping[TopicPartition, ErrorCode]:
        self.asked.append(wanted)
        code = next(self.answers)
        await asyncio.sleep(next(self.delays_ms) / 1000)
        return {} if code is OK else dict.fromkeys(wanted.partitions, code)


def forever(*values: Any) -> Iterator[Any]:
    while True:
        yield from values


def batch(value: bytes, sequence: int, *, epoch: int = 0, producer_id: int = 7) -> bytes:
    record = Record(Offset(0), Bench().machine.clock.now(), None, value)
    by = Producer(producer_id, epoch, sequence)
    return bytes(build_batch([record], producer=by, is_transactional=True))


def only(index: int, data: bytes, **more: Any) -> ProduceRequest:
    fields = {"transactional_id": "x", "acks": 1, "timeout_ms": 30_000, **more}
    topic = TopicProduceData("orders", Uuid(bytes(16)), [PartitionProduceData(index, data)])
    return ProduceRequest(topic_data=[topic], **fields)


async def settled(reply: Any) -> Any:
    return reply if isinstance(reply, list) else await reply


async def all_of(bench: Bench, requests: list[ProduceRequest], version: int = 12) -> list[Any]:
    """Send everything at once, as a connection does, and return the replies' codes."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(settled(reply))
            for reply in [bench.ask(each, version) for each in requests]
        ]
    return [codes(read(task.result(), version)) for task in tasks]


def run(story: Callable[[], Any]) -> None:
    run_simulated(story())


@pytest.mark.parametrize("delays", [(12, 0), (0, 12), (5, 3, 1), (0,)])
def test_pipelined_requests_of_a_new_transaction_are_appended_in_arrival_order(
    delays: tuple[int, ...],
) -> None:
    bench = Bench(verifier=Coordinator(forever(*delays), forever(OK)))
    values = [b"%d" % number for number in range(PIPELINED)]

    async def story() -> None:
        found = await all_of(bench, [produce_one(v, n) for n, v in enumerate(values)])
        assert found == [[OK]] * PIPELINED

    run(story)
    assert values_in(bench.first.log) == values
    assert len(bench.verifier.asked) == 1, "the transaction is open for the rest"


def produce_one(value: bytes, sequence: int, *, epoch: int = 0) -> ProduceRequest:
    return only(0, batch(value, sequence, epoch=epoch))


def test_forty_transactions_with_gaps_keep_every_order() -> None:
    """Requests arrive 0 to 12 ms apart while the coordinator is busy for as long."""
    bench = Bench(verifier=Coordinator(forever(0, 9, 2, 12, 1, 5, 7), forever(OK)))
    gaps_ms = forever(*(range(13)))
    expected: list[bytes] = []

    async def transaction(epoch: int) -> None:
        tasks = []
        async with asyncio.TaskGroup() as group:
            for number in range(PIPELINED):
                value = b"%d.%d" % (epoch, number)
                expected.append(value)
                reply = bench.ask(produce_one(value, number, epoch=epoch), 12)
                tasks.append(group.create_task(settled(reply)))
                await asyncio.sleep(next(gaps_ms) / 1000)
        found = [codes(read(task.result(), 12)) for task in tasks]
        assert found == [[OK]] * PIPELINED, (epoch, found)
        by = Producer(7, epoch)
        marker = build_end_txn_marker(EndTxnMarker(True, 1), by, bench.machine.clock.now())
        bench.first.append(marker, now=bench.machine.clock.now(), from_client=False)

    async def story() -> None:
        for epoch in range(40):
            await transaction(epoch)

    run(story)
    assert [v for v in values_in(bench.first.log) if b"." in v] == expected


def test_requests_queued_behind_a_busy_transaction_are_busy_too() -> None:
    bench = Bench(verifier=Coordinator(forever(10), iter([BUSY, OK])))

    async def story() -> None:
        found = await all_of(bench, [produce_one(b"%d" % n, n) for n in range(PIPELINED)])
        assert found == [[BUSY]] * PIPELINED, "none is out of sequence"
        again = await all_of(bench, [produce_one(b"%d" % n, n) for n in range(PIPELINED)])
        assert again == [[OK]] * PIPELINED

    run(story)
    assert len(bench.verifier.asked) == 2


@pytest.mark.parametrize(
    ("version", "code"), [(11, ErrorCode.NOT_ENOUGH_REPLICAS), (12, BUSY), (13, BUSY)]
)
def test_a_busy_transaction_is_concurrent_transactions_from_version_12_on(
    version: int, code: ErrorCode
) -> None:
    bench = Bench(verifier=Coordinator(forever(0), forever(BUSY)))

    async def story() -> None:
        request = produce(batch(b"a", 0), transactional_id="x")
        assert await all_of(bench, [request], version) == [[code]]

    run(story)


def test_no_partition_of_a_waiting_request_is_overtaken() -> None:
    """Partition 1 is part of the open transaction, and only partition 0 has to be verified."""
    bench = Bench(verifier=Coordinator(forever(0, 20, 0), forever(OK)))

    async def story() -> None:
        assert await all_of(bench, [only(1, batch(b"a", 0))]) == [[OK]]
        both = produce(batch(b"b", 0), batch(b"c", 1), transactional_id="x")
        found = await all_of(bench, [both, only(1, batch(b"d", 2))])
        assert found == [[OK, OK], [OK]]

    run(story)
    assert values_in(bench.second.log) == [b"a", b"c", b"d"]


def test_acks_0_keeps_its_order_behind_a_waiting_request() -> None:
    bench = Bench(verifier=Coordinator(forever(20), forever(OK)))

    async def story() -> None:
        requests = [only(0, batch(b"%d" % n, n), acks=0) for n in range(3)]
        replies = [bench.ask(each, 12) for each in requests]
        for reply in replies:
            await reply

    run(story)
    assert values_in(bench.first.log) == [b"0", b"1", b"2"]


def test_requests_of_one_producer_over_two_connections_keep_their_order() -> None:
    bench = Bench(verifier=Coordinator(forever(20), forever(OK)))
    other = Caller("User:ANONYMOUS", "c", Address("127.0.0.1", 6), "PLAINTEXT")

    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            for number, caller in enumerate((CALLER, other, CALLER, other)):
                reply = bench.ask(produce_one(b"%d" % number, number), 12, caller)
                group.create_task(settled(reply))

    run(story)
    assert values_in(bench.first.log) == [b"0", b"1", b"2", b"3"]


def test_other_producers_do_not_wait_for_a_waiting_request() -> None:
    bench = Bench(verifier=Coordinator(forever(20), forever(OK)))

    async def story() -> None:
        waiting = bench.ask(produce_one(b"late", 0), 12)
        other = Caller("User:ANONYMOUS", "c", Address("127.0.0.1", 6), "PLAINTEXT")
        plain = bytes(build_batch([Record(Offset(0), bench.machine.clock.now(), None, b"soon")]))
        assert codes(read(bench.ask(produce(plain), 12, other), 12)) == [OK]
        await waiting

    run(story)
    assert values_in(bench.first.log) == [b"soon", b"late"]


def test_a_request_that_is_cancelled_lets_the_next_go_on() -> None:
    bench = Bench(verifier=Coordinator(iter([1000, 0]), forever(OK)))

    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(settled(bench.ask(produce_one(b"a", 0), 12)))
            second = group.create_task(settled(bench.ask(produce_one(b"b", 0), 12)))
            await asyncio.sleep(0.005)
            first.cancel()
        assert codes(read(second.result(), 12)) == [OK]

    run(story)
    assert values_in(bench.first.log) == [b"b"]
