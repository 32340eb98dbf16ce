"""Audits as Spark jobs: healthy topics are clean, and damaged logs are reported."""

import json
import shutil
from array import array

import pyarrow as pa
import pytest
from source_cluster import wait_until

from ottla.client.blocking.broker_client import client_for
from ottla.client.blocking.raw_producer import ProduceOptions, RawProducer
from ottla.client.offset_spec import LATEST
from ottla.formats.batch_encoder import Cells, Columns, HeaderCells, encode_rows
from ottla.protocol.records.batch import MAGIC, MAGIC_AT, batches, read_header
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.writer import Producer as BatchProducer
from ottla.protocol.types import TopicPartition
from ottla.spark import checks
from ottla.spark.audit import Account, Problem
from ottla.spark.checks import audit
from ottla.spark.options import SourceOptions
from record_tools import patch_offset

TRANSACTIONS = (("commit", 3), ("abort", 2), ("commit", 1))


def region(count):
    """Records with values 0, 1, 2 and equal keys."""
    values = [b"%d" % each for each in range(count)]
    columns = Columns(Cells.of([b"tx"] * count), Cells.of(values), HeaderCells.none(count))
    return encode_rows(columns, array("i", range(count)), 0, 1 << 20)


@pytest.fixture
def topic(cluster):
    """Two partitions: three transactions over both, 20 non-transactional records in the first."""
    name = cluster.create("audited", 2)
    client = client_for(SourceOptions.parse(cluster.options(subscribe=name)).client)
    producer = RawProducer(client, ProduceOptions(transactional_id=cluster.name("tx")))
    producer.open()
    for outcome, count in TRANSACTIONS:
        producer.send({TopicPartition(name, each): [region(count)] for each in (0, 1)})
        getattr(producer, outcome)()
    cluster.produce(name, range(20), key=b"plain")
    ends = {TopicPartition(name, 0): 29, TopicPartition(name, 1): 9}
    wait_until(
        lambda: client.list_offsets(dict.fromkeys(ends, LATEST), committed=True) == ends, "the end"
    )
    return name


class Copy:
    """A copy of the topic's files with sealed segments only, to be damaged."""

    def __init__(self, cluster, topic, ends):
        self.path, self.topic = cluster.tmp_path / "copy", topic
        for number, end in enumerate(ends):
            source = cluster.node.data(1) / f"{topic}-{number}"
            shutil.copytree(source, self.path / source.name)
            (self.path / source.name / f"{end:020d}.log").touch()

    def rewrite(self, partition, change):
        """Rewrite the batches of a partition with ``change``."""
        log = self.path / f"{self.topic}-{partition}" / f"{0:020d}.log"
        data, found, at = log.read_bytes(), [], 0
        while at < len(data) and data[at + MAGIC_AT] == MAGIC:  # the rest is preallocated
            size = read_header(data, at).size
            found.append(bytearray(data[at : at + size]))
            at += size
        log.write_bytes(b"".join(change(found)))


@pytest.fixture
def copy(cluster, topic):
    return Copy(cluster, topic, (29, 9))


def direct(cluster, copy):
    return cluster.options(subscribe=copy.topic, tier="direct", tierPath=str(copy.path))


def audit_here(options):
    """Run the tasks of an audit sequentially; return accounts and findings."""
    parsed = SourceOptions.parse({**options, "isolation": "read_uncommitted"})
    scopes, pieces = checks._plan(parsed)
    numbers = pa.record_batch({"id": list(range(len(pieces)))})
    facts = pa.Table.from_batches(checks._read_pieces(parsed, pieces, [numbers]))
    places = [(name, "ascending") for name in ("topic", "partition", "base_offset")]
    judged = pa.Table.from_batches(checks._audit_task(scopes, facts.sort_by(places).to_batches()))
    rows = [row for row in judged.to_pylist() if row["what"] != "transaction"]
    return checks._read_rows((row["what"], row["detail"]) for row in rows)[:2]


def messages(findings):
    return {(each.partition, each.problem) for each in findings}


