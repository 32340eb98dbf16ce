"""The writing APIs of a broker, put together: Produce, producer ids, DeleteRecords."""

from typing import TYPE_CHECKING

from ottla.api.delete_records import DeleteRecordsHandler
from ottla.api.describe_producers import DescribeProducersHandler
from ottla.api.produce import ProduceHandler
from ottla.api.producer_ids import InitProducerIdHandler, ProducerIds
from ottla.api.routes import Route
from ottla.metadata.watch import ImageWatch
from ottla.node.controller_channel import ControllerChannel
from ottla.node.hosting import Hosting

if TYPE_CHECKING:
    from ottla.node.build import Ground


def write_routes(
    ground: "Ground", watch: ImageWatch, channel: ControllerChannel, hosting: Hosting
) -> tuple[Route, ...]:
    """Return their routes. All listeners of a broker share one block of producer ids."""
    partitions, host = hosting.partitions, hosting.host
    ids = ProducerIds(channel, ground.node_id, lambda: host.broker_epoch)
    return (
        *ProduceHandler(
            partitions, lambda: watch.image, ground.ports.clock, events=ground.meters.topics
        ).routes(),
        *InitProducerIdHandler(ids).routes(),
        *DeleteRecordsHandler(partitions).routes(),
        *DescribeProducersHandler(partitions).routes(),
    )
