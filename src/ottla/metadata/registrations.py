"""The nodes of the image: registered brokers and controllers."""

from typing import Final

import msgspec
from immutables import Map

from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from ottla.protocol.types import Uuid

# The first bytes of an incarnation id are those of the directory, the others of one start.
DIRECTORY_BYTES: Final = 8


def is_same_directory(one: Uuid, other: Uuid) -> bool:
    """Return whether two incarnations of a broker started from the same directory.

    Brokers of Apache Kafka draw the whole id at each start, so theirs are the same only for one
    and the same process.
    """
    return one[:DIRECTORY_BYTES] == other[:DIRECTORY_BYTES]


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """The address of a listener; ``security_protocol`` is Kafka's number of it."""

    host: str
    port: int
    security_protocol: int


class VersionRange(msgspec.Struct, frozen=True, gc=False):
    """The levels of a feature that a node supports, both included."""

    min: int
    max: int

    def contains(self, level: int) -> bool:
        """Return whether a node with this range supports ``level``."""
        return self.min <= level <= self.max


class BrokerRegistration(msgspec.Struct, frozen=True, gc=False):
    """A broker as it registered, with later changes.

    ``epoch`` is the offset of its registration and identifies the incarnation in later requests.
    ``log_dirs`` are the ids of the directories that are online, sorted; ``cordoned_log_dirs`` those
    that get no new replicas (KIP-1066), None until the broker has reported them.
    """

    id: int
    epoch: int
    incarnation_id: Uuid
    listeners: Map[str, Endpoint]
    features: Map[str, VersionRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...]
    is_migrating_zk_broker: bool = False
    cordoned_log_dirs: tuple[Uuid, ...] | None = None

    def is_active(self) -> bool:
        """Return whether the broker may lead and join an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def is_online(self, directory: Uuid) -> bool:
        """Return whether a replica in this directory can be used; true for one not known yet."""
        if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
            return True
        if directory == DIRECTORY_LOST:
            return False
        # A broker that registered before directories had ids does not report them.
        return not self.log_dirs or directory in self.log_dirs

    def is_cordoned(self) -> bool:
        """Return whether every directory is cordoned, so that the broker gets no new replicas."""
        if not self.log_dirs or self.cordoned_log_dirs is None:
            return False
        return set(self.log_dirs) <= set(self.cordoned_log_dirs)


class ControllerRegistration(msgspec.Struct, frozen=True, gc=False):
    """A controller as it registered (KIP-919)."""

    id: int
    incarnation_id: Uuid
    listeners: Map[str, Endpoint]
    features: Map[str, VersionRange]
    zk_migration_ready: bool = False


class Cluster(msgspec.Struct, frozen=True, gc=False):
    """Brokers and controllers by node id."""

    brokers: Map[int, BrokerRegistration] = Map()
    controllers: Map[int, ControllerRegistration] = Map()

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker, -1 if it is not registered."""
        broker = self.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def is_unfenced(self, broker_id: int) -> bool:
        """Return whether the broker is registered and not fenced."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def is_active(self, broker_id: int) -> bool:
        """Return whether the broker is registered, not fenced and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active()

    def unfenced(self) -> list[BrokerRegistration]:
        """Return the unfenced brokers, by id."""
        return [self.brokers[i] for i in sorted(self.brokers) if not self.brokers[i].fenced]
