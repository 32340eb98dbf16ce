"""Cordoned log directories in the controller: recorded from heartbeats, avoided by placement."""

import pytest
from controller_cluster import NO_CONTEXT, ControllerCluster, directory
from metadata_snapshots import snapshot_batches

from ottla.controller.decision import Refusal
from ottla.controller.heartbeats import decide_broker_heartbeat
from ottla.controller.placement import place
from ottla.metadata.image import EMPTY
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.metadata.replay import replay_all
from ottla.metadata.snapshot_records import losses
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.metadata_records import decode_metadata_record
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from simulation.random import SimRandom

LEVEL = MetadataVersion.IBP_4_3_IV0


def cluster_of(brokers: int, level: int = LEVEL) -> ControllerCluster:
    """Return brokers with two directories each."""
    cluster = ControllerCluster(level=level)
    for broker_id in range(brokers):
        cluster.start(broker_id, directories=2)
    return cluster


def cordon(cluster: ControllerCluster, broker_id: int, *numbers: int) -> None:
    dirs = [directory(broker_id, number) for number in numbers]
    assert cluster.heartbeat(broker_id, cordoned_log_dirs=dirs).error_code == 0


def placed(cluster: ControllerCluster, factor: int) -> set[int]:
    found = place(cluster.image, 20, factor, SimRandom(1))
    assert not isinstance(found, Refusal)
    return {replica for replicas in found for replica in replicas}


def test_heartbeat_records_cordoned_directories_once() -> None:
    cluster = cluster_of(1)
    assert cluster.image.cluster.brokers[0].cordoned_log_dirs is None
    cordon(cluster, 0, 1)
    assert cluster.image.cluster.brokers[0].cordoned_log_dirs == (directory(0, 1),)
    before = cluster.image
    cordon(cluster, 0, 1)
    assert cluster.image is before, "nothing new to record"
    cordon(cluster, 0)
    assert cluster.image.cluster.brokers[0].cordoned_log_dirs == ()


def test_first_report_without_cordons_is_recorded() -> None:
    cluster = cluster_of(1)
    cordon(cluster, 0)
    assert cluster.image.cluster.brokers[0].cordoned_log_dirs == ()


def test_starting_broker_does_not_lift_cordons() -> None:
    cluster = cluster_of(1)
    cordon(cluster, 0, 0)
    assert cluster.heartbeat(0, cordoned_log_dirs=None).error_code == 0
    assert cluster.image.cluster.brokers[0].cordoned_log_dirs == (directory(0, 0),)


def test_cordons_are_not_recorded_below_their_level() -> None:
    cluster = cluster_of(1, MetadataVersion.IBP_4_2_IV1)
    cordon(cluster, 0, 0, 1)
    assert cluster.image.cluster.brokers[0].cordoned_log_dirs is None
    assert placed(cluster, 1) == {0}


def test_change_is_recorded_in_the_version_that_kafka_writes() -> None:
    cluster = cluster_of(1)
    request = BrokerHeartbeatRequest(
        broker_id=0,
        broker_epoch=cluster.image.cluster.broker_epoch(0),
        current_metadata_offset=cluster.offset,
        offline_log_dirs=[directory(0, 0)],
        cordoned_log_dirs=[directory(0, 1)],
    )
    decision = decide_broker_heartbeat(cluster.state, request, NO_CONTEXT, cluster.settings)
    assert [record.version for record in decision.records] == [2, 3]


# Written by MetadataRecordSerde of Apache Kafka 4.3.1: broker 5, epoch 9, directory (3, 4).
CHANGES = {
    "directories only": (
        "0111030000000500000000000000090102110200000000000000010000000000000002",
        None,
    ),
    "none cordoned": ("01110300000005000000000000000901030101", []),
    "unfenced, one cordoned": (
        "011103000000050000000000000009020001ff03110200000000000000030000000000000004",
        [bytes(7) + b"\x03" + bytes(7) + b"\x04"],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_record_of_kafka_is_read(name: str) -> None:
    text, cordoned = CHANGES[name]
    record = decode_metadata_record(bytes.fromhex(text))
    assert record.message.cordoned_log_dirs == cordoned  # type: ignore[attr-defined]


def test_broker_with_only_cordoned_directories_gets_no_replicas() -> None:
    cluster = cluster_of(3)
    cordon(cluster, 1, 0)
    assert placed(cluster, 2) == {0, 1, 2}, "one directory is open"
    cordon(cluster, 1, 0, 1)
    assert placed(cluster, 2) == {0, 2}
    cordon(cluster, 1, 1)
    assert placed(cluster, 3) == {0, 1, 2}


def test_failed_directory_leaves_a_broker_with_only_cordoned_ones() -> None:
    cluster = cluster_of(2)
    cordon(cluster, 1, 0)
    cluster.heartbeat(1, offline_log_dirs=[directory(1, 1)], cordoned_log_dirs=[directory(1, 0)])
    assert placed(cluster, 1) == {0}


def test_refused_placement_says_that_brokers_are_cordoned() -> None:
    cluster = cluster_of(2)
    cordon(cluster, 1, 0, 1)
    refusal = place(cluster.image, 1, 2, SimRandom(1))
    assert isinstance(refusal, Refusal) and "cordoned" in refusal.message
    assert refusal.code is ErrorCode.INVALID_REPLICATION_FACTOR
    cordon(cluster, 0, 0, 1)
    refusal = place(cluster.image, 1, 1, SimRandom(1))
    assert isinstance(refusal, Refusal) and "cordoned" in refusal.message


def test_new_registration_forgets_cordons_until_the_broker_reports_them() -> None:
    cluster = cluster_of(1)
    cordon(cluster, 0, 0, 1)
    cluster.register(0, 1, directories=2)
    assert cluster.image.cluster.brokers[0].cordoned_log_dirs is None


def test_snapshot_keeps_cordons_or_reports_their_loss() -> None:
    cluster = cluster_of(2)
    cordon(cluster, 0)
    cordon(cluster, 1, 1)
    written = [
        record.message for batch in snapshot_batches(cluster.image, LEVEL) for record in batch
    ]
    assert replay_all(EMPTY, written).cluster == cluster.image.cluster
    lost = losses(cluster.image, MetadataVersion.IBP_4_2_IV1)
    assert lost == ["the cordoned log directories of brokers"]
