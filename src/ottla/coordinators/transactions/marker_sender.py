"""Delivers markers to the leaders of partitions: written here, or sent as WriteTxnMarkers.

Each broker gets one request at a time; markers that arrive meanwhile are sent together in the next.
The caller with the first of them sends it, so that no extra task is needed.
"""

import asyncio
from typing import Any, Final, NamedTuple

from ottla.coordinators.broker_links import UNREACHABLE, BrokerLinks
from ottla.coordinators.transactions.marker_writer import Codes, Ending, MarkerWriter
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.types import TopicPartition

MARKERS_MAX: Final = 500
"""Markers in one request: it stays far below the request size that a broker accepts."""

_LEAD: Final = object()


class _Waiting(NamedTuple):
    """A marker that waits for its request; the future gets its codes, or `_LEAD`: send it."""

    marker: WritableTxnMarker
    outcome: "asyncio.Future[Any]"


class MarkerSender:
    """Delivers markers to all brokers, including this one."""

    def __init__(self, node_id: int, writer: MarkerWriter, links: BrokerLinks) -> None:
        self._node_id = node_id
        self._writer = writer
        self._links = links
        # Waiting markers, by broker; an entry exists while a request is in flight.
        self._queues: dict[int, list[_Waiting]] = {}

    async def __call__(self, broker: int, ending: Ending, places: list[TopicPartition]) -> Codes:
        """Have markers written; partitions without a reply count as not written."""
        if broker == self._node_id:
            return await self._writer.write(ending, places)
        mine = _Waiting(_marker(ending, places), asyncio.get_running_loop().create_future())
        queue = self._queues.get(broker)
        if queue is None:
            queue = self._queues[broker] = [mine]
        else:
            queue.append(mine)
            found = await mine.outcome
            if found is not _LEAD:
                codes: Codes = found
                return codes
        return await self._lead(broker, queue)

    async def _lead(self, broker: int, queue: list[_Waiting]) -> Codes:
        """Send the waiting markers, the caller's first, and leave the rest to the next caller."""
        taken = queue[:MARKERS_MAX]
        del queue[:MARKERS_MAX]
        answers: dict[int, Codes] = {}
        try:
            answers = await self._ask(broker, [each.marker for each in taken])
        finally:
            for each in taken[1:]:
                if not each.outcome.done():
                    each.outcome.set_result(answers.get(each.marker.producer_id, {}))
            self._pass_on(broker, queue)
        return answers.get(taken[0].marker.producer_id, {})

    def _pass_on(self, broker: int, queue: list[_Waiting]) -> None:
        while queue and queue[0].outcome.done():  # the caller was cancelled
            del queue[0]
        if queue:
            queue[0].outcome.set_result(_LEAD)
        else:
            del self._queues[broker]

    async def _ask(self, broker: int, markers: list[WritableTxnMarker]) -> dict[int, Codes]:
        """Return the codes by producer id; empty if the broker cannot be reached."""
        try:
            response = await self._links.ask(broker, WriteTxnMarkersRequest(markers))
        except UNREACHABLE:
            return {}
        assert isinstance(response, WriteTxnMarkersResponse)
        found: dict[int, Codes] = {}
        for result in response.markers:
            codes = found.setdefault(result.producer_id, {})
            for topic in result.topics:
                for each in topic.partitions:
                    place = TopicPartition(topic.name, each.partition_index)
                    codes[place] = ErrorCode(each.error_code)
        return found


def _marker(ending: Ending, places: list[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=ending.producer.id,
        producer_epoch=ending.producer.epoch,
        transaction_result=ending.marker.is_commit,
        topics=[WritableTxnMarkerTopic(topic, indexes) for topic, indexes in topics.items()],
        coordinator_epoch=ending.marker.coordinator_epoch,
        transaction_version=ending.version,
    )
