"""Gauges of the cluster's state, under the names that dashboards use.

Pure. One scrape walks over the hosted partitions once for all gauges, with one image, so its values
are consistent. Partitions of the whole cluster are walked over only on the active controller. Both
walks pause (`Walk`), so that thousands of partitions do not hold up requests.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Set
from operator import attrgetter
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from ottla.controller.probe_loop import ProbeCounts
from ottla.metadata.image import Image
from ottla.observability.exposition import (
    WALKED_PER_STEP,
    Column,
    Family,
    Kind,
    Sample,
    counter,
    gauge,
    partition_labels,
)
from ottla.protocol.faults import StorageFailed
from ottla.protocol.types import NO_LEADER, NodeId, TopicPartition
from ottla.raft.core.view import QuorumView


class HostedLog(Protocol):
    """The values of a log that gauges show."""

    @property
    def log_start_offset(self) -> int:
        """Its first offset."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset of its next record."""
        ...

    @property
    def high_watermark(self) -> int:
        """The end of what consumers can read."""
        ...

    @property
    def size(self) -> int:
        """Its bytes on disk."""
        ...


class MinIsr(Protocol):
    """The setting of a topic that gauges need."""

    @property
    def min_insync_replicas(self) -> int:
        """``min.insync.replicas``."""
        ...


class Hosted(Protocol):
    """The values of a hosted partition; `ottla.replication.partition.Partition` has them."""

    topic: str
    index: int
    leader_id: NodeId
    is_leader: bool
    replicas: tuple[int, ...]
    offline: StorageFailed | None

    @property
    def isr(self) -> tuple[int, ...]:
        """The in-sync replicas."""
        ...

    @property
    def is_under_min_isr(self) -> bool:
        """Whether acks=all is refused."""
        ...

    @property
    def config(self) -> MinIsr:
        """Its settings."""
        ...


class BrokerCounts(msgspec.Struct):
    """The counts of one walk over the hosted partitions."""

    total: int = 0
    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    leader_not_alive: int = 0
    offline: int = 0

    def add(self, partition: Hosted, alive: Set[int]) -> None:
        """Count a partition. Those that are assigned here and not online are offline."""
        if partition.offline is not None:
            return
        self.offline = max(0, self.offline - 1)
        if partition.is_leader:
            self.led += 1
            self.under_replicated += len(partition.isr) < len(partition.replicas)
            self.under_min_isr += partition.is_under_min_isr
        elif partition.leader_id not in alive:
            self.leader_not_alive += 1


T = TypeVar("T")
Walk: TypeAlias = Generator[None, None, T]
"""A walk that yields every `WALKED_PER_STEP` items and returns what it has found."""


def walk_hosted(
    image: Image, node_id: NodeId, logs: Iterable[tuple[Hosted, HostedLog]]
) -> "Walk[tuple[BrokerCounts, list[PartitionRow]]]":
    """Count the hosted partitions, and return a row for each."""
    alive = {int(broker.id) for broker in image.cluster.unfenced()}
    here = image.topics.hosted.get(node_id)
    total = 0 if here is None else sum(here.values())
    counts, rows = BrokerCounts(total=total, offline=total), list[PartitionRow]()
    for number, (partition, log) in enumerate(logs, 1):
        counts.add(partition, alive)
        rows.append(_row(partition, log))
        if number % WALKED_PER_STEP == 0:
            yield
    return counts, rows


def broker_families(counts: BrokerCounts) -> Iterable[Family]:
    """Yield the counts of `walk_hosted`, under Kafka's names and our own."""
    name = "kafka_server_replicamanager_"
    yield gauge(f"{name}partitioncount", "Replicas hosted here.", counts.total)
    yield gauge(f"{name}leadercount", "Partitions led here.", counts.led)
    yield gauge(
        f"{name}underreplicatedpartitions",
        "Partitions led here with fewer in-sync replicas than replicas.",
        counts.under_replicated,
    )
    yield gauge(
        f"{name}underminisrpartitioncount",
        "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
        counts.under_min_isr,
    )
    yield gauge(
        f"{name}offlinereplicacount", "Replicas in directories that failed.", counts.offline
    )
    yield gauge(
        "ottla_offline_partitions_count",
        "Partitions hosted here whose leader is not alive.",
        counts.leader_not_alive,
    )


