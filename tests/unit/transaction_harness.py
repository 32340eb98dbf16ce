"""A transaction coordinator, two partitions and their producers, step by step.

The shard, the rules and the producer state of the partitions are the real ones; the logs are lists.
A crash drops the shard and loads the next from the log, with or without the uncommitted records.
"""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from coordinator_harness import FakeClock, FakeLog

from ottla.coordinators.decision import Decision
from ottla.coordinators.shard import Shard, ShardSettings
from ottla.coordinators.transactions.machine import TransactionMachine, TransactionsView
from ottla.coordinators.transactions.marker_writer import Ending
from ottla.coordinators.transactions.rules import (
    NEEDS_PRODUCER_ID,
    decide_add,
    decide_complete,
    decide_end,
    decide_init,
    decide_verify,
)
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.stale_end_txn import Client, StaleEndTxnDetector
from ottla.coordinators.transactions.transaction import Transaction
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.internal.transaction_records import decode_transaction_record
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import LeaderEpoch, Millis, Offset, ProducerId, TopicPartition
from ottla.storage.log.producer_state import ProducerState

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LOST = object()
"""Used as a reply: the coordinator crashed, or did not commit."""


class Received:
    """A future that stores its reply."""

    def __init__(self) -> None:
        self.reply: Any = LOST

    def answer(self, reply: Any) -> None:
        self.reply = reply

    def fail(self, fault: Fault) -> None:
        self.reply = fault.code


class Slot:
    """One partition: values and markers in order. All of it is replicated at once."""

    def __init__(self) -> None:
        self.producers = ProducerState()
        self.entries: list[tuple[int, str | bool]] = []

    def produce(self, producer: Producer, value: str) -> None:
        record = Record(Offset(0), Millis(1), None, value.encode())
        header = read_header(build_batch([record], producer=producer, is_transactional=True))
        if self.producers.check(header, from_client=True) is None:
            at = Offset(len(self.entries))
            self.producers.apply(header, first_offset=at, last_offset=at, timestamp=Millis(1))
            self.entries.append((producer.id, value))

    def mark(self, ending: Ending) -> None:
        header = read_header(build_end_txn_marker(ending.marker, ending.producer, 1))
        self.producers.check_marker(header, ending.marker, transaction_version=ending.version)
        self.producers.apply_marker(header, ending.marker, Offset(len(self.entries)))
        self.entries.append((ending.producer.id, ending.marker.is_commit))
        self.producers.on_high_watermark(Offset(len(self.entries)))

    @property
    def last_stable(self) -> int:
        return self.producers.last_stable_offset(Offset(len(self.entries)))

    def committed(self) -> list[str]:
        """What read_committed shows."""
        seen: list[str] = []
        undecided: dict[int, list[tuple[int, str]]] = {}
        for offset, (producer, what) in enumerate(self.entries):
            if isinstance(what, str):
                undecided.setdefault(producer, []).append((offset, what))
                continue
            for at, value in undecided.pop(producer, []):
                if what and at < self.last_stable:
                    seen.append(value)
        return seen


class Harness:
    """The coordinator of one shard, and the partitions."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock()
        self.log = FakeLog()
        self.settings = TransactionSettings(**settings)
        self.slots = {P0: Slot(), P1: Slot()}
        self.endings: list[tuple[TopicPartition, Ending]] = []
        self.woken = 0
        # Kept over a crash: connections outlive a shard that is reloaded.
        self.stale_end_txn = StaleEndTxnDetector()
        self._fresh = 1000
        self._epoch = 0
        self._load()

    def _load(self) -> None:
        self._epoch += 1
        self.machine = TransactionMachine(self.settings, self, self.stale_end_txn)
        shard_settings = ShardSettings(self.clock, decode_transaction_record)
        epoch = LeaderEpoch(self._epoch)
        self.shard = Shard("txn-0", epoch, self.log, self.machine, shard_settings)
        while not self.shard.load_step():
            pass

    # The machine's `on_prepared`.
    def answer(self, reply: object) -> None:
        self.woken += 1

    def fail(self, fault: Fault) -> None:
        pass

    def crash(self, *, lose: bool = True) -> None:
        self.shard.close()
        if lose:
            self.log.truncate_to(self.log.high_watermark)
        self.log.follows = True
        self.log.commit()
        self._load()

    # -- requests ----------------------------------------------------------------

    def ask(self, decide: Callable[[TransactionMachine, Any, Any], Decision]) -> Any:
        fresh: ProducerId | None = None
        while True:
            future, given = Received(), fresh
            self.shard.submit(
                lambda machine, now, given=given: decide(machine, given, now),  # type: ignore[misc]
                future,
            )
            if future.reply is not NEEDS_PRODUCER_ID:
                return future.reply
            self._fresh += 1
            fresh = ProducerId(self._fresh)

    def init(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        reply = self.ask(lambda m, fresh, now: decide_init(m, request, fresh, now))
        if not isinstance(reply, InitProducerIdResponse):
            return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return reply

    def add(
        self, name: str, producer: Producer, places: Iterable[TopicPartition], client: Client
    ) -> Any:
        wanted = frozenset(places)
        return self.ask(lambda m, fresh, now: decide_add(m, name, producer, wanted, client, now))

    def verify(self, name: str, producer: Producer, place: TopicPartition) -> Any:
        reply = self.ask(lambda m, fresh, now: decide_verify(m, name, producer, [place]))
        return reply[place] if isinstance(reply, dict) else reply

    def end(self, request: EndTxnRequest, client: Client) -> EndTxnResponse:
        reply = self.ask(lambda m, fresh, now: decide_end(m, request, client, fresh, now))
        if not isinstance(reply, EndTxnResponse):
            return EndTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return reply

    # -- markers -----------------------------------------------------------------

    def due(self) -> list[Transaction]:
        view = self.shard.committed()
        assert isinstance(view, TransactionsView)
        return list(view.prepared.values())

    def mark(self, ended: Transaction, place: TopicPartition) -> None:
        producer = Producer(ended.producer_id, ended.producer_epoch)
        marker = EndTxnMarker(ended.is_commit, self._epoch)
        ending = Ending(producer, marker, ended.version)
        self.slots[place].mark(ending)
        self.endings.append((place, ending))

    def complete(self, ended: Transaction) -> None:
        self.ask(lambda m, fresh, now: decide_complete(m, ended, now))

    def pump(self) -> None:
        """Write all markers that are due, and complete."""
        for ended in self.due():
            for place in sorted(ended.partitions):
                self.mark(ended, place)
            self.complete(ended)

    def late_marker(self, number: int) -> None:
        """Deliver a written marker again."""
        if self.endings:
            place, ending = self.endings[number % len(self.endings)]
            with contextlib.suppress(Fault):
                self.slots[place].mark(ending)

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        self.shard.on_due()

    def state(self, name: str = "x") -> Transaction:
        return self.machine.transactions[name]

    def visible(self) -> set[str]:
        return {value for slot in self.slots.values() for value in slot.committed()}


@dataclass
class Txn:
    """A client's view of one of its transactions."""

    values: set[str] = field(default_factory=set)
    outcome: str = "open"


