"""The coordinators of a broker: groups, transactions, share groups; made when one is needed.

They are a third of the broker's code, and a broker that leads no partition of their topics does
without. So they come to be when it first leads one, or when a client first speaks to one; what
they would have done before is nothing.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ottla.api.produce_transaction import InTransaction
from ottla.coordinators.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.metadata.image_watch import ImageWatch
from ottla.node.controller_channel import ControllerChannel
from ottla.node.hosting import Hosting
from ottla.observability.http import Page
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, TopicPartition
from ottla.runtime.lazy import Lazy, LazyModule
from ottla.runtime.supervisor import supervise

if TYPE_CHECKING:
    from ottla.node import coordination, group_pages, sharing
    from ottla.node.build import NodeContext
else:
    coordination = LazyModule("ottla.node.coordination")
    group_pages = LazyModule("ottla.node.group_pages")
    sharing = LazyModule("ottla.node.sharing")

TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})


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

    def create_topic(self, name: str) -> None:
        """Have an internal topic created."""
        self._ways.create(name)

    def group_page(self, rest: str) -> Page:
        """Return a page below /groups/."""
        now = self._context.ports.clock.now()
        return group_pages.group_page(self.get().coordination.groups, self._ways.image, now, rest)
