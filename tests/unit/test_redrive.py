"""A redrive of dead letters against a scripted cluster."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.cluster import NoBroker, Refused
from ottla.client.connection import ConnectionLost
from ottla.client.fetched import read_fetched
from ottla.client.transaction import TransactionalWriter
from ottla.operations import redrive
from ottla.operations.dead_letter_headers import read_letter
from ottla.operations.handled_letters import HandledLetters, TooScattered
from ottla.operations.redrive import Redrive, handled_letters, read_letters, run_redrive
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.reader import Header, Record, read_records
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import Millis, Offset, TopicPartition, Uuid

DEAD, BACK = TopicPartition("dlq.t", 0), TopicPartition("t", 0)
KIB = 1024


class ScriptedCluster:
    """One broker; ``replies`` replaces the reply to a type of request."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.forgotten: list[str] = []
        self.options = SimpleNamespace(timeout_ms=1000)
        self.replies: dict[type, Any] = {
            InitProducerIdRequest: InitProducerIdResponse(producer_id=7, producer_epoch=0),
            AddPartitionsToTxnRequest: AddPartitionsToTxnResponse(),
            AddOffsetsToTxnRequest: AddOffsetsToTxnResponse(),
            TxnOffsetCommitRequest: TxnOffsetCommitResponse(),
            EndTxnRequest: EndTxnResponse(),
            OffsetFetchRequest: OffsetFetchResponse(groups=[OffsetFetchResponseGroup()]),
            ProduceRequest: produced(ErrorCode.NONE),
        }

    def of_type(self, kind: type) -> list[Any]:
        return [request for request in self.requests if isinstance(request, kind)]

    async def topic(self, name: str) -> Any:
        return SimpleNamespace(topic_id=Uuid(bytes(16)), partitions={0: None})

    async def leader_of(self, partition: TopicPartition) -> Any:
        return SimpleNamespace(node_id=0)

    async def coordinator_of(self, kind: int, key: str) -> int:
        return 0

    async def connection(self, node_id: int) -> "ScriptedCluster":
        return self

    async def send(self, request: Any, **_: Any) -> Any:
        self.requests.append(request)
        return self.replies[type(request)]

    async def send_to(self, node_id: int, request: Any, reply_class: type) -> Any:
        return await self.send(request)

    async def pause(self, attempt: int) -> None:
        pass

    def forget(self, topic: str) -> None:
        self.forgotten.append(topic)


def produced(code: ErrorCode) -> ProduceResponse:
    row = PartitionProduceResponse(error_code=code)
    return ProduceResponse(responses=[TopicProduceResponse(partition_responses=[row])])


def record(offset: int, value: bytes = b"v") -> Record:
    headers = (Header("__dlq.errors.topic", b"t"), Header("__dlq.errors.partition", b"0"))
    return Record(Offset(offset), Millis(0), b"k", value, headers)


def run(scenario: Callable[[], Any]) -> None:
    asyncio.run(scenario())


# -- positions ---------------------------------------------------------------------------


def test_error_of_the_group_is_raised_with_its_code() -> None:
    async def scenario() -> None:
        cluster: Any = ScriptedCluster()
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        group = OffsetFetchResponseGroup(error_code=code)
        cluster.replies[OffsetFetchRequest] = OffsetFetchResponse(groups=[group])

        with pytest.raises(Refused) as refusal:
            await handled_letters(cluster, "dlq.t", {DEAD: (0, 5)})

        assert refusal.value.code == code

    run(scenario)


def test_group_without_positions_has_handled_nothing() -> None:
    async def scenario() -> None:
        cluster: Any = ScriptedCluster()
        handled = await handled_letters(cluster, "dlq.t", {DEAD: (2, 5)})
        assert handled[DEAD].position == 2

    run(scenario)


# -- transactions ------------------------------------------------------------------------