class Transactor:
    """A client with a transactional id, of transaction version 0 or 2."""

    numbers = 0

    def __init__(self, harness: Harness, version: int, name: str = "x") -> None:
        self.harness = harness
        self.version = version
        self.name = name
        self.producer: Producer | None = None
        self.is_dead = False
        self.sequences: dict[TopicPartition, int] = {}
        self.txns: list[Txn] = []
        self.txn: Txn | None = None
        self.ending: bool | None = None
        Transactor.numbers += 1
        self._life, self._connections = Transactor.numbers, 0

    @property
    def client(self) -> Client:
        return Client(self.version, f"{self._life}:{self._connections}")

    def reconnect(self) -> None:
        self._connections += 1

    def _with(self, producer_id: int, epoch: int) -> None:
        self.producer = Producer(producer_id, epoch)
        self.sequences = {}

    def init(self) -> ErrorCode:
        reply = self.harness.init(InitProducerIdRequest(self.name, 60_000))
        if reply.error_code == ErrorCode.NONE:
            self._with(reply.producer_id, reply.producer_epoch)
        return ErrorCode(reply.error_code)

    def produce(self, place: TopicPartition, value: str) -> ErrorCode:
        """Send one record; nothing is written unless the reply is NONE."""
        assert self.producer is not None
        harness = self.harness
        code = harness.add(self.name, self.producer, [place], self.client)
        if code is ErrorCode.NONE and self.version < 2:
            code = harness.verify(self.name, self.producer, place)
        if code is ErrorCode.PRODUCER_FENCED:
            self._die()
        if code is not ErrorCode.NONE:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if code is LOST else code
        sequence = self.sequences.get(place, 0)
        try:
            harness.slots[place].produce(self.producer._replace(base_sequence=sequence), value)
        except Fault as fault:
            self._die()
            return fault.code
        self.sequences[place] = sequence + 1
        if self.txn is None:
            self.txn = Txn()
            self.txns.append(self.txn)
        self.txn.values.add(value)
        return ErrorCode.NONE

    def request(self, commit: bool) -> EndTxnRequest:
        assert self.producer is not None
        return EndTxnRequest(self.name, self.producer.id, self.producer.epoch, commit)

    def end(self, commit: bool) -> ErrorCode:
        request = self.request(commit)
        self.ending = commit
        reply = self.harness.end(request, self.client)
        code = ErrorCode(reply.error_code)
        if code is ErrorCode.NONE:
            self._ended("commit" if commit else "abort")
            if self.version >= 2:
                self._with(reply.producer_id, reply.producer_epoch)
        elif code not in (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ):
            self._die()
        return code

    def _ended(self, outcome: str) -> None:
        if self.txn is not None:
            self.txn.outcome = outcome
        self.txn, self.ending = None, None

    def _die(self) -> None:
        self.is_dead = True
        self._ended("unknown" if self.ending else "abort")


def check(harness: Harness, clients: Iterable[Transactor]) -> None:
    """All or nothing, as replied to the client, and nothing left undecided."""
    visible = harness.visible()
    for client in clients:
        for txn in client.txns:
            shown = txn.values & visible
            assert shown in (set(), txn.values), "torn"
            if txn.outcome == "commit":
                assert shown == txn.values, "lost"
            if txn.outcome in ("abort", "open"):
                assert not shown, "aborted, or never ended, and seen"
    for slot in harness.slots.values():
        assert slot.last_stable == len(slot.entries), "hanging"
        values = [what for _, what in slot.entries if isinstance(what, str)]
        assert len(values) == len(set(values)), "twice"


def settle(harness: Harness) -> None:
    """Let everything end: open transactions time out."""
    harness.log.follows = True
    harness.log.commit()
    harness.pump()
    harness.wait(120_000)
    harness.pump()
