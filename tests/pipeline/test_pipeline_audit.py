"""The rules of an audit: every offset is counted, and problems are reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.fetched import Chunk
from ottla.protocol.records.batch import patch_crc
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch
from ottla.spark import audit
from ottla.spark.audit import (
    Account,
    BatchFact,
    Kind,
    PartitionAudit,
    Problem,
    Scope,
    Transaction,
    expiry,
    read_facts,
)

NO_PRODUCER = Producer(-1, -1)


def data(base, count=2, producer=NO_PRODUCER, *, is_transactional=False, records=None, epoch=0):
    return BatchFact(
        base_offset=base,
        next_offset=base + count,
        records=count if records is None else records,
        leader_epoch=epoch,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=producer.base_sequence,
        is_transactional=is_transactional,
        kind=Kind.DATA,
    )


def marker(offset, producer, *, is_commit):
    kind = Kind.COMMIT if is_commit else Kind.ABORT
    return BatchFact(offset, offset + 1, 1, 0, producer.id, producer.epoch, -1, True, kind)


def run(*facts, start=0, end=None, stable=None, compacts=False):
    end = facts[-1].next_offset if end is None else end
    scope = Scope(start, end, end if stable is None else stable, compacts)
    auditing = PartitionAudit("t", 0, scope)
    decided = [each for fact in facts for each in auditing.take(fact)]
    auditing.finish()
    return auditing, decided


def problems(auditing):
    return [(each.offset, each.problem) for each in auditing.findings]


class TestOffsets:
    def test_log_without_gaps_is_clean(self):
        auditing, _ = run(data(5), data(7), data(9, 1), start=5)
        assert auditing.findings == []
        assert auditing.account == Account(records=5, batches=3)

    def test_gap_is_a_finding_unless_topic_is_compacted(self):
        auditing, _ = run(data(0), data(7))
        assert problems(auditing) == [(2, Problem.MISSING)]
        assert "offsets 2 to 6" in auditing.findings[0].detail
        assert auditing.account.missing == 5
        auditing, _ = run(data(0), data(7), compacts=True)
        assert problems(auditing) == []
        assert auditing.account.compacted == 5

    def test_gap_at_either_end_is_a_finding(self):
        auditing, _ = run(data(3), start=0, end=9)
        assert problems(auditing) == [(0, Problem.MISSING), (5, Problem.MISSING)]
        assert run(start=0, end=9)[0].account.missing == 9

    def test_records_missing_within_a_batch_are_a_finding(self):
        assert problems(run(data(0, 5, records=3))[0]) == [(0, Problem.MISSING)]
        assert run(data(0, 5, records=3), compacts=True)[0].account == Account(
            records=3, compacted=2, batches=1
        )

    def test_decreasing_offsets_are_reported(self):
        assert problems(run(data(0), data(2), data(2))[0]) == [(2, Problem.ORDER)]

    def test_first_batch_may_begin_before_the_start(self):
        auditing, _ = run(data(0, 10), start=4)
        assert auditing.findings == []
        assert auditing.account.records == 6

    def test_damaged_batch_does_not_affect_the_leader_epoch(self):
        auditing, _ = run(data(0, epoch=3), audit.damage(2, 4, "why"), data(4, epoch=3))
        assert problems(auditing) == [(2, Problem.DAMAGED)]
        assert auditing.account == Account(records=4, missing=2, batches=3, findings=1)

    def test_decreasing_leader_epoch_is_reported(self):
        assert problems(run(data(0, epoch=3), data(2, epoch=2))[0]) == [(2, Problem.ORDER)]

    def test_offsets_removed_by_retention_count_as_expired(self):
        auditing, _ = run(expiry(0, 5), data(5))
        assert auditing.findings == []
        assert auditing.account == Account(records=2, expired=5, batches=1)
        auditing, _ = run(expiry(0, 5), data(3, 4))
        assert auditing.findings == []
        assert auditing.account == Account(records=2, expired=5, batches=1)

    def test_findings_are_bounded_and_counted(self):
        facts = [data(each * 3, 1) for each in range(audit.FINDINGS_MAX + 50)]
        auditing, _ = run(*facts)
        assert len(auditing.findings) == audit.FINDINGS_MAX
        assert auditing.account.findings == audit.FINDINGS_MAX + 49


class TestSequences:
    def test_consecutive_sequences_are_clean_across_wraparound(self):
        last = 2**31 - 2
        facts = [data(0, 2, Producer(7, 0, last)), data(2, 2, Producer(7, 0, 0))]
        assert run(*facts)[0].findings == []

    def test_first_sequence_may_be_any_and_new_epoch_restarts(self):
        facts = [data(0, 2, Producer(7, 0, 50)), data(2, 2, Producer(7, 1, 0))]
        assert run(*facts)[0].findings == []

    def test_repeated_sequence_is_a_duplicate(self):
        facts = [data(0, 2, Producer(7, 0, 0)), data(2, 2, Producer(7, 0, 0))]
        assert problems(run(*facts)[0]) == [(2, Problem.DUPLICATE)]
        facts.append(data(4, 2, Producer(7, 0, 2)))
        assert len(run(*facts)[0].findings) == 1

    def test_sequence_gap_is_reported_unless_topic_is_compacted(self):
        facts = [data(0, 2, Producer(7, 0, 0)), data(2, 2, Producer(7, 0, 5))]
        assert problems(run(*facts)[0]) == [(2, Problem.SEQUENCE)]
        assert run(*facts, compacts=True)[0].findings == []

    def test_decreasing_producer_epoch_is_reported(self):
        facts = [data(0, 2, Producer(7, 3, 0)), data(2, 2, Producer(7, 2, 2))]
        assert problems(run(*facts)[0]) == [(2, Problem.ORDER)]

    def test_producers_have_independent_sequences(self):
        facts = [data(0, 2, Producer(7, 0, 0)), data(2, 2, Producer(8, 0, 0))]
        assert run(*facts)[0].findings == []

    def test_number_of_tracked_producers_is_bounded(self, monkeypatch):
        monkeypatch.setattr(audit, "PRODUCERS_MAX", 2)
        facts = [data(each * 2, 2, Producer(each % 3, 0, 0)) for each in range(6)]
        assert run(*facts)[0].findings == []


class TestTransactions:
    ANN, BOB = Producer(1, 4, 0), Producer(2, 0, 0)

    def test_records_are_counted_by_transaction_outcome(self):
        auditing, decided = run(
            data(0, 2, self.ANN, is_transactional=True),
            data(2, 3, self.BOB, is_transactional=True),
            marker(5, self.ANN, is_commit=True),
            marker(6, self.BOB, is_commit=False),
        )
        assert auditing.findings == []
        assert auditing.account == Account(records=2, aborted=3, control=2, batches=4)
        assert decided == [Transaction(1, 4, 0, True), Transaction(2, 0, 2, False)]

    def test_transaction_has_the_epoch_of_its_first_batch(self):
        """With transaction.version 2 its marker has the next epoch."""
        _, decided = run(
            data(0, 2, self.ANN, is_transactional=True),
            marker(2, Producer(1, 5), is_commit=True),
        )
        assert decided == [Transaction(1, 4, 0, True)]

    def test_marker_without_records_ends_no_transaction(self):
        auditing, decided = run(marker(0, self.ANN, is_commit=False))
        assert (auditing.findings, decided) == ([], [])

    def test_open_transaction_is_a_finding_only_below_lso(self):
        fact = data(3, 2, self.ANN, is_transactional=True)
        auditing, _ = run(fact, start=3, stable=3)
        assert auditing.findings == []
        assert auditing.account.undecided == 2
        auditing, _ = run(fact, start=3, stable=5)
        assert problems(auditing) == [(3, Problem.UNDECIDED)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "plain", "commit", "abort"]), st.integers(0, 2)),
        max_size=25,
    ),
    st.booleans(),
)
def test_every_offset_is_counted_exactly_once(steps, compacts):
    facts, at, open_now = [], 0, set()
    for what, gap in steps:
        at += gap
        if what in ("commit", "abort"):
            producer = Producer(ord("a") if ord("a") in open_now else ord("b"), 0)
            facts.append(marker(at, producer, is_commit=what == "commit"))
            open_now.discard(producer.id)
            at += 1
        else:
            producer = NO_PRODUCER if what == "plain" else Producer(ord(what), 0)
            facts.append(data(at, 2, producer, is_transactional=what != "plain"))
            open_now.add(producer.id)
            at += 2
    auditing, _ = run(*facts, end=at, compacts=compacts)
    account = auditing.account
    assert at == (
        account.records
        + account.aborted
        + account.control
        + account.undecided
        + account.compacted
        + account.missing
    )
    assert (account.missing if compacts else account.compacted) == 0


class TestFacts:
    def records(self, first, count=2):
        return [Record(first + each, 1, b"k", b"v") for each in range(count)]

    def batch(self, first, **fields):
        return build_batch(self.records(first), base_offset=first, **fields)

    def test_read_facts_returns_kind_and_offsets_of_batches(self):
        producer = Producer(9, 1, 4)
        log = (
            self.batch(0, producer=producer, is_transactional=True, leader_epoch=3)
            + build_end_txn_marker(EndTxnMarker(True, 0), producer, 5, base_offset=2)
            + build_end_txn_marker(EndTxnMarker(False, 0), producer, 5, base_offset=3)
        )
        first, commit, abort = read_facts(Chunk(log), 0, 10)
        assert first == BatchFact(0, 2, 2, 3, 9, 1, 4, True, Kind.DATA)
        assert (commit.kind, abort.kind) == (Kind.COMMIT, Kind.ABORT)

    def test_batch_belongs_to_the_range_of_its_base_offset(self):
        log = self.batch(0) + self.batch(2) + self.batch(4)
        assert [each.base_offset for each in read_facts(Chunk(log), 1, 4)] == [2]

    def test_wrong_crc_damages_one_batch_only(self):
        log = self.batch(0) + self.batch(2) + self.batch(4)
        log[len(log) // 2] ^= 1
        facts = list(read_facts(Chunk(log), 0, 10))
        assert [each.kind for each in facts] == [Kind.DATA, Kind.DAMAGED, Kind.DATA]
        assert (facts[1].note, facts[1].base_offset, facts[1].next_offset) == (
            "the CRC is wrong",
            2,
            4,
        )

    def test_records_that_contradict_their_header_are_damage(self):
        log = self.batch(0)
        log[57:61] = (3).to_bytes(4, "big")
        patch_crc(log, 0, len(log))
        (fact,) = read_facts(Chunk(log), 0, 10)
        assert fact.kind is Kind.DAMAGED

    def test_invalid_bytes_end_the_facts(self):
        log = self.batch(0) + b"\x07" * 100
        first, damaged = read_facts(Chunk(log), 0, 10)
        assert (first.kind, damaged.kind) == (Kind.DATA, Kind.DAMAGED)
        assert (damaged.base_offset, damaged.next_offset) == (2, 2)


@pytest.mark.parametrize("problem", list(Problem))
def test_finding_names_partition_offset_and_problem(problem):
    finding = audit.Finding("orders", 3, 17, problem, "why")
    assert str(finding) == f"orders-3 at 17: {problem.value}: why"
