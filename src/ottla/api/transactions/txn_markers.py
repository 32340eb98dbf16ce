"""WriteTxnMarkers: markers of ended transactions, from coordinators to the leaders of partitions.

An operator can send it too, to abort a transaction that its coordinator no longer has (KIP-664).
"""

from collections.abc import Mapping

import msgspec

from ottla.api.surface.replies import Steps, paced
from ottla.api.surface.routes import Caller
from ottla.api.transactions.transaction_access import ALLOW_ALL, TransactionAccess
from ottla.coordinators.transactions.marker_writer import Begun, Codes, Ending, MarkerWriter
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
        # As in Kafka: one entry per producer id, and none for one without partitions.
        codes: dict[int, Codes] = {}
        deadline = self.writer.deadline()
        for producer_id, begun in await paced(self._begin(request.markers)):
            if begun:
                codes.setdefault(producer_id, {}).update(await self.writer.settle(begun, deadline))
        return WriteTxnMarkersResponse(markers=await paced(results_of(codes)))

    def _begin(
        self, markers: list[WritableTxnMarker]
    ) -> Steps[list[tuple[int, dict[TopicPartition, Begun]]]]:
        """Append every marker to its partitions, to each partition once."""
        all_begun: list[tuple[int, dict[TopicPartition, Begun]]] = []
        for marker in markers:
            ending = ending_of(marker)
            is_valid = marker.producer_id >= 0 and marker.producer_epoch >= 0
            begun: dict[TopicPartition, Begun] = {}
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    place = TopicPartition(topic.name, index)
                    if not is_valid:
                        begun[place] = ErrorCode.UNKNOWN_SERVER_ERROR
                    elif place not in begun:
                        begun[place] = self.writer.begin(ending, place)
                    yield
            all_begun.append((marker.producer_id, begun))
            yield
        return all_begun


# -- conversion of messages ---------------------------------------------------------


def ending_of(marker: WritableTxnMarker) -> Ending:
    """Return the end of a transaction from its wire form."""
    return Ending(
        Producer(marker.producer_id, marker.producer_epoch),
        EndTxnMarker(marker.transaction_result, marker.coordinator_epoch),
        marker.transaction_version,
    )


def results_of(codes: Mapping[int, Codes]) -> Steps[list[WritableTxnMarkerResult]]:
    """Return the results of each producer id in wire form."""
    results: list[WritableTxnMarkerResult] = []
    for producer_id, codes_of_partitions in codes.items():
        topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
        for place, code in codes_of_partitions.items():
            result = WritableTxnMarkerPartitionResult(place.partition, code)
            topics.setdefault(place.topic, []).append(result)
            yield
        rows = [WritableTxnMarkerTopicResult(topic, parts) for topic, parts in topics.items()]
        results.append(WritableTxnMarkerResult(producer_id, rows))
        yield
    return results
