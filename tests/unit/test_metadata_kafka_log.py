"""A metadata log that Apache Kafka wrote, from its first record to a controlled shutdown."""

from collections.abc import Iterator
from pathlib import Path

from metadata_snapshots import snapshot_batches, snapshot_image

from ottla.metadata.configs import ConfigResource
from ottla.metadata.features import default_levels
from ottla.metadata.image import Provenance
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.metadata.transactions import BatchLoader
from ottla.protocol.internal.framing import encode_framed
from ottla.protocol.internal.metadata_records import decode_metadata_record
from ottla.protocol.schema import Message

LOG = Path(__file__).parent / "golden" / "kafka_metadata_log.tsv"


def batches() -> Iterator[tuple[list[Message], Provenance]]:
    for line in LOG.read_text().splitlines():
        if not line.startswith("#"):
            offset, epoch, timestamp, *values = line.split("\t")
            records = [decode_metadata_record(bytes.fromhex(value)) for value in values]
            assert [encode_framed(record).hex() for record in records] == values
            yield (
                [record.message for record in records],
                Provenance(int(offset), int(epoch), int(timestamp)),
            )


def loaded() -> BatchLoader:
    loader = BatchLoader()
    for records, provenance in batches():
        assert loader.load(records, provenance) is not None
    return loader


def test_bootstrap_transaction_gives_the_levels_of_the_release() -> None:
    records, provenance = next(batches())
    loader = BatchLoader()
    delta = loader.load(records, provenance)
    assert delta is not None and "metadata.version" in delta.features
    levels = default_levels(MetadataVersion.IBP_4_2_IV1)
    levels.pop("kraft.version")
    assert dict(loader.image.features.levels) == levels
    assert dict(loader.image.configs.of(ConfigResource(4, ""))) == {"min.insync.replicas": "1"}


def test_whole_log_gives_the_state_of_the_kafka_broker() -> None:
    image = loaded().image
    assert image.provenance.offset == 62
    assert image.topics.names() == ["__transaction_state", "peer"]
    assert image.topics.partition_count == 2 and image.next_producer_id == 1000
    broker = image.cluster.brokers[1]
    assert broker.fenced and broker.in_controlled_shutdown and broker.epoch == 12
    for at, partition in image.topics.replicas_on(1):
        assert not partition.has_leader() and partition.isr == () and partition.elr == (1,)
        assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)
        assert partition.directory(1) in broker.log_dirs, at
    peer = image.configs.of(ConfigResource(2, "peer"))
    assert dict(peer) == {"segment.bytes": "1048576", "index.interval.bytes": "512"}
    assert sorted(image.cluster.controllers) == [1]


def test_kafka_snapshot_gives_the_same_image() -> None:
    image = loaded().image
    records = [[record.message for record in batch] for batch in snapshot_batches(image)]
    assert snapshot_image(records, image.provenance) == image
