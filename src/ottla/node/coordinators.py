"""The coordinators of a broker: groups, transactions, share groups; made when one is needed.

They are a third of the broker's code, and a broker that leads no partition of their topics does
without. So they come to be when it first leads one, or when a client first speaks to one; what
they would have done before is nothing.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ottla.api.late_routes import Promise, late_routes
from ottla.api.produce_transaction import InTransaction
from ottla.api.routes import Route
from ottla.coordinators.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.metadata.image_watch import ImageWatch
from ottla.node.controller_channel import ControllerChannel
from ottla.node.hosting import Hosting
from ottla.observability.http import Page
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, TopicPartition
from ottla.runtime.lazy import Lazy, LazyModule
from ottla.runtime.supervisor import supervise

if TYPE_CHECKING:
    from ottla.api import find_coordinator, producer_ids
    from ottla.node import coordination, group_pages, sharing
    from ottla.node.build import NodeContext
else:
    coordination = LazyModule("ottla.node.coordination")
    group_pages = LazyModule("ottla.node.group_pages")
    sharing = LazyModule("ottla.node.sharing")
    find_coordinator = LazyModule("ottla.api.find_coordinator")
    producer_ids = LazyModule("ottla.api.producer_ids")

TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})

GROUPS: Final = (
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_DESCRIBE,
    Promise(ApiKey.OFFSET_COMMIT, has_fast_path=True),
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
)
TRANSACTIONS: Final = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
)
SHARE_GROUPS: Final = (
    Promise(ApiKey.SHARE_FETCH, cancel_when_gone=True),
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)


class Built(msgspec.Struct, frozen=True):
    """The coordinators, once they are there."""

    coordination: "coordination.Coordination"
    sharing: "sharing.Sharing"


class CoordinatorDependencies(msgspec.Struct, frozen=True):
    """What coordinators reach of the rest of the node; ``create`` has an internal topic made."""

    watch: ImageWatch
    channel: ControllerChannel
    hosting: Hosting
    create: Callable[[str], None]

    def image(self) -> Image:
        """Return the newest image."""
        return self.watch.image


class Coordinators:
    """Service, publisher and verifier in their place. What is led is known from the start on."""

    name = "group-coordinator"

    def __init__(self, context: "NodeContext", ways: CoordinatorDependencies) -> None:
        self._context = context
        self._ways = ways
        self._built = Lazy(self._build)
        self._wanted = asyncio.Event()
        ways.hosting.partitions.on_led(self._on_led)

    def get(self) -> Built:
        """Return them; they work from now on."""
        return self._built.get()

    def _build(self) -> Built:
        context, ways = self._context, self._ways
        made = coordination.build_coordination(context, ways.watch, ways.channel, ways.hosting)
        share_ways = sharing.ShareDependencies(made.groups, made.transacting.links, ways.create)
        shared = sharing.build_sharing(context, ways.watch, ways.hosting, share_ways)
        self._wanted.set()
        return Built(made, shared)

    def _on_led(self, topic: str, index: int, epoch: LeaderEpoch) -> None:
        """Come to be: whoever is made now finds by itself what is led."""
        if topic in TOPICS:
            self.get()

    def on_image(self, delta: Delta, image: Image) -> None:
        """Pass it on to those who keep something."""
        if self._built.is_made:
            built = self.get()
            for publisher in (*built.coordination.publishers, *built.sharing.publishers):
                publisher.on_image(delta, image)

    def verify(
        self, wanted: InTransaction
    ) -> Coroutine[Any, Any, Mapping[TopicPartition, ErrorCode]]:
        """Ask the coordinator of a transaction about a write, see `Verification`."""
        return self.get().coordination.transacting.verification.verify(wanted)

    async def run(self, ready: Callable[[], None]) -> None:
        """Run their services for as long as this one runs."""
        ready()
        await self._wanted.wait()
        built = self.get()
        services = (*built.coordination.services, *built.sharing.services)
        # Ended by being cancelled, as this service is.
        await supervise(services, asyncio.Event())

    def group_page(self, rest: str) -> Page:
        """Return a page below /groups/."""
        now = self._context.ports.clock.now()
        return group_pages.group_page(self.get().coordination.groups, self._ways.image, now, rest)

    # -- routes ----------------------------------------------------------------

    def routes(self) -> tuple[Route, ...]:
        """Return all of their routes."""
        ways = self._ways
        return (
            *late_routes(
                lambda: find_coordinator.FindCoordinatorHandler(ways.image, ways.create).routes(),
                ApiKey.FIND_COORDINATOR,
            ),
            *late_routes(lambda: self.get().coordination.routes(ways.image), *GROUPS),
            *late_routes(self._transaction_routes, *TRANSACTIONS),
            *late_routes(lambda: self.get().sharing.routes(), *SHARE_GROUPS),
        )

    def _transaction_routes(self) -> tuple[Route, ...]:
        made = self.get().coordination
        transacting = made.transacting
        ids = producer_ids.InitProducerIdHandler(transacting.ids, transacting.coordinator)
        return (*ids.routes(), *transacting.routes(made.groups, self._ways.hosting))
