"""Gauges of partitions: their values, and that a walk over thousands of them pauses."""

from collections.abc import Generator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ottla.metadata.image import EMPTY
from ottla.node.metrics.gauges import (
    BrokerCounts,
    PartitionRow,
    broker_families,
    controller_families,
    disk_families,
    isr_families,
    partition_families,
    quorum_families,
    walk_hosted,
)
from ottla.observability.exposition import WALKED_PER_STEP, Registry
from ottla.protocol.faults import StorageFailed
from ottla.protocol.types import NodeId, TopicPartition

ME = NodeId(1)


@dataclass
class Hosted:
    index: int = 0
    topic: str = "t"
    leader_id: NodeId = ME
    replicas: tuple[int, ...] = (1, 2, 3)
    isr: tuple[int, ...] = (1, 2, 3)
    offline: StorageFailed | None = None
    config: Any = field(default_factory=lambda: SimpleNamespace(min_insync_replicas=2))

    @property
    def is_leader(self) -> bool:
        return self.leader_id == ME

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.config.min_insync_replicas


LOG = SimpleNamespace(log_start_offset=1, log_end_offset=9, high_watermark=8, size=100)


def walked(*hosted: Hosted) -> tuple[BrokerCounts, list[PartitionRow], int]:
    """Return the counts, the rows, and how often the walk paused."""
    steps = walk_hosted(EMPTY, ME, [(each, LOG) for each in hosted])
    pauses = 0
    try:
        while True:
            next(steps)
            pauses += 1
    except StopIteration as end:
        counts, rows = end.value
        return counts, rows, pauses


def page(rows: list[PartitionRow], counts: BrokerCounts) -> list[str]:
    sources = [lambda: partition_families(rows), lambda: broker_families(counts)]
    return Registry(sources).render().decode().splitlines()


def test_replicas_out_of_sync_change_the_gauges_of_their_partitions() -> None:
    counts, rows, _ = walked(Hosted(0), Hosted(1, isr=(1, 2)), Hosted(2, isr=(1,)))
    lines = page(rows, counts)
    for name, values in {
        "kafka_cluster_partition_underreplicated": (0, 1, 1),
        "kafka_cluster_partition_atminisr": (0, 1, 0),
        "kafka_cluster_partition_underminisr": (0, 0, 1),
        "kafka_cluster_partition_insyncreplicascount": (3, 2, 1),
    }.items():
        for partition, value in enumerate(values):
            assert f'{name}{{topic="t",partition="{partition}"}} {value}' in lines
    assert "kafka_server_replicamanager_underreplicatedpartitions 2" in lines
    assert "kafka_server_replicamanager_underminisrpartitioncount 1" in lines
    assert "kafka_server_replicamanager_leadercount 3" in lines


def test_follower_of_a_leader_that_is_not_alive_is_counted_as_without_one() -> None:
    counts, rows, _ = walked(Hosted(0, leader_id=NodeId(2)), Hosted(1))
    assert (counts.led, counts.leader_not_alive) == (1, 1)
    lines = page(rows, counts)
    assert 'kafka_log_log_size{topic="t",partition="0"} 100' in lines
    assert not any('underreplicated{topic="t",partition="0"}' in line for line in lines)


def test_walk_over_many_partitions_pauses() -> None:
    _, rows, pauses = walked(*(Hosted(index) for index in range(3 * WALKED_PER_STEP + 5)))
    assert len(rows) == 3 * WALKED_PER_STEP + 5
    assert pauses == 3


def test_walk_over_the_cluster_pauses_on_the_active_controller_only() -> None:
    partition = SimpleNamespace(leader=1, preferred_leader=lambda: 1)
    topic = SimpleNamespace(partitions=dict.fromkeys(range(2 * WALKED_PER_STEP), partition))
    image: Any = SimpleNamespace(
        cluster=SimpleNamespace(brokers={}),
        topics=SimpleNamespace(ids={}, partition_count=0, by_id={"t": topic}),
        provenance=SimpleNamespace(offset=0),
    )

    def pauses(*, is_active: bool) -> int:
        return sum(each is None for each in controller_families(image, is_active=is_active))

    assert (pauses(is_active=True), pauses(is_active=False)) == (2, 0)


def test_counters_and_sizes_are_shown_under_their_names() -> None:
    view: Any = SimpleNamespace(
        role=SimpleNamespace(name="LEADER"),
        leader_id=ME,
        voted=None,
        epoch=3,
        high_watermark=10,
        log_end_offset=12,
        voters=[1],
    )
    counts, _, _ = walked(Hosted(0, leader_id=NodeId(2)), Hosted(1))
    sizes = {TopicPartition("t", 0): 700, TopicPartition("t", 1): 0}
    sources = [
        lambda: broker_families(counts),
        lambda: isr_families(2, 5),
        lambda: disk_families(sizes),
        lambda: quorum_families(view, 4),
    ]
    lines = Registry(sources).render().decode().splitlines()
    for line in (
        "ottla_offline_partitions_count 1",
        "kafka_server_replicamanager_isrshrinks_total 2",
        "kafka_server_replicamanager_isrexpands_total 5",
        'partition_disk_bytes{topic="t",partition="0"} 700',
        'partition_disk_bytes{topic="t",partition="1"} 0',
        "ottla_controller_leader_changes_total 4",
        "kafka_server_raftmetrics_current_leader 1",
    ):
        assert line in lines


def test_page_can_be_left_while_its_sources_are_called() -> None:
    def slow() -> Generator[None, None, None]:
        for _ in range(5):
            yield None

    assert list(Registry([slow]).pieces()) == [b""] * 6
