"""Backfills of remote segments from their store: the rows of the broker, without a Fetch."""

import logging
import os
import re
import urllib.request

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from source_cluster import ROWS, read_all, wait_until
from test_pipeline_broker import settings
from tests.patience import SECONDS_MAX

from free_ports import free_ports
from ottla.client.blocking.broker_client import BrokerClient
from ottla.client.blocking.range_fetch import fetch_batches
from ottla.protocol.records.batch import batches
from ottla.protocol.types import TopicPartition
from ottla.spark import tier, tiered_segments
from ottla.spark.option_values import OptionError
from ottla.spark.options import SourceOptions
from ottla.spark.source import BatchReader
from ottla.spark.tier import TierMissing, TierReader, TierUnavailable
from ottla.testing import run_node

TOPIC = "backfill"
AT = TopicPartition(TOPIC, 0)
EARLIEST_LOCAL = -4
CONFIG = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "2000",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}


class TieredNode:
    """A node with its tier in ``store``, and the options of a source that reads it."""

    def __init__(self, running, store, options, port):
        self.undecided = fill(running.bootstrap)
        self.store, self.options, self.port = store, options, port
        self.bootstrap = running.bootstrap
        self.client = BrokerClient(settings(running.bootstrap))

    def metric(self, pattern):
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/metrics", timeout=SECONDS_MAX
        ) as reply:
            page = reply.read().decode()
        return sum(float(each) for each in re.findall(pattern + r"[^\n]* ([0-9.e+]+)\n", page))

    def fetches(self):
        """How many fetches the broker has served, and how many reads of its own from the tier."""
        requests = self.metric(r'kafka_network_requestmetrics_requests_total\{[^\n]*"Fetch"')
        return requests, self.metric("kafka_server_brokertopicmetrics_remotefetchrequests_total")

    def rows(self, **options):
        raw = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": TOPIC,
            "maxRecordsPerPartition": "37",
            **self.options,
            **options,
        }
        reader = BatchReader(SourceOptions.parse(raw), ROWS)
        found = read_all(reader, reader.partitions())
        return sorted((row["offset"], row["value"]) for row in found)

    def local_start(self):
        return self.client.list_offsets({AT: EARLIEST_LOCAL}, committed=False)[AT]


