"""The keys of the image that a batch of records may have changed, collected during replay.

Ordered by first occurrence, so that everything derived from it is deterministic.
"""

import msgspec

from ottla.metadata.access import ScramUser
from ottla.metadata.configs import ConfigResource, QuotaEntity
from ottla.protocol.types import Uuid


class Touched(msgspec.Struct):
    """Keys that records named. The dictionaries are ordered sets; values of ``topics`` too.

    A key here may be unchanged: a record can set a value to what it was.
    """

    features: dict[str, None] = msgspec.field(default_factory=dict)
    brokers: dict[int, None] = msgspec.field(default_factory=dict)
    controllers: dict[int, None] = msgspec.field(default_factory=dict)
    topics: dict[Uuid, dict[int, None]] = msgspec.field(default_factory=dict)
    configs: dict[ConfigResource, None] = msgspec.field(default_factory=dict)
    client_quotas: dict[QuotaEntity, None] = msgspec.field(default_factory=dict)
    acls: dict[Uuid, None] = msgspec.field(default_factory=dict)
    scram: dict[ScramUser, None] = msgspec.field(default_factory=dict)
    delegation_tokens: dict[str, None] = msgspec.field(default_factory=dict)

    def include(self, other: "Touched") -> None:
        """Add all keys of ``other``, after those already here."""
        for topic_id, partition_ids in other.topics.items():
            self.topics.setdefault(topic_id, {}).update(partition_ids)
        self.features.update(other.features)
        self.brokers.update(other.brokers)
        self.controllers.update(other.controllers)
        self.configs.update(other.configs)
        self.client_quotas.update(other.client_quotas)
        self.acls.update(other.acls)
        self.scram.update(other.scram)
        self.delegation_tokens.update(other.delegation_tokens)

    def partition(self, topic_id: Uuid, partition_id: int) -> None:
        """Add a partition."""
        self.topics.setdefault(topic_id, {})[partition_id] = None
