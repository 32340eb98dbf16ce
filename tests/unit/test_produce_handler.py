"""The Produce handler: appends, responses, waiting and errors."""

import asyncio
from dataclasses import dataclass, field

import pytest
from controller_images import image_of
from partition_fixtures import NOW, TOPIC_ID, Machine, batch_of, registration, values_in

from ottla.api.produce.handler import ProduceHandler
from ottla.api.produce.transaction import InTransaction
from ottla.api.surface.replies import NO_REPLY, Answer
from ottla.api.surface.routes import Caller
from ottla.config.generated import TopicConfig
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import ProtocolFault, StorageFailed
from ottla.protocol.frames import Request
from ottla.protocol.internal.metadata_cluster import BrokerEndpoint, RegisterBrokerRecord
from ottla.protocol.internal.metadata_topics import PartitionRecord, TopicRecord
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import Offset, TopicPartition, Uuid
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import Partition
from ottla.runtime.pending import Pending
from ottla.runtime.ports import Address
from ottla.storage.log.log_config import LogConfig

CALLER = Caller("User:ANONYMOUS", "c", Address("127.0.0.1", 5), "PLAINTEXT")
ELSEWHERE = 3
IMAGE = image_of(
    RegisterBrokerRecord(
        broker_id=9,
        broker_epoch=5,
        end_points=[BrokerEndpoint("PLAINTEXT", "nine", 9092, 0), BrokerEndpoint("IN", "x", 1, 0)],
        rack="r",
        fenced=False,
    ),
    TopicRecord(name="orders", topic_id=TOPIC_ID),
    *(
        PartitionRecord(
            partition_id=index, topic_id=TOPIC_ID, replicas=[9], isr=[9], leader=9, leader_epoch=4
        )
        for index in (0, 1, ELSEWHERE)
    ),
)


@dataclass
class Bench:
    """A broker that hosts orders-0 and orders-1; orders-3 is on another."""

    config: TopicConfig = field(default_factory=TopicConfig)
    replicas: tuple[int, ...] = (0,)
    verifier: object = None

    def __post_init__(self) -> None:
        self.machine = Machine()
        self.partitions = Partitions(lambda: IMAGE)
        self.first, self.second = (self.host("orders", index) for index in (0, 1))
        self.handler = ProduceHandler(
            self.partitions, lambda: IMAGE, self.machine.clock, self.verifier
        )

    def host(self, topic: str, index: int) -> Partition:
        partition = self.machine.host(TopicPartition(topic, index), self.config)
        partition.apply(registration(replicas=self.replicas))
        self.partitions.add(partition)
        return partition

    def ask(self, message: ProduceRequest, version: int = 9, caller: Caller = CALLER):
        body = memoryview(bytearray(encode(message, version)))
        request = Request(ApiKey.PRODUCE, version, 1, caller.client_id, body)
        return self.handler.handle(caller, request, body)

    def answer(self, message: ProduceRequest, version: int = 9, **more) -> ProduceResponse:
        return read(self.ask(message, version, **more), version)


def read(reply, version: int = 9) -> ProduceResponse:
    assert isinstance(reply, list), reply
    return decode(ProduceResponse, version, b"".join(reply))


def produce(*batches, acks: int = 1, topic: str = "orders", **more) -> ProduceRequest:
    """A request for partitions 0, 1, 2 and so on of one topic."""
    data = [
        PartitionProduceData(index, None if each is None else bytes(each))
        for index, each in enumerate(batches)
    ]
    fields = {"transactional_id": None, "acks": acks, "timeout_ms": 30_000, **more}
    return ProduceRequest(topic_data=[TopicProduceData(topic, TOPIC_ID, data)], **fields)


def outcomes(response: ProduceResponse) -> list[PartitionProduceResponse]:
    return [each for topic in response.responses for each in topic.partition_responses]


def codes(response: ProduceResponse) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for each in outcomes(response)]


# -- acks=1 and acks=0 -------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_returns_the_base_offset_of_each_partition(version: int) -> None:
    bench = Bench()
    bench.answer(produce(batch_of(b"a", b"b")), version)
    response = bench.answer(produce(batch_of(b"c"), batch_of(b"d")), version)
    assert codes(response) == [ErrorCode.NONE, ErrorCode.NONE]
    assert [each.base_offset for each in outcomes(response)] == [2, 0]
    assert [each.index for each in outcomes(response)] == [0, 1]
    assert {each.log_append_time_ms for each in outcomes(response)} == {-1}
    starts = {each.log_start_offset for each in outcomes(response)}
    assert starts == ({0} if version >= 5 else {-1})
    if version < 13:
        assert response.responses[0].name == "orders"
    else:
        assert response.responses[0].topic_id == TOPIC_ID
    assert values_in(bench.first.log) == [b"a", b"b", b"c"]