def fill(bootstrap):
    """Transactions that commit and abort, with markers in later segments, and plain records.

    Return the first offset of the last transaction, whose marker is in the active segment.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(SECONDS_MAX)
    producers = {}
    for name in ("ann", "bob", "eve"):
        producers[name] = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        producers[name].init_transactions(SECONDS_MAX)
    eve = producers.pop("eve")
    for turn in range(4):
        for producer in producers.values():
            producer.begin_transaction()
        for number in range(6):
            for name, producer in producers.items():
                producer.produce(TOPIC, f"{turn} {name} {number} ".encode() + b"x" * 200)
                assert producer.flush(SECONDS_MAX) == 0
        producers["ann"].commit_transaction(SECONDS_MAX)
        if turn % 2:
            producers["bob"].commit_transaction(SECONDS_MAX)
        else:
            producers["bob"].abort_transaction(SECONDS_MAX)
    eve.begin_transaction()
    offsets = []
    eve.produce(TOPIC, b"0 eve 0", on_delivery=lambda error, sent: offsets.append(sent.offset()))
    assert eve.flush(SECONDS_MAX) == 0
    plain = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(20):
        plain.produce(TOPIC, f"plain {number} ".encode() + b"x" * 400)
        assert plain.flush(SECONDS_MAX) == 0
    eve.abort_transaction(SECONDS_MAX)
    return offsets[0]


@pytest.fixture(scope="module")
def s3_server():
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module", params=["directory", "s3"])
def node(request, tmp_path_factory, s3_server):
    """A node whose topic is in remote storage, apart from its end."""
    store = tmp_path_factory.mktemp("tier")
    lines = {"remote.log.storage.manager.class.name": request.param}
    options = {"tierPath": str(store)}
    if request.param == "directory":
        lines["rsm.config.directory"] = str(store)
    else:
        bucket = f"tier-{os.urandom(4).hex()}"
        made = urllib.request.Request(f"{s3_server}/{bucket}", method="PUT")
        urllib.request.urlopen(made).close()
        keys = {
            "rsm.config.endpoint": s3_server,
            "rsm.config.region": "us-east-1",
            "rsm.config.allow.http": "true",
            "rsm.config.access.key.id": "a",
            "rsm.config.secret.access.key": "b",
        }
        lines |= {"rsm.config.bucket": bucket, "rsm.config.prefix": "old/logs", **keys}
        options = {"tierPath": f"s3://{bucket}/old/logs", **keys}
    port = free_ports(1)[0]
    config = {
        "remote.log.storage.system.enable": True,
        "remote.log.metadata.manager.class.name": "memory",
        "remote.log.manager.task.interval.ms": 50,
        "log.retention.check.interval.ms": 50,
        "log.initial.task.delay.ms": 0,
        "ottla.metrics.listener": f"127.0.0.1:{port}",
        **lines,
    }
    with run_node(config=config) as running:
        made = TieredNode(running, store, options, port)
        end = made.client.list_offsets({AT: -1}, committed=True)[AT]
        wait_until(lambda: made.local_start() > end - 10, "tiering")
        yield made
        made.client.close()


class TestBackfill:
    def test_rows_are_those_of_the_broker_and_cause_no_fetch(self, node):
        assert 40 < node.undecided < node.local_start()
        ending = f'{{"{TOPIC}": {{"0": {node.undecided}}}}}'
        expected = node.rows(tier="never", endingOffsets=ending)
        assert {text.split()[1] for _, text in expected} >= {b"ann", b"bob"}
        aborted = [text for _, text in expected if text.startswith((b"0 bob", b"2 bob"))]
        assert not aborted
        before = node.fetches()
        assert before[1] > 0  # the broker itself read them from the tier
        assert node.rows(tier="direct", endingOffsets=ending) == expected
        assert node.rows(endingOffsets=ending) == expected
        assert node.fetches() == before

    def test_rows_after_the_tier_come_from_the_leader(self, node):
        """From the first transaction on whose end is not in remote storage."""
        before = node.fetches()
        rows = node.rows(tier="direct")
        assert node.fetches()[0] > before[0]
        assert rows == node.rows(tier="never")
        assert not [text for _, text in rows if b"eve" in text]

    def test_read_uncommitted_has_aborted_records(self, node):
        kept = {"isolation": "read_uncommitted"}
        assert node.rows(tier="direct", **kept) == node.rows(tier="never", **kept)
        assert len(node.rows(tier="direct", **kept)) > len(node.rows(tier="direct"))

    def test_bytes_per_partition_count_what_is_in_remote_storage(self, node):
        raw = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": TOPIC, **node.options}
        options = SourceOptions.parse({**raw, "maxBytesPerPartition": "2000"})
        tasks = BatchReader(options, ROWS).partitions()
        # 44 records of 200 bytes and 20 of 400, of which the disk has the last few.
        assert len(tasks) >= 8

    def test_blocks_bound_what_is_read_at_once(self, node, monkeypatch):
        monkeypatch.setattr(tiered_segments, "BLOCK_BYTES", 700)
        asked = []
        begin = tiered_segments.TieredStore.begin_block

        def counted(store, metadata, start, length):
            asked.append(length)
            return begin(store, metadata, start, length)

        monkeypatch.setattr(tiered_segments.TieredStore, "begin_block", counted)
        assert node.rows(tier="direct") == node.rows(tier="never")
        assert set(asked) == {700}

    def test_segment_of_another_history_is_not_read(self, node, monkeypatch):
        """The leader's log has no record of the epoch: its own records are fetched instead."""
        asked = []
        own = BrokerClient.epoch_end

        def foreign(client, partition, epoch):
            asked.append(epoch)
            return own(client, partition, epoch) if len(asked) > 1 else (epoch, 1)

        monkeypatch.setattr(BrokerClient, "epoch_end", foreign)
        found = TierReader(node.client, SourceOptions.parse(
            {"kafka.bootstrap.servers": node.bootstrap, "subscribe": TOPIC, **node.options}
        ).tier_places)  # fmt: skip
        fetched = []
        monkeypatch.setattr(
            tier, "fetch_batches", lambda *a, **k: fetched.append(a[2:4]) or fetch_batches(*a, **k)
        )
        assert list(found.batches(AT, 0, 10, committed=True))
        assert fetched == [(0, 10)]

    @pytest.mark.parametrize(("byte", "bit"), [(7, 0), (7, 1), (6, 0), (0, 7), (15, 0), (12, 6)])
    def test_flipped_bit_outside_of_the_crc_is_never_returned(self, node, byte, bit):
        """Of a base offset (bytes 0 to 7) or a leader epoch (12 to 15)."""
        if not node.options["tierPath"].startswith("/"):
            pytest.skip("the store is not a directory")
        path = sorted(node.store.rglob("*.log"))[1]
        good = path.read_bytes()
        starts = [start for start, _ in batches(good)]
        expected = node.rows(tier="never")
        try:
            for start in (starts[0], starts[2], starts[-1]):
                data = bytearray(good)
                data[start + byte] ^= 1 << bit
                path.write_bytes(data)
                with pytest.raises(TierUnavailable, match=re.escape(path.name)):
                    node.rows(tier="direct", endingOffsets=f'{{"{TOPIC}": {{"0": 40}}}}')
        finally:
            path.write_bytes(good)
        assert node.rows(tier="direct") == expected

    def test_missing_topic_is_an_error_only_with_tier_direct(self, node):
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("local", 1, 1)])["local"].result(SECONDS_MAX)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        producer.produce("local", b"here")
        assert producer.flush(SECONDS_MAX) == 0
        assert node.rows(subscribe="local") == [(0, b"here")]
        with pytest.raises(TierMissing, match="local-0 is in none of"):
            node.rows(subscribe="local", tier="direct")


