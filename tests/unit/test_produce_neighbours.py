"""What stands beside Produce: ids for producers, their description, and deleting records."""

import asyncio
from dataclasses import dataclass, field
from itertools import islice

import pytest
from controller_images import image_of
from partition_fixtures import TOPIC_ID, Machine, append, batch_of, registration

from ottla.api.partitions.delete_records import DeleteRecordsHandler
from ottla.api.surface.replies import ROWS_MAX, ReplyTooLong, finish
from ottla.api.surface.routes import Caller
from ottla.api.transactions.describe_producers import DescribeProducersHandler
from ottla.api.transactions.producer_ids import InitProducerIdHandler, ProducerIds
from ottla.config.generated import TopicConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.internal.metadata_topics import PartitionRecord, TopicRecord
from ottla.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import NodeId, TopicPartition
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import Partition
from ottla.runtime.ports import Address
from ottla.storage.log.log_config import LogConfig

CALLER = Caller("User:ANONYMOUS", "c", Address("127.0.0.1", 5), "PLAINTEXT")
IMAGE = image_of(
    TopicRecord(name="orders", topic_id=TOPIC_ID),
    PartitionRecord(partition_id=3, topic_id=TOPIC_ID, replicas=[9], isr=[9], leader=9),
)

# -- producer ids ------------------------------------------------------------


@dataclass
class Controller:
    """Allocates blocks of two, or the configured answers."""

    answers: list[AllocateProducerIdsResponse] = field(default_factory=list)
    asked: list[AllocateProducerIdsRequest] = field(default_factory=list)
    is_silent: bool = False
    start: int = 5000

    async def ask(self, request, timeout_ms: int):
        self.asked.append(request)
        await asyncio.sleep(0)
        if self.is_silent:
            raise RequestTimedOut("nobody")
        if self.answers:
            return self.answers.pop()
        self.start += 2
        return AllocateProducerIdsResponse(producer_id_start=self.start - 2, producer_id_len=2)


async def init(handler: InitProducerIdHandler, version: int = 5, **fields):
    fields = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1, **fields}
    return await handler.handle(CALLER, InitProducerIdRequest(**fields), version)


def handler_of(controller: Controller, coordinator=None) -> InitProducerIdHandler:
    return InitProducerIdHandler(ProducerIds(controller, NodeId(4), lambda: 77), coordinator)


def test_no_id_is_given_twice_and_a_block_is_used_up() -> None:
    async def main() -> None:
        controller = Controller()
        handler = handler_of(controller)
        given = await asyncio.gather(*(init(handler) for _ in range(5)))
        assert [each.error_code for each in given] == [0] * 5
        assert sorted(each.producer_id for each in given) == [5000, 5001, 5002, 5003, 5004]
        assert {each.producer_epoch for each in given} == {0}
        assert controller.asked == [AllocateProducerIdsRequest(4, 77)] * 3

    asyncio.run(main())


@pytest.mark.parametrize(
    "controller",
    [
        Controller(is_silent=True),
        Controller([AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)]),
        Controller([AllocateProducerIdsResponse(producer_id_start=5, producer_id_len=0)]),
    ],
)
def test_without_a_block_a_producer_comes_again(controller: Controller) -> None:
    async def main() -> None:
        handler = handler_of(controller)
        refused = await init(handler)
        assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (refused.producer_id, refused.producer_epoch) == (-1, -1)
        controller.is_silent = False
        assert (await init(handler)).error_code == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 0}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "t"}, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ({"producer_id": 5, "producer_epoch": 3}, ErrorCode.NONE),
    ],
)
def test_what_a_producer_may_ask(fields, code: ErrorCode) -> None:
    response = asyncio.run(init(handler_of(Controller()), **fields))
    assert response.error_code == code


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)]
)
def test_a_transactional_id_goes_to_its_coordinator(version: int, code: ErrorCode) -> None:
    class Fencing:
        async def init_producer_id(self, request):
            assert request.transactional_id == "t"
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)

    controller = Controller()
    handler = handler_of(controller, Fencing())
    response = asyncio.run(init(handler, version, transactional_id="t"))
    assert response.error_code == code and not controller.asked


# -- partitions --------------------------------------------------------------


def hosted(*names: str, replicas: tuple[int, ...] = (0,), **config) -> dict[str, Partition]:
    machine = Machine()
    found = {}
    for index, name in enumerate(names or ("orders",)):
        partition = machine.host(TopicPartition(name, index), TopicConfig(), LogConfig(**config))
        partition.apply(registration(replicas=replicas))
        found[name] = partition
    return found


def registry(partitions: dict[str, Partition]) -> Partitions:
    found = Partitions(lambda: IMAGE)
    for each in partitions.values():
        found.add(each)
    return found


def delete(handler: DeleteRecordsHandler, *at: tuple[str, int, int], timeout_ms: int = 10_000):
    topics = [
        DeleteRecordsTopic(name, [DeleteRecordsPartition(index, offset)])
        for name, index, offset in at
    ]
    return handler.handle(CALLER, DeleteRecordsRequest(topics, timeout_ms), 2)


