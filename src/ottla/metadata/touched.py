"""Which parts of the image a batch of records reached, noted while they are replayed.

Ordered by first touch, so that what follows from it has one order.
"""

import msgspec

from ottla.metadata.access import ScramUser
from ottla.metadata.configs import ConfigResource, QuotaEntity
from ottla.protocol.types import Uuid


class Touched(msgspec.Struct):
    """Keys that records named. The dictionaries are ordered sets; values of ``topics`` too.

    A key here may turn out unchanged: a record can set what was set before.
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
        """Note all that ``other`` noted, after what is noted here."""
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
        """Note that a partition was named."""
        self.topics.setdefault(topic_id, {})[partition_id] = None