@pytest.mark.parametrize("node", ["s3"], indirect=True)
def test_spark_job_reads_a_bucket_without_fetches(node, spark):
    ending = f'{{"{TOPIC}": {{"0": {node.undecided}}}}}'
    expected = node.rows(tier="never", endingOffsets=ending)
    before = node.fetches()
    options = {
        "kafka.bootstrap.servers": node.bootstrap,
        "subscribe": TOPIC,
        "endingOffsets": ending,
        "minPartitions": "3",
        "tier": "direct",
        **node.options,
    }
    frame = spark.read.format("ottla").options(**options).load()
    rows = frame.select("offset", "value").collect()
    assert sorted((row.offset, bytes(row.value)) for row in rows) == expected
    assert node.fetches() == before


@pytest.mark.parametrize("node", ["directory"], indirect=True)
class TestFailures:
    """Stores that cannot be read, and objects that are missing or changed."""

    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch):
        monkeypatch.setattr("ottla.tiering.segment_store.BACKOFF_S", 0.001)

    def unreachable(self):
        return {
            "tierPath": "s3://tier",
            "rsm.config.endpoint": f"http://127.0.0.1:{free_ports(1)[0]}",
            "rsm.config.region": "us-east-1",
            "rsm.config.allow.http": "true",
            "rsm.config.access.key.id": "a",
            "rsm.config.secret.access.key": "b",
        }

    def test_unreachable_store_names_it_and_says_what_to_do(self, node):
        with pytest.raises(TierUnavailable) as failed:
            node.rows(tier="direct", **self.unreachable())
        text = str(failed.value)
        assert text.startswith("backfill-0 cannot be read from s3://tier: ")
        assert "Check tierPath and rsm.config.endpoint" in text
        assert "\n" not in text

    def test_unreachable_store_is_only_a_warning_with_tier_auto(self, node, caplog):
        assert node.rows(**self.unreachable()) == node.rows(tier="never")
        assert "it is fetched from the leader instead" in caplog.text

    def test_missing_credentials_are_named(self, node, monkeypatch):
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        # Where a machine in the cloud would answer with its role.
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_ports(1)[0]}")
        options = self.unreachable()
        del options["rsm.config.access.key.id"], options["rsm.config.secret.access.key"]
        with pytest.raises(TierUnavailable, match="No credentials were found: set"):
            node.rows(tier="direct", **options)

    def test_changed_object_is_an_error_that_names_it(self, node):
        log = min(node.store.rglob("*.log"))
        good = log.read_bytes()
        log.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
        try:
            with pytest.raises(TierUnavailable, match="the CRC of the batch at offset 0 is wrong"):
                node.rows(tier="direct")
        finally:
            log.write_bytes(good)

    def test_segment_without_manifest_is_not_read(self, node):
        """A copy that nobody finished may lack its transaction index: the leader is asked."""
        before = node.rows(tier="never")
        manifest = min(node.store.rglob("*.manifest"))
        index = min(node.store.rglob("*.txnindex"))
        kept = manifest.read_bytes(), index.read_bytes()
        manifest.unlink()
        try:
            assert node.rows(tier="direct") == before
        finally:
            manifest.write_bytes(kept[0])
        index.unlink()  # the leader has it in its cache
        try:
            assert node.rows(tier="direct") == before
        finally:
            index.write_bytes(kept[1])

    def test_half_of_the_credentials_is_rejected(self, node):
        options = self.unreachable()
        del options["rsm.config.secret.access.key"]
        with pytest.raises(OptionError, match="must be set together"):
            node.rows(tier="direct", **options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tierPath": "gs://bucket"}, "must be a directory or like s3://bucket/prefix"),
        ({"tierPath": "s3://"}, "must be a directory or like s3://bucket/prefix"),
        ({"tierPath": "/mnt", "rsm.config.region": "x"}, "needs tierPath=s3://bucket/prefix"),
        ({"tier": "direct"}, "tier=direct needs tierPath"),
    ],
)
def test_options_of_a_store_are_checked(options, reason):
    raw = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", **options}
    with pytest.raises(OptionError, match=reason):
        SourceOptions.parse(raw)


def test_secret_key_is_not_in_the_text_of_options():
    raw = {
        "kafka.bootstrap.servers": "x:1", "subscribe": "t", "tierPath": "s3://b",
        "rsm.config.access.key.id": "a", "rsm.config.secret.access.key": "hidden",
    }  # fmt: skip
    assert "hidden" not in repr(SourceOptions.parse(raw))
