"""A producer that keeps six requests in flight, right after its last transaction ended."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from produce_node import Client, Node

from ottla.api.produce.transaction import ADDING_VERSION_FIRST
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.batch import Compression
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import Millis, Offset
from ottla.testing import run_node

TRANSACTIONS, PIPELINED = 40, 6
VERSION = 12
BUSY = {ErrorCode.CONCURRENT_TRANSACTIONS}
RETRIES_MAX = 1000
UNVERIFIED = 2
"""Transactions whose partitions are not verified."""

WORKER_BYTES = 24 << 20


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with transactional_node() as node:
        yield node


@contextmanager
def transactional_node(**more: str) -> Iterator[Node]:
    config = {
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
    }
    settings = {key.replace("_", "."): value for key, value in more.items()}
    with run_node(config=config | settings) as cluster:
        node = Node(cluster.bootstrap)
        for _ in range(RETRIES_MAX):
            found = node.client.ask(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest("x", 1))
            if found.error_code == 0:
                break
        yield node
        node.client.close()


def begin(client: Client) -> Producer:
    for _ in range(RETRIES_MAX):
        request = InitProducerIdRequest("x", 60_000)
        given = client.ask(ApiKey.INIT_PRODUCER_ID, 5, request)
        if given.error_code == 0:
            return Producer(given.producer_id, given.producer_epoch)
    raise AssertionError(given)


def pipelined(client: Client, topic: str, by: Producer, number: int) -> list[set[ErrorCode]]:
    """Send all requests before the first reply is read; return the codes of each."""
    sent = []
    for sequence in range(PIPELINED):
        record = Record(Offset(0), Millis(1), None, b"%d.%d" % (number, sequence))
        data = build_batch(
            [record], producer=by._replace(base_sequence=sequence), is_transactional=True
        )
        # One partition in all of them, and another in each second one.
        wanted = [PartitionProduceData(0, bytes(data))]
        if sequence % 2:
            again = by._replace(base_sequence=sequence // 2)
            data = build_batch([record], producer=again, is_transactional=True)
            wanted.append(PartitionProduceData(1, bytes(data)))
        request = ProduceRequest("x", -1, 10_000, [TopicProduceData(topic, partition_data=wanted)])
        sent.append(client.send(ApiKey.PRODUCE, VERSION, request))
    replies = [client.receive(ApiKey.PRODUCE, VERSION, each) for each in sent]
    return [
        {ErrorCode(each.error_code) for each in reply.responses[0].partition_responses}
        for reply in replies
    ]


def end(client: Client, by: Producer) -> Producer:
    for _ in range(RETRIES_MAX):
        request = EndTxnRequest("x", by.id, by.epoch, True)
        ended = client.ask(ApiKey.END_TXN, 5, request)
        if ended.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            assert ended.error_code == 0, ended
            return Producer(ended.producer_id, ended.producer_epoch)
    raise AssertionError(ended)


def test_pipelined_requests_of_forty_transactions_are_appended_in_order(node: Node) -> None:
    topic = node.topic(partitions=2)
    with node.connected() as client:
        by = begin(client)
        for number in range(TRANSACTIONS):
            for _ in range(RETRIES_MAX):
                codes = pipelined(client, topic, by, number)
                if codes[0] != BUSY:  # as it may be where markers take long
                    break
            assert codes == [{ErrorCode.NONE}] * PIPELINED, (number, codes)
            by = end(client, by)


def add_partition(client: Client, topic: str, by: Producer) -> None:
    topics = [AddPartitionsToTxnTopic(topic, [0])]
    request = AddPartitionsToTxnRequest("x", by.id, by.epoch, topics)
    for _ in range(RETRIES_MAX):
        reply = client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
        (result,) = reply.results_by_topic_v3_and_below[0].results_by_partition
        if result.partition_error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            break
    assert result.partition_error_code == 0, result


def unverified(by: Producer, sequence: int) -> bytes:
    """Return a batch; two of each transaction are unpacked by the worker thread."""
    size = WORKER_BYTES if sequence % PIPELINED in (0, 3) else 0
    record = Record(Offset(0), Millis(1), b"%d" % sequence, bytes(size))
    by = by._replace(base_sequence=sequence)
    packed = Compression.GZIP
    return bytes(build_batch([record], producer=by, is_transactional=True, compression=packed))


def test_pipelined_requests_keep_their_order_without_partition_verification() -> None:
    """Version 11: the client adds partitions by itself, and sequences go on across transactions."""
    version = ADDING_VERSION_FIRST - 1
    with (
        transactional_node(transaction_partition_verification_enable="false") as node,
        node.connected() as client,
    ):
        topic, other = node.topic(), node.topic()
        by = begin(client)
        for number in range(UNVERIFIED):
            add_partition(client, topic, by)
            sent = []
            for sequence in range(number * PIPELINED, (number + 1) * PIPELINED):
                request = node.request(topic, unverified(by, sequence))
                request.transactional_id = "x"
                sent.append(client.send(ApiKey.PRODUCE, version, request))
            replies = [client.receive(ApiKey.PRODUCE, version, each) for each in sent]
            codes = [each.responses[0].partition_responses[0].error_code for each in replies]
            assert codes == [ErrorCode.NONE] * PIPELINED, number
            ended = client.ask(ApiKey.END_TXN, 4, EndTxnRequest("x", by.id, by.epoch, True))
            assert ended.error_code == 0, ended
        # Without verification, a partition that is in no transaction is accepted, too.
        request = node.request(other, unverified(by, 0))
        request.transactional_id = "x"
        reply = client.ask(ApiKey.PRODUCE, version, request)
        assert reply.responses[0].partition_responses[0].error_code == ErrorCode.NONE
