"""The replication throttles of one broker, as the image sets them (KIP-73)."""

import logging
from collections.abc import Mapping

from ottla.config.layers import Layers, effective_broker_value
from ottla.config.values import BadValue
from ottla.metadata.configs import ConfigResource, ConfigResourceType
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.protocol.types import Millis, NodeId
from ottla.quotas.replication_throttle import Allowance, is_throttled
from ottla.replication.partition import Partition
from ottla.runtime.ports import Clock

log = logging.getLogger(__name__)


class Throttles:
    """Publisher: keeps the current rates. Checks of a partition cost nothing without throttles."""

    name = "replication-throttles"

    def __init__(self, node_id: NodeId, static: Mapping[str, str], clock: Clock) -> None:
        self._node_id = node_id
        self._static = static
        self._clock = clock
        self.leader = Allowance()
        self.follower = Allowance()
        self.moves = Allowance()
        self._by_key = {
            "leader.replication.throttled.rate": self.leader,
            "follower.replication.throttled.rate": self.follower,
            "replica.alter.log.dirs.io.max.bytes.per.second": self.moves,
        }

    def on_image(self, delta: Delta, image: Image) -> None:
        """Apply new rates; an invalid one leaves the old rate in force."""
        if delta.old.configs is image.configs:
            return
        own = ConfigResource(ConfigResourceType.BROKER, str(self._node_id))
        cluster = ConfigResource(ConfigResourceType.BROKER, "")
        layers = Layers(image.configs.of(own), image.configs.of(cluster), self._static)
        for key, allowance in self._by_key.items():
            try:
                rate = effective_broker_value(layers, key)
            except BadValue as error:
                log.warning("throttle not changed key=%s reason=%s", key, error)
                continue
            assert isinstance(rate, int)
            allowance.limit(rate)

    # -- on the leader ---------------------------------------------------------

    def holds_back_follower(self, partition: Partition, replica_id: int) -> bool:
        """Whether a fetching follower is throttled and gets no records now."""
        return (
            self.leader.is_limited
            and replica_id not in partition.isr
            and self._is_leader_throttled(partition)
            and self.leader.is_exceeded(self._now())
        )

    def sent(self, partition: Partition, size: int) -> None:
        """Record bytes sent to a follower."""
        if self.leader.is_limited and size and self._is_leader_throttled(partition):
            self.leader.spend(size, self._now())

    def _is_leader_throttled(self, partition: Partition) -> bool:
        listed = partition.config.leader_replication_throttled_replicas
        return is_throttled(listed, partition.index, self._node_id)

    # -- on the follower -------------------------------------------------------

    def holds_back(self, partition: Partition) -> bool:
        """Whether this broker is throttled and may not fetch for a partition now."""
        return (
            self.follower.is_limited
            and self._node_id not in partition.isr
            and self._is_follower_throttled(partition)
            and self.follower.is_exceeded(self._now())
        )

    def fetched(self, partition: Partition, size: int) -> None:
        """Record bytes that were fetched."""
        if self.follower.is_limited and size and self._is_follower_throttled(partition):
            self.follower.spend(size, self._now())

    def _is_follower_throttled(self, partition: Partition) -> bool:
        listed = partition.config.follower_replication_throttled_replicas
        return is_throttled(listed, partition.index, self._node_id)

    # -- between directories ---------------------------------------------------

    def moved(self, size: int) -> int:
        """Record bytes copied to another directory; return how many milliseconds to wait."""
        self.moves.spend(size, self._now())
        return self.moves.wait_ms(self._now())

    def _now(self) -> Millis:
        return self._clock.monotonic()
