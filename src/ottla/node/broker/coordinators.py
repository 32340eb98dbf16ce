"""The coordinators of a broker: groups, transactions, share groups; constructed on first use.

They are a third of the broker's code, and a broker that leads no partition of their topics does
without them. So they are constructed when it first leads one, or with the first request for one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ottla.api.produce.transaction import InTransaction
from ottla.coordinators.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.metadata.image_watch import ImageWatch
from ottla.metadata.publishing import Publisher
from ottla.node.broker.replica_manager import ReplicaManager
from ottla.node.context import NodeContext
from ottla.node.controller.controller_channel import ControllerChannel
from ottla.node.metrics.otlp_endpoints import shows_metrics
from ottla.observability.exposition import Family
from ottla.observability.http import Page
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, TopicPartition
from ottla.runtime.lazy import Lazy, LazyModule
from ottla.runtime.supervisor import Service, supervise

if TYPE_CHECKING:
    from ottla.node.broker import (
        consumer_lag,
        group_pages,
        group_services,
        share_services,
        transaction_services,
    )
else:
    consumer_lag = LazyModule("ottla.node.broker.consumer_lag")
    group_pages = LazyModule("ottla.node.broker.group_pages")
    group_services = LazyModule("ottla.node.broker.group_services")
    share_services = LazyModule("ottla.node.broker.share_services")
    transaction_services = LazyModule("ottla.node.broker.transaction_services")

TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})


class CoordinatorServices(msgspec.Struct, frozen=True):
    """The coordinators, once they are constructed."""

    groups: "group_services.GroupServices"
    transactions: "transaction_services.TransactionServices"
    shares: "share_services.ShareServices"
    lag: "consumer_lag.ConsumerLag | None" = None
    """Measures the lag of groups; None where no metrics are served."""

    @property
    def services(self) -> tuple[Service, ...]:
        """All of their services, in the order they start."""
        lag = () if self.lag is None else (self.lag,)
        return (*self.groups.services, *self.transactions.services, *self.shares.services, *lag)

    @property
    def publishers(self) -> tuple[Publisher, ...]:
        """Those that follow the image."""
        return (*self.groups.publishers, *self.shares.publishers)


class CoordinatorDependencies(msgspec.Struct, frozen=True):
    """What coordinators need of the rest of the node."""

    context: NodeContext
    watch: ImageWatch
    channel: ControllerChannel
    replica_manager: ReplicaManager
    create_topic: Callable[[str], None]
    """Has an internal topic created."""

    def image(self) -> Image:
        """Return the newest image."""
        return self.watch.image


class Coordinators:
    """Stands for the coordinators as a service, a publisher and a verifier of transactions."""

    name = "group-coordinator"

    def __init__(self, dependencies: CoordinatorDependencies) -> None:
        self._dependencies = dependencies
        self._built = Lazy(self._build)
        self._is_built = asyncio.Event()
        dependencies.replica_manager.partitions.on_led(self._on_led)

    def get(self) -> CoordinatorServices:
        """Return the coordinators; the first call constructs them, and their services start."""
        return self._built.get()

    def _build(self) -> CoordinatorServices:
        dependencies = self._dependencies
        groups = group_services.build_group_services(dependencies)
        transactions = transaction_services.build_transaction_services(
            dependencies, groups.coordinator
        )
        shares = share_services.build_share_services(
            dependencies, groups.coordinator, transactions.links
        )
        self._is_built.set()
        return CoordinatorServices(groups, transactions, shares, self._lag(groups, shares))

    def _lag(
        self, groups: "group_services.GroupServices", shares: "share_services.ShareServices"
    ) -> "consumer_lag.ConsumerLag | None":
        dependencies = self._dependencies
        config = dependencies.context.loaded.broker
        interval_ms = config.ottla_consumer_lag_interval_ms
        if not shows_metrics(config) or interval_ms == 0:
            return None
        sources = consumer_lag.LagSources(
            groups.coordinator.runtime.views,
            shares.ends,
            shares.shares,
            dependencies.image,
            dependencies.context.ports.clock,
        )
        return consumer_lag.ConsumerLag(sources, interval_ms)

    def collect(self) -> Iterable[Family | None]:
        """Yield the lag and the dead letters of groups, once a coordinator exists."""
        if not self._built.is_made:
            return
        built = self.get()
        if built.lag is not None:
            yield from built.lag.collect()
        yield from built.shares.collect()

    def _on_led(self, topic: str, index: int, epoch: LeaderEpoch) -> None:
        """Construct the coordinators; each one looks up which partitions this broker leads."""
        if topic in TOPICS:
            self.get()

    def on_image(self, delta: Delta, image: Image) -> None:
        """Publish the image to the coordinators; before they exist, nothing keeps one."""
        if self._built.is_made:
            for publisher in self.get().publishers:
                publisher.on_image(delta, image)

    def verify(
        self, write: InTransaction
    ) -> Coroutine[Any, Any, Mapping[TopicPartition, ErrorCode]]:
        """Verify a transactional write with the coordinator of its transaction."""
        return self.get().transactions.verification.verify(write)

    async def run(self, ready: Callable[[], None]) -> None:
        """Run the services of the coordinators once they are constructed."""
        ready()
        await self._is_built.wait()
        # Ended by being cancelled, as this service is.
        await supervise(self.get().services, asyncio.Event())

    def create_topic(self, name: str) -> None:
        """Have an internal topic created."""
        self._dependencies.create_topic(name)

    def group_page(self, rest: str) -> Page:
        """Return a page below /groups/."""
        dependencies = self._dependencies
        now = dependencies.context.ports.clock.now()
        groups = self.get().groups.coordinator
        return group_pages.group_page(groups, dependencies.image, now, rest)
