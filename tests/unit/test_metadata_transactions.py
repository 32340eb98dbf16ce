"""Metadata transactions: all or nothing, across batches, not published until the end."""

import pytest

from ottla.metadata.image import EMPTY, Provenance
from ottla.metadata.replay import replay_all
from ottla.metadata.replay_fault import ReplayFault
from ottla.metadata.transactions import BatchLoader
from ottla.protocol.internal.metadata_cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from ottla.protocol.internal.metadata_topics import ConfigRecord, TopicRecord
from ottla.protocol.schema import Message

BEGIN, END, ABORT = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()


def topic(name: str) -> TopicRecord:
    return TopicRecord(name, name.encode() * 16)


class Log:
    """A log that is written and loaded at once."""

    def __init__(self) -> None:
        self.loader = BatchLoader()
        self.end = 0

    def batch(self, *records: Message) -> list[str] | None:
        """Load a batch; return the topics that were published, None if nothing was."""
        self.end += len(records)
        delta = self.loader.load(records, Provenance(self.end - 1, 3, 1000 + self.end))
        if delta is None:
            return None
        assert delta.new is self.loader.image
        return [new.name for new in delta.created_topics()]

    @property
    def visible(self) -> list[str]:
        return self.loader.image.topics.names()

    @property
    def offset(self) -> int:
        return self.loader.image.provenance.offset


def test_batches_outside_a_transaction_are_published_at_once() -> None:
    log = Log()
    assert log.batch(topic("a"), topic("b")) == ["a", "b"]
    assert log.batch(NoOpRecord()) == []
    assert log.loader.image.provenance == Provenance(2, 3, 1003)


def test_records_of_an_open_transaction_are_not_published() -> None:
    log = Log()
    log.batch(topic("a"))
    assert log.batch(BEGIN, topic("b")) is None
    assert log.batch(topic("c")) is None
    assert (log.visible, log.offset) == (["a"], 0)
    assert log.loader.newest.topics.names() == ["a", "b", "c"]
    assert log.loader.is_in_transaction()
    assert log.batch(topic("d"), END) == ["b", "c", "d"]
    assert (log.visible, log.offset) == (["a", "b", "c", "d"], 5)
    assert not log.loader.is_in_transaction()


def test_aborted_transaction_changes_nothing_and_the_log_continues() -> None:
    log = Log()
    log.batch(topic("a"))
    log.batch(BEGIN, topic("b"), ConfigRecord(2, "b", "k", "v"))
    assert log.batch(ABORT) == []
    assert (log.visible, log.offset) == (["a"], 4)
    assert log.loader.newest == log.loader.image
    assert log.loader.image.configs == EMPTY.configs
    assert log.batch(topic("b")) == ["b"]


def test_records_before_a_transaction_in_its_batch_are_published_at_once() -> None:
    log = Log()
    assert log.batch(topic("a"), topic("b"), BEGIN, topic("c")) == ["a", "b"]
    assert log.offset == 1, "provenance must not reach into the open transaction"
    assert log.batch(END) == ["c"]
    assert log.offset == 4


def test_records_after_a_transaction_in_its_batch_are_published() -> None:
    log = Log()
    assert log.batch(BEGIN, topic("a"), END, topic("b"), BEGIN, topic("c"), ABORT) == ["a", "b"]
    assert log.offset == 6


def test_two_transactions_in_one_batch_are_applied() -> None:
    log = Log()
    assert log.batch(BEGIN, topic("a"), END, BEGIN, topic("b")) == ["a"]
    assert (log.visible, log.offset) == (["a"], 2)
    assert log.batch(ABORT, topic("c")) == ["c"]
    assert (log.visible, log.offset) == (["a", "c"], 6)


def test_snapshot_of_the_published_image_and_the_later_log_give_the_state() -> None:
    records = [topic("a"), BEGIN, topic("b"), topic("c"), END, topic("d")]
    whole = Log()
    whole.batch(*records)
    for cut in range(1, len(records) + 1):
        log = Log()
        log.batch(*records[:cut])
        again = BatchLoader(log.loader.image)
        again.load(records[log.offset + 1 :], Provenance(5, 3, 1006))
        assert again.image == whole.loader.image


@pytest.mark.parametrize("records", [[BEGIN, BEGIN], [END], [ABORT], [BEGIN, END, END]])
def test_unbalanced_transaction_records_are_a_replay_fault(records: list[Message]) -> None:
    with pytest.raises(ReplayFault, match="transaction"):
        Log().batch(*records)


def test_snapshot_replaces_the_state() -> None:
    log = Log()
    log.batch(topic("a"), BEGIN, topic("b"))
    image = replay_all(EMPTY, [topic("z")])
    delta = log.loader.reset(image)
    assert [t.name for t in delta.created_topics()] == ["z"]
    assert [t.name for t in delta.deleted_topics()] == ["a"]
    assert log.loader.image is image and not log.loader.is_in_transaction()
    assert log.batch(topic("y")) == ["y"]
