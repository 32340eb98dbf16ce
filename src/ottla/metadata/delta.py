"""The differences between two images, so that publishers only process what changed.

A delta contains only real differences: a record that set a value to what it was leaves no trace,
and neither does something created and deleted within one batch.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec
from immutables import Map

from ottla.metadata.access import DelegationToken, ScramCredential, ScramUser
from ottla.metadata.configs import ConfigResource, QuotaEntity
from ottla.metadata.image import Image
from ottla.metadata.registrations import BrokerRegistration, ControllerRegistration
from ottla.metadata.topics import PartitionRegistration, Topic
from ottla.metadata.touched import Touched
from ottla.protocol.types import TopicIdPartition, Uuid
from ottla.security.acl import Acl

K = TypeVar("K")
T = TypeVar("T")


class Change(msgspec.Struct, Generic[T], frozen=True):
    """A value before and after; None if there was or is none. The two always differ."""

    old: T | None
    new: T | None

    def is_deleted(self) -> bool:
        """Return whether the value no longer exists."""
        return self.new is None


class TopicDelta(msgspec.Struct, frozen=True):
    """A topic that was created, deleted, or some of whose partitions changed.

    If the topic was deleted, so are all its partitions; if it was created, so are all of them.
    """

    old: Topic | None
    new: Topic | None
    partitions: Mapping[int, Change[PartitionRegistration]]

    def is_deleted(self) -> bool:
        """Return whether the topic no longer exists."""
        return self.new is None

    def topic(self) -> Topic:
        """Return the topic as it is, or as it was last."""
        topic = self.new if self.new is not None else self.old
        assert topic is not None
        return topic


class Delta(msgspec.Struct, frozen=True):
    """All differences between ``old`` and ``new``, by key, each in order of first mention."""

    old: Image
    new: Image
    features: Mapping[str, Change[int]]
    brokers: Mapping[int, Change[BrokerRegistration]]
    controllers: Mapping[int, Change[ControllerRegistration]]
    topics: Mapping[Uuid, TopicDelta]
    configs: Mapping[ConfigResource, Change[Map[str, str]]]
    client_quotas: Mapping[QuotaEntity, Change[Map[str, float]]]
    next_producer_id: Change[int] | None
    acls: Mapping[Uuid, Change[Acl]]
    scram: Mapping[ScramUser, Change[ScramCredential]]
    delegation_tokens: Mapping[str, Change[DelegationToken]]

    def is_empty(self) -> bool:
        """Return whether nothing changed except, perhaps, the provenance."""
        return self.next_producer_id is None and not any(
            (
                self.features,
                self.brokers,
                self.controllers,
                self.topics,
                self.configs,
                self.client_quotas,
                self.acls,
                self.scram,
                self.delegation_tokens,
            )
        )

    def created_topics(self) -> list[Topic]:
        """Return the topics that were created."""
        return [t.new for t in self.topics.values() if t.old is None and t.new is not None]

    def deleted_topics(self) -> list[Topic]:
        """Return the topics that were deleted, as they were last."""
        return [t.old for t in self.topics.values() if t.new is None and t.old is not None]

    def partitions(self) -> Iterable[tuple[TopicIdPartition, Change[PartitionRegistration]]]:
        """Yield every partition that was created, deleted or changed."""
        for topic_id, topic in self.topics.items():
            for partition_id, change in topic.partitions.items():
                yield TopicIdPartition(topic_id, partition_id), change


def delta_of(old: Image, new: Image, touched: Touched) -> Delta:
    """Return the differences among the keys in ``touched``."""
    return Delta(
        old,
        new,
        features=_changes(touched.features, old.features.levels.get, new.features.levels.get),
        brokers=_changes(touched.brokers, old.cluster.brokers.get, new.cluster.brokers.get),
        controllers=_changes(
            touched.controllers, old.cluster.controllers.get, new.cluster.controllers.get
        ),
        topics=_topic_deltas(old, new, touched.topics),
        configs=_changes(touched.configs, old.configs.by_resource.get, new.configs.by_resource.get),
        client_quotas=_changes(
            touched.client_quotas, old.client_quotas.by_entity.get, new.client_quotas.by_entity.get
        ),
        next_producer_id=_change(old.next_producer_id, new.next_producer_id),
        acls=_changes(touched.acls, old.acls.get, new.acls.get),
        scram=_changes(touched.scram, old.scram.get, new.scram.get),
        delegation_tokens=_changes(
            touched.delegation_tokens, old.delegation_tokens.get, new.delegation_tokens.get
        ),
    )


def delta_between(old: Image, new: Image) -> Delta:
    """Return the differences of two unrelated images.

    For a snapshot that replaces an image. Reads every key of both.
    """
    touched = Touched(
        features=_keys(old.features.levels, new.features.levels),
        brokers=_keys(old.cluster.brokers, new.cluster.brokers),
        controllers=_keys(old.cluster.controllers, new.cluster.controllers),
        configs=_keys(old.configs.by_resource, new.configs.by_resource),
        # Names may be None, which does not compare: sorted by their printed form.
        client_quotas=dict.fromkeys(
            sorted({*old.client_quotas.by_entity, *new.client_quotas.by_entity}, key=repr)
        ),
        acls=_keys(old.acls, new.acls),
        scram=_keys(old.scram, new.scram),
        delegation_tokens=_keys(old.delegation_tokens, new.delegation_tokens),
    )
    for topic_id in _keys(old.topics.by_id, new.topics.by_id):
        before, after = old.topics.by_id.get(topic_id), new.topics.by_id.get(topic_id)
        if before is not after:
            touched.topics[topic_id] = _keys(_partitions(before), _partitions(after))
    return delta_of(old, new, touched)


def _topic_deltas(
    old: Image, new: Image, touched: dict[Uuid, dict[int, None]]
) -> dict[Uuid, TopicDelta]:
    found: dict[Uuid, TopicDelta] = {}
    for topic_id, named in touched.items():
        before, after = old.topics.by_id.get(topic_id), new.topics.by_id.get(topic_id)
        changes = _changes(named, _partitions(before).get, _partitions(after).get)
        if changes or (before is None) != (after is None):
            found[topic_id] = TopicDelta(before, after, changes)
    return found


def _partitions(topic: Topic | None) -> Map[int, PartitionRegistration]:
    return _NO_PARTITIONS if topic is None else topic.partitions


def _changes(
    keys: Iterable[K], old: Callable[[K], T | None], new: Callable[[K], T | None]
) -> dict[K, Change[T]]:
    found: dict[K, Change[T]] = {}
    for key in keys:
        change = _change(old(key), new(key))
        if change is not None:
            found[key] = change
    return found


def _change(old: T | None, new: T | None) -> Change[T] | None:
    return None if old is new or old == new else Change(old, new)


def _keys(old: Map[K, T], new: Map[K, T]) -> dict[K, None]:
    return dict.fromkeys(sorted({*old, *new}))  # type: ignore[type-var]


_NO_PARTITIONS: Map[int, PartitionRegistration] = Map()
