"""The lag of a share group, from this broker and from leaders elsewhere."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from consumer_harness import image_with

from ottla.api.share.share_offsets import NO_LAG, lag_of
from ottla.metadata.topics import Topic
from ottla.node.broker.partition_ends import LeaderHighWatermarks
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


@pytest.mark.parametrize(
    ("end", "start", "finished", "lag"),
    [
        (10, 4, 0, 6),
        (10, 4, 3, 3),
        (10, 10, 0, 0),
        (3, 10, 0, 0),
        (None, 4, 0, NO_LAG),
        (10, -1, 0, NO_LAG),
        (10, 4, -1, NO_LAG),
    ],
)
def test_a_lag_counts_what_is_not_finished(
    end: int | None, start: int, finished: int, lag: int
) -> None:
    assert lag_of(end, start, finished) == lag


class FakeLinks:
    """Leaders elsewhere: partition 1 ends at 101, 3 is not led there, broker 9 is unreachable."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[int]]] = []

    async def ask(self, broker: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        indexes = [each.partition_index for each in topic.partitions]
        assert {each.timestamp for each in topic.partitions} == {-1}
        self.asked.append((broker, indexes))
        if broker == 9:
            raise ConnectionError("away")
        moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
        rows = [
            ListOffsetsPartitionResponse(index, moved if index == 3 else 0, offset=100 + index)
            for index in indexes
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(topic.name, rows)])


def test_each_leader_gets_one_request_and_an_unreachable_one_returns_no_codes() -> None:
    registered = image_with(t=6).topics.named("t")
    assert registered is not None
    leaders = {0: 1, 1: 2, 2: 2, 3: 2, 4: 9, 5: -1}
    topic: Any = SimpleNamespace(
        name="t",
        id=registered.id,
        partitions={index: SimpleNamespace(leader=each) for index, each in leaders.items()},
    )
    led = SimpleNamespace(
        is_leader=True, log=SimpleNamespace(high_watermark=7, last_stable_offset=7)
    )
    partitions: Any = SimpleNamespace(by_id=lambda topic_id, index: led if index == 0 else None)
    links = FakeLinks()
    ends = LeaderHighWatermarks(1, partitions, links)  # type: ignore[arg-type]

    found = asyncio.run(_ends(ends, topic))

    assert found == {0: 7, 1: 101, 2: 102}
    assert sorted(links.asked) == [(2, [1, 2, 3]), (9, [4])]


async def _ends(ends: LeaderHighWatermarks, topic: Topic) -> dict[int, int]:
    return dict(await ends.ends(topic, range(6)))
