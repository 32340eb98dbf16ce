"""The search for dead letters that an earlier write may have left in the topic."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.node.broker.dead_letter_search import find_written
from ottla.protocol.faults import NotLeader
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Millis, Offset, Uuid
from ottla.sharing.acquisition import DeadRecords
from ottla.sharing.dead_letters import dead_letters
from ottla.sharing.ports import DeadLetterConfig, Origin

ORIGIN = Origin("g", "orders", 0)
TOPIC: Any = SimpleNamespace(name="dlq.t", id=Uuid(bytes(16)))
CONSUMER = -1


class LeaderWithLetters:
    """A leader of the dead-letter topic: letters of orders 0, 1, ..., each in its own batch."""

    def __init__(self, log_end: int, high_watermark: int, last: int | None = None) -> None:
        self.log_end, self.high_watermark = log_end, high_watermark
        self.last = log_end - 1 if last is None else last

    async def ask(self, broker: int, request: Any) -> Any:
        if isinstance(request, ListOffsetsRequest):
            is_consumer = request.replica_id == CONSUMER
            offset = self.high_watermark if is_consumer else self.log_end
            row = ListOffsetsPartitionResponse(0, offset=offset)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("dlq.t", [row])])
        assert isinstance(request, FetchRequest)
        first = request.topics[0].partitions[0].fetch_offset
        until = min(first + 2, self.high_watermark, self.last + 1)
        data = b"".join(batch_at(offset) for offset in range(first, until))
        part = PartitionData(high_watermark=self.high_watermark, records=data)
        part.log_start_offset = 0
        return FetchResponse(responses=[FetchableTopicResponse(partitions=[part])])


def batch_at(offset: int) -> bytes:
    record = Record(Offset(offset), Millis(0), None, b"v", ())
    run = DeadRecords(Offset(offset), Offset(offset), 1, is_used_up=False)
    (letter,) = dead_letters(ORIGIN, [record], [run], DeadLetterConfig("dlq.t"), Millis(0))
    return bytes(build_batch([letter._replace(offset=Offset(offset))]))


def written(leader: Any) -> set[Offset]:
    return asyncio.run(find_written(leader, (TOPIC, 0, 1), ORIGIN))


def test_letters_up_to_the_log_end_are_found() -> None:
    assert written(LeaderWithLetters(5, 5)) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("high_watermark", [0, 3])
def test_letters_above_the_high_watermark_are_waited_for(high_watermark: int) -> None:
    """They were appended and are not replicated yet: without them they are written twice."""
    with pytest.raises(NotLeader):
        written(LeaderWithLetters(5, high_watermark))


def test_offsets_without_letters_at_the_end_are_not_waited_for() -> None:
    assert written(LeaderWithLetters(5, 5, last=3)) == {0, 1, 2, 3}
