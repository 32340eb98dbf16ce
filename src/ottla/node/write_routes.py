"""The writing APIs of a broker, put together: Produce, DeleteRecords, DescribeProducers."""

from typing import TYPE_CHECKING

from ottla.api.late_routes import late_routes
from ottla.api.produce import ProduceHandler
from ottla.api.produce_transaction import TransactionVerifier
from ottla.api.routes import Route
from ottla.metadata.image_watch import ImageWatch
from ottla.node.hosting import Hosting
from ottla.protocol.api_keys import ApiKey
from ottla.runtime.lazy import LazyModule
from ottla.runtime.worker import ThreadWorker

if TYPE_CHECKING:
    from ottla.api import delete_records, describe_producers
    from ottla.node.build import NodeContext
else:
    delete_records = LazyModule("ottla.api.delete_records")
    describe_producers = LazyModule("ottla.api.describe_producers")


def write_routes(
    context: "NodeContext", watch: ImageWatch, hosting: Hosting, verifier: TransactionVerifier
) -> tuple[Route, ...]:
    """Return their routes."""
    partitions = hosting.partitions
    return (
        *ProduceHandler(
            partitions,
            lambda: watch.image,
            context.ports.clock,
            verifier=verifier,
            events=context.meters.topics,
            worker=ThreadWorker("produce"),
        ).routes(),
        *late_routes(
            lambda: delete_records.DeleteRecordsHandler(partitions).routes(),
            ApiKey.DELETE_RECORDS,
        ),
        *late_routes(
            lambda: describe_producers.DescribeProducersHandler(partitions).routes(),
            ApiKey.DESCRIBE_PRODUCERS,
        ),
    )
