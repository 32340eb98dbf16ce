"""Metadata lists a broker that was fenced a moment ago, so that clients do not drop it early."""

from partition_fixtures import HandClock

from ottla.api.cluster.fenced_brokers import LISTED_MS, FencedBrokers
from ottla.api.cluster.metadata import ClusterHandlers
from ottla.api.surface.replies import finish
from ottla.api.surface.routes import ANONYMOUS, Caller
from ottla.metadata.delta import delta_between
from ottla.metadata.image import EMPTY, Image
from ottla.metadata.replay import replay_all
from ottla.protocol.internal.metadata_cluster import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.schema import Message
from ottla.runtime.ports import Address

ME = Caller(ANONYMOUS, "c", Address("127.0.0.1", 1), "CLIENT")
FENCE, UNFENCE, SHUT_DOWN = 1, -1, 1


def registered(node_id: int) -> Message:
    return RegisterBrokerRecord(
        broker_id=node_id,
        broker_epoch=node_id,
        end_points=[BrokerEndpoint("CLIENT", f"h{node_id}", 9092, 0)],
        fenced=False,
    )


def changed(node_id: int, *, fenced: int = 0, shutdown: int = 0) -> Message:
    return BrokerRegistrationChangeRecord(node_id, node_id, fenced, shutdown)


class Watched:
    """A broker's view of a cluster of three brokers, 1 to 3."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.fenced = FencedBrokers(self.clock)
        self.image: Image = EMPTY
        self.replay(*map(registered, (1, 2, 3)))
        self.handlers = ClusterHandlers(
            "C", lambda: self.image, lambda: 2, recently_fenced=self.fenced.recent
        )

    def replay(self, *records: Message) -> None:
        image = replay_all(self.image, records)
        self.fenced.on_image(delta_between(self.image, image), image)
        self.image = image

    def listed(self) -> list[int]:
        reply = finish(self.handlers.metadata_steps(ME, MetadataRequest([]), 13))
        return [broker.node_id for broker in reply.brokers]


def test_broker_that_failed_is_listed_for_a_moment_after_it_is_fenced() -> None:
    watched = Watched()
    watched.replay(changed(2, fenced=FENCE))
    assert watched.listed() == [1, 2, 3]
    watched.clock.pass_ms(LISTED_MS - 1)
    assert watched.listed() == [1, 2, 3]
    watched.clock.pass_ms(1)
    assert watched.listed() == [1, 3]


def test_fenced_broker_is_neither_described_nor_named_as_controller() -> None:
    watched = Watched()
    watched.replay(changed(2, fenced=FENCE))
    described = watched.handlers.on_describe_cluster(ME, DescribeClusterRequest(), 1)
    assert [broker.broker_id for broker in described.brokers] == [1, 3]
    steps = watched.handlers.metadata_steps(ME, MetadataRequest([]), 13)
    assert finish(steps).controller_id == 1


def test_broker_that_shut_down_in_order_is_not_listed() -> None:
    watched = Watched()
    watched.replay(changed(2, shutdown=SHUT_DOWN))
    watched.replay(changed(2, fenced=FENCE))
    assert watched.listed() == [1, 3]


def test_broker_that_is_unregistered_or_unfenced_is_not_remembered() -> None:
    watched = Watched()
    watched.replay(changed(2, fenced=FENCE), changed(3, fenced=FENCE))
    assert watched.listed() == [1, 2, 3]
    watched.replay(UnregisterBrokerRecord(2, 2), changed(3, fenced=UNFENCE))
    assert watched.listed() == [1, 3]
    assert not watched.fenced.recent()


def test_broker_fenced_before_the_first_image_is_not_listed() -> None:
    watched = Watched()
    watched.replay(changed(2, fenced=FENCE))
    late = FencedBrokers(watched.clock)
    late.on_image(delta_between(EMPTY, watched.image), watched.image)
    assert not late.recent()
