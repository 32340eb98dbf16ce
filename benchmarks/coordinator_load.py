"""The load of `benchmarks.coordinators`: one thread that writes frames and reads replies.

The timed code sends prepared frames, or patches a few numbers into them, and reads replies only
where the protocol requires it.
"""

import selectors
import struct
from dataclasses import dataclass, field
from time import perf_counter, sleep

from benchmarks.broker.brokers import Broker
from benchmarks.broker.line import Line, Reply, frame_of, make_topic, parsed
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.protocol.records.batch import patch_crc
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis, Offset, Uuid

WAIT_S_MAX = 60.0
LOADING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
# The previous transaction has not completed yet. A broker that has waited long enough for it
# answers with one of these errors, which every producer retries.
BUSY = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS})
GROUP_RESOURCE = 32
CONNECTIONS_AT_ONCE = 32
PRODUCERS = 8
RECORD_BYTES = 100
# The position of the producer epoch in a batch: after 43 bytes and the producer id.
EPOCH_AT = 51
_EPOCH = struct.Struct(">h")


def commit_frame(group: str, topic: str, count: int) -> bytes:
    """Return the frame of an OffsetCommit of so many partitions, without a member."""
    partitions = [OffsetCommitRequestPartition(index, 1000 + index) for index in range(count)]
    request = OffsetCommitRequest(
        group,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(topic, partitions=partitions)],
    )
    return frame_of(request)


def asked_again(line: Line, request: Message, kind: type[Reply]) -> Reply:
    """Send a request until the coordinator has loaded."""
    deadline = perf_counter() + WAIT_S_MAX
    while True:
        reply = line.ask(request, kind)
        code = ErrorCode(reply.error_code)  # type: ignore[attr-defined]
        if code not in LOADING:
            assert code is ErrorCode.NONE, reply
            return reply
        assert perf_counter() < deadline, reply
        sleep(0.1)


def wait_coordinator(broker: Broker, key: str, kind: int) -> None:
    """Wait until a group (0) or a transactional id (1) has a coordinator."""
    line = Line(broker)
    deadline = perf_counter() + WAIT_S_MAX
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    while line.ask(request, FindCoordinatorResponse).coordinators[0].error_code:
        assert perf_counter() < deadline, "nobody coordinates"
        sleep(0.1)
    if kind == 0:
        wait_groups(line, [key])
    line.close()
    sleep(0.5)


def wait_groups(line: Line, groups: list[str]) -> None:
    """Wait until the coordinators of groups are loaded: Kafka names them before that."""
    deadline = perf_counter() + WAIT_S_MAX
    while True:
        reply = line.ask(DescribeGroupsRequest(groups), DescribeGroupsResponse)
        if not any(ErrorCode(each.error_code) in LOADING for each in reply.groups):
            return
        assert perf_counter() < deadline, reply.groups[0]
        sleep(0.1)


# -- groups ------------------------------------------------------------------------------