class TestSpark:
    def test_healthy_topic_has_no_findings(self, spark, cluster, topic, monkeypatch):
        monkeypatch.setattr(checks, "OFFSETS_PER_TASK", 16)
        report = audit(spark, cluster.options(subscribe=topic), unique=["key", "value"])
        assert [(each.start, each.end) for each in report.partitions] == [(0, 29), (0, 9)]
        first, second = (each.account for each in report.partitions)
        assert (first.records, first.aborted, first.control) == (24, 2, 3)
        assert (second.records, second.aborted, second.control) == (4, 2, 3)
        assert (report.transactions, report.uncompared) == (3, 0)
        assert "2 partitions: 28 records, 4 aborted, 6 control" in str(report)
        # Committed transactions wrote value 0 four times, 1 and 2 twice.
        assert sorted(each.detail for each in report.findings) == [
            "2 records have the same key, value",
            "2 records have the same key, value",
            "4 records have the same key, value",
        ]
        assert messages(report.findings) == {(0, Problem.DUPLICATE)}
        assert report.count == 3
        assert not report.is_clean

    def test_damage_in_files_is_reported(self, spark, cluster, copy):
        """Flips a bit in the first partition, and turns a commit marker of the second to abort."""

        def flip(found):
            found[-1][-1] ^= 1
            return found

        def turn(found):
            (_, header) = next(batches(found[1]))
            producer = BatchProducer(header.producer_id, header.producer_epoch)
            marker = build_end_txn_marker(EndTxnMarker(False, 0), producer, 0)
            patch_offset(marker, 0, header.base_offset, header.leader_epoch)
            return [found[0], marker, *found[2:]]

        copy.rewrite(0, flip)
        copy.rewrite(1, turn)
        report = audit(spark, direct(cluster, copy))
        assert messages(report.findings) == {(0, Problem.DAMAGED), (0, Problem.ATOMICITY)}
        assert report.count == 2
        assert "the CRC is wrong" in str(report)
        assert "committed in 1 of 2 partitions" in str(report)

    def test_empty_topic_is_clean(self, spark, cluster):
        report = audit(spark, cluster.options(subscribe=cluster.create("empty", 3)))
        assert report.is_clean
        assert [each.account for each in report.partitions] == [Account()] * 3


class TestFiles:
    def test_undamaged_files_are_clean(self, cluster, copy):
        accounts, findings = audit_here(direct(cluster, copy))
        assert findings == []
        assert sum(each.records for each in accounts.values()) == 28

    def test_pieces_of_any_size_read_each_batch_once(self, cluster, copy, monkeypatch):
        for size in (1, 2, 7, 30):
            monkeypatch.setattr(checks, "OFFSETS_PER_TASK", size)
            accounts, findings = audit_here(direct(cluster, copy))
            assert findings == []
            assert sum(each.records for each in accounts.values()) == 28

    def test_range_may_begin_within_a_batch(self, cluster, topic):
        starting = json.dumps({topic: {"0": 1, "1": 9}})
        accounts, findings = audit_here(cluster.options(subscribe=topic, startingOffsets=starting))
        assert findings == []
        assert [each.records for each in accounts.values()] == [23]

    def test_missing_and_repeated_batches_are_reported(self, cluster, copy):
        def repeat_the_first(found):
            again = bytearray(found[0])
            patch_offset(again, 0, 3, 0)
            return [found[0], again, *found[3:]]

        copy.rewrite(0, lambda found: [found[0], *found[2:]])
        copy.rewrite(1, repeat_the_first)
        _, findings = audit_here(direct(cluster, copy))
        assert (0, Problem.MISSING) in messages(findings)
        assert (1, Problem.DUPLICATE) in messages(findings)

    def test_invalid_bytes_end_the_audit_of_a_partition(self, cluster, copy):
        copy.rewrite(1, lambda found: [*found[:3], b"\x07" * 200])
        accounts, findings = audit_here(direct(cluster, copy))
        assert (1, Problem.DAMAGED) in messages(findings)
        assert accounts[TopicPartition(copy.topic, 1)].missing > 0

    def test_undecided_transaction_below_lso_is_reported(self, cluster, copy):
        copy.rewrite(1, lambda found: found[:-1])
        _, findings = audit_here(direct(cluster, copy))
        assert messages(findings) == {(1, Problem.UNDECIDED), (1, Problem.MISSING)}

    def test_compacted_topic_may_lack_records(self, cluster):
        name = cluster.create("compacted", cleanup_policy="compact")
        for each in range(3):
            cluster.produce(name, [each], key=b"k%d" % each)
        copy = Copy(cluster, name, (3,))
        copy.rewrite(0, lambda found: found[::2])
        accounts, findings = audit_here(direct(cluster, copy))
        assert findings == []
        assert accounts[TopicPartition(name, 0)].compacted == 1

    def test_offsets_removed_by_retention_are_no_finding(self, cluster, topic, monkeypatch):
        original = checks._plan

        def plan_then_delete(options):
            planned = original(options)
            cluster.delete_records(topic, 10)
            return planned

        monkeypatch.setattr(checks, "_plan", plan_then_delete)
        accounts, findings = audit_here(cluster.options(subscribe=topic))
        assert findings == []
        assert accounts[TopicPartition(topic, 0)].expired == 10
