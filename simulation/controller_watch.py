"""The invariants of simulated controllers, checked from outside; the watch survives every crash.

Besides those of any quorum (`QuorumWatch`):

* the image at an offset is the same on every node, whether it was built from records or from a
  snapshot, and contains only committed changes;
* an acknowledged change is published at that time, and is in every image at the end;
* topic names are unique: two creations of a name are never both acknowledged;
* a rejection refers to state that was committed at some time, never to an uncommitted change.

The outcome of a change without a reply is open: it may or may not have happened.
"""

from dataclasses import dataclass, field
from hashlib import blake2b

from ottla.metadata.configs import ConfigResource, ConfigResourceType
from ottla.metadata.image import EMPTY, Image
from ottla.protocol.internal.framing import encode_framed
from ottla.protocol.types import Uuid
from ottla.raft.applier import CommittedBatch
from simulation.ledger import InvariantBroken
from simulation.quorum_watch import QuorumWatch

CONFIG = "retention.ms"
# Offsets whose images are kept: more than a node lags in the minute that a simulation lasts.
IMAGES_MAX = 2000


@dataclass
class Known:
    """What clients know of a topic. ``exists`` is None while that is open, and stays so.

    ``values`` are the possible values of its config, None for unset; one value if it is certain.
    """

    exists: bool | None = None
    topic_id: Uuid | None = None
    values: set[str | None] = field(default_factory=lambda: {None})


class ControllerWatch(QuorumWatch):
    """The images of all nodes, and the replies to clients."""

    def __init__(self) -> None:
        super().__init__()
        self.topics: dict[str, Known] = {}
        self.acknowledged = 0
        self.refused = 0
        self.open = 0
        self.is_calm = False  # one leader, known to all: no reply comes from an old leader epoch
        self.is_over = False  # clients stop once the outcome of their last change is known
        self.newest = EMPTY
        self.images: dict[str, Image] = {}
        self._by_offset: dict[int, Image] = {}
        self._ever: set[str] = set()

    # -- what nodes show -------------------------------------------------------

    def committed_batch(self, node: str, batch: CommittedBatch) -> None:
        """Record that a node received a committed batch."""
        digests = tuple(
            blake2b(encode_framed(record), digest_size=8).hexdigest() for record in batch.records
        )
        entry = (int(batch.next_offset), int(batch.epoch), digests)
        self.applied(node, int(batch.base_offset), entry)

    def published(self, node: str, image: Image, committed: int) -> None:
        """Check a published image; the node considers everything before ``committed`` committed."""
        offset = image.provenance.offset
        self.images[node] = image
        if offset >= committed:
            raise InvariantBroken(f"{node} shows {offset}, committed is what is before {committed}")
        if self._by_offset.setdefault(offset, image) != image:
            raise InvariantBroken(f"{node} shows another image at {offset} than others did")
        if len(self._by_offset) > IMAGES_MAX:
            del self._by_offset[min(self._by_offset)]
        if offset > self.newest.provenance.offset:
            self._ever.update(name for name in image.topics.ids if name not in self._ever)
            self.newest = image

    # -- replies to clients ----------------------------------------------------

    def wanted(self, topic: str) -> None:
        """Record that a client wants a topic."""
        self.topics.setdefault(topic, Known())

    def created(self, topic: str, topic_id: Uuid) -> None:
        """Record that a creation was acknowledged."""
        known = self.topics[topic]
        if known.topic_id is not None or known.exists is False:
            raise InvariantBroken(f"{topic} was created twice, or again after it was deleted")
        known.exists, known.topic_id = True, topic_id
        self._must_show(topic, known)

    def found(self, topic: str) -> None:
        """Check a creation that was rejected because the topic exists."""
        self.refused += 1
        if topic not in self._ever:
            raise InvariantBroken(f"{topic} is reported to exist, and was never committed")
        known = self.topics[topic]
        known.exists = True if known.exists is None else known.exists

    def configured(self, topic: str, value: str) -> None:
        """Record that a config change was acknowledged."""
        self.topics[topic].values = {value}
        self._must_show(topic, self.topics[topic])

    def deleted(self, topic: str) -> None:
        """Record that a deletion was acknowledged."""
        self.topics[topic].exists = False
        self._must_show(topic, self.topics[topic])

    def not_found(self, topic: str, *, is_calm: bool) -> None:
        """Check a change that was rejected because the topic is unknown. A former leader may say
        so.
        """
        self.refused += 1
        if is_calm and self.topics[topic].exists:
            raise InvariantBroken(f"{topic} exists, and the leader says that it does not")

    def _must_show(self, topic: str, known: Known) -> None:
        self.acknowledged += 1
        check_topic("the newest image", self.newest, topic, known)

    # -- the end ---------------------------------------------------------------

    def audit(self, node: str) -> None:
        """Check that a complete node has every acknowledged change, and none that was not
        requested.
        """
        image = self.images[node]
        for topic, known in self.topics.items():
            check_topic(node, image, topic, known)
        unasked = set(image.topics.ids) - set(self.topics)
        if unasked:
            raise InvariantBroken(f"{node} has {sorted(unasked)}, which no client requested")


def check_topic(where: str, image: Image, topic: str, known: Known) -> None:
    """Check an image against what is known of a topic."""
    at = image.provenance.offset
    topic_id = image.topics.ids.get(topic)
    if known.exists is None:
        return
    if known.exists is not (topic_id is not None):
        raise InvariantBroken(f"{where} at {at}: {topic} there={topic_id!r}, acknowledged {known}")
    if not known.exists:
        return
    if known.topic_id is not None and topic_id != known.topic_id:
        raise InvariantBroken(f"{where} at {at}: {topic} has id {topic_id!r}, acknowledged {known}")
    value = image.configs.of(ConfigResource(ConfigResourceType.TOPIC, topic)).get(CONFIG)
    if value not in known.values:
        raise InvariantBroken(
            f"{where} at {at}: {topic} has {CONFIG}={value}, acknowledged {known}"
        )