def test_produce_returns_log_start_and_append_time() -> None:
    bench = Bench(TopicConfig(message_timestamp_type="LogAppendTime"))
    bench.first.log.configure(LogConfig(is_log_append_time=True))
    bench.answer(produce(batch_of(b"a", b"b")))
    bench.first.delete_records(1)
    (outcome,) = outcomes(bench.answer(produce(batch_of(b"c"))))
    assert (outcome.base_offset, outcome.log_start_offset) == (2, 1)
    assert outcome.log_append_time_ms == NOW


def test_acks_1_of_several_partitions_does_not_wait_for_the_followers() -> None:
    bench = Bench(replicas=(0, 1))
    reply = bench.ask(produce(batch_of(b"a"), batch_of(b"b"), acks=1))
    assert codes(read(reply)) == [ErrorCode.NONE, ErrorCode.NONE]


def test_duplicate_partition_is_appended_once_with_the_last_copy() -> None:
    bench = Bench()
    request = produce(batch_of(b"first"))
    topic = request.topic_data[0]
    topic.partition_data.append(PartitionProduceData(0, bytes(batch_of(b"second"))))
    again = TopicProduceData("orders", TOPIC_ID, [PartitionProduceData(0, bytes(batch_of(b"c")))])
    request.topic_data.append(again)
    assert codes(bench.answer(request)) == [ErrorCode.NONE]
    assert values_in(bench.first.log) == [b"c"]


@pytest.mark.parametrize("bad", [b"", bytes(batch_of(b"x")) * 2, bytes(batch_of(b"x"))[:-1]])
def test_last_copy_of_a_duplicate_partition_decides_the_result(bad: bytes) -> None:
    """Kafka appends the valid copy and still answers with the error of a malformed one."""
    good = bytes(batch_of(b"good"))
    for copies, is_good in (((good, bad), False), ((bad, good), True)):
        bench = Bench()
        request = produce(copies[0])
        request.topic_data[0].partition_data.append(PartitionProduceData(0, copies[1]))
        (code,) = codes(bench.answer(request))
        assert (code is ErrorCode.NONE) == is_good
        assert values_in(bench.first.log) == ([b"good"] if is_good else [])


def test_acks_0_gets_no_reply_and_a_failure_closes() -> None:
    bench = Bench()
    assert bench.ask(produce(batch_of(b"a"), acks=0)) is NO_REPLY
    assert values_in(bench.first.log) == [b"a"]
    failed = bench.ask(produce(batch_of(b"b"), b"", acks=0))
    assert failed == Answer(NO_REPLY, close=True)
    assert values_in(bench.first.log) == [b"a", b"b"], "the good half stays"


@pytest.mark.parametrize("acks", [-2, 2, 3, 32767])
def test_invalid_acks_are_refused_and_nothing_is_appended(acks: int) -> None:
    bench = Bench()
    response = bench.answer(produce(batch_of(b"a"), acks=acks))
    assert codes(response) == [ErrorCode.INVALID_REQUIRED_ACKS]
    assert bench.first.log.log_end_offset == 0


def test_truncated_body_appends_nothing() -> None:
    bench = Bench()
    body = memoryview(bytearray(encode(produce(batch_of(b"a")), 9)[:-1]))
    with pytest.raises(ProtocolFault):
        bench.handler.handle(CALLER, Request(ApiKey.PRODUCE, 9, 1, "c", body), body)
    assert bench.first.log.log_end_offset == 0


def test_empty_request_has_an_empty_response() -> None:
    response = Bench().answer(ProduceRequest(None, -1, 1, []))
    assert response.responses == [] and response.throttle_time_ms == 0


def test_topic_without_partitions_has_no_row_in_the_response() -> None:
    request = produce(batch_of(b"a"))
    request.topic_data.append(TopicProduceData("empty", partition_data=[]))
    assert len(Bench().answer(request).responses) == 1


# -- what is refused ---------------------------------------------------------


def test_error_of_one_partition_does_not_affect_others() -> None:
    bench = Bench()
    response = bench.answer(produce(batch_of(b"a"), b"", batch_of(b"c")))
    assert codes(response) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert outcomes(response)[1].base_offset == -1
    assert values_in(bench.first.log) == [b"a"]


