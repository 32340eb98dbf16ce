"""Audits as Spark jobs: clean histories are clean, and damaged logs are told, by their files."""

import json
import shutil
from array import array

import pyarrow as pa
import pytest
from source_world import wait_until

from ottla.pipeline import checks
from ottla.pipeline.audit import Account, Problem
from ottla.pipeline.broker import LATEST, client_for
from ottla.pipeline.checks import audit
from ottla.pipeline.encode import Cells, Columns, HeaderCells, encode_rows
from ottla.pipeline.options import SourceOptions
from ottla.pipeline.produce import ProduceOptions, RawProducer
from ottla.protocol.records.batch import MAGIC, MAGIC_AT, batches, read_header
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.writer import Producer as BatchProducer
from ottla.protocol.types import TopicPartition
from record_tools import patch_offset

TRANSACTIONS = (("commit", 3), ("abort", 2), ("commit", 1))


def region(count):
    """Records with values 0, 1, 2, and all the same key."""
    values = [b"%d" % each for each in range(count)]
    columns = Columns(Cells.of([b"tx"] * count), Cells.of(values), HeaderCells.none(count))
    return encode_rows(columns, array("i", range(count)), 0, 1 << 20)


@pytest.fixture
def topic(world):
    """Two partitions: three transactions over both, and 20 records of nobody's in the first."""
    name = world.create("audited", 2)
    client = client_for(SourceOptions.parse(world.options(subscribe=name)).client)
    producer = RawProducer(client, ProduceOptions(transactional_id=world.name("tx")))
    producer.open()
    for outcome, count in TRANSACTIONS:
        producer.send({TopicPartition(name, each): [region(count)] for each in (0, 1)})
        getattr(producer, outcome)()
    world.produce(name, range(20), key=b"plain")
    ends = {TopicPartition(name, 0): 29, TopicPartition(name, 1): 9}
    wait_until(
        lambda: client.list_offsets(dict.fromkeys(ends, LATEST), committed=True) == ends, "the end"
    )
    return name


class Copy:
    """A copy of the topic's files, whose segments are all sealed, to be damaged."""

    def __init__(self, world, topic, ends):
        self.path, self.topic = world.tmp_path / "copy", topic
        for number, end in enumerate(ends):
            source = world.node.data(1) / f"{topic}-{number}"
            shutil.copytree(source, self.path / source.name)
            (self.path / source.name / f"{end:020d}.log").touch()

    def rewrite(self, partition, change):
        """Write the batches of a partition anew, as ``change`` returns them."""
        log = self.path / f"{self.topic}-{partition}" / f"{0:020d}.log"
        data, found, at = log.read_bytes(), [], 0
        while at < len(data) and data[at + MAGIC_AT] == MAGIC:  # behind it is room made ahead
            size = read_header(data, at).size
            found.append(bytearray(data[at : at + size]))
            at += size
        log.write_bytes(b"".join(change(found)))


@pytest.fixture
def copy(world, topic):
    return Copy(world, topic, (29, 9))


def direct(world, copy):
    return world.options(subscribe=copy.topic, tier="direct", tierPath=str(copy.path))


def audit_here(options):
    """Do what the tasks of an audit do, one behind the other; return accounts and findings."""
    parsed = SourceOptions.parse({**options, "isolation": "read_uncommitted"})
    scopes, pieces = checks._plan(parsed)
    numbers = pa.record_batch({"id": list(range(len(pieces)))})
    facts = pa.Table.from_batches(checks._read_pieces(parsed, pieces, [numbers]))
    places = [(name, "ascending") for name in ("topic", "partition", "base_offset")]
    judged = pa.Table.from_batches(checks._audit_task(scopes, facts.sort_by(places).to_batches()))
    rows = [row for row in judged.to_pylist() if row["what"] != "transaction"]
    return checks._read_rows((row["what"], row["detail"]) for row in rows)[:2]


def told(findings):
    return {(each.partition, each.problem) for each in findings}


