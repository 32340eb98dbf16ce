"""Polling replicas for the ends of their logs: which responses count."""

import asyncio

from ottla.controller.log_polls import LogPolls
from ottla.controller.unclean_recovery import LeaderlessPartition, LogState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages import fetch, list_offsets
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import LeaderEpoch, Millis, Offset, TopicIdPartition, Uuid

ID = Uuid(bytes(range(16)))


def leaderless(*partitions: int) -> list[LeaderlessPartition]:
    return [LeaderlessPartition(TopicIdPartition(ID, each), "t", 1, {2: 20}) for each in partitions]


def batch(epoch: int) -> bytes:
    records = [Record(Offset(0), Millis(1), None, b"v")]
    return bytes(build_batch(records, leader_epoch=LeaderEpoch(epoch)))


class Broker:
    """A broker whose logs are (end, records of a fetch, error of the fetch) by partition."""

    def __init__(self, logs: dict[int, tuple[int, bytes, int]], refused: tuple[int, ...] = ()):
        self.logs, self.refused = logs, refused
        self.fetched: list[fetch.FetchRequest] = []
        self.is_closed = False
        self.is_mute = False

    async def dial(self, broker_id: int):
        assert broker_id == 2
        return self

    async def close(self) -> None:
        self.is_closed = True

    async def send(self, request, *, version=None, timeout_ms: int):
        if self.is_mute:
            raise RequestTimedOut("mute")
        assert request.replica_id == -2, "any replica answers a debugger"
        if isinstance(request, list_offsets.ListOffsetsRequest):
            return self._ends(request)
        assert version == 12, "the last version that has the replica id where it is read"
        self.fetched.append(request)
        asked = request.topics[0].partitions[0]
        end, records, error = self.logs[asked.partition]
        assert asked.fetch_offset == end - 1
        row = fetch.PartitionData(
            partition_index=asked.partition, error_code=error, records=records
        )
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse("t", partitions=[row])])

    def _ends(self, request):
        rows = [
            list_offsets.ListOffsetsPartitionResponse(
                each.partition_index,
                ErrorCode.KAFKA_STORAGE_ERROR if each.partition_index in self.refused else 0,
                offset=self.logs[each.partition_index][0],
            )
            for each in request.topics[0].partitions
        ]
        rows.append(list_offsets.ListOffsetsPartitionResponse(77, 0, offset=5))
        topics = [list_offsets.ListOffsetsTopicResponse("t", rows)]
        return list_offsets.ListOffsetsResponse(topics=topics)


def ask(broker: Broker, *partitions: int):
    found = asyncio.run(LogPolls(broker.dial).ask(2, leaderless(*partitions)))
    return None if found is None else {at.partition: state for at, state in found.items()}


def test_poll_returns_log_end_and_last_epoch() -> None:
    broker = Broker({0: (7, batch(3), 0), 1: (9, batch(5), 0)})
    assert ask(broker, 0, 1) == {0: LogState(3, 7), 1: LogState(5, 9)}
    assert broker.is_closed
    assert all(each.max_bytes == 1 for each in broker.fetched), "one batch is enough"


def test_empty_log_is_not_fetched() -> None:
    broker = Broker({0: (0, b"", 0)})
    assert ask(broker, 0) == {0: LogState(-1, 0)}
    assert broker.fetched == []


def test_deleted_last_batch_leaves_the_epoch_unknown() -> None:
    broker = Broker({0: (7, b"", int(ErrorCode.OFFSET_OUT_OF_RANGE)), 1: (8, b"", 0)})
    assert ask(broker, 0, 1) == {0: LogState(-1, 7), 1: LogState(-1, 8)}


def test_replica_with_an_error_is_left_out() -> None:
    broker = Broker({0: (7, batch(3), 0), 1: (9, batch(5), 0)}, refused=(0,))
    assert ask(broker, 0, 1) == {1: LogState(5, 9)}


def test_broker_with_invalid_responses_counts_as_unanswered() -> None:
    broker = Broker({0: (7, b"\x00" * 20, 0)})
    assert ask(broker, 0) is None
    assert broker.is_closed
    broker.is_mute = True
    assert ask(broker, 0) is None


def test_unreachable_broker_counts_as_unanswered() -> None:
    async def dial(broker_id: int):
        raise ConnectionRefusedError("nobody there")

    assert asyncio.run(LogPolls(dial).ask(2, leaderless(0))) is None


def test_poll_of_an_unresponsive_broker_times_out() -> None:
    async def dial(broker_id: int):
        await asyncio.get_running_loop().create_future()

    assert asyncio.run(LogPolls(dial, timeout_ms=10).ask(2, leaderless(0))) is None
