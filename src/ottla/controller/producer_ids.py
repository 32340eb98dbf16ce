"""AllocateProducerIds: blocks of producer ids, each handed out once (KIP-730)."""

from ottla.controller.decision import Decision
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_topics import ProducerIdsRecord
from ottla.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

BLOCK_SIZE = 1000
PRODUCER_ID_MAX = (1 << 63) - 1


def decide_allocate_producer_ids(
    image: Image, request: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    """Give the next block to a broker that is registered with the epoch in the request.

    Ids that a broker does not use are lost; no id is given twice.
    """
    broker = image.cluster.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return _refused(ErrorCode.STALE_BROKER_EPOCH)
    start = max(0, image.next_producer_id)
    if start > PRODUCER_ID_MAX - BLOCK_SIZE:
        return _refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + BLOCK_SIZE,
    )
    reply = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE)
    return Decision([Versioned(record, 0)], reply)


def _refused(code: ErrorCode) -> Decision[AllocateProducerIdsResponse]:
    return Decision([], AllocateProducerIdsResponse(error_code=code))
