"""Verification: a partition is written to only while its transaction is known to be open."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from partition_fixtures import NOW, ORDERS, Machine, registration

from ottla.api.produce.transaction import InTransaction
from ottla.api.transactions.txn_verification import Verification, VerificationSettings
from ottla.coordinators.topics import TRANSACTION_STATE
from ottla.coordinators.transactions.stale_end_txn import Client
from ottla.metadata.image import Image
from ottla.metadata.topics import Topics
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotCoordinator, RequestTimedOut
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import TopicPartition, Uuid
from simulation.loop import run_simulated

OTHER = TopicPartition("orders", 1)
TRANSACTION = InTransaction("x", 7, 0, (ORDERS, OTHER), False)
ADDING = TRANSACTION._replace(may_add=True)


class Coordinator:
    """Replies as scripted, after a while; something may happen in between."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []
        self.asked: list[object] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.fault: Exception | None = None
        self.runtime = self

    def index_of(self, name: str) -> int:
        return 0

    async def _answer(self) -> ErrorCode:
        await asyncio.sleep(0.001)
        self.meanwhile()
        if self.fault is not None:
            raise self.fault
        return self.codes.pop(0) if self.codes else ErrorCode.NONE

    async def verify_partitions(
        self, name: str, producer: Producer, places: tuple[TopicPartition, ...]
    ) -> dict[TopicPartition, ErrorCode]:
        self.asked.append(("verify", name, producer, places))
        code = await self._answer()
        return {place: code if place == ORDERS else ErrorCode.NONE for place in places}

    async def add_partitions(
        self, name: str, producer: Producer, places: tuple[TopicPartition, ...], client: Client
    ) -> ErrorCode:
        self.asked.append(("add", name, producer, places, client.version))
        return await self._answer()

    async def ask(self, broker: int, request: AddPartitionsToTxnRequest) -> object:
        self.asked.append((broker, request.transactions[0].verify_only))
        code = await self._answer()
        results = [AddPartitionsToTxnPartitionResult(0, code)]
        topic = AddPartitionsToTxnTopicResult("orders", results)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[AddPartitionsToTxnResult("x", [topic])]
        )


class Bench:
    def __init__(self, leader: int = 1, *, is_enabled: bool = True) -> None:
        self.coordinator = Coordinator()
        self.partition = Machine().host()
        self.partition.apply(registration())
        coordinator: Any = self.coordinator
        partitions: Any = self
        self.verification = Verification(
            VerificationSettings(node_id=1, is_enabled=lambda: is_enabled),
            coordinator,
            coordinator,
            partitions,
            lambda: image(leader),
        )

    def get(self, topic: str, index: int) -> Any:
        return self.partition if (topic, index) == ORDERS else None

    def mark(self, epoch: int = 0) -> None:
        marker = build_end_txn_marker(EndTxnMarker(False, 1), Producer(7, epoch), NOW)
        self.partition.append(marker, now=NOW, from_client=False)

    def verify(self, wanted: InTransaction) -> dict[TopicPartition, ErrorCode]:
        found: dict[TopicPartition, ErrorCode] = {}

        async def story() -> None:
            found.update(await self.verification.verify(wanted))

        run_simulated(story())
        return found


def image(leader: int) -> Image:
    topics = Topics().with_topic(TRANSACTION_STATE, Uuid(b"t" * 16))
    known = topics.named(TRANSACTION_STATE)
    assert known is not None
    at = registration(leader=leader, replicas=(1, 2))
    return Image(topics=topics.with_partition(known, 0, at))


def test_the_coordinator_here_is_asked_to_verify_or_to_add() -> None:
    bench = Bench()
    assert bench.verify(TRANSACTION) == {}
    assert bench.verify(ADDING) == {}
    by, places = Producer(7, 0), (ORDERS, OTHER)
    assert bench.coordinator.asked == [("verify", "x", by, places), ("add", "x", by, places, 2)]


@pytest.mark.parametrize(
    ("code", "reply"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
@pytest.mark.parametrize("leader", [1, 2])
def test_error_of_the_coordinator_is_returned(
    code: ErrorCode, reply: ErrorCode, leader: int
) -> None:
    bench = Bench(leader)
    bench.coordinator.codes = [code]
    found = bench.verify(TRANSACTION._replace(partitions=(ORDERS,)))
    assert found == {ORDERS: reply}


def test_marker_during_verification_invalidates_the_result() -> None:
    bench = Bench()
    bench.coordinator.meanwhile = bench.mark
    assert bench.verify(TRANSACTION) == {ORDERS: ErrorCode.INVALID_TXN_STATE}
    # The next request is about another transaction, and nothing happened between.
    bench.coordinator.meanwhile = lambda: None
    assert bench.verify(TRANSACTION) == {}


def test_the_markers_of_the_transaction_before_take_nothing_back() -> None:
    bench = Bench()
    bench.coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS]
    marks = iter([bench.mark])
    bench.coordinator.meanwhile = lambda: next(marks, lambda: None)()
    assert bench.verify(ADDING) == {}


def test_marker_of_the_transaction_before_may_be_written_while_a_partition_is_added() -> None:
    """The epoch of a marker tells: that which ends this transaction has a higher one (KIP-890)."""
    bench = Bench(leader=2)
    adding = ADDING._replace(partitions=(ORDERS,))
    bench.coordinator.meanwhile = bench.mark
    assert bench.verify(adding) == {}
    bench.coordinator.meanwhile = lambda: bench.mark(epoch=1)
    assert bench.verify(adding) == {ORDERS: ErrorCode.INVALID_TXN_STATE}


def test_verification_waits_while_a_transaction_is_ending() -> None:
    bench = Bench()
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    bench.coordinator.codes = [busy, busy]
    assert bench.verify(ADDING) == {}
    assert len(bench.coordinator.asked) == 3
    bench.coordinator.codes = [busy] * 50
    assert bench.verify(ADDING) == {ORDERS: busy, OTHER: busy}
    assert 38 <= len(bench.coordinator.codes) < 45, "a bound"
    bench.coordinator.codes = [busy]
    assert bench.verify(TRANSACTION) == {ORDERS: busy}, "an older client waits itself"


def test_remote_transaction_coordinator_verifies_partitions() -> None:
    bench = Bench(leader=2)
    one = TRANSACTION._replace(partitions=(ORDERS,))
    assert bench.verify(one) == {}
    assert bench.verify(one._replace(may_add=True)) == {}
    assert bench.coordinator.asked == [(2, True), (2, False)]
    # Partitions that are missing from the reply are not verified.
    assert bench.verify(TRANSACTION) == {OTHER: ErrorCode.NETWORK_EXCEPTION}
    for fault in (ConnectionRefusedError(), RequestTimedOut("late")):
        bench.coordinator.fault = fault
        assert bench.verify(one) == {ORDERS: ErrorCode.NETWORK_EXCEPTION}


def test_verification_without_a_coordinator_fails() -> None:
    nobody = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert Bench(leader=-1).verify(TRANSACTION) == {ORDERS: nobody, OTHER: nobody}
    bench = Bench()
    bench.coordinator.fault = NotCoordinator("moved")
    code = ErrorCode.NOT_COORDINATOR
    assert bench.verify(TRANSACTION) == {ORDERS: code, OTHER: code}


def test_verification_may_be_switched_off_for_older_clients_alone() -> None:
    bench = Bench(is_enabled=False)
    bench.coordinator.codes = [ErrorCode.TRANSACTION_ABORTABLE]
    assert bench.verify(TRANSACTION) == {}
    assert bench.verify(ADDING) != {}