class PartitionRow(NamedTuple):
    """The values of one hosted partition and its log at the moment of a scrape."""

    topic: str
    partition: int
    labels: str
    is_leader: bool
    replicas: int
    in_sync: int
    is_under_min_isr: bool
    is_at_min_isr: bool
    leader: int
    is_led_by_preferred: bool
    size: int
    log_start: int
    log_end: int
    high_watermark: int


_LABELS: Final = attrgetter("labels")


def _row(partition: Hosted, log: HostedLog) -> PartitionRow:
    isr, replicas = partition.isr, partition.replicas
    return PartitionRow(
        partition.topic,
        partition.index,
        partition_labels(partition.topic, partition.index),
        partition.is_leader,
        len(replicas),
        len(isr),
        partition.is_under_min_isr,
        len(isr) == min(partition.config.min_insync_replicas, len(replicas)),
        int(partition.leader_id),
        partition.leader_id == replicas[0] if replicas else False,
        log.size,
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark,
    )


def partition_families(rows: Sequence[PartitionRow]) -> Iterable[Family]:
    """Yield the gauges of each partition that is led here, and of each log.

    The names that begin with ``kafka_topic_`` are those of kafka-exporter.
    """
    led = [row for row in rows if row.is_leader]

    def family(
        name: str, help_text: str, of: Sequence[PartitionRow], value: Callable[[PartitionRow], int]
    ) -> Family:
        pairs = zip(map(_LABELS, of), map(value, of), strict=True)
        return Family(name, Kind.GAUGE, help_text, Column(pairs))

    name = "kafka_cluster_partition_"
    yield family(f"{name}replicascount", "Replicas.", led, attrgetter("replicas"))
    yield family(f"{name}insyncreplicascount", "In-sync replicas.", led, attrgetter("in_sync"))
    lacking = "1 if replicas are not in sync."
    yield family(f"{name}underreplicated", lacking, led, lambda p: int(p.in_sync < p.replicas))
    refused = "1 if acks=all is refused."
    yield family(f"{name}underminisr", refused, led, lambda p: int(p.is_under_min_isr))
    barely = "1 if one more lost replica has acks=all refused."
    yield family(f"{name}atminisr", barely, led, lambda p: int(p.is_at_min_isr))
    name = "kafka_log_log_"
    yield family(f"{name}size", "Bytes of batches on disk.", rows, attrgetter("size"))
    first = "The first offset that can be read."
    yield family(f"{name}logstartoffset", first, rows, attrgetter("log_start"))
    following = "The offset of the next record."
    yield family(f"{name}logendoffset", following, rows, attrgetter("log_end"))
    name = "kafka_topic_partition_"
    current = "The high watermark: consumers can read up to here."
    yield family(f"{name}current_offset", current, led, attrgetter("high_watermark"))
    yield family(f"{name}oldest_offset", first, led, attrgetter("log_start"))
    yield family(f"{name}in_sync_replica", "In-sync replicas.", led, attrgetter("in_sync"))
    yield family(f"{name}replicas", "Replicas.", led, attrgetter("replicas"))
    yield family(f"{name}leader", "The broker that leads it.", led, attrgetter("leader"))
    preferred = "1 if its preferred replica leads it."
    yield family(f"{name}leader_is_preferred", preferred, led, lambda p: int(p.is_led_by_preferred))
    under = f"{name}under_replicated_partition"
    yield family(under, lacking, led, lambda p: int(p.in_sync < p.replicas))


def cluster_families(
    image: Image, node_id: NodeId, rows: Sequence[PartitionRow]
) -> Iterable[Family]:
    """Yield what kafka-exporter shows of topics and brokers.

    Each topic is reported by the leader of its first partition, so that a sum over all brokers
    counts it once.
    """
    samples = (
        Sample((("topic", row.topic),), len(topic.partitions))
        for row in rows
        if row.partition == 0 and row.is_leader
        if (topic := image.topics.named(row.topic)) is not None
    )
    yield Family("kafka_topic_partitions", Kind.GAUGE, "Partitions of a topic.", samples)
    brokers = "Brokers that are not fenced."
    yield gauge("kafka_brokers", brokers, len(list(image.cluster.unfenced())))
    yield gauge("kafka_broker_info", "1 for this broker.", 1, (("id", str(int(node_id))),))