def test_unknown_names_and_ids_are_errors() -> None:
    bench = Bench()
    for topic in ("nope", "", "..", "../../etc/x", "a" * 250, "\0", "😀"):
        response = bench.answer(produce(batch_of(b"a"), topic=topic))
        assert codes(response) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    message = produce(batch_of(b"a"))
    message.topic_data[0].topic_id = Uuid(bytes(16))
    assert codes(bench.answer(message, 13)) == [ErrorCode.UNKNOWN_TOPIC_ID]
    message = produce(batch_of(b"a"), batch_of(b"a"), batch_of(b"a"))
    assert codes(bench.answer(message, 13))[2] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def elsewhere() -> ProduceRequest:
    message = produce(batch_of(b"a"))
    message.topic_data[0].partition_data[0].index = ELSEWHERE
    return message


@pytest.mark.parametrize("version", [9, 10, 12, 13])
def test_not_leader_error_names_the_leader(version: int) -> None:
    response = Bench().answer(elsewhere(), version)
    assert codes(response) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    (outcome,) = outcomes(response)
    leader = outcome.current_leader
    if version < 10:
        assert (leader.leader_id, response.node_endpoints) == (-1, [])
        return
    assert (leader.leader_id, leader.leader_epoch) == (9, 4)
    (at,) = response.node_endpoints
    assert (at.node_id, at.host, at.port, at.rack) == (9, "nine", 9092, "r")


def test_leader_without_the_clients_listener_has_no_endpoint() -> None:
    caller = Caller("User:ANONYMOUS", "c", CALLER.peer, "OTHER")
    response = Bench().answer(elsewhere(), 10, caller=caller)
    assert outcomes(response)[0].current_leader.leader_id == 9
    assert response.node_endpoints == []


def test_follower_refuses_before_validating_records() -> None:
    bench = Bench(TopicConfig(cleanup_policy=("compact",)))
    bench.first.apply(registration(leader=9, epoch=1, replicas=(0, 9)))
    keyless = build_batch([Record(Offset(0), NOW, None, b"v")])
    assert codes(bench.answer(produce(keyless))) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_produce_to_internal_topics_is_refused() -> None:
    bench = Bench()
    offsets = bench.host("__consumer_offsets", 7)
    message = produce(batch_of(b"a"), topic="__consumer_offsets")
    message.topic_data[0].partition_data[0].index = 7
    assert codes(bench.answer(message)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert offsets.log.log_end_offset == 0
    admin = Caller("User:ANONYMOUS", "__admin_client", CALLER.peer, "PLAINTEXT")
    assert codes(bench.answer(message, caller=admin)) == [ErrorCode.NONE]


def test_invalid_records_are_listed_in_record_errors() -> None:
    bench = Bench(TopicConfig(message_timestamp_before_max_ms=5))
    bench.machine.clock.pass_ms(10)
    (outcome,) = outcomes(bench.answer(produce(batch_of(b"a", b"b"))))
    assert outcome.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in outcome.record_errors] == [0, 1]
    assert (
        outcome.error_message == "One or more records have been rejected due to invalid timestamp"
    )
    assert outcome.log_start_offset == 0
    assert bench.first.log.log_end_offset == 0


def test_message_too_large_error_has_no_log_start() -> None:
    bench = Bench(TopicConfig(max_message_bytes=10))
    (outcome,) = outcomes(bench.answer(produce(batch_of(b"a"))))
    assert outcome.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (outcome.log_start_offset, outcome.error_message) == (-1, None)


def test_changed_configuration_applies_to_the_next_request() -> None:
    bench = Bench()
    assert codes(bench.answer(produce(batch_of(b"a")))) == [ErrorCode.NONE]
    bench.first.config = TopicConfig(max_message_bytes=10)
    assert codes(bench.answer(produce(batch_of(b"a")))) == [ErrorCode.MESSAGE_TOO_LARGE]
    bench.first.config = TopicConfig(compression_type="gzip")
    assert codes(bench.answer(produce(batch_of(b"a")))) == [ErrorCode.NONE]
    found = bench.first.log.read(1, 1 << 20, upto=2)
    packed = found.file.pread(found.length, found.position)
    assert read_header(packed).compression == 1


def test_disk_failure_is_returned_and_fails_the_directory() -> None:
    bench = Bench()
    bench.machine.fake_host.storage_failed(bench.machine.directory, "on fire")
    assert codes(bench.answer(produce(batch_of(b"a")))) == [ErrorCode.KAFKA_STORAGE_ERROR]


