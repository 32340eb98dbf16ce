"""Passes a new image to the parts of a node, in a fixed order.

The order is the same on every node, since some parts depend on others: what is allowed is updated
before anything new can be done, and a partition is led before its coordinator is loaded.
"""

from collections.abc import Iterable
from typing import Protocol

from ottla.metadata.delta import Delta, delta_between
from ottla.metadata.image import EMPTY, Image

# First to last. A node has those that its roles need.
ORDER = (
    "features",  # levels determine what everything after may do
    "metadata-cache",  # for Metadata responses
    "configs",  # before what they configure is created
    "client-quotas",
    "connection-limits",  # the number and rate of connections
    "scram",
    "delegation-tokens",
    "acls",  # before a new topic can be accessed
    "replication-throttles",  # before anything is copied
    "replicas",  # leaders and followers of partitions
    "group-coordinator",  # loads partitions that are led here by now
    "transaction-coordinator",
    "share-coordinator",
    "tiering",
    "schema-registry",  # follows its topic, which may be led here by now
    "client-telemetry",  # what clients are asked to push
    "controller",  # reacts to committed changes if active
    "unclean-recovery",  # partitions that lost their leader
    "broker-probes",  # brokers to dial
    "registration",  # requests unfencing once the broker has caught up
    "snapshots",
    "metrics",
    "watch",  # last: waiters then find the whole node up to date
)


class Publisher(Protocol):
    """A part of the node that follows the image."""

    @property
    def name(self) -> str:
        """Its name in `ORDER`."""
        ...

    def on_image(self, delta: Delta, image: Image) -> None:
        """Process ``image``, which ``delta`` led to. The delta may be empty.

        Must not fail: state that differs from the image cannot be repaired, so the node stops.
        """
        ...


class Publication:
    """Passes each new image to all publishers, in `ORDER`.

    `start` passes the whole state, as a change from the empty image; nothing is passed before. If a
    publisher raises, the exception is raised to the caller and the later publishers do not get the
    image: nothing can be published any more, and the node stops.
    """

    def __init__(self, publishers: Iterable[Publisher]) -> None:
        self._publishers = sorted(publishers, key=lambda publisher: ORDER.index(publisher.name))
        names = [publisher.name for publisher in self._publishers]
        assert len(set(names)) == len(names), f"duplicate publisher: {names}"
        self._image: Image | None = None
        self._failed = False

    @property
    def image(self) -> Image | None:
        """The image that all publishers got last."""
        return self._image

    def start(self, image: Image) -> None:
        """Pass the first image."""
        assert self._image is None, "started twice"
        self._hand_out(delta_between(EMPTY, image))

    def publish(self, delta: Delta) -> None:
        """Pass the image that ``delta`` led to from the previous one."""
        assert delta.old is self._image, "a delta that does not follow the last image"
        self._hand_out(delta)

    def _hand_out(self, delta: Delta) -> None:
        assert not self._failed, "a publisher failed before"
        image = delta.new
        for publisher in self._publishers:
            try:
                publisher.on_image(delta, image)
            except BaseException as error:
                self._failed = True
                error.add_note(f"publisher {publisher.name} at offset {image.provenance.offset}")
                raise
        self._image = image
