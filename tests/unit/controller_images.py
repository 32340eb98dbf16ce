"""Small images for tests of decisions, created by replaying records."""

from collections.abc import Iterable

from ottla.controller.decision import Decision
from ottla.metadata.image import EMPTY, Image
from ottla.metadata.metadata_versions import METADATA_VERSION, MetadataVersion
from ottla.metadata.replay import replay_all
from ottla.protocol.internal.framing import decode_framed, encode_framed
from ottla.protocol.internal.metadata_cluster import (
    BrokerFeature,
    FeatureLevelRecord,
    RegisterBrokerRecord,
)
from ottla.protocol.internal.metadata_records import METADATA_RECORDS
from ottla.protocol.internal.metadata_topics import ConfigRecord, TopicRecord
from ottla.protocol.schema import Message
from ottla.protocol.types import Uuid

BROKER, TOPIC, CLIENT_METRICS, GROUP = 4, 2, 16, 32
NEWEST = MetadataVersion.IBP_4_2_IV1


def image_of(*records: Message, version: int = NEWEST) -> Image:
    """Return the image of a cluster at a metadata.version, after some records."""
    first = FeatureLevelRecord(name=METADATA_VERSION, feature_level=version)
    return replay_all(EMPTY, [first, *records])


def after(image: Image, decision: Decision[Message | None]) -> Image:
    """Return the image once a decision is committed, as replayed from a log."""
    read = [
        decode_framed(METADATA_RECORDS, encode_framed(record)).message
        for record in decision.records
    ]
    return replay_all(image, read)


def topic(name: str) -> TopicRecord:
    """Return a topic without partitions."""
    return TopicRecord(name=name, topic_id=Uuid(name.encode().rjust(16, b"t")))


def broker(
    broker_id: int, epoch: int = 5, features: Iterable[tuple[str, int, int]] = ()
) -> RegisterBrokerRecord:
    """Return a registration."""
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=epoch,
        features=[BrokerFeature(*feature) for feature in features],
    )


def feature(name: str, level: int) -> FeatureLevelRecord:
    """Return a finalized level."""
    return FeatureLevelRecord(name=name, feature_level=level)


def config(kind: int, resource: str, name: str, value: str | None) -> ConfigRecord:
    """Return a configuration that was set."""
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


class CountingRandom:
    """A Random that counts calls."""

    def __init__(self) -> None:
        self.drawn = 0

    def below(self, limit: int) -> int:
        """Return 0."""
        return 0

    def fraction(self) -> float:
        """Return 0."""
        return 0.0

    def bytes(self, length: int) -> bytes:
        """Return bytes that differ from call to call."""
        self.drawn += 1
        return self.drawn.to_bytes(length)

    def uuid(self) -> Uuid:
        """Return a UUID that differs from call to call."""
        self.drawn += 1
        return Uuid((1 << 100 | self.drawn).to_bytes(16))