# -- idempotence -------------------------------------------------------------


def sequenced(sequence: int, epoch: int = 0, producer_id: int = 7) -> bytearray:
    return batch_of(b"%d" % sequence, producer=Producer(producer_id, epoch, sequence))


def test_duplicate_batch_returns_its_offset() -> None:
    bench = Bench()
    for sequence in range(6):
        assert codes(bench.answer(produce(sequenced(sequence)))) == [ErrorCode.NONE]
    for sequence in range(1, 6):
        (outcome,) = outcomes(bench.answer(produce(sequenced(sequence))))
        assert (outcome.error_code, outcome.base_offset) == (0, sequence)
    assert codes(bench.answer(produce(sequenced(0)))) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert codes(bench.answer(produce(sequenced(9)))) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert codes(bench.answer(produce(sequenced(0, epoch=1)))) == [ErrorCode.NONE]
    assert codes(bench.answer(produce(sequenced(6)))) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert bench.first.log.log_end_offset == 7


# -- acks=all ----------------------------------------------------------------


def test_acks_all_with_one_replica_is_answered_at_once() -> None:
    response = Bench().answer(produce(batch_of(b"a"), batch_of(b"b"), acks=-1))
    assert codes(response) == [ErrorCode.NONE, ErrorCode.NONE]


def replicated(partition: Partition, offset: int) -> None:
    partition.follower_fetched(1, offset, log_start=0)


def test_acks_all_waits_for_every_partition_without_keeping_bytes() -> None:
    async def main() -> None:
        bench = Bench(replicas=(0, 1))
        message = produce(batch_of(b"a"), batch_of(b"b"), acks=-1)
        body = memoryview(bytearray(encode(message, 9)))
        reply = bench.handler.handle(CALLER, Request(ApiKey.PRODUCE, 9, 1, "c", body), body)
        assert isinstance(reply, Pending)
        body[:] = bytes(len(body))  # the buffer is used for the next request
        replicated(bench.first, 1)
        assert not reply.is_done
        replicated(bench.second, 1)
        response = read(reply.outcome())
        assert codes(response) == [ErrorCode.NONE, ErrorCode.NONE]
        assert response.responses[0].name == "orders"

    asyncio.run(main())


def test_acks_1_does_not_wait_for_followers() -> None:
    bench = Bench(replicas=(0, 1))
    assert codes(bench.answer(produce(batch_of(b"a")))) == [ErrorCode.NONE]


def test_immediate_errors_are_returned_after_the_wait() -> None:
    async def main() -> None:
        bench = Bench(replicas=(0, 1))
        reply = bench.ask(produce(batch_of(b"a"), b"", acks=-1))
        replicated(bench.first, 1)
        assert codes(read(await reply)) == [ErrorCode.NONE, ErrorCode.INVALID_RECORD]

    asyncio.run(main())


def test_timeout_is_returned_for_late_partitions_only() -> None:
    async def main() -> None:
        bench = Bench(replicas=(0, 1))
        message = produce(batch_of(b"a"), batch_of(b"b"), acks=-1, timeout_ms=1)
        reply = bench.ask(message)
        replicated(bench.first, 1)
        response = read(await reply)
        assert codes(response) == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
        assert outcomes(response)[1].base_offset == 0, "it is there, and may yet be replicated"
        replicated(bench.second, 1)  # no callback is called

    asyncio.run(main())


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_non_positive_timeout_times_out_at_once(timeout_ms: int) -> None:
    async def main() -> None:
        bench = Bench(replicas=(0, 1))
        reply = bench.ask(produce(batch_of(b"a"), acks=-1, timeout_ms=timeout_ms))
        assert codes(read(await reply)) == [ErrorCode.REQUEST_TIMED_OUT]

    asyncio.run(main())


def test_lost_leadership_ends_the_wait_and_names_the_leader() -> None:
    async def main() -> None:
        bench = Bench(replicas=(0, 1))
        reply = bench.ask(produce(batch_of(b"a"), acks=-1), 10)
        bench.first.apply(registration(leader=1, epoch=1, replicas=(0, 1), partition_epoch=1))
        response = read(await reply, 10)
        assert codes(response) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert outcomes(response)[0].current_leader.leader_id == 9

    asyncio.run(main())


def test_failed_directory_ends_the_wait() -> None:
    async def main() -> None:
        bench = Bench(replicas=(0, 1))
        reply = bench.ask(produce(batch_of(b"a"), acks=-1))
        bench.first.go_offline(StorageFailed("/d"))
        assert codes(read(await reply)) == [ErrorCode.KAFKA_STORAGE_ERROR]

    asyncio.run(main())