class TestSpark:
    def test_every_offset_of_a_healthy_topic_is_explained(self, spark, world, topic, monkeypatch):
        monkeypatch.setattr(checks, "OFFSETS_PER_TASK", 16)
        report = audit(spark, world.options(subscribe=topic), unique=["key", "value"])
        assert [(each.start, each.end) for each in report.partitions] == [(0, 29), (0, 9)]
        first, second = (each.account for each in report.partitions)
        assert (first.records, first.aborted, first.control) == (24, 2, 3)
        assert (second.records, second.aborted, second.control) == (4, 2, 3)
        assert (report.transactions, report.uncompared) == (3, 0)
        assert "2 partitions: 28 records, 4 aborted, 6 control" in str(report)
        # The value 0 comes 4 times by committed transactions, 1 and 2 twice.
        assert sorted(each.detail for each in report.findings) == [
            "2 records have the same key, value",
            "2 records have the same key, value",
            "4 records have the same key, value",
        ]
        assert told(report.findings) == {(0, Problem.DUPLICATE)}
        assert report.count == 3
        assert not report.is_clean

    def test_what_is_wrong_in_files_is_told(self, spark, world, copy):
        """A bit flipped in the first, and the second's first transaction aborted by its marker."""

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
        report = audit(spark, direct(world, copy))
        assert told(report.findings) == {(0, Problem.DAMAGED), (0, Problem.ATOMICITY)}
        assert report.count == 2
        assert "the CRC is wrong" in str(report)
        assert "committed in 1 of 2 partitions" in str(report)

    def test_an_empty_topic_is_clean(self, spark, world):
        report = audit(spark, world.options(subscribe=world.create("empty", 3)))
        assert report.is_clean
        assert [each.account for each in report.partitions] == [Account()] * 3


class TestFiles:
    def test_whole_files_are_clean(self, world, copy):
        accounts, findings = audit_here(direct(world, copy))
        assert findings == []
        assert sum(each.records for each in accounts.values()) == 28

    def test_pieces_of_any_size_see_each_batch_once(self, world, copy, monkeypatch):
        for size in (1, 2, 7, 30):
            monkeypatch.setattr(checks, "OFFSETS_PER_TASK", size)
            accounts, findings = audit_here(direct(world, copy))
            assert findings == []
            assert sum(each.records for each in accounts.values()) == 28

    def test_a_range_that_begins_within_a_batch(self, world, topic):
        starting = json.dumps({topic: {"0": 1, "1": 9}})
        accounts, findings = audit_here(world.options(subscribe=topic, startingOffsets=starting))
        assert findings == []
        assert [each.records for each in accounts.values()] == [23]

    def test_lost_batches_and_one_that_comes_twice(self, world, copy):
        def repeat_the_first(found):
            again = bytearray(found[0])
            patch_offset(again, 0, 3, 0)
            return [found[0], again, *found[3:]]

        copy.rewrite(0, lambda found: [found[0], *found[2:]])
        copy.rewrite(1, repeat_the_first)
        _, findings = audit_here(direct(world, copy))
        assert (0, Problem.MISSING) in told(findings)
        assert (1, Problem.DUPLICATE) in told(findings)

    def test_bytes_that_are_no_batch_end_a_partition_there(self, world, copy):
        copy.rewrite(1, lambda found: [*found[:3], b"\x07" * 200])
        accounts, findings = audit_here(direct(world, copy))
        assert (1, Problem.DAMAGED) in told(findings)
        assert accounts[TopicPartition(copy.topic, 1)].missing > 0

    def test_a_transaction_without_an_end_below_the_last_stable_offset(self, world, copy):
        copy.rewrite(1, lambda found: found[:-1])
        _, findings = audit_here(direct(world, copy))
        assert told(findings) == {(1, Problem.UNDECIDED), (1, Problem.MISSING)}

    def test_a_compacted_topic_may_lack_records(self, world):
        name = world.create("compacted", cleanup_policy="compact")
        for each in range(3):
            world.produce(name, [each], key=b"k%d" % each)
        copy = Copy(world, name, (3,))
        copy.rewrite(0, lambda found: found[::2])
        accounts, findings = audit_here(direct(world, copy))
        assert findings == []
        assert accounts[TopicPartition(name, 0)].compacted == 1

    def test_what_retention_takes_meanwhile_is_no_finding(self, world, topic, monkeypatch):
        original = checks._plan

        def plan_then_delete(options):
            planned = original(options)
            world.delete_records(topic, 10)
            return planned

        monkeypatch.setattr(checks, "_plan", plan_then_delete)
        accounts, findings = audit_here(world.options(subscribe=topic))
        assert findings == []
        assert accounts[TopicPartition(topic, 0)].expired == 10
