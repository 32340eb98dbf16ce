"""Reads sealed segments from a broker's directory: the rows of read_committed without fetches."""

import shutil
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic
from source_cluster import ROWS, read_all
from test_pipeline_broker import settings
from tests.patience import SECONDS_MAX

from ottla.client.blocking.broker_client import BrokerClient
from ottla.client.blocking.range_fetch import DataLost, TopicRecreated, fetch_batches
from ottla.client.offset_spec import LATEST
from ottla.formats.arrow_batches import BadBatch, record_batches
from ottla.protocol.records.batch import batches
from ottla.protocol.types import TopicPartition, Uuid
from ottla.runtime.disk import RealDisk
from ottla.spark import tier
from ottla.spark.options import SourceOptions
from ottla.spark.source import BatchReader
from ottla.spark.tier import TierMissing, TierReader, layout_of
from ottla.storage.log.files import LogFiles
from ottla.testing import run_node

AT = TopicPartition("backfill", 0)
SEGMENT_BYTES = 1 << 20
VALUE = b"v" * 50_000


@pytest.fixture(scope="module")
def node():
    """A node with one topic: segments of 1 MiB; transactions that commit, abort and stay open."""
    with run_node() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        topic = NewTopic("backfill", 1, 1, config={"segment.bytes": str(SEGMENT_BYTES)})
        admin.create_topics([topic])["backfill"].result(SECONDS_MAX)
        staying = transactional(running.bootstrap, "stays")
        for round_number in range(12):
            for name, outcome in (("ann", "commit"), ("bob", "abort"), ("ann", "abort")):
                transact(running.bootstrap, name, outcome, round_number)
            if round_number == 6:
                staying.begin_transaction()
                send(staying, b"stays", 1)
        staying.abort_transaction(SECONDS_MAX)  # its marker is in the active segment
        client = BrokerClient(settings(running.bootstrap))
        deadline = time.monotonic() + SECONDS_MAX
        while client.list_offsets({AT: LATEST}, committed=True) != client.list_offsets(
            {AT: LATEST}, committed=False
        ):
            assert time.monotonic() < deadline
        client.close()
        del staying
        PRODUCERS.clear()
        yield running


PRODUCERS = {}


def transactional(bootstrap, name):
    if name not in PRODUCERS:
        PRODUCERS[name] = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        PRODUCERS[name].init_transactions(SECONDS_MAX)
    return PRODUCERS[name]