def test_too_few_in_sync_replicas_are_refused_before_the_append() -> None:
    bench = Bench(TopicConfig(min_insync_replicas=2), replicas=(0, 1))
    bench.first.apply(registration(replicas=(0, 1), isr=(0,), partition_epoch=1))
    response = bench.answer(produce(batch_of(b"a"), acks=-1))
    assert codes(response) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert bench.first.log.log_end_offset == 0
    assert codes(bench.answer(produce(batch_of(b"a")))) == [ErrorCode.NONE], "acks=1 is not asked"


def test_cancelled_produce_leaves_no_waiter() -> None:
    async def main() -> None:
        bench = Bench(replicas=(0, 1))
        reply = bench.ask(produce(batch_of(b"a"), acks=-1))
        reply.cancel()
        replicated(bench.first, 1)
        with pytest.raises(asyncio.CancelledError):
            reply.outcome()

    asyncio.run(main())


# -- transactions ------------------------------------------------------------


def transactional(sequence: int = 0, producer_id: int = 7) -> bytearray:
    return batch_of(b"t", producer=Producer(producer_id, 0, sequence), is_transactional=True)


@dataclass
class Verifier:
    """Returns configured answers; records its requests."""

    errors: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    asked: list[InTransaction] = field(default_factory=list)

    async def verify(self, wanted: InTransaction) -> dict[TopicPartition, ErrorCode]:
        self.asked.append(wanted)
        await asyncio.sleep(0)
        return self.errors


def test_transactional_batches_need_an_id_and_one_producer() -> None:
    bench = Bench(verifier=Verifier())
    response = bench.answer(produce(transactional(), batch_of(b"a")))
    assert codes(response) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    two = produce(transactional(), transactional(producer_id=8), transactional_id="t")
    assert codes(bench.answer(two)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert bench.first.log.log_end_offset == bench.second.log.log_end_offset == 0


def test_transactional_produce_without_coordinator_is_refused() -> None:
    bench = Bench()
    message = produce(transactional(), batch_of(b"a"), transactional_id="t")
    response = bench.answer(message)
    assert codes(response) == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE]
    assert "COORDINATOR_NOT_AVAILABLE" in outcomes(response)[0].error_message
    assert bench.first.log.log_end_offset == 0


@pytest.mark.parametrize(("version", "may_add"), [(11, False), (12, True)])
def test_new_partition_of_a_transaction_is_verified_once(version: int, may_add: bool) -> None:
    async def main() -> None:
        verifier = Verifier()
        bench = Bench(verifier=verifier)
        message = produce(transactional(), batch_of(b"a"), transactional_id="t", acks=-1)
        body = memoryview(bytearray(encode(message, version)))
        request = Request(ApiKey.PRODUCE, version, 1, "c", body)
        reply = bench.handler.handle(CALLER, request, body)
        assert bench.first.log.log_end_offset == 0, "not before it is verified"
        body[:] = bytes(len(body))
        assert codes(read(await reply, version)) == [ErrorCode.NONE, ErrorCode.NONE]
        at = (TopicPartition("orders", 0),)
        assert verifier.asked == [InTransaction("t", 7, 0, at, may_add)]
        again = produce(transactional(1), transactional_id="t")
        assert codes(bench.answer(again, version)) == [ErrorCode.NONE]
        assert len(verifier.asked) == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "reply"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_unverified_batch_is_not_appended(error: ErrorCode, reply: ErrorCode) -> None:
    async def main() -> None:
        bench = Bench(verifier=Verifier({TopicPartition("orders", 0): error}))
        message = produce(transactional(), transactional(), transactional_id="t")
        assert codes(read(await bench.ask(message))) == [reply, ErrorCode.NONE]
        assert (bench.first.log.log_end_offset, bench.second.log.log_end_offset) == (0, 1)

    asyncio.run(main())


# -- schema validation -------------------------------------------------------


def test_batch_to_a_validated_topic_is_rejected_without_a_registry() -> None:
    bench = Bench(TopicConfig(confluent_value_schema_validation=True))
    response = bench.answer(produce(batch_of(b"a")))
    assert codes(response) == [ErrorCode.INVALID_CONFIG]
    assert "schema.registry.listeners" in (outcomes(response)[0].error_message or "")
    assert bench.first.log.log_end_offset == 0
