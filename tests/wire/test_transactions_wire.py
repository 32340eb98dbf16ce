"""Transactions of a running node, in every version of their APIs, and exact read_committed."""

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.patience import SECONDS_MAX

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import parse_response_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import response_class
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.records.batch import batches
from ottla.protocol.records.control import read_end_txn_marker
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import Producer as Writer
from ottla.protocol.records.writer import build_batch
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis, Offset, Uuid
from ottla.testing import Cluster, run_node

NUMBERS = itertools.count()


class Wire:
    """A blocking connection that speaks any version."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        self._numbers = itertools.count(1)

    def ask(self, request: Message, version: int | None = None) -> Any:
        key = ApiKey(request.SCHEMA.api_key or 0)
        if version is None:
            version = min(APIS[key].versions[1], 5 if key is ApiKey.INIT_PRODUCER_ID else 99)
        header = RequestHeader(key, version, next(self._numbers), "wire")
        self._socket.sendall(bytes(request_frame(header, request)))
        body = self._read(struct.unpack(">i", self._read(4))[0])
        correlation_id, rest = parse_response_header(key, version, body)
        assert correlation_id == header.correlation_id
        return decode(response_class(key), version, rest)

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = self._socket.recv(count - len(found))
            assert piece, "the node hung up"
            found += piece
        return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    config = {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "2",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        "group.initial.rebalance.delay.ms": "0",
    }
    with run_node(config=config) as cluster:
        yield cluster


@pytest.fixture
def wire(node: Cluster) -> Iterator[Wire]:
    wire = Wire(node.bootstrap)
    try:
        for kind in (0, 1):
            until(
                lambda kind=kind: wire.ask(FindCoordinatorRequest("any", kind), 3).error_code == 0
            )
        until(lambda: wire.ask(ListTransactionsRequest()).error_code == 0)
        yield wire
    finally:
        wire.close()


@pytest.fixture
def topic(wire: Wire) -> str:
    """A topic of two partitions."""
    name = f"topic-{next(NUMBERS)}"
    (made,) = wire.ask(CreateTopicsRequest([CreatableTopic(name, 2, 1)], 10_000)).topics
    assert made.error_code == ErrorCode.NONE

    def is_known() -> bool:
        (found,) = wire.ask(MetadataRequest([MetadataRequestTopic(name=name)])).topics
        return found.error_code == 0 and all(p.leader_id >= 0 for p in found.partitions)

    until(is_known)
    return name


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "never"
        time.sleep(0.005)


def versions(key: ApiKey) -> list[int]:
    first, last = APIS[key].versions
    return list(range(first, last + 1))


class Client:
    """A transactional producer by hand: version 2 of transactions, or the one before."""

    def __init__(self, wire: Wire, name: str, *, is_new: bool) -> None:
        self.wire, self.name, self.is_new = wire, name, is_new
        self.sequences: dict[tuple[str, int], int] = {}
        self.init()

    def init(self) -> None:
        def ready() -> bool:
            reply = self.wire.ask(InitProducerIdRequest(self.name, 60_000))
            self.id, self.epoch = reply.producer_id, reply.producer_epoch
            assert reply.error_code in (0, ErrorCode.CONCURRENT_TRANSACTIONS)
            return reply.error_code == 0

        until(ready)
        self.sequences.clear()

    def produce(self, topic: str, index: int, value: bytes, *, add: bool = True) -> int:
        if add and not self.is_new:
            code = self.add(topic, index)
            if code:
                return code
        at = (topic, index)
        sequence = self.sequences.get(at, 0)
        writer = Writer(self.id, self.epoch, sequence)
        record = Record(Offset(0), Millis(1), b"k", value)
        batch = bytes(build_batch([record], producer=writer, is_transactional=True))
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(index, batch)])
        request = ProduceRequest(self.name, -1, 10_000, [data])
        reply = self.wire.ask(request, 12 if self.is_new else 11)
        code = reply.responses[0].partition_responses[0].error_code
        if code == 0:
            self.sequences[at] = sequence + 1
        return int(code)

    def add(self, topic: str, index: int, version: int = 3) -> int:
        def tried() -> bool:
            reply = self.wire.ask(
                AddPartitionsToTxnRequest(
                    self.name, self.id, self.epoch, [AddPartitionsToTxnTopic(topic, [index])]
                ),
                version,
            )
            result = reply.results_by_topic_v3_and_below[0].results_by_partition[0]
            self.code = int(result.partition_error_code)
            return self.code != ErrorCode.CONCURRENT_TRANSACTIONS

        until(tried)
        return self.code

    def end(self, commit: bool, version: int | None = None) -> int:
        version = (5 if self.is_new else 4) if version is None else version
        reply = self.wire.ask(EndTxnRequest(self.name, self.id, self.epoch, commit), version)
        if reply.error_code == 0 and version >= 5:
            self.id, self.epoch = reply.producer_id, reply.producer_epoch
            self.sequences.clear()
        return int(reply.error_code)


def read(wire: Wire, topic: str, index: int, *, committed: bool = True) -> list[bytes]:
    """Every value of a partition; aborted ones are taken out as a client does it."""
    values: list[bytes] = []
    offset = 0
    while True:
        part = FetchPartition(index, -1, offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, topics=[FetchTopic(topic, partitions=[part])], isolation_level=committed
        )
        (row,) = wire.ask(request, 12).responses[0].partitions
        assert row.error_code == 0
        if not row.records:
            return values
        aborted = sorted(row.aborted_transactions or [], key=lambda each: each.first_offset)
        ended: set[int] = set()
        data = bytes(row.records)
        for start, header in batches(data):
            whole = data[start : start + header.size]
            while aborted and aborted[0].first_offset <= header.last_offset:
                ended.add(aborted.pop(0).producer_id)
            if header.is_control:
                if not read_end_txn_marker(whole).is_commit:
                    ended.discard(header.producer_id)
            elif header.next_offset > offset and header.producer_id not in ended:
                values += [r.value for r in read_records(whole) if r.offset >= offset]
            offset = header.next_offset


def names() -> str:
    return f"txn-{next(NUMBERS)}"


def status(wire: Wire, name: str) -> str:
    (found,) = wire.ask(DescribeTransactionsRequest([name])).transaction_states
    assert found.error_code == 0
    return str(found.transaction_state)


# -- whole transactions --------------------------------------------------------------------------

KINDS = pytest.mark.parametrize("is_new", [False, True])


@KINDS
def test_committed_records_are_read_and_aborted_are_not(
    wire: Wire, topic: str, is_new: bool
) -> None:
    client = Client(wire, names(), is_new=is_new)
    for number in range(4):
        for index in (0, 1):
            until(lambda i=index, n=number: client.produce(topic, i, b"%d" % n) == 0)
        assert read(wire, topic, 0) == [b"0", b"2"][: (number + 1) // 2]
        assert client.end(number % 2 == 0) == 0
        until(lambda: status(wire, client.name).startswith("Complete"))
    assert read(wire, topic, 0) == read(wire, topic, 1) == [b"0", b"2"]
    assert read(wire, topic, 0, committed=False) == [b"0", b"1", b"2", b"3"]


@KINDS
def test_new_producer_aborts_the_open_transaction(wire: Wire, topic: str, is_new: bool) -> None:
    first = Client(wire, names(), is_new=is_new)
    assert first.produce(topic, 0, b"a") == 0
    second = Client(wire, first.name, is_new=is_new)
    assert second.id == first.id
    assert second.epoch > first.epoch
    assert first.produce(topic, 0, b"b") in (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
    assert first.end(True) == ErrorCode.PRODUCER_FENCED
    assert second.produce(topic, 0, b"c") == 0
    assert second.end(True) == 0
    until(lambda: read(wire, topic, 0) == [b"c"])


def test_produce_to_a_partition_not_in_the_transaction_is_rejected(wire: Wire, topic: str) -> None:
    """KIP-890: a write that comes late cannot open a transaction that nobody would end."""
    client = Client(wire, names(), is_new=False)
    assert client.produce(topic, 0, b"a", add=False) == ErrorCode.TRANSACTION_ABORTABLE
    assert client.add(topic, 1) == 0
    assert client.produce(topic, 0, b"a", add=False) == ErrorCode.TRANSACTION_ABORTABLE
    assert client.produce(topic, 1, b"b", add=False) == 0
    assert client.end(True) == 0
    until(lambda: status(wire, client.name) == "CompleteCommit")
    assert client.produce(topic, 1, b"late", add=False) == ErrorCode.TRANSACTION_ABORTABLE
    assert read(wire, topic, 1) == [b"b"]
    assert read(wire, topic, 0, committed=False) == []


def test_timed_out_transaction_is_aborted_and_its_producer_fenced(wire: Wire, topic: str) -> None:
    name = names()
    reply = wire.ask(InitProducerIdRequest(name, 300))
    assert reply.error_code == 0
    client = Client.__new__(Client)
    client.wire, client.name, client.is_new, client.sequences = wire, name, False, {}
    client.id, client.epoch = reply.producer_id, reply.producer_epoch
    assert client.produce(topic, 0, b"slow") == 0
    until(lambda: status(wire, name) == "CompleteAbort")
    assert client.end(True) == ErrorCode.PRODUCER_FENCED
    assert read(wire, topic, 0) == []


# -- every version ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id(wire: Wire, version: int) -> None:
    name = names()
    first = wire.ask(InitProducerIdRequest(name, 1000), version)
    second = wire.ask(InitProducerIdRequest(name, 1000), version)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)
    late = wire.ask(InitProducerIdRequest(name, 10**9), version)
    assert late.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    empty = wire.ask(InitProducerIdRequest("", 1000), version)
    assert empty.error_code == ErrorCode.INVALID_REQUEST
    if version >= 3:
        known = wire.ask(InitProducerIdRequest(name, 1000, first.producer_id, 1), version)
        assert (known.error_code, known.producer_epoch) == (0, 2)
        fenced = wire.ask(InitProducerIdRequest(name, 1000, first.producer_id, 0), version)
        wanted = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert fenced.error_code == wanted


def fenced_code(version: int) -> ErrorCode:
    return ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", range(4))
def test_add_partitions_of_clients(wire: Wire, topic: str, version: int) -> None:
    client = Client(wire, names(), is_new=False)
    assert client.add(topic, 0, version) == 0
    assert status(wire, client.name) == "Ongoing"
    assert client.add(topic, 9, version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.add("__consumer_offsets", 0, version) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    client.epoch += 1
    assert client.add(topic, 0, version) == fenced_code(version)
    client.id += 1
    assert client.add(topic, 0, version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    name, client.name = client.name, ""
    assert client.add(topic, 0, version) == ErrorCode.INVALID_REQUEST
    client.name = name
    request = AddPartitionsToTxnRequest(
        client.name, client.id, client.epoch, [AddPartitionsToTxnTopic(topic, [0, 9])]
    )
    found = wire.ask(request, version).results_by_topic_v3_and_below[0].results_by_partition
    assert {each.partition_index: each.partition_error_code for each in found} == {
        0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize("version", [4, 5])
def test_add_partitions_of_brokers(wire: Wire, topic: str, version: int) -> None:
    client, other = (Client(wire, names(), is_new=True) for _ in range(2))

    def add(verify_only: bool, *indexes: int) -> list[dict[int, int]]:
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    each.name,
                    each.id,
                    each.epoch,
                    verify_only,
                    [AddPartitionsToTxnTopic(topic, list(indexes))],
                )
                for each in (client, other)
            ]
        )
        reply = wire.ask(request, version)
        assert [each.transactional_id for each in reply.results_by_transaction] == [
            client.name,
            other.name,
        ]
        return [
            {p.partition_index: p.partition_error_code for p in t.results_by_partition}
            for each in reply.results_by_transaction
            for t in each.topic_results
        ]

    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert add(True, 0) == [{0: abortable}, {0: abortable}]
    assert add(False, 0) == [{0: 0}, {0: 0}]
    assert add(True, 0, 1) == [{0: 0, 1: abortable}, {0: 0, 1: abortable}]


@pytest.mark.parametrize("version", range(6))
def test_end_txn(wire: Wire, topic: str, version: int) -> None:
    client = Client(wire, names(), is_new=version >= 5)
    assert client.produce(topic, 0, b"v") == 0
    sent = EndTxnRequest(client.name, client.id, client.epoch, True)
    older = EndTxnRequest(client.name, client.id, client.epoch - 1, True)
    assert wire.ask(older, version).error_code == fenced_code(version)
    reply = wire.ask(sent, version)
    assert reply.error_code == 0
    until(lambda: status(wire, client.name) == "CompleteCommit")
    again = wire.ask(sent, version)
    assert again.error_code == 0
    if version >= 5:
        assert (reply.producer_id, reply.producer_epoch) == (client.id, client.epoch + 1)
        assert (again.producer_id, again.producer_epoch) == (client.id, client.epoch + 1)
    sent.committed = False
    assert wire.ask(sent, version).error_code == ErrorCode.INVALID_TXN_STATE
    unknown = EndTxnRequest("nobody", 1, 0, True)
    assert wire.ask(unknown, version).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert wire.ask(EndTxnRequest("", 1, 0, True), version).error_code == ErrorCode.INVALID_REQUEST


# -- offsets ---------------------------------------------------------------------------------------


def topic_of(wire: Wire, topic: str, version: int) -> TxnOffsetCommitRequestTopic:
    """Return a topic as a version names it: from 6 on by its id."""
    if version < 6:
        return TxnOffsetCommitRequestTopic(topic)
    described = wire.ask(MetadataRequest([MetadataRequestTopic(name=topic)])).topics[0]
    return TxnOffsetCommitRequestTopic(topic_id=described.topic_id)


def commit_offset(wire: Wire, client: Client, group: str, topic: str, version: int) -> int:
    offset = TxnOffsetCommitRequestPartition(0, 42, committed_metadata="m")
    missing = TxnOffsetCommitRequestPartition(9, 1)
    named = topic_of(wire, topic, version)
    named.partitions = [offset, missing]
    request = TxnOffsetCommitRequest(client.name, group, client.id, client.epoch, topics=[named])
    (found,) = wire.ask(request, version).topics
    assert (found.name, found.topic_id) == (named.name, named.topic_id)
    codes = {each.partition_index: each.error_code for each in found.partitions}
    assert codes[9] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return int(codes[0])


def offset_of(wire: Wire, group: str, topic: str, *, stable: bool = False) -> tuple[int, int]:
    wanted = OffsetFetchRequestTopics(topic, partition_indexes=[0])
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group, topics=[wanted])], require_stable=stable
    )
    (found,) = wire.ask(request, 8).groups[0].topics[0].partitions
    return int(found.committed_offset), int(found.error_code)


def test_offset_commit_for_an_unknown_topic_id_is_rejected(wire: Wire, topic: str) -> None:
    client = Client(wire, names(), is_new=True)
    row = TxnOffsetCommitRequestPartition(0, 1)
    stranger = TxnOffsetCommitRequestTopic(topic_id=Uuid(b"no topic's  id.."), partitions=[row])
    request = TxnOffsetCommitRequest(client.name, names(), client.id, client.epoch)
    request.topics = [stranger]
    (found,) = wire.ask(request, 6).topics
    assert found.topic_id == stranger.topic_id
    assert [each.error_code for each in found.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("version", [5, 6])
def test_offset_commit_of_a_member_of_no_group_is_rejected(
    wire: Wire, topic: str, version: int
) -> None:
    client = Client(wire, names(), is_new=True)
    named = topic_of(wire, topic, version)
    named.partitions = [TxnOffsetCommitRequestPartition(0, 1)]
    request = TxnOffsetCommitRequest(client.name, names(), client.id, client.epoch, 3, "m")
    request.topics = [named]
    (found,) = wire.ask(request, version).topics[0].partitions
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.ILLEGAL_GENERATION
    assert found.error_code == expected


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(7))
def test_offsets_are_committed_with_the_transaction(
    wire: Wire, topic: str, version: int, commit: bool
) -> None:
    client = Client(wire, names(), is_new=version >= 5)
    group = names()
    if version < 5:
        refused = commit_offset(wire, client, group, topic, version)
        assert refused == (
            ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
        )
        added = wire.ask(
            AddOffsetsToTxnRequest(client.name, client.id, client.epoch, group), min(version, 4)
        )
        assert added.error_code == 0
    assert commit_offset(wire, client, group, topic, version) == 0
    assert offset_of(wire, group, topic) == (-1, 0)
    assert offset_of(wire, group, topic, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert client.end(commit) == 0
    until(lambda: status(wire, client.name).startswith("Complete"))
    assert offset_of(wire, group, topic, stable=True) == (42 if commit else -1, 0)


@pytest.mark.parametrize("version", range(5))
def test_add_offsets_of_wrong_producers_is_rejected(wire: Wire, version: int) -> None:
    client = Client(wire, names(), is_new=False)
    fenced = AddOffsetsToTxnRequest(client.name, client.id, client.epoch + 1, "g")
    assert wire.ask(fenced, version).error_code == fenced_code(version)
    unknown = AddOffsetsToTxnRequest("nobody", 1, 0, "g")
    assert wire.ask(unknown, version).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    empty = AddOffsetsToTxnRequest("", 1, 0, "g")
    assert wire.ask(empty, version).error_code == ErrorCode.INVALID_REQUEST


# -- operators ------------------------------------------------------------------------------


def test_describe_and_list(wire: Wire, topic: str) -> None:
    client = Client(wire, names(), is_new=False)
    client.add(topic, 1)
    missing = names()
    found, nobody, empty = wire.ask(
        DescribeTransactionsRequest([client.name, missing, ""])
    ).transaction_states
    assert (found.transaction_state, found.producer_id) == ("Ongoing", client.id)
    assert [(each.topic, each.partitions) for each in found.topics] == [(topic, [1])]
    assert found.transaction_timeout_ms == 60_000
    assert nobody.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST

    def listed(version: int = 2, **filters: Any) -> list[str]:
        reply = wire.ask(ListTransactionsRequest(**filters), version)
        assert reply.error_code == 0
        return [each.transactional_id for each in reply.transaction_states]

    for version in versions(ApiKey.LIST_TRANSACTIONS):
        assert client.name in listed(version)
        assert client.name in listed(version, state_filters=["Ongoing", "Nonsense"])
        assert client.name not in listed(version, state_filters=["Empty"])
        assert listed(version, producer_id_filters=[client.id]) == [client.name]
    reply = wire.ask(ListTransactionsRequest(["Nonsense"]))
    assert (reply.unknown_state_filters, reply.transaction_states) == (["Nonsense"], [])
    assert client.name not in listed(1, duration_filter=60_000)
    assert listed(transactional_id_pattern=client.name) == [client.name]
    assert client.name not in listed(transactional_id_pattern=client.name[:-1])
    # The second one took seconds for each transaction, and any client may send it.
    for pattern in ("(a", "(?:[a-z]{0,200}[a-y]{0,200}[b-z]{0,200})" * 200):
        bad = wire.ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    client.end(False)


@pytest.mark.parametrize("version", versions(ApiKey.WRITE_TXN_MARKERS))
def test_operator_aborts_a_hanging_transaction(wire: Wire, topic: str, version: int) -> None:
    client = Client(wire, names(), is_new=False)
    assert client.produce(topic, 0, b"a") == 0
    (row,) = wire.ask(DescribeProducersRequest([TopicRequest(topic, [0])])).topics[0].partitions
    (producer,) = row.active_producers
    assert producer.current_txn_start_offset == 0
    marker = WritableTxnMarker(
        producer.producer_id,
        producer.producer_epoch,
        False,
        [WritableTxnMarkerTopic(topic, [0, 9])],
        producer.coordinator_epoch,
    )
    (result,) = wire.ask(WriteTxnMarkersRequest([marker]), version).markers
    assert result.producer_id == client.id
    codes = {each.partition_index: each.error_code for each in result.topics[0].partitions}
    assert codes == {0: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    (row,) = wire.ask(DescribeProducersRequest([TopicRequest(topic, [0])])).topics[0].partitions
    assert row.active_producers[0].current_txn_start_offset == -1
    assert read(wire, topic, 0) == []
    client.end(False)


def test_invalid_producer_ids_end_and_commit_nothing(wire: Wire, topic: str) -> None:
    for producer_id, epoch in ((-1, 0), (5, -1)):
        where = [WritableTxnMarkerTopic(topic, [0])]
        marker = WritableTxnMarker(producer_id, epoch, False, where)
        (result,) = wire.ask(WriteTxnMarkersRequest([marker])).markers
        (row,) = result.topics[0].partitions
        assert row.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        for version in (5, 6):
            named = topic_of(wire, topic, version)
            named.partitions = [TxnOffsetCommitRequestPartition(0, 42)]
            request = TxnOffsetCommitRequest(names(), "g", producer_id, epoch, topics=[named])
            (found,) = wire.ask(request, version).topics[0].partitions
            assert found.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert read(wire, topic, 0, committed=False) == []


# -- a real client --------------------------------------------------------------------------


def test_librdkafka_moves_records_exactly_once(node: Cluster, wire: Wire, topic: str) -> None:
    """Consume, transform, produce; every other transaction is aborted and done again."""
    plain = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(20):
        plain.produce(topic, b"%d" % number, partition=0)
    assert plain.flush(SECONDS_MAX) == 0
    group = names()
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": names()})
    producer.init_transactions(SECONDS_MAX)
    consumer.assign([TopicPartition(topic, 0, 0)])
    moved, attempts = 0, 0
    while moved < 20:
        taken = consumer.consume(5, SECONDS_MAX)
        assert taken
        attempts += 1
        producer.begin_transaction()
        for each in taken:
            producer.produce(topic, each.value(), partition=1)
        position = consumer.position([TopicPartition(topic, 0)])
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 10)
        if attempts % 2:
            producer.abort_transaction(SECONDS_MAX)
            consumer.seek(TopicPartition(topic, 0, taken[0].offset()))
            continue
        producer.commit_transaction(SECONDS_MAX)
        moved += len(taken)
    consumer.close()
    until(lambda: read(wire, topic, 1) == [b"%d" % number for number in range(20)])
    assert offset_of(wire, group, topic, stable=True) == (20, 0)


def test_write_txn_markers_answers_each_producer_once_and_only_for_partitions(
    wire: Wire, topic: str
) -> None:
    there = [WritableTxnMarkerTopic(topic, [0])]
    twice = [WritableTxnMarker(4711, 0, False, there, 0) for _ in range(2)]
    nowhere = WritableTxnMarker(4712, 0, False, [], 0)
    (result,) = wire.ask(WriteTxnMarkersRequest([*twice, nowhere])).markers
    assert result.producer_id == 4711
    (row,) = result.topics[0].partitions
    assert row.error_code == ErrorCode.NONE
