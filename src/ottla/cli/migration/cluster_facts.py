"""A cluster that is migrated, as plain values that the rules decide on."""

import enum
from collections.abc import Mapping, Sequence

import msgspec

from ottla.protocol.types import TopicPartition


class Software(enum.StrEnum):
    """The software that a node runs."""

    KAFKA = "Kafka"
    OTTLA = "Ottla"
    UNKNOWN = "unknown"


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the cluster. ``problem`` says why it did not answer."""

    node_id: int
    address: str = ""
    is_broker: bool = True
    is_voter: bool = False
    is_active_controller: bool = False
    is_fenced: bool = False
    software: Software = Software.UNKNOWN
    features: Mapping[str, tuple[int, int]] = {}
    metadata_lag: int | None = None
    """Records of the metadata log that the node has not fetched yet; None: not known."""
    problem: str = ""

    @property
    def role(self) -> str:
        """What the node is in the quorum and towards clients."""
        if self.is_broker and self.is_voter:
            return "broker and voter"
        return "broker" if self.is_broker else "voter" if self.is_voter else "controller observer"


class PartitionFacts(msgspec.Struct, frozen=True):
    """A partition: its leader (-1: none), replicas and in-sync replicas."""

    name: TopicPartition
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    min_isr: int = 1


class DiskFacts(msgspec.Struct, frozen=True):
    """A log directory of a broker. Sizes are bytes; -1: not known. ``error`` is 0 if it works."""

    node_id: int
    path: str
    free_bytes: int
    total_bytes: int
    error: int = 0


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster at one time."""

    cluster_id: str | None
    nodes: Sequence[NodeFacts]
    partitions: Sequence[PartitionFacts] = ()
    finalized: Mapping[str, int] = {}
    topic_configs: Mapping[str, Mapping[str, str]] = {}
    """The settings of each topic that has its own."""
    groups: Mapping[str, int] = {}
    """How many groups there are of each type."""
    reassignments: Sequence[TopicPartition] = ()
    disks: Sequence[DiskFacts] = ()
    has_quorum_leader: bool = True
