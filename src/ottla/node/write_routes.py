"""The writing APIs of a broker, put together: Produce, producer ids, DeleteRecords."""

from typing import TYPE_CHECKING

from ottla.api.delete_records import DeleteRecordsHandler
from ottla.api.describe_producers import DescribeProducersHandler
from ottla.api.produce import ProduceHandler
from ottla.api.producer_ids import InitProducerIdHandler
from ottla.api.routes import Route
from ottla.metadata.watch import ImageWatch
from ottla.node.hosting import Hosting
from ottla.node.transacting import Transacting

if TYPE_CHECKING:
    from ottla.node.build import Ground


def write_routes(
    ground: "Ground", watch: ImageWatch, hosting: Hosting, transacting: Transacting
) -> tuple[Route, ...]:
    """Return their routes. All listeners of a broker share one block of producer ids."""
    partitions = hosting.partitions
    return (
        *ProduceHandler(
            partitions,
            lambda: watch.image,
            ground.ports.clock,
            verifier=transacting.verification,
            events=ground.meters.topics,
        ).routes(),
        *InitProducerIdHandler(transacting.ids, transacting.coordinator).routes(),
        *DeleteRecordsHandler(partitions).routes(),
        *DescribeProducersHandler(partitions).routes(),
    )