def test_records_are_written_in_batches_of_limited_size() -> None:
    async def scenario() -> None:
        cluster: Any = ScriptedCluster()
        writer = TransactionalWriter(cluster, "redrive")
        await writer.open()

        sizes = [200, 200, 200, 900, 100, 100]
        rows = [record(number, bytes(size * KIB)) for number, size in enumerate(sizes)]
        await writer.write({BACK: rows})

        batches = [
            request.topic_data[0].partition_data[0].records
            for request in cluster.of_type(ProduceRequest)
        ]
        written = [
            [len(row.value or b"") // KIB for row in read_records(batch)] for batch in batches
        ]
        assert written == [[200, 200], [200], [900], [100, 100]]
        offsets = [[row.offset for row in read_records(batch)] for batch in batches]
        assert offsets == [[0, 1], [0], [0], [0, 1]]
        assert [read_header(batch).base_sequence for batch in batches] == [0, 2, 3, 4]

    run(scenario)


@pytest.mark.parametrize("error", [NoBroker("1"), ConnectionLost("1"), RequestTimedOut("1")])
def test_leader_that_does_not_answer_is_looked_up_again(error: Exception) -> None:
    """Without this a redrive gave up when the leader of its target was killed."""

    async def scenario() -> None:
        cluster: Any = ScriptedCluster()
        writer = TransactionalWriter(cluster, "redrive")
        await writer.open()
        send_to = cluster.send_to

        async def fails(node_id: int, request: Any, reply_class: type) -> Any:
            if isinstance(request, ProduceRequest):
                raise error
            return await send_to(node_id, request, reply_class)

        cluster.send_to = fails
        with pytest.raises(type(error)):
            await writer.write({BACK: [record(0)]})
        assert cluster.forgotten == [BACK.topic]

    run(scenario)


def plan() -> Redrive:
    return Redrive("dlq.t", lambda letter: True, read_letter)


def letters_of(monkeypatch: pytest.MonkeyPatch, *offsets: int) -> None:
    """Have the dead-letter topic contain letters with these offsets."""

    async def bounds(*_: object) -> dict[TopicPartition, tuple[int, int]]:
        return {DEAD: (0, max(offsets) + 1)}

    async def letters(*_: object) -> AsyncIterator[list[Any]]:
        yield [read_letter(DEAD, record(offset)) for offset in offsets]

    monkeypatch.setattr(redrive, "bounds", bounds)
    monkeypatch.setattr(redrive, "read_letters", letters)


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_redrive_that_gives_up_aborts_its_transaction(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    async def scenario() -> None:
        cluster: Any = ScriptedCluster()
        cluster.replies[ProduceRequest] = produced(code)
        letters_of(monkeypatch, 0, 1)

        with pytest.raises(Refused) as refusal:
            await run_redrive(cluster, plan(), lambda counts: None)

        assert refusal.value.code == code
        assert [request.committed for request in cluster.of_type(EndTxnRequest)] == [False]

    run(scenario)


def test_failed_abort_does_not_hide_why_the_redrive_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        cluster: Any = ScriptedCluster()
        cluster.replies[ProduceRequest] = produced(ErrorCode.MESSAGE_TOO_LARGE)
        fenced = EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
        cluster.replies[EndTxnRequest] = fenced
        letters_of(monkeypatch, 0)

        with pytest.raises(Refused) as refusal:
            await run_redrive(cluster, plan(), lambda counts: None)

        assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE

    run(scenario)


def test_letters_in_too_many_ranges_are_rejected_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        cluster: Any = ScriptedCluster()
        letters_of(monkeypatch, *range(10**12, 10**12 + 998, 2))

        with pytest.raises(TooScattered):
            await run_redrive(cluster, plan(), lambda counts: None)

        assert cluster.of_type(ProduceRequest) == []

    run(scenario)


# -- gaps --------------------------------------------------------------------------------


class ScriptedReader:
    """Returns the batches of one partition, one fetch for each."""

    def __init__(self, *fetches: bytes) -> None:
        self.fetches = list(fetches)
        self.positions = {DEAD: Offset(0)}

    async def poll(self) -> list[Any]:
        data, offset = self.fetches.pop(0), self.positions[DEAD]
        fetched = read_fetched(DEAD, offset, data, end_offset=Offset(99), aborted=[])
        self.positions[DEAD] = fetched.next_offset
        return [fetched] if fetched.batches else []


def test_offsets_without_a_letter_do_not_hold_back_the_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Transaction markers, and letters that compaction removed, have no letter to handle."""
    commit = EndTxnMarker(is_commit=True, coordinator_epoch=0)
    marker = bytes(build_end_txn_marker(commit, Producer(7, 0), Millis(0), base_offset=1))
    first = bytes(build_batch([record(0)]))
    sparse = bytes(build_batch([record(4), record(6)]))
    beyond = bytes(build_batch([record(8)]))

    @asynccontextmanager
    async def open_reader(*_: object) -> AsyncIterator[ScriptedReader]:
        yield ScriptedReader(first, marker, sparse + beyond)

    monkeypatch.setattr(redrive, "open_reader", open_reader)

    async def scenario() -> None:
        handled = {DEAD: HandledLetters(Offset(0))}
        offsets: list[int] = []
        async for letters in read_letters(Any, read_letter, {DEAD: (0, 7)}, handled):
            offsets += [letter.record.offset for letter in letters]
        assert offsets == [0, 4, 6]
        assert [offset for offset in range(9) if offset not in handled[DEAD]] == [0, 4, 6, 7, 8]
        for offset in offsets:
            handled[DEAD].add(offset)
        assert (handled[DEAD].position, handled[DEAD].metadata) == (7, "")

    run(scenario)