def rows_of(response: DeleteRecordsResponse) -> list[tuple[str, int, int, ErrorCode]]:
    return [
        (topic.name, each.partition_index, each.low_watermark, ErrorCode(each.error_code))
        for topic in response.topics
        for each in topic.partitions
    ]


def test_the_log_start_moves_to_the_offset_or_the_high_watermark() -> None:
    partitions = hosted("orders", "pay")
    for each in partitions.values():
        append(each, b"a", b"b", b"c")
    handler = DeleteRecordsHandler(registry(partitions))
    assert rows_of(delete(handler, ("orders", 0, 2), ("pay", 1, -1))) == [
        ("orders", 0, 2, ErrorCode.NONE),
        ("pay", 1, 3, ErrorCode.NONE),
    ]
    assert partitions["orders"].log.log_start_offset == 2
    assert rows_of(delete(handler, ("orders", 0, 1))) == [("orders", 0, 2, ErrorCode.NONE)]


@pytest.mark.parametrize(
    ("at", "code"),
    [
        (("orders", 0, 4), ErrorCode.OFFSET_OUT_OF_RANGE),
        (("orders", 0, -2), ErrorCode.OFFSET_OUT_OF_RANGE),
        (("orders", 5, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("nope", 0, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("orders", 3, 0), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (("__consumer_offsets", 1, 0), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_cannot_be_deleted_stays(at: tuple[str, int, int], code: ErrorCode) -> None:
    partitions = hosted("orders", "__consumer_offsets")
    append(partitions["orders"], b"a", b"b", b"c")
    handler = DeleteRecordsHandler(registry(partitions))
    assert rows_of(delete(handler, at)) == [(at[0], at[1], -1, code)]
    assert partitions["orders"].log.log_start_offset == 0


def test_only_a_log_that_deletes_may_be_deleted_from() -> None:
    partitions = hosted(is_compacted=True, is_deleted=False)
    append(partitions["orders"], b"a")
    handler = DeleteRecordsHandler(registry(partitions))
    assert rows_of(delete(handler, ("orders", 0, 1)))[0][3] == ErrorCode.POLICY_VIOLATION


def test_delete_records_waits_for_followers_and_times_out() -> None:
    async def main() -> None:
        partitions = hosted("orders", "pay", replicas=(0, 1))
        for each in partitions.values():
            append(each, b"a", b"b")
            each.follower_fetched(1, 2, log_start=0)
        handler = DeleteRecordsHandler(registry(partitions))
        reply = delete(handler, ("orders", 0, 2), ("nope", 0, 0))
        assert not reply.is_done
        partitions["orders"].follower_fetched(1, 2, log_start=2)
        assert rows_of(await reply) == [
            ("orders", 0, 2, ErrorCode.NONE),
            ("nope", 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        late = delete(handler, ("pay", 1, 2), timeout_ms=1)
        assert rows_of(await late) == [("pay", 1, 0, ErrorCode.REQUEST_TIMED_OUT)]
        lost = delete(handler, ("pay", 1, 2))
        moved = registration(leader=1, epoch=1, replicas=(0, 1), partition_epoch=1)
        partitions["pay"].apply(moved)
        assert rows_of(await lost) == [("pay", 1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]

    asyncio.run(main())


def test_every_replica_describes_its_producers() -> None:
    partitions = hosted()
    partition = partitions["orders"]
    open_batch = batch_of(b"a", b"b", producer=Producer(7, 3, 40), is_transactional=True)
    partition.append(open_batch, now=5)
    partition.append(batch_of(b"c", producer=Producer(8, 0, 0)), now=5)
    partition.apply(registration(leader=1, epoch=1, replicas=(0, 1), partition_epoch=1))
    handler = DescribeProducersHandler(registry(partitions))
    request = DescribeProducersRequest(
        [TopicRequest("orders", [0, 3, 5]), TopicRequest("../x", [0])]
    )
    response = finish(handler.describe_steps(CALLER, request, 0))
    first, elsewhere, unknown = response.topics[0].partitions
    described = [
        (each.producer_id, each.producer_epoch, each.last_sequence, each.current_txn_start_offset)
        for each in first.active_producers
    ]
    assert described == [(7, 3, 41, 0), (8, 0, 0, -1)]
    assert {each.coordinator_epoch for each in first.active_producers} == {-1}
    assert first.active_producers[0].last_timestamp > 0
    assert elsewhere.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (bad,) = response.topics[1].partitions
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION and bad.error_message


@pytest.mark.slow
def test_describing_one_partition_any_number_of_times_is_bounded() -> None:
    partitions = hosted()
    for number in range(200):
        batch = batch_of(b"a", producer=Producer(number, 0, 0))
        partitions["orders"].append(batch, now=5)
    handler = DescribeProducersHandler(registry(partitions))
    request = DescribeProducersRequest([TopicRequest("orders", [0] * (ROWS_MAX // 200 + 1))])
    steps = handler.describe_steps(CALLER, request, 0)
    count = sum(1 for _ in islice(steps, 300))
    assert count == 300, "it yields between the producers"
    with pytest.raises(ReplyTooLong):
        finish(steps)
