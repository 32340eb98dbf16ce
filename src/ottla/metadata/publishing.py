"""Who hears of a new image, and in which order.

The order is the same on every node and written down here, since one part of a node relies on
another: what may be done is known before anything new can be done, and a partition is led
before a coordinator takes it over.
"""

from collections.abc import Iterable
from typing import Protocol

from ottla.metadata.delta import Delta, delta_between
from ottla.metadata.image import EMPTY, Image

# First to last. A node has those that its roles need.
ORDER = (
    "features",  # levels decide what everything behind may do
    "metadata-cache",  # what Metadata and DescribeTopicPartitions answer
    "configs",  # before what they configure comes into being
    "client-quotas",
    "connection-limits",  # how many may connect, how fast
    "scram",
    "delegation-tokens",
    "acls",  # before a new topic can be reached
    "replication-throttles",  # before anything is copied
    "replicas",  # leaders and followers of partitions
    "group-coordinator",  # takes over partitions that are led here by now
    "transaction-coordinator",
    "share-coordinator",
    "tiering",
    "controller",  # what the active controller does because of a committed change
    "unclean-recovery",  # partitions that have no leader now
    "registration",  # a broker that has caught up asks to be unfenced
    "snapshots",
    "metrics",
    "watch",  # whoever waits for an image finds all of the node at it
)


class Publisher(Protocol):
    """A part of the node that follows the image."""

    @property
    def name(self) -> str:
        """Its name in `ORDER`."""
        ...

    def on_image(self, delta: Delta, image: Image) -> None:
        """Take note of ``image``, which ``delta`` led to. The delta may be empty.

        Must not fail: state that differs from the image cannot be mended, so the node goes down.
        """
        ...


class Publication:
    """Hands each new image to all publishers, in `ORDER`.

    Before `start` nothing is handed out; `start` hands out the whole state, as a change from
    nothing. Whatever a publisher raises is raised, and nobody behind it hears of the image:
    the publication is then over, and so is the node.
    """

    def __init__(self, publishers: Iterable[Publisher]) -> None:
        self._publishers = sorted(publishers, key=lambda publisher: ORDER.index(publisher.name))
        names = [publisher.name for publisher in self._publishers]
        assert len(set(names)) == len(names), f"a publisher is there twice: {names}"
        self._image: Image | None = None
        self._failed = False

    @property
    def image(self) -> Image | None:
        """The image that all publishers have heard of last."""
        return self._image

    def start(self, image: Image) -> None:
        """Hand out the first image."""
        assert self._image is None, "started twice"
        self._hand_out(delta_between(EMPTY, image))

    def publish(self, delta: Delta) -> None:
        """Hand out the image that ``delta`` led to, from the one handed out before."""
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