def send(producer, key, count):
    for _ in range(count):
        producer.produce("backfill", VALUE, key, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def transact(bootstrap, name, outcome, number):
    producer = transactional(bootstrap, name)
    producer.begin_transaction()
    send(producer, b"%s-%s-%d" % (name.encode(), outcome.encode(), number), 3)
    getattr(producer, f"{outcome}_transaction")(10)


@pytest.fixture
def client(node):
    made = BrokerClient(settings(node.bootstrap))
    yield made
    made.close()


@pytest.fixture
def fetched(monkeypatch):
    """Collects the ranges fetched from the leader."""
    ranges = []

    def counted(client, partition, start, end, **options):
        ranges.append((start, end))
        return fetch_batches(client, partition, start, end, **options)

    monkeypatch.setattr(tier, "fetch_batches", counted)
    return ranges


def rows(chunks, start, end):
    found = []
    for batch in record_batches(chunks, AT, ("offset", "key", "timestamp"), start, end):
        found += batch.to_pylist()
    return found


def through_broker(client, start, end, committed=True):
    return rows(fetch_batches(client, AT, start, end, committed=committed), start, end)


def from_tier(client, path, start, end, committed=True):
    return rows(
        TierReader(client, [each.strip() for each in str(path).split(",")]).batches(
            AT, start, end, committed=committed
        ),
        start,
        end,
    )


def end_of(client):
    return client.list_offsets({AT: LATEST}, committed=True)[AT]


def bases(node):
    return layout_of([each.name for each in (node.data(1) / "backfill-0").iterdir()]).bases


class TestRows:
    def test_committed_rows_equal_those_of_the_broker(self, node, client, fetched):
        end = end_of(client)
        expected = through_broker(client, 0, end)
        assert from_tier(client, node.data(1), 0, end) == expected
        assert {row["key"].split(b"-")[1] for row in expected if b"-" in row["key"]} == {b"commit"}
        # The leader supplied the rest, from the first transaction open at the end of a segment.
        assert len(fetched) == 1
        assert 0 < fetched[0][0] < bases(node)[-1]
        assert fetched[0][1] == end

    def test_uncommitted_rows_come_from_all_sealed_segments(self, node, client, fetched):
        end = end_of(client)
        expected = through_broker(client, 0, end, committed=False)
        assert from_tier(client, node.data(1), 0, end, committed=False) == expected
        assert fetched == [(bases(node)[-1], end)]

    def test_range_in_sealed_segments_sends_no_fetch(self, node, client, fetched):
        sealed = bases(node)
        assert len(sealed) > 3
        for start, end in [(0, sealed[2]), (sealed[1] + 1, sealed[2] - 1), (3, 4)]:
            assert from_tier(client, node.data(1), start, end) == through_broker(client, start, end)
        assert fetched == []

    def test_range_in_the_active_segment_is_fetched(self, node, client, fetched):
        start, end = bases(node)[-1], end_of(client)
        assert from_tier(client, node.data(1), start, end) == through_broker(client, start, end)
        assert fetched == [(start, end)]

    def test_chunk_size_does_not_change_rows(self, node, client, monkeypatch):
        monkeypatch.setattr(tier, "CHUNK_BYTES", 60_000)
        end = bases(node)[2]
        assert from_tier(client, node.data(1), 0, end) == through_broker(client, 0, end)

    def test_reader_finds_the_partition_in_several_directories(
        self, node, client, fetched, tmp_path
    ):
        end = bases(node)[1]
        paths = f"{tmp_path}, {node.data(1)}/"
        assert from_tier(client, paths, 0, end) == through_broker(client, 0, end)
        assert fetched == []


class TestDoubt:
    """Changed copies of the directory: the leader supplies what the files cannot."""

    @pytest.fixture
    def copy(self, node, tmp_path):
        shutil.copytree(node.data(1) / "backfill-0", tmp_path / "backfill-0")
        return tmp_path

    def files(self, copy):
        return LogFiles(RealDisk(), str(copy / "backfill-0"))

    def test_missing_producer_snapshot_falls_back_to_the_leader(self, node, client, fetched, copy):
        (copy / "backfill-0" / f"{bases(node)[-1]:020d}.snapshot").unlink()
        end = bases(node)[2]
        assert from_tier(client, copy, 0, end) == through_broker(client, 0, end)
        assert fetched == [(0, end)]

    def test_corrupt_txnindex_falls_back_to_the_leader(self, node, client, fetched, copy):
        index = min((copy / "backfill-0").glob("*.txnindex"))
        index.write_bytes(index.read_bytes()[:-1])
        end = bases(node)[2]
        assert from_tier(client, copy, 0, end) == through_broker(client, 0, end)
        assert len(fetched) == 1

    def test_wrong_offset_index_is_ignored(self, node, client, fetched, copy):
        for index in (copy / "backfill-0").glob("*.index"):
            index.write_bytes(b"\x00\x00\x00\x00\x00\x00\x03\xe7" + index.read_bytes())
        start, end = bases(node)[1] + 5, bases(node)[2]
        assert from_tier(client, copy, start, end) == through_broker(client, start, end)
        assert fetched == []

    def test_swap_files_fall_back_to_the_leader(self, node, client, fetched, copy):
        (copy / "backfill-0" / "00000000000000000000.log.swap").touch()
        end = bases(node)[1]
        assert from_tier(client, copy, 0, end) == through_broker(client, 0, end)
        assert fetched == [(0, end)]

    def test_missing_segment_falls_back_to_the_leader(self, node, client, fetched, copy):
        first, second, third = bases(node)[:3]
        (copy / "backfill-0" / f"{first:020d}.log").unlink()
        assert from_tier(client, copy, 0, third) == through_broker(client, 0, third)
        assert fetched == [(0, third)]
        assert second < third

    def test_directory_changed_while_opening_is_not_read(self, node, copy):
        files = self.files(copy)
        seen = []

        class Changing(RealDisk):
            def list(self, path):
                seen.append(path)
                if len(seen) == 2:
                    (copy / "backfill-0" / "00000000000000000000.log.swap").touch()
                return super().list(path)

        reading = tier.read_sealed(files._replace(disk=Changing()), 0, 10, committed=True)
        with pytest.raises(StopIteration) as stopped:
            next(reading)
        assert stopped.value.value == 0

    def test_segment_without_records_at_its_end_is_a_gap(self, node, copy):
        """Compaction leaves gaps: a segment ends at the base offset of the next one."""
        files, sealed = self.files(copy), bases(node)
        log = copy / "backfill-0" / f"{sealed[0]:020d}.log"
        log.write_bytes(b"")
        reading = tier.read_sealed(files, 0, sealed[2], committed=False)
        found = rows(reading, 0, sealed[2])
        assert next(row["offset"] for row in found) == sealed[1]

    def test_damaged_segment_raises_bad_batch(self, node, client, copy):
        log = copy / "backfill-0" / f"{0:020d}.log"
        data = bytearray(log.read_bytes())
        data[30_000] ^= 1
        log.write_bytes(data)
        with pytest.raises(BadBatch, match="backfill-0: the batch at offset 0 has a wrong CRC"):
            from_tier(client, copy, 0, 5)

    @pytest.mark.parametrize("bit", [0, 1, 6, 40])
    def test_overlapping_batches_are_not_returned(self, node, client, copy, bit):
        """The CRC does not cover a base offset, so a changed one shows in its neighbours."""
        log = copy / "backfill-0" / f"{0:020d}.log"
        data = bytearray(log.read_bytes())
        second = [start for start, _ in batches(data)][1]
        data[second + 7 - bit // 8] ^= 1 << bit % 8
        log.write_bytes(data)
        with pytest.raises(BadBatch, match=r"backfill-0: .*a batch has offsets"):
            from_tier(client, copy, 0, 2)


class TestWhose:
    def test_directory_of_another_topic_id_is_not_read(self, node, client, tmp_path):
        shutil.copytree(node.data(1) / "backfill-0", tmp_path / "backfill-0")
        metadata = tmp_path / "backfill-0" / "partition.metadata"
        metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg")
        with pytest.raises(TierMissing, match="backfill-0 is in none of"):
            from_tier(client, tmp_path, 0, 1)
        assert not TierReader(client, [str(tmp_path)]).holds(AT)
        assert TierReader(client, [str(node.data(1))]).holds(AT)

    def test_recreated_topic_raises_topic_recreated(self, node, client):
        reader = TierReader(client, [str(node.data(1))])
        with pytest.raises(TopicRecreated):
            list(reader.batches(AT, 0, 1, committed=True, topic_id=Uuid(b"x" * 16)))

    def test_deleted_records_in_files_are_not_returned(self, node, client):
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics(
            [NewTopic("trimmed", 1, 1, config={"segment.bytes": str(SEGMENT_BYTES)})]
        )["trimmed"].result(SECONDS_MAX)
        producer = Producer({"bootstrap.servers": node.bootstrap, "batch.num.messages": 1})
        for _ in range(50):
            producer.produce("trimmed", VALUE, partition=0)
        producer.flush(SECONDS_MAX)
        at = TopicPartition("trimmed", 0)
        for future in admin.delete_records([ConfluentPartition("trimmed", 0, 5)]).values():
            future.result(SECONDS_MAX)
        assert (node.data(1) / "trimmed-0" / f"{0:020d}.log").exists()
        reader = TierReader(client, [str(node.data(1))])
        with pytest.raises(DataLost, match="offset 2 is gone"):
            list(reader.batches(at, 2, 10, committed=True))
        assert list(reader.batches(at, 5, 10, committed=True))


def test_offsets_between_segments_belong_to_the_previous_one():
    layout = layout_of(["00000000000000000000.log", "00000000000000000100.log", "x.log"])
    assert layout.bases == (0, 100)
    assert layout.holding(99) == (0, 100)
    assert layout.holding(100) is None
    assert layout_of([]).holding(0) is None
    assert layout.sealed_end == 100


class TestSource:
    """The options of ``format("ottla")``, as a task reads them."""

    def values(self, node, **options):
        raw = {
            "kafka.bootstrap.servers": node.bootstrap,
            "subscribe": "backfill",
            "maxRecordsPerPartition": "17",
            **options,
        }
        reader = BatchReader(SourceOptions.parse(raw), ROWS)
        return sorted(
            (row["offset"], row["value"]) for row in read_all(reader, reader.partitions())
        )

    def test_tier_direct_reads_the_same_rows(self, node, fetched):
        expected = self.values(node, tier="never", tierPath=str(node.data(1)))
        most = len(fetched)
        fetched.clear()
        assert self.values(node, tier="direct", tierPath=str(node.data(1))) == expected
        assert 0 < len(fetched) < most
        assert self.values(node, tierPath=str(node.data(1))) == expected

    def test_missing_partition_is_an_error_only_with_tier_direct(self, node, tmp_path):
        assert self.values(node, tierPath=str(tmp_path)) == self.values(node)
        with pytest.raises(TierMissing):
            self.values(node, tier="direct", tierPath=str(tmp_path))
