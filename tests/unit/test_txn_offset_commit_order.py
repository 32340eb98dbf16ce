"""TxnOffsetCommit: pipelined commits are written in arrival order, and are answered as by Kafka."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from controller_images import image_of
from partition_fixtures import TOPIC_ID

from ottla.api.produce.transaction import InTransaction
from ottla.api.surface.replies import finished
from ottla.api.surface.routes import Caller
from ottla.api.transactions.txn_offsets import TxnOffsetHandler
from ottla.coordinators.decision import Decision
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.offsets.committed import OffsetCommits
from ottla.coordinators.topics import CONSUMER_OFFSETS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.metadata_topics import PartitionRecord, TopicRecord
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.types import Millis, TopicPartition
from ottla.runtime.pending import completed
from ottla.runtime.ports import Address
from simulation.loop import run_simulated

CALLER = Caller("User:ANONYMOUS", "c", Address("127.0.0.1", 5), "PLAINTEXT")
IMAGE = image_of(
    TopicRecord(name="orders", topic_id=TOPIC_ID),
    PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1),
)


class Broker:
    """Stands in for the group coordinator, its shard, the partitions and the verifier."""

    def __init__(self, delays_ms: list[int]) -> None:
        self.delays_ms = delays_ms
        self.written: list[int] = []
        self.verified: Mapping[TopicPartition, ErrorCode] = {}
        self.runtime = self

    def index_of(self, group: str) -> int:
        return 0

    def shard(self, index: int) -> "Broker":
        return self

    def check_active(self) -> None:
        """Do nothing: the shard is active."""

    def get(self, topic: str, index: int) -> None:
        return None

    async def verify(self, wanted: InTransaction) -> Mapping[TopicPartition, ErrorCode]:
        await asyncio.sleep(self.delays_ms.pop(0) / 1000)
        return self.verified

    def write(self, group_id: str, decide: Callable[[GroupMachine, Millis], Decision]) -> Any:
        decision = decide(GroupMachine(), Millis(0))
        assert isinstance(decision.packed, OffsetCommits)
        self.written.append(decision.packed.topics[0].partitions[0].committed_offset)
        return completed(decision.reply)


def commit(offset: int) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(0, offset)
    topic = TxnOffsetCommitRequestTopic("orders", partitions=[partition])
    return TxnOffsetCommitRequest("x", "g", 7, 0, topics=[topic])


def test_pipelined_offset_commits_of_a_transaction_are_written_in_arrival_order() -> None:
    broker: Any = Broker([20, 0, 5])
    handler = TxnOffsetHandler(broker, broker, broker, lambda: IMAGE)

    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            for offset in (10, 20, 30):
                reply: Any = handler.on_commit(CALLER, commit(offset), 5)
                group.create_task(finished(reply))

    run_simulated(story())
    assert broker.written == [10, 20, 30]
    assert not handler.order


def codes_of(broker: Any, request: TxnOffsetCommitRequest) -> list[list[int]]:
    handler = TxnOffsetHandler(broker, broker, broker, lambda: IMAGE)
    found: list[list[int]] = []

    async def story() -> None:
        reply: Any = await handler.on_commit(CALLER, request, 5)  # type: ignore[misc]
        found.extend([each.error_code for each in topic.partitions] for topic in reply.topics)

    run_simulated(story())
    return found


def test_topic_named_twice_in_an_offset_commit_is_answered_twice() -> None:
    request = commit(10)
    request.topics *= 2
    assert codes_of(Broker([0]), request) == [[0], [0]]


def test_offset_commit_without_a_transactional_id_is_an_invalid_request() -> None:
    broker, request = Broker([0]), commit(10)
    request.transactional_id = ""
    assert codes_of(broker, request) == [[ErrorCode.INVALID_REQUEST]]
    assert not broker.written


def test_offset_commit_of_a_negative_epoch_is_never_written() -> None:
    broker, request = Broker([0, 0]), commit(10)
    request.producer_epoch = -1
    assert codes_of(broker, request) == [[ErrorCode.INVALID_PRODUCER_EPOCH]]
    place = TopicPartition(CONSUMER_OFFSETS, 0)
    broker.verified = {place: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert codes_of(broker, request) == [[ErrorCode.INVALID_PRODUCER_ID_MAPPING]]
    assert not broker.written
