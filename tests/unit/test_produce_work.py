"""Produce requests that are much work: a worker validates them, and nobody overtakes them."""

import asyncio
from typing import Any

import pytest
from partition_fixtures import values_in
from test_produce_handler import IMAGE, Bench, codes, produce, read

from ottla.api.produce import work as produce_work
from ottla.api.produce.handler import ProduceHandler
from ottla.api.surface.replies import Work
from ottla.api.surface.routes import Caller
from ottla.config.generated import TopicConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import Compression, patch_crc
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Offset
from ottla.runtime.ports import Address, Worker
from ottla.runtime.worker import InlineWorker
from ottla.storage.log.log_config import LogConfig
from simulation.loop import run_simulated

OK = ErrorCode.NONE
LARGE = bytes(2 << 20)
ELSEWHERE = Caller("User:ANONYMOUS", "c", Address("127.0.0.1", 6), "PLAINTEXT")


class SlowWorker:
    """Runs a job after a second of virtual time."""

    def __init__(self) -> None:
        self.jobs = 0

    async def run(self, job: Any) -> Any:
        self.jobs += 1
        await asyncio.sleep(1)
        return job()


def bench_with(worker: Worker) -> Bench:
    bench = Bench(TopicConfig(max_message_bytes=1 << 24))
    for partition in (bench.first, bench.second):
        partition.log.configure(LogConfig(max_message_bytes=1 << 24))
    clock = bench.machine.clock
    bench.handler = ProduceHandler(bench.partitions, lambda: IMAGE, clock, worker=worker)
    return bench


def packed(value: bytes, codec: Compression = Compression.GZIP) -> bytes:
    record = Record(Offset(0), Bench().machine.clock.now(), b"k", value)
    return bytes(build_batch([record], compression=codec))


@pytest.mark.parametrize("codec", list(Compression))
def test_small_batches_are_appended_at_once(codec: Compression) -> None:
    worker = SlowWorker()
    bench = bench_with(worker)
    request = produce(packed(b"a", codec), packed(b"b", codec))
    assert codes(read(bench.ask(request))) == [OK, OK]
    assert worker.jobs == 0


@pytest.mark.parametrize("codec", [each for each in Compression if each])
def test_a_batch_that_unpacks_to_much_is_validated_by_the_worker(codec: Compression) -> None:
    worker = SlowWorker()
    bench = bench_with(worker)

    async def story() -> None:
        assert codes(read(await bench.ask(produce(packed(LARGE, codec))))) == [OK]

    run_simulated(story())
    assert worker.jobs == 1
    assert values_in(bench.first.log) == [LARGE]


def test_a_later_request_of_the_connection_waits_and_others_do_not() -> None:
    bench = bench_with(SlowWorker())

    async def story() -> None:
        first = bench.ask(produce(packed(LARGE)))
        second = bench.ask(produce(packed(b"second")))
        assert codes(read(bench.ask(produce(packed(b"other")), caller=ELSEWHERE))) == [OK]
        async with asyncio.TaskGroup() as group:
            for reply in (second, first):
                group.create_task(settled(reply))

    run_simulated(story())
    assert values_in(bench.first.log) == [b"other", LARGE, b"second"]


def test_what_the_worker_finds_wrong_is_the_partitions_own() -> None:
    bench = bench_with(SlowWorker())
    bad = bytearray(packed(LARGE))
    bad[26], bad[60] = 1, 2  # two records, says the header
    patch_crc(bad, 0, len(bad))

    async def story() -> None:
        reply = await bench.ask(produce(bytes(bad), packed(b"b")))
        assert codes(read(reply)) == [ErrorCode.INVALID_RECORD, OK]

    run_simulated(story())
    assert values_in(bench.second.log) == [b"b"]


def test_a_large_request_is_appended_in_slices() -> None:
    """Another client's turn comes before the last partition has its records."""
    bench = bench_with(InlineWorker())
    value = bytes(produce_work.BYTES_AT_ONCE_MAX // 2 + 1000)

    async def story() -> None:
        plain = [packed(value, Compression.NONE) for _ in range(2)]
        reply = bench.ask(produce(*plain))
        assert isinstance(reply, Work) and reply.holds_body, "its buffer is kept and not copied"
        async with asyncio.TaskGroup() as group:
            task = group.create_task(settled(reply))
            for _ in range(100):
                if values_in(bench.first.log):
                    break
                await asyncio.sleep(0)
            assert not values_in(bench.second.log)
        assert codes(read(task.result())) == [OK, OK]

    run_simulated(story())


async def settled(reply: Any) -> Any:
    return await reply
