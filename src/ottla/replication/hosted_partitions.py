"""The partitions that this node hosts, by name and by topic id."""

from collections.abc import Callable, Iterator

from ottla.metadata.image import Image
from ottla.protocol.faults import NotLeader, StorageFailed, UnknownTopicOrPartition
from ottla.protocol.types import LeaderEpoch, TopicPartition, Uuid
from ottla.replication.leading.waiters import Unsubscribe
from ottla.replication.partition import Partition

LedCallback = Callable[[str, int, LeaderEpoch], None]
UnledCallback = Callable[[str, int, LeaderEpoch | None], None]


class Partitions:
    """The registry. Filled by `replicas.py`; all other code only looks up partitions.

    ``image`` returns the newest image that `replicas.py` has applied.
    """

    def __init__(self, image: Callable[[], Image]) -> None:
        self._image = image
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[Uuid, int], Partition] = {}
        self._offline: dict[tuple[str, int], StorageFailed] = {}
        self._led: list[LedCallback] = []
        self._unled: list[UnledCallback] = []

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._by_name.values()))

    def get(self, topic: str, index: int) -> Partition | None:
        """Return a partition hosted here, None for any other."""
        return self._by_name.get((topic, index))

    def by_id(self, topic_id: Uuid, index: int) -> Partition | None:
        """Return a partition hosted here by its topic's id, None for any other."""
        return self._by_id.get((topic_id, index))

    def find(self, topic: str, index: int) -> Partition:
        """Return a partition hosted here and online.

        Raises:
            UnknownTopicOrPartition: not in the image. NotLeader: it is hosted elsewhere.
            StorageFailed: its directory is offline.
        """
        found = self._by_name.get((topic, index))
        if found is not None:
            if found.offline is not None:
                found.check_online()
            return found
        fault = self._offline.get((topic, index))
        if fault is not None:
            raise StorageFailed(fault.directory, fault.reason)
        known = self._image().topics.named(topic)
        if known is None or index not in known.partitions:
            raise UnknownTopicOrPartition(f"{topic}-{index}")
        raise NotLeader(f"{topic}-{index} is not hosted here")

    # -- leadership ------------------------------------------------------------

    def on_led(self, callback: LedCallback) -> Unsubscribe:
        """Call back whenever this node begins to lead a partition, or leads it in a new epoch."""
        self._led.append(callback)
        return lambda: self._led.remove(callback)

    def on_unled(self, callback: UnledCallback) -> Unsubscribe:
        """Call back whenever it stops leading; with the new leader's epoch, None if deleted."""
        self._unled.append(callback)
        return lambda: self._unled.remove(callback)

    def notify_led(self, partition: Partition) -> None:
        """Notify the subscribers that a partition is led here, after it is."""
        for callback in tuple(self._led):
            callback(partition.topic, partition.index, partition.leader_epoch)

    def notify_unled(self, partition: Partition, epoch: LeaderEpoch | None) -> None:
        """Notify the subscribers that a partition is no longer led here."""
        for callback in tuple(self._unled):
            callback(partition.topic, partition.index, epoch)

    # -- adding and removing -----------------------------------------------------

    def add(self, partition: Partition) -> None:
        """Add a partition."""
        assert self.get(partition.topic, partition.index) is None, str(partition)
        self._by_name[partition.topic, partition.index] = partition
        self._by_id[partition.topic_id, partition.index] = partition

    def remove(self, partition: Partition) -> None:
        """Remove a partition and notify its waiters."""
        del self._by_name[partition.topic, partition.index]
        del self._by_id[partition.topic_id, partition.index]
        partition.close()

    def note_offline(self, name: TopicPartition, fault: StorageFailed) -> None:
        """Record a partition of this node whose log is in an offline directory."""
        self._offline[name] = fault

    def forget_offline(self, name: TopicPartition) -> None:
        """Forget a partition that left this node, or whose log was found again."""
        self._offline.pop(name, None)

    def fail(self, fault: StorageFailed) -> list[Partition]:
        """Take every partition in the failed directory offline; return those that led."""
        led: list[Partition] = []
        for partition in self:
            if partition.directory.path == fault.directory and partition.offline is None:
                if partition.is_leader:
                    led.append(partition)
                partition.go_offline(fault)
        return led
