"""AddPartitionsToTxn: the reply has the rows of the request, as in Kafka."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from controller_images import image_of
from partition_fixtures import TOPIC_ID

from ottla.api.surface.routes import Caller
from ottla.api.transactions.transaction_requests import TransactionHandlers
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.metadata_topics import PartitionRecord, TopicRecord
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.runtime.ports import Address

CALLER = Caller("User:ANONYMOUS", "c", Address("127.0.0.1", 5), "PLAINTEXT")
IMAGE = image_of(
    TopicRecord(name="orders", topic_id=TOPIC_ID),
    PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1),
)


class Coordinator:
    """Adds everything."""

    async def add_partitions(self, *asked: Iterable[object]) -> ErrorCode:
        return ErrorCode.NONE


def rows(version: int, *topics: AddPartitionsToTxnTopic) -> list[tuple[str, list[int]]]:
    """Add partitions of topics; return the partitions of the reply."""
    coordinator: Any = Coordinator()
    handlers = TransactionHandlers(coordinator, lambda: IMAGE, lambda group: 0)
    one = AddPartitionsToTxnTransaction("x", 7, 0, topics=list(topics))
    request = AddPartitionsToTxnRequest("x", 7, 0, list(topics), [one])
    reply = asyncio.run(handlers.on_add_partitions(CALLER, request, version))
    results = reply.results_by_topic_v3_and_below
    if version >= 4:
        results = reply.results_by_transaction[0].topic_results
    return [
        (row.name, [each.partition_index for each in row.results_by_partition]) for row in results
    ]


@pytest.mark.parametrize("version", [0, 3, 5])
def test_every_row_of_the_request_is_answered_also_twice_or_empty(version: int) -> None:
    orders = AddPartitionsToTxnTopic("orders", [0])
    assert rows(version, orders, orders) == [("orders", [0]), ("orders", [0])]
    assert rows(version, AddPartitionsToTxnTopic("orders", [0, 0])) == [("orders", [0, 0])]
    assert rows(version, AddPartitionsToTxnTopic("orders", [])) == [("orders", [])]
