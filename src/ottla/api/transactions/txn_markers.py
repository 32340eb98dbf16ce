"""WriteTxnMarkers: markers of ended transactions, from coordinators to the leaders of partitions.

An operator can send it too, to abort a transaction that its coordinator no longer has (KIP-664).
"""

import asyncio

import msgspec

from ottla.api.surface.routes import Caller
from ottla.api.transactions.transaction_access import ALLOW_ALL, TransactionAccess
from ottla.coordinators.transactions.marker_writer import Codes, Ending, MarkerWriter
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import ClusterNotAuthorized
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import TopicPartition


class TxnMarkersHandler(msgspec.Struct, frozen=True):
    """Serves WriteTxnMarkers."""

    writer: MarkerWriter
    access: TransactionAccess = ALLOW_ALL

    async def on_write(
        self, caller: Caller, request: WriteTxnMarkersRequest, version: int
    ) -> WriteTxnMarkersResponse:
        """Write every marker; answered when all are committed or have failed."""
        if not (self.access.alter_cluster(caller) or self.access.cluster_action(caller)):
            raise ClusterNotAuthorized(f"{caller.principal} may end no transactions")
        written = await asyncio.gather(*map(self._write, request.markers))
        # As in Kafka: one entry per producer id, and none for one without partitions.
        found: dict[int, Codes] = {}
        for marker, codes in zip(request.markers, written, strict=True):
            if codes:
                found.setdefault(marker.producer_id, {}).update(codes)
        return WriteTxnMarkersResponse(markers=[result_of(*each) for each in found.items()])

    async def _write(self, marker: WritableTxnMarker) -> Codes:
        places = places_of(marker)
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            return dict.fromkeys(places, ErrorCode.UNKNOWN_SERVER_ERROR)
        return await self.writer.write(ending_of(marker), places)


# -- conversion of messages ---------------------------------------------------------


def ending_of(marker: WritableTxnMarker) -> Ending:
    """Return the end of a transaction from its wire form."""
    return Ending(
        Producer(marker.producer_id, marker.producer_epoch),
        EndTxnMarker(marker.transaction_result, marker.coordinator_epoch),
        marker.transaction_version,
    )


def places_of(marker: WritableTxnMarker) -> list[TopicPartition]:
    """Return the partitions of a marker in wire form, each once."""
    places = (
        TopicPartition(topic.name, index)
        for topic in marker.topics
        for index in topic.partition_indexes
    )
    return list(dict.fromkeys(places))


def result_of(producer_id: int, codes: Codes) -> WritableTxnMarkerResult:
    """Return the result of one marker in wire form."""
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for place, code in codes.items():
        result = WritableTxnMarkerPartitionResult(place.partition, code)
        topics.setdefault(place.topic, []).append(result)
    return WritableTxnMarkerResult(
        producer_id,
        [WritableTxnMarkerTopicResult(topic, results) for topic, results in topics.items()],
    )