def isr_families(shrinks: int, expands: int) -> Iterable[Family]:
    """Yield how often ISRs of partitions led here have changed."""
    name = "kafka_server_replicamanager_isr"
    yield counter(f"{name}shrinks_total", "Replicas that fell out of sync.", shrinks)
    yield counter(f"{name}expands_total", "Replicas that were in sync again.", expands)


WAITING_NAMED_MAX: Final = 100
"""Partitions without a leader that a page of metrics names; the others are only counted."""


class ScrubCounts(msgspec.Struct, frozen=True):
    """Counts of scrubbing and repair since the start, and of what is damaged now."""

    bytes_read: int = 0
    passes: int = 0
    damages: int = 0
    repairs_started: int = 0
    repairs_finished: int = 0
    damaged_partitions: int = 0
    damaged_fetches: int = 0
    keeping_partitions: int = 0
    waiting_partitions: Sequence[TopicPartition] = ()


def scrub_families(counts: ScrubCounts) -> Iterable[Family]:
    """Yield the counts of scrubbing and repair."""
    name = "ottla_log_scrub_"
    yield counter(f"{name}bytes_total", "Bytes of stored batches checked.", counts.bytes_read)
    yield counter(f"{name}passes_total", "Passes over all logs that ended.", counts.passes)
    yield counter(f"{name}damages_total", "Damaged ranges of segments found.", counts.damages)
    yield counter(
        f"{name}repairs_started_total",
        "Attempts to repair a partition from another replica.",
        counts.repairs_started,
    )
    yield counter(
        f"{name}repairs_finished_total", "Damaged ranges repaired.", counts.repairs_finished
    )
    yield gauge(
        "ottla_damaged_partitions_count",
        "Replicas here with a damaged range that is not repaired.",
        counts.damaged_partitions,
    )
    yield counter(
        "ottla_replica_damaged_fetches_total",
        "Fetches from leaders that were refused here because a batch was damaged.",
        counts.damaged_fetches,
    )
    yield gauge(
        "ottla_replica_unexplained_deletions_count",
        "Replicas here that keep segments below a log start that nothing explains.",
        counts.keeping_partitions,
    )
    yield gauge(
        "ottla_replica_waiting_leaders_count",
        "Partitions without a leader: this replica should lead, lost records and waits for others.",
        len(counts.waiting_partitions),
    )
    waiting = counts.waiting_partitions[:WAITING_NAMED_MAX]
    yield Family(
        "ottla_replica_waiting_leader_count",
        Kind.GAUGE,
        "1 for each of the partitions that ottla_replica_waiting_leaders_count counts.",
        tuple(Sample((("topic", topic), ("partition", str(index))), 1) for topic, index in waiting),
    )


def recovery_families(errors: int, warnings: int, lost_bytes: int) -> Iterable[Family]:
    """Yield what recovery cut off when this node started."""
    name = "ottla_log_recovery_"
    counts = (("error", errors), ("warning", warnings))
    samples = tuple(Sample((("severity", severity),), count) for severity, count in counts)
    yield Family(f"{name}cuts_total", Kind.COUNTER, "Logs cut at the last start.", samples)
    yield counter(f"{name}cut_bytes_total", "Bytes cut from logs at the last start.", lost_bytes)


def disk_families(sizes: Mapping[TopicPartition, int]) -> Iterable[Family]:
    """Yield the bytes on disk of all files of each partition; nothing before the first scan."""
    pairs = ((partition_labels(*name), size) for name, size in sizes.items())
    if sizes:
        yield Family("partition_disk_bytes", Kind.GAUGE, "Bytes of all its files.", Column(pairs))


class Directory(Protocol):
    """A log directory."""

    path: str
    is_cordoned: bool

    @property
    def is_failed(self) -> bool:
        """Whether it is offline."""
        ...


def directory_families(directories: Iterable[Directory], lost: Iterable[str]) -> Iterable[Family]:
    """Yield which log directories are offline or cordoned (KIP-1066), under Kafka's names.

    ``lost`` are those that could not be opened at the start.
    """
    found = {each.path: (each.is_failed, each.is_cordoned) for each in directories}
    found |= dict.fromkeys(lost, (True, False))
    name = "kafka_log_logmanager_"
    offline = sum(is_offline for is_offline, _ in found.values())
    yield gauge(f"{name}offlinelogdirectorycount", "Log directories that are offline.", offline)
    cordoned = sum(is_cordoned for _, is_cordoned in found.values())
    yield gauge(f"{name}cordonedlogdirectorycount", "Log directories that are cordoned.", cordoned)
    for kind, at in (("offline", 0), ("cordoned", 1)):
        samples = tuple(
            Sample((("logDirectory", path),), int(states[at]))
            for path, states in sorted(found.items())
        )
        text = f"1 if the log directory is {kind}, else 0."
        yield Family(f"{name}logdirectory{kind}", Kind.GAUGE, text, samples)


