"""Coordinators are constructed when first needed: by a partition led here, or by a request."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from replicas_fixtures import Broker, image_of, partition_of

from ottla.api.surface.routes import ANONYMOUS, Caller
from ottla.metadata.delta import delta_between
from ottla.metadata.image import EMPTY
from ottla.node.broker import coordinators
from ottla.node.broker.coordinators import CoordinatorDependencies, Coordinators
from ottla.node.broker.leaderships import follow_leaderships
from ottla.runtime.ports import Address

OFFSETS = "__consumer_offsets"
CALLER = Caller(ANONYMOUS, "c", Address("127.0.0.1", 1), "CLIENT")


@dataclass
class Follower:
    """Follows the leaderships of one topic."""

    topic: str = OFFSETS
    events: list[tuple] = field(default_factory=list)

    def on_led(self, topic: str, index: int, epoch: int) -> None:
        self.events.append(("led", topic, index, epoch))

    def on_unled(self, topic: str, index: int, epoch: int | None) -> None:
        self.events.append(("unled", topic, index, epoch))


def test_new_follower_is_notified_of_partitions_already_led() -> None:
    mine, other = partition_of(1, 2, epoch=4), partition_of(2, 1)
    broker = Broker().start(
        image_of({OFFSETS: (1, {0: mine, 1: other}), "orders": (2, {0: partition_of(1)})})
    )
    follower = Follower()
    follow_leaderships(broker.partitions, follower)
    assert follower.events == [("led", OFFSETS, 0, 4)]
    moved = {0: partition_of(1, 2, leader=2, epoch=5), 1: other}
    broker.publish(image_of({OFFSETS: (1, moved), "orders": (2, {0: partition_of(1)})}))
    assert follower.events[1:] == [("unled", OFFSETS, 0, 5)]


# -- the coordinators of a broker ----------------------------------------------------


class FakeService:
    def __init__(self, name: str, journal: list[str], running: Callable[[], None]) -> None:
        self.name = name
        self._running = running
        self._journal = journal

    async def run(self, ready: Callable[[], None]) -> None:
        self._journal.append(f"{self.name} runs")
        ready()
        self._running()
        try:
            await asyncio.Event().wait()
        finally:
            self._journal.append(f"{self.name} ends")


class FakeNode:
    """Coordinators over a broker's partitions, constructed from fakes that record what happens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = Broker().start()
        self.journal: list[str] = []
        self.all_run = asyncio.Event()
        for module in ("group_services", "transaction_services", "share_services"):
            monkeypatch.setattr(coordinators, module, self)
        replica_manager: Any = SimpleNamespace(partitions=self.broker.partitions)
        watch: Any = SimpleNamespace(image=EMPTY)
        none: Any = None
        broker = SimpleNamespace(
            ottla_metrics_listener=None,
            ottla_otlp_metrics_enable=False,
            ottla_consumer_lag_interval_ms=0,
        )
        context: Any = SimpleNamespace(loaded=SimpleNamespace(broker=broker))
        dependencies = CoordinatorDependencies(
            context, watch, none, replica_manager, create_topic=lambda topic: None
        )
        self.coordinators = Coordinators(dependencies)

    def build_group_services(self, *parts: object) -> object:
        self.journal.append("made")
        return SimpleNamespace(
            coordinator=None,
            services=(FakeService("groups", self.journal, lambda: None),),
            publishers=(SimpleNamespace(on_image=self._on_image),),
        )

    def build_transaction_services(self, *parts: object) -> object:
        return SimpleNamespace(links=None, services=())

    def build_share_services(self, *parts: object) -> object:
        return SimpleNamespace(
            services=(FakeService("shares", self.journal, self.all_run.set),), publishers=()
        )

    def _on_image(self, delta: object, image: object) -> None:
        self.journal.append("image")

    def publish(self, **topics: Any) -> None:
        image = image_of(topics)
        before, self.broker.image = self.broker.image, self.broker.image
        self.broker.publish(image)
        self.coordinators.on_image(delta_between(before, image), image)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    return FakeNode(monkeypatch)


def test_partitions_of_other_topics_construct_no_coordinator(node: FakeNode) -> None:
    node.publish(orders=(2, {0: partition_of(1)}))
    node.publish(orders=(2, {0: partition_of(1)}), **{OFFSETS: (1, {0: partition_of(2, 1)})})
    assert node.journal == []


def test_first_led_partition_constructs_the_coordinators(node: FakeNode) -> None:
    node.publish(**{OFFSETS: (1, {0: partition_of(1), 1: partition_of(1)})})
    assert node.journal == ["made", "image"]
    node.publish(**{OFFSETS: (1, {0: partition_of(1), 1: partition_of(1, epoch=1)})})
    assert node.journal == ["made", "image", "image"]


def test_coordinator_services_start_in_order_and_stop_in_reverse(node: FakeNode) -> None:
    async def main() -> None:
        readied: list[int] = []
        async with asyncio.TaskGroup() as tasks:
            service = tasks.create_task(node.coordinators.run(lambda: readied.append(1)))
            await asyncio.sleep(0)
            assert readied == [1] and node.journal == []
            node.coordinators.get()
            await node.all_run.wait()
            service.cancel()

    asyncio.run(main())
    assert node.journal == ["made", "groups runs", "shares runs", "shares ends", "groups ends"]
