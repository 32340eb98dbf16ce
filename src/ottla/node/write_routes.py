"""The writing APIs of a broker, put together: Produce, DeleteRecords, DescribeProducers."""

from typing import TYPE_CHECKING

from ottla.api.late_routes import late_routes
from ottla.api.produce import ProduceHandler
from ottla.api.produce_transaction import TransactionVerifier
from ottla.api.routes import Route
from ottla.metadata.watch import ImageWatch
from ottla.node.hosting import Hosting
from ottla.protocol.api_keys import ApiKey
from ottla.runtime.late import LateModule
from ottla.runtime.worker import ThreadWorker

if TYPE_CHECKING:
    from ottla.api import delete_records, describe_producers
    from ottla.node.build import Ground
else:
    delete_records = LateModule("ottla.api.delete_records")
    describe_producers = LateModule("ottla.api.describe_producers")


def write_routes(
    ground: "Ground", watch: ImageWatch, hosting: Hosting, verifier: TransactionVerifier
) -> tuple[Route, ...]:
    """Return their routes."""
    partitions = hosting.partitions
    return (
        *ProduceHandler(
            partitions,
            lambda: watch.image,
            ground.ports.clock,
            verifier=verifier,
            events=ground.meters.topics,
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