# -- controller and quorum ---------------------------------------------------------


def controller_families(
    image: Image, *, is_active: bool, unclean_elections: int = 0
) -> Iterable[Family | None]:
    """Yield the gauges of a controller; counts of partitions only on the active one."""
    yield counter(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "Leaders elected here that lacked records.",
        unclean_elections,
    )
    name = "kafka_controller_kafkacontroller_"
    yield gauge(f"{name}activecontrollercount", "1 on the active controller.", int(is_active))
    brokers = list(image.cluster.brokers.values())
    fenced = sum(broker.fenced for broker in brokers)
    yield gauge(f"{name}activebrokercount", "Brokers that are not fenced.", len(brokers) - fenced)
    yield gauge(f"{name}fencedbrokercount", "Brokers that are fenced.", fenced)
    yield gauge(f"{name}globaltopiccount", "Topics.", len(image.topics.ids))
    yield gauge(f"{name}globalpartitioncount", "Partitions.", image.topics.partition_count)
    yield gauge(
        f"{name}lastappliedrecordoffset", "The metadata read.", int(image.provenance.offset)
    )
    offline = imbalanced = 0
    if is_active:
        offline, imbalanced = yield from _walk_cluster(image)
    yield gauge(f"{name}offlinepartitionscount", "Partitions without a leader.", offline)
    yield gauge(
        f"{name}preferredreplicaimbalancecount",
        "Partitions led by another than the preferred replica.",
        imbalanced,
    )


def probe_families(counts: ProbeCounts) -> Iterable[Family]:
    """Yield the counters of the probes by which a controller finds stopped brokers."""
    outcomes = {
        "answered": counts.answered,
        "refused": counts.refused,
        "unanswered": counts.unanswered,
        "unproven": counts.unproven,
    }
    samples = tuple(Sample((("outcome", name),), value) for name, value in outcomes.items())
    yield Family(
        "ottla_controller_broker_probes_total",
        Kind.COUNTER,
        "Connections to brokers that may be gone.",
        samples,
    )
    yield counter(
        "ottla_controller_brokers_fenced_by_probe_total",
        "Brokers fenced before their session expired: their port refused connections.",
        counts.fenced,
    )


def _walk_cluster(image: Image) -> Walk[tuple[int, int]]:
    offline = imbalanced = walked = 0
    for topic in image.topics.by_id.values():
        for partition in topic.partitions.values():
            offline += partition.leader == NO_LEADER
            imbalanced += partition.leader != partition.preferred_leader()
            walked += 1
            if walked % WALKED_PER_STEP == 0:
                yield
    return offline, imbalanced


def quorum_families(view: QuorumView, leader_changes: int) -> Iterable[Family]:
    """Yield the gauges of the metadata quorum as this node sees it."""
    name = "kafka_server_raftmetrics_"
    state = (("current_state", view.role.name.lower()),)
    yield Family(f"{name}current_state", Kind.UNTYPED, "This replica's role.", (Sample(state, 1),))
    leader = -1 if view.leader_id is None else int(view.leader_id)
    yield gauge(f"{name}current_leader", "The leader; -1 for none known.", leader)
    voted = -1 if view.voted is None else int(view.voted.node_id)
    yield gauge(f"{name}current_vote", "Whom this replica voted for; -1 for nobody.", voted)
    yield gauge(f"{name}current_epoch", "The epoch.", int(view.epoch))
    watermark = -1 if view.high_watermark is None else int(view.high_watermark)
    yield gauge(f"{name}high_watermark", "Below it all is committed; -1 if unknown.", watermark)
    yield gauge(f"{name}log_end_offset", "The end of this replica's log.", int(view.log_end_offset))
    yield gauge(f"{name}number_of_voters", "Voters.", len(list(view.voters)))
    yield counter(
        "ottla_controller_leader_changes_total",
        "Times that another node became the leader of the quorum.",
        leader_changes,
    )
