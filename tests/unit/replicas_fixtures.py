"""A broker's directories and replicas with images made by the test."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from immutables import Map
from msgspec.structs import replace
from partition_fixtures import CLUSTER, HandClock, values_in
from tests.patience import SECONDS_MAX

from ottla.metadata.configs import ConfigResource, ConfigResourceType, Configs
from ottla.metadata.delta import delta_between
from ottla.metadata.image import EMPTY, Image
from ottla.metadata.registrations import BrokerRegistration, Cluster
from ottla.metadata.topics import DIRECTORY_UNASSIGNED, PartitionRegistration, Topics
from ottla.protocol.types import NodeId, Uuid
from ottla.replication.host import Host, HostPorts, HostSettings
from ottla.replication.maintenance.cleaner_loop import LogCleanerService
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.runtime.ports import Committer
from ottla.storage.directory.log_dir import LogDirPorts, format_directory, open_directories
from simulation.committer import SimCommitter
from simulation.disk import SimDisk
from simulation.random import SimRandom

NODE = NodeId(1)


def topic_id(number: int) -> Uuid:
    return Uuid(bytes(15) + bytes([100 + number]))


def partition_of(
    *replicas: int,
    leader: int | None = None,
    epoch: int = 0,
    partition_epoch: int = 0,
    directories: tuple[Uuid, ...] | None = None,
    isr: tuple[int, ...] | None = None,
) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=replicas,
        isr=replicas if isr is None else isr,
        leader=replicas[0] if leader is None else leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        directories=directories or (DIRECTORY_UNASSIGNED,) * len(replicas),
    )


def image_of(
    topics: dict[str, tuple[int, dict[int, PartitionRegistration]]],
    configs: dict[tuple[int, str], dict[str, str]] | None = None,
    brokers: tuple[int, ...] = (1, 2, 3),
) -> Image:
    """Topics by name: a number for the id, and partitions."""
    made = Topics()
    for name, (number, partitions) in topics.items():
        made = made.with_topic(name, topic_id(number))
        for index, registration in partitions.items():
            made = made.with_partition(made.by_id[topic_id(number)], index, registration)
    set_ = Configs()
    for (kind, name), values in (configs or {}).items():
        for key, value in values.items():
            set_ = set_.with_value(ConfigResource(kind, name), key, value)
    registered = {
        broker: BrokerRegistration(
            id=broker,
            epoch=broker * 10,
            incarnation_id=topic_id(broker),
            listeners=Map(),
            features=Map(),
            rack=None,
            fenced=False,
            in_controlled_shutdown=False,
            log_dirs=(),
        )
        for broker in brokers
    }
    return replace(EMPTY, topics=made, configs=set_, cluster=Cluster(brokers=Map(registered)))


TOPIC = ConfigResourceType.TOPIC
BROKER = ConfigResourceType.BROKER


@dataclass
class Broker:
    """A process over a disk that outlives it."""

    paths: tuple[str, ...] = ("/d1", "/d2")
    static: dict[str, str] = field(default_factory=dict)
    disk: SimDisk | None = None
    clock: HandClock = field(default_factory=HandClock)
    seed: int = 1
    committer: Callable[[str], Committer] = SimCommitter

    def __post_init__(self) -> None:
        is_new = self.disk is None
        self.disk = self.disk or SimDisk(seed=1)
        self.ports = LogDirPorts(self.disk, self.clock, SimRandom(self.seed))
        if is_new:
            for path in self.paths:
                format_directory(self.ports, path, node_id=NODE, cluster_id=CLUSTER)
        opened = open_directories(self.ports, self.paths, node_id=NODE, cluster_id=CLUSTER)
        self.directories = opened.online
        settings = HostSettings(
            node_id=NODE, static=self.static, has_offline_directories=bool(opened.offline)
        )
        ports = HostPorts(self.clock, self.disk, SimRandom(2), self.committer)
        self.host = Host(settings, self.directories, ports, lambda: 10)
        self.holds_back: Callable[[Partition], bool] = lambda partition: False
        self.host.log_events.on_placed(self._placed)
        self.host.log_events.on_usable(self.placed)
        self.host.log_events.on_lost(self.lost)
        self.following: dict[str, int] = {}
        self.reported: list[str] = []
        self.replicas = Replicas(self.host, self)
        self.partitions = self.host.partitions
        self.events: list[tuple] = []
        self.partitions.on_led(lambda *event: self.events.append(("led", *event)))
        self.partitions.on_unled(lambda *event: self.events.append(("unled", *event)))
        self.image = EMPTY

    # called by the replicas

    def follow(self, partition: Partition) -> None:
        self.following[str(partition)] = partition.leader_id

    def unfollow(self, partition: Partition) -> None:
        self.following.pop(str(partition), None)

    def _placed(self, partition: Partition) -> None:
        if not self.holds_back(partition):
            self.placed(partition)

    def placed(self, partition: Partition) -> None:
        self.reported.append(f"{partition} {partition.directory.path}")

    def lost(self, partition: Partition) -> None:
        self.reported.append(f"{partition} lost")

    # called by the test

    def publish(self, image: Image) -> None:
        self.replicas.on_image(delta_between(self.image, image), image)
        self.image = image

    def start(self, image: Image = EMPTY) -> "Broker":
        self.publish(image)
        for directory in self.directories:
            directory.open_all(self.replicas._log_config)
        self.replicas.start()
        return self

    def stop(self) -> None:
        for directory in self.directories:
            directory.close(5)

    def again(self, image: Image, paths: tuple[str, ...] | None = None) -> "Broker":
        """Start the next process on the same disk."""
        return Broker(paths or self.paths, self.static, self.disk, self.clock).start(image)


async def clean_once(cleaning: LogCleanerService, partition: Partition) -> None:
    """Run the cleaner until the six records of a log have become fewer."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(cleaning.run(lambda: None))
        async with asyncio.timeout(SECONDS_MAX):
            while len(values_in(partition.log)) == 6:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0)
        running.cancel()