@dataclass(slots=True)
class Members:
    """The members of a group, one per connection (classic) or several."""

    broker: Broker
    group: str
    count: int
    lines: list[Line] = field(default_factory=list)
    beats: list[list[bytes]] = field(default_factory=list)

    def connect(self) -> None:
        """Open a connection for each member, a few at a time.

        The broker has accepted all earlier ones when it replies, so its backlog does not overflow.
        """
        for number in range(self.count):
            line = Line(self.broker)
            self.lines.append(line)
            if number % CONNECTIONS_AT_ONCE == 0:
                line.ask(ApiVersionsRequest("bench", "1"), ApiVersionsResponse)

    def join(self) -> None:
        """Join and sync all members of a classic group, until it is stable."""
        if not self.lines:
            self.connect()
        first = self._each([self._join_frame("")] * self.count, JoinGroupResponse)
        ids = [each.member_id for each in first]
        joined = self._each([self._join_frame(each) for each in ids], JoinGroupResponse)
        assert all(each.error_code == ErrorCode.NONE for each in joined), joined[0]
        # Some joined after others had received their generation.
        newest = max(each.generation_id for each in joined)
        assert all(each.generation_id == newest for each in joined)
        frames = [self._sync_frame(each, ids) for each in joined]
        synced = self._each(frames, SyncGroupResponse)
        assert all(each.error_code == ErrorCode.NONE for each in synced), synced[0]

    def _join_frame(self, member_id: str) -> bytes:
        protocol = JoinGroupRequestProtocol("range", bytes(6))
        request = JoinGroupRequest(
            self.group, 45_000, 60_000, member_id, None, "consumer", [protocol]
        )
        return frame_of(request)

    def _sync_frame(self, joined: JoinGroupResponse, ids: list[str]) -> bytes:
        given = [SyncGroupRequestAssignment(each, bytes(100)) for each in ids]
        is_leader = joined.leader == joined.member_id
        request = SyncGroupRequest(
            self.group,
            joined.generation_id,
            joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=given if is_leader else [],
        )
        return frame_of(request)

    def _each(self, frames: list[bytes], kind: type[Reply]) -> list[Reply]:
        for line, frame in zip(self.lines, frames, strict=True):
            line.socket.sendall(frame)
        return [parsed(line.receive(), kind) for line in self.lines]

    def join_consumers(self, on_each: int = 20) -> None:
        """Join all members of a consumer group; send heartbeats until all have their assignment."""
        self.lines = [Line(self.broker) for _ in range(self.count // on_each)]
        epochs: dict[str, int] = {}
        owned: dict[str, list[RequestTopicPartitions]] = {}
        names = [f"member-{number:06}" for number in range(self.count)]
        for _ in range(WAIT_TURNS):
            is_stable = True
            for number, name in enumerate(names):
                line = self.lines[number // on_each]
                request = ConsumerGroupHeartbeatRequest(
                    self.group,
                    name,
                    epochs.get(name, 0),
                    rebalance_timeout_ms=60_000,
                    subscribed_topic_names=["t"],
                    topic_partitions=owned.get(name, []),
                )
                reply = asked_again(line, request, ConsumerGroupHeartbeatResponse)
                if reply.assignment is not None:
                    owned[name] = [
                        RequestTopicPartitions(each.topic_id, list(each.partitions))
                        for each in reply.assignment.topic_partitions
                    ]
                is_stable = is_stable and epochs.get(name) == reply.member_epoch
                epochs[name] = reply.member_epoch
            if is_stable:
                break
        frames = [
            frame_of(ConsumerGroupHeartbeatRequest(self.group, name, epochs[name]))
            for name in names
        ]
        self.beats = [frames[at : at + on_each] for at in range(0, self.count, on_each)]

    def beat(self, rounds: int) -> int:
        """Send so many heartbeats per member; return their total number."""
        for _ in range(rounds):
            for line, frames in zip(self.lines, self.beats, strict=True):
                line.socket.sendall(b"".join(frames))
            for line, frames in zip(self.lines, self.beats, strict=True):
                for _ in frames:
                    last = line.receive()
        assert parsed(last, ConsumerGroupHeartbeatResponse).error_code == ErrorCode.NONE
        return rounds * self.count

    def close(self) -> None:
        """Close the connection."""
        for line in self.lines:
            line.close()


WAIT_TURNS = 12

# -- transactions ------------------------------------------------------------------------


class _Producer:
    """A transactional producer (version 2): one transaction of one batch after the other."""

    def __init__(self, broker: Broker, topic: str, index: int, records: int) -> None:
        self.line = Line(broker)
        self.name = f"txn-{records}-{index}"
        self.done = 0
        wait_coordinator(broker, self.name, 1)
        self._init()
        data = [
            Record(Offset(at), Millis(1_700_000_000_000), None, b"x" * RECORD_BYTES)
            for at in range(records)
        ]
        producer = Producer(self._id, self._epoch, 0)
        self._batch = build_batch(data, producer=producer, is_transactional=True)
        part = PartitionProduceData(index, bytes(self._batch))
        request = ProduceRequest(
            self.name, -1, 30_000, [TopicProduceData(topic, partition_data=[part])]
        )
        self._frame = bytearray(frame_of(request))
        self._at = self._frame.index(self._batch)
        self._is_ending = False

    def _init(self) -> None:
        while True:
            request = InitProducerIdRequest(self.name, 60_000)
            reply = self.line.ask(request, InitProducerIdResponse, 5)
            if not reply.error_code:
                self._id, self._epoch = reply.producer_id, reply.producer_epoch
                return
            sleep(0.1)

    def send(self) -> None:
        """Send the next request: the batch, or the end of the transaction."""
        if self._is_ending:
            end = EndTxnRequest(self.name, self._id, self._epoch, committed=True)
            self.line.socket.sendall(frame_of(end))
            return
        _EPOCH.pack_into(self._frame, self._at + EPOCH_AT, self._epoch)
        view = memoryview(self._frame)[self._at : self._at + len(self._batch)]
        patch_crc(view, 0, len(self._batch))
        view.release()
        self.line.socket.sendall(self._frame)

    def took(self, frame: bytes) -> None:
        """Process a reply; a retriable error leaves the same request next."""
        if self._is_ending:
            ended = parsed(frame, EndTxnResponse)
            if ended.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
                return
            assert ended.error_code == ErrorCode.NONE, ended
            self._id, self._epoch, self._is_ending = ended.producer_id, ended.producer_epoch, False
            self.done += 1
            return
        produced = parsed(frame, ProduceResponse).responses[0].partition_responses[0]
        if produced.error_code in BUSY:
            return
        assert produced.error_code == ErrorCode.NONE, produced
        self._is_ending = True


class Transactions:
    """Several producers on one thread, each with an open transaction."""

    def __init__(self, broker: Broker, topic: str, records: int) -> None:
        self._producers = [_Producer(broker, topic, i, records) for i in range(PRODUCERS)]

    def run(self, seconds: float) -> int:
        """Run for so many seconds; return the number of committed transactions."""
        before = sum(each.done for each in self._producers)
        end = perf_counter() + seconds
        with selectors.DefaultSelector() as selector:
            for each in self._producers:
                selector.register(each.line.socket, selectors.EVENT_READ, each)
                each.send()
            waiting = len(self._producers)
            while waiting:
                for key, _ in selector.select(WAIT_S_MAX):
                    producer: _Producer = key.data
                    producer.line.read()
                    frame = producer.line.take()
                    if frame is None:
                        continue
                    producer.took(frame)
                    if perf_counter() < end:
                        producer.send()
                    else:
                        waiting -= 1
        return sum(each.done for each in self._producers) - before

    def close(self) -> None:
        """Close the connection."""
        for each in self._producers:
            each.line.close()


# -- share groups ------------------------------------------------------------------------


class ShareReader:
    """Reads a topic through a share group; each fetch acknowledges the previous records."""

    def __init__(self, broker: Broker, name: str, records: int) -> None:
        self._line, self._name, self._records = Line(broker), name, records
        self._member = "AAAAAAAAAAAAAAAAAAAAAQ"
        make_topic([broker], name, 1)
        self._produce()
        config = AlterableConfig("share.auto.offset.reset", 0, "earliest")
        resource = AlterConfigsResource(GROUP_RESOURCE, name, [config])
        reply = self._line.ask(
            IncrementalAlterConfigsRequest([resource]), IncrementalAlterConfigsResponse
        )
        assert reply.responses[0].error_code == ErrorCode.NONE, reply
        wait_coordinator(broker, name, 0)
        self._topic_id = self._join()

    def _produce(self) -> None:
        count = 1000
        data = [
            Record(Offset(at), Millis(1_700_000_000_000), None, b"x" * RECORD_BYTES)
            for at in range(count)
        ]
        part = PartitionProduceData(0, bytes(build_batch(data)))
        topic = TopicProduceData(self._name, partition_data=[part])
        frame = frame_of(ProduceRequest(None, 1, 30_000, [topic]))
        for _ in range(self._records // count):
            self._line.socket.sendall(frame)
            self._line.receive()

    def _join(self) -> Uuid:
        epoch = 0
        deadline = perf_counter() + WAIT_S_MAX
        while perf_counter() < deadline:
            request = ShareGroupHeartbeatRequest(
                self._name, self._member, epoch, subscribed_topic_names=[self._name]
            )
            reply = asked_again(self._line, request, ShareGroupHeartbeatResponse)
            epoch = reply.member_epoch
            if reply.assignment is not None and reply.assignment.topic_partitions:
                return reply.assignment.topic_partitions[0].topic_id
            sleep(0.2)
        raise AssertionError("nothing was assigned")

    def run(self) -> float:
        """Read and acknowledge everything; return how long it took, in seconds."""
        began, epoch, got = perf_counter(), 0, 0
        acknowledged: list[AcknowledgementBatch] = []
        while got < self._records or acknowledged:
            partition = FetchPartition(0, acknowledged)
            request = ShareFetchRequest(
                self._name,
                self._member,
                epoch,
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1 << 20,
                max_records=2000,
                batch_size=2000,
                topics=[FetchTopic(self._topic_id, [partition])],
            )
            reply = self._line.ask(request, ShareFetchResponse)
            assert reply.error_code == ErrorCode.NONE, reply
            acknowledged = []
            for topic in reply.responses:
                for each in topic.partitions:
                    assert not each.error_code, each
                    assert not each.acknowledge_error_code, each
                    for run in each.acquired_records:
                        batch = AcknowledgementBatch(run.first_offset, run.last_offset, [1])
                        acknowledged.append(batch)
                        got += run.last_offset - run.first_offset + 1
            epoch += 1
            assert perf_counter() - began < WAIT_S_MAX, f"{got} of {self._records}"
        taken = perf_counter() - began
        self._line.close()
        return taken
