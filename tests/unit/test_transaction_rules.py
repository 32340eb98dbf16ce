"""Decisions about requests of transactional producers, with Kafka's error codes."""

from typing import Any

import pytest
from transaction_harness import P0, P1, Harness, Transactor

from ottla.coordinators.decision import Origin
from ottla.coordinators.transactions.machine import TransactionMachine
from ottla.coordinators.transactions.stale_end_txn import (
    CONNECTIONS_MAX,
    Client,
    ProducerConnections,
    StaleEndTxnDetector,
)
from ottla.coordinators.transactions.transaction import (
    EPOCH_MAX,
    Status,
    Transaction,
    tombstone,
    transaction_of,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotEnoughReplicas, ProtocolFault
from ottla.protocol.internal.framing import CoordinatorRecord, Versioned
from ottla.protocol.internal.transaction_records import TransactionLogKey, TransactionLogValue
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import Millis, Offset, ProducerEpoch, ProducerId

OLD, NEW = Client(0), Client(2)


def ready(version: int = 2, **settings: Any) -> tuple[Harness, Transactor]:
    harness = Harness(**settings)
    client = Transactor(harness, version)
    assert client.init() is ErrorCode.NONE
    return harness, client


def put(harness: Harness, **fields: Any) -> Transaction:
    """Write a state to the log as if by an earlier coordinator."""
    state = Transaction(
        **{
            "transactional_id": "x",
            "producer_id": ProducerId(7),
            "producer_epoch": ProducerEpoch(3),
            "timeout_ms": 60_000,
            "started_at": harness.clock.now(),
            "updated_at": harness.clock.now(),
            **fields,
        }
    )
    harness.machine.replay(state.record(2), Origin(Offset(0)))
    assert harness.state() == state
    return state


def init(harness: Harness, producer_id: int = -1, epoch: int = -1, timeout_ms: int = 1000) -> Any:
    return harness.init(InitProducerIdRequest("x", timeout_ms, producer_id, epoch))


def end(harness: Harness, epoch: int, commit: bool, client: Client, producer_id: int = 7) -> Any:
    return harness.end(EndTxnRequest("x", producer_id, epoch, commit), client)


# -- InitProducerId ----------------------------------------------------------------------


def test_a_new_id_begins_at_epoch_0_and_each_producer_gets_the_next() -> None:
    harness = Harness()
    first = init(harness)
    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    second = init(harness)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_beyond_the_broker_s_limit_is_refused(timeout_ms: int) -> None:
    harness = Harness()
    reply = init(harness, timeout_ms=timeout_ms)
    assert reply.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (reply.producer_id, reply.producer_epoch) == (-1, -1)
    assert not harness.machine.transactions


@pytest.mark.parametrize("status", [Status.PREPARE_COMMIT, Status.PREPARE_ABORT])
def test_requests_while_markers_are_written_return_concurrent_transactions(status: Status) -> None:
    harness = Harness()
    before = put(harness, status=status, partitions=frozenset({P0}))
    assert init(harness).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert harness.state() == before


def test_an_open_transaction_is_aborted_with_the_next_epoch_before_a_new_producer_begins() -> None:
    harness = Harness()
    put(harness, status=Status.ONGOING, partitions=frozenset({P0}))
    assert init(harness).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    fenced = harness.state()
    assert (fenced.status, fenced.producer_epoch) == (Status.PREPARE_ABORT, 4)
    assert fenced.partitions == frozenset({P0})
    assert harness.woken == 1
    harness.pump()
    assert harness.state().status is Status.COMPLETE_ABORT
    assert init(harness).producer_epoch == 5


def test_exhausted_epochs_give_the_producer_another_id() -> None:
    harness = Harness()
    put(harness, producer_epoch=ProducerEpoch(EPOCH_MAX - 1))
    reply = init(harness)
    assert (reply.error_code, reply.producer_epoch) == (ErrorCode.NONE, 0)
    assert reply.producer_id != 7
    assert harness.state().previous_producer_id == 7


def test_producer_that_sends_its_epoch_gets_the_next_and_may_retry() -> None:
    """KIP-360: the reply may be lost, so a repeated request gets the same reply."""
    harness = Harness()
    put(harness)
    assert init(harness, 7, 3).producer_epoch == 4
    assert init(harness, 7, 3).producer_epoch == 4
    assert init(harness, 7, 2).error_code == ErrorCode.PRODUCER_FENCED
    # Another producer has taken over: the id and epoch of the first are outdated.
    assert init(harness).producer_epoch == 5
    assert init(harness, 7, 3).error_code == ErrorCode.PRODUCER_FENCED
    assert init(harness, 7, 4).error_code == ErrorCode.PRODUCER_FENCED
    assert init(harness, 8, 5).error_code == ErrorCode.PRODUCER_FENCED


def test_lost_init_reply_is_not_repeated_after_another_producer_got_the_epoch() -> None:
    """The write of the first reply was rejected, so another producer got the epoch."""
    harness = Harness()
    put(harness)
    harness.log.fault = NotEnoughReplicas("one of two")
    assert init(harness, 7, 3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.log.fault = None
    assert init(harness).producer_epoch == 4
    assert init(harness, 7, 3).error_code == ErrorCode.PRODUCER_FENCED


def test_retried_request_receives_the_same_rotated_producer_id() -> None:
    harness = Harness()
    put(harness, producer_epoch=ProducerEpoch(EPOCH_MAX - 1))
    first = init(harness, 7, EPOCH_MAX - 1)
    again = init(harness, 7, EPOCH_MAX - 1)
    assert (first.producer_id, first.producer_epoch) == (again.producer_id, 0)
    assert again.producer_epoch == 0
    assert init(harness, 7, 5).error_code == ErrorCode.PRODUCER_FENCED


def test_unknown_producer_may_send_any_epoch() -> None:
    assert init(Harness(), 99, 4).error_code == ErrorCode.NONE


# -- AddPartitionsToTxn ---------------------------------------------------------------------


def test_partitions_are_added_once_and_begin_the_clock() -> None:
    harness = Harness()
    put(harness, started_at=Millis(-1))
    harness.clock.advance(50)
    assert harness.add("x", Producer(7, 3), [P0], OLD) is ErrorCode.NONE
    began, written = harness.state().started_at, len(harness.log.batches)
    assert began == harness.clock.now()
    harness.clock.advance(50)
    assert harness.add("x", Producer(7, 3), [P0], OLD) is ErrorCode.NONE
    assert len(harness.log.batches) == written
    assert harness.add("x", Producer(7, 3), [P0, P1], OLD) is ErrorCode.NONE
    assert harness.state().partitions == frozenset({P0, P1})
    assert harness.state().started_at == began


def test_partitions_of_an_earlier_transaction_are_not_in_the_next() -> None:
    harness, client = ready()
    client.produce(P0, "a")
    client.end(True)
    harness.pump()
    client.produce(P1, "b")
    assert harness.state().partitions == frozenset({P1})


@pytest.mark.parametrize(
    ("producer", "code"),
    [
        (Producer(8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Producer(7, 2), ErrorCode.PRODUCER_FENCED),
        (Producer(7, 4), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_only_the_producer_of_the_id_adds_and_verifies(producer: Producer, code: ErrorCode) -> None:
    harness = Harness()
    put(harness, status=Status.ONGOING, partitions=frozenset({P0}))
    assert harness.add("x", producer, [P1], NEW) is code
    assert harness.verify("x", producer, P0) is code
    assert harness.add("y", producer, [P1], NEW) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert harness.state().partitions == frozenset({P0})


@pytest.mark.parametrize("status", [Status.PREPARE_COMMIT, Status.PREPARE_ABORT])
def test_nothing_is_added_to_a_transaction_that_is_being_ended(status: Status) -> None:
    harness = Harness()
    put(harness, status=status, partitions=frozenset({P0}))
    assert harness.add("x", Producer(7, 3), [P1], NEW) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert harness.verify("x", Producer(7, 3), P0) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_partition_that_was_not_added_is_not_verified() -> None:
    harness = Harness()
    put(harness, status=Status.ONGOING, partitions=frozenset({P0}))
    assert harness.verify("x", Producer(7, 3), P0) is ErrorCode.NONE
    assert harness.verify("x", Producer(7, 3), P1) is ErrorCode.TRANSACTION_ABORTABLE


# -- EndTxn ------------------------------------------------------------------------------------


def test_the_end_of_a_transaction_raises_the_epoch_of_version_2_alone() -> None:
    for client, epoch in ((OLD, 3), (NEW, 4)):
        harness = Harness()
        put(harness, status=Status.ONGOING, partitions=frozenset({P0}), version=client.version)
        reply = end(harness, 3, True, client)
        assert (reply.error_code, reply.producer_epoch) == (ErrorCode.NONE, epoch)
        assert harness.state().producer_epoch == epoch
        assert harness.state().status is Status.PREPARE_COMMIT


ENDS = [
    # before version 2, by status and kind of end
    (OLD, Status.EMPTY, True, ErrorCode.INVALID_TXN_STATE),
    (OLD, Status.EMPTY, False, ErrorCode.INVALID_TXN_STATE),
    (OLD, Status.PREPARE_COMMIT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
    (OLD, Status.PREPARE_COMMIT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
    (OLD, Status.PREPARE_ABORT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
    (OLD, Status.PREPARE_ABORT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
    (OLD, Status.COMPLETE_COMMIT, True, ErrorCode.NONE),
    (OLD, Status.COMPLETE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
    (OLD, Status.COMPLETE_ABORT, False, ErrorCode.NONE),
    (OLD, Status.COMPLETE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
    # version 2 with the current epoch: nothing is open, an abort is accepted
    (NEW, Status.EMPTY, True, ErrorCode.INVALID_TXN_STATE),
    (NEW, Status.EMPTY, False, ErrorCode.NONE),
    (NEW, Status.COMPLETE_COMMIT, True, ErrorCode.INVALID_TXN_STATE),
    (NEW, Status.COMPLETE_COMMIT, False, ErrorCode.NONE),
    (NEW, Status.COMPLETE_ABORT, False, ErrorCode.NONE),
    # the markers of the end that gave the client this epoch are still being written
    (NEW, Status.PREPARE_COMMIT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
    (NEW, Status.PREPARE_COMMIT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
    (NEW, Status.PREPARE_ABORT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
    (NEW, Status.PREPARE_ABORT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
]


@pytest.mark.parametrize(("client", "status", "commit", "code"), ENDS)
def test_an_end_while_no_transaction_is_open(
    client: Client, status: Status, commit: bool, code: ErrorCode
) -> None:
    harness = Harness()
    put(harness, status=status, version=client.version)
    assert end(harness, 3, commit, client).error_code == code


@pytest.mark.parametrize(
    ("status", "commit", "code"),
    [
        (Status.PREPARE_COMMIT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (Status.PREPARE_COMMIT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
        (Status.COMPLETE_COMMIT, True, ErrorCode.NONE),
        (Status.COMPLETE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (Status.COMPLETE_ABORT, False, ErrorCode.NONE),
        (Status.COMPLETE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
        (Status.ONGOING, True, ErrorCode.PRODUCER_FENCED),
        (Status.EMPTY, False, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_repeated_end_of_version_2_is_known_by_the_epoch_before(
    status: Status, commit: bool, code: ErrorCode
) -> None:
    harness = Harness()
    before = put(harness, status=status, version=2)
    reply = end(harness, 2, commit, NEW)
    assert reply.error_code == code
    assert harness.state() == before
    if code is ErrorCode.NONE:
        assert (reply.producer_id, reply.producer_epoch) == (7, 3)


def test_end_txn_of_another_producer_is_rejected() -> None:
    for client in (OLD, NEW):
        harness = Harness()
        put(harness, status=Status.ONGOING, version=client.version)
        assert end(harness, 2, True, client).error_code == ErrorCode.PRODUCER_FENCED
        assert end(harness, 4, True, client).error_code == ErrorCode.PRODUCER_FENCED
        mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert end(harness, 3, True, client, producer_id=8).error_code == mapping
        assert harness.state().status is Status.ONGOING
    unknown = Harness().end(EndTxnRequest("y", 7, 3, True), NEW)
    assert unknown.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_end_txn_right_after_a_commit_is_busy_until_markers_are_written() -> None:
    harness = Harness()
    put(harness, status=Status.ONGOING, partitions=frozenset({P0}), version=2)
    first = end(harness, 3, True, NEW)
    for commit in (True, False):
        reply = end(harness, first.producer_epoch, commit, NEW)
        assert reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    harness.pump()
    assert end(harness, first.producer_epoch, False, NEW).error_code == ErrorCode.NONE


@pytest.mark.parametrize("status", [Status.PREPARE_COMMIT, Status.PREPARE_ABORT])
def test_requests_of_version_2_are_busy_before_they_are_fenced(status: Status) -> None:
    # One of them may be the producer id that takes over once the markers are written.
    for producer in (Producer(8, 0), Producer(7, 2), Producer(7, 4)):
        harness = Harness()
        put(harness, status=status, partitions=frozenset({P0}), version=2)
        code = ErrorCode.CONCURRENT_TRANSACTIONS
        assert harness.add("x", producer, [P1], NEW) is code
        assert end(harness, producer.epoch, True, NEW, producer.id).error_code == code
        assert init(harness, producer.id, producer.epoch).error_code == code


@pytest.mark.parametrize("status", [Status.PREPARE_COMMIT, Status.PREPARE_ABORT])
def test_end_and_verification_of_older_clients_are_fenced_before_they_are_busy(
    status: Status,
) -> None:
    for producer, code in (
        (Producer(8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Producer(7, 2), ErrorCode.PRODUCER_FENCED),
    ):
        harness = Harness()
        put(harness, status=status, partitions=frozenset({P0}))
        assert end(harness, producer.epoch, True, OLD, producer.id).error_code == code
        assert harness.verify("x", producer, P0) is code


def test_the_producer_id_that_takes_over_waits_for_the_markers() -> None:
    harness = Harness()
    last = ProducerEpoch(EPOCH_MAX - 1)
    put(harness, status=Status.ONGOING, producer_epoch=last, version=2)
    given = end(harness, last, True, NEW)
    producer = Producer(given.producer_id, given.producer_epoch)
    assert harness.add("x", producer, [P0], NEW) is ErrorCode.CONCURRENT_TRANSACTIONS
    harness.pump()
    assert harness.add("x", producer, [P0], NEW) is ErrorCode.NONE


def test_an_abort_of_nothing_has_no_partitions_and_still_completes() -> None:
    harness, client = ready()
    client.produce(P0, "a")
    client.end(True)
    harness.pump()
    assert client.end(False) is ErrorCode.NONE
    assert harness.state().partitions == frozenset()
    harness.pump()
    assert harness.state().status is Status.COMPLETE_ABORT
    assert harness.visible() == {"a"}


def test_the_last_epoch_of_version_2_passes_to_another_producer_id_with_the_markers() -> None:
    harness = Harness()
    last = ProducerEpoch(EPOCH_MAX - 1)
    put(harness, status=Status.ONGOING, producer_epoch=last, version=2)
    first = end(harness, last, True, NEW)
    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    assert first.producer_id != 7
    prepared = harness.state()
    assert (prepared.producer_id, prepared.producer_epoch) == (7, EPOCH_MAX)
    assert end(harness, last, True, NEW).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    harness.pump()
    done = harness.state()
    assert (done.producer_id, done.producer_epoch) == (first.producer_id, 0)
    again = end(harness, last, True, NEW)
    assert (again.error_code, again.producer_id) == (ErrorCode.NONE, first.producer_id)
    assert end(harness, last, False, NEW).error_code == ErrorCode.INVALID_TXN_STATE


def test_records_rejected_by_the_log_change_nothing() -> None:
    harness = Harness()
    before = put(harness, status=Status.ONGOING, partitions=frozenset({P0}))
    harness.log.fault = NotEnoughReplicas("one of two")
    assert end(harness, 3, True, NEW).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.state() == before
    assert harness.woken == 0


def test_markers_are_due_only_once_the_decision_is_committed() -> None:
    harness = Harness()
    put(harness, status=Status.ONGOING, partitions=frozenset({P0}))
    harness.log.follows = False
    assert end(harness, 3, True, NEW).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (harness.woken, harness.due()) == (0, [])
    harness.log.commit()
    assert harness.woken == 1
    assert [each.transactional_id for each in harness.due()] == ["x"]


def test_the_markers_of_another_transaction_complete_nothing() -> None:
    harness = Harness()
    ended = put(harness, status=Status.PREPARE_COMMIT)
    put(harness, status=Status.PREPARE_ABORT)
    harness.complete(ended)
    assert harness.state().status is Status.PREPARE_ABORT


# -- time -------------------------------------------------------------------------------------


def test_a_transaction_beyond_its_time_is_aborted_and_its_producer_fenced() -> None:
    harness, client = ready()
    client.produce(P0, "a")
    harness.wait(60_000)
    assert harness.state().status is Status.ONGOING
    harness.wait(10_000)
    assert harness.state().status is Status.PREPARE_ABORT
    harness.pump()
    assert client.produce(P0, "b") is ErrorCode.PRODUCER_FENCED
    assert harness.visible() == set()


def test_fence_rejected_by_the_log_is_retried() -> None:
    harness, client = ready()
    client.produce(P0, "a")
    harness.log.fault = NotEnoughReplicas("one of two")
    harness.wait(70_000)
    assert harness.state().status is Status.ONGOING
    harness.log.fault = None
    harness.wait(10_000)
    assert harness.state().status is Status.PREPARE_ABORT


def test_unused_transactional_ids_expire_and_open_ones_do_not() -> None:
    harness = Harness(expiration_ms=1000, expire_interval_ms=5000)
    put(harness)
    put(harness, transactional_id="x", status=Status.COMPLETE_ABORT)
    harness.machine.replay(
        Transaction(
            transactional_id="open",
            producer_id=ProducerId(9),
            producer_epoch=ProducerEpoch(0),
            timeout_ms=10**9,
            status=Status.ONGOING,
            started_at=harness.clock.now(),
            updated_at=harness.clock.now(),
        ).record(2),
        Origin(Offset(1)),
    )
    harness.wait(5000)
    assert list(harness.machine.transactions) == ["open"]
    assert init(harness).producer_epoch == 0


def test_a_coordinator_that_takes_over_finds_the_markers_that_are_due() -> None:
    harness, client = ready()
    client.produce(P0, "a")
    client.end(True)
    woken = harness.woken
    harness.crash()
    assert harness.woken == woken + 1
    harness.pump()
    assert harness.visible() == {"a"}


def test_unwritten_markers_are_sent_again() -> None:
    harness, client = ready()
    client.produce(P0, "a")
    client.end(True)
    woken = harness.woken
    harness.wait(10_000)
    assert harness.woken == woken + 1


# -- records ------------------------------------------------------------------------------------


@pytest.mark.parametrize("server_version", [0, 1, 2])
def test_a_record_holds_the_state_as_far_as_its_version_can(server_version: int) -> None:
    state = Transaction(
        transactional_id="x",
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(3),
        previous_producer_id=ProducerId(6),
        next_producer_id=ProducerId(8),
        timeout_ms=5,
        status=Status.PREPARE_ABORT,
        partitions=frozenset({P1, P0}),
        started_at=Millis(10),
        updated_at=Millis(20),
        version=2,
    )
    record = state.record(server_version)
    assert record.value is not None
    assert record.value.version == (0 if server_version == 0 else 1)
    assert isinstance(record.value.message, TransactionLogValue)
    assert transaction_of("x", record.value.message) == state


def test_an_empty_id_has_no_list_of_partitions() -> None:
    value = Transaction(transactional_id="x", producer_id=ProducerId(7), timeout_ms=5).record(2)
    assert value.value is not None
    assert isinstance(value.value.message, TransactionLogValue)
    assert value.value.message.transaction_partitions is None


@pytest.mark.parametrize("number", [6, 7, 8, -1])
def test_a_status_that_is_never_written_is_no_record(number: int) -> None:
    value = TransactionLogValue(producer_id=1, transaction_status=number)
    with pytest.raises(ProtocolFault):
        transaction_of("x", value)


def test_tombstone_removes_an_id_and_may_come_first() -> None:
    machine = TransactionMachine()
    machine.replay(tombstone("x"), Origin(Offset(0)))
    value = Versioned(TransactionLogValue(producer_id=1, transaction_status=2), 1)
    machine.replay(CoordinatorRecord(TransactionLogKey("x"), value), Origin(Offset(1)))
    assert "x" in machine.prepared
    machine.replay(tombstone("x"), Origin(Offset(2)))
    assert not machine.transactions
    assert not machine.prepared


# -- late ends -----------------------------------------------------------------------------------


def test_abandoned_connections_are_bounded() -> None:
    known = ProducerConnections((1, 0), "0")
    for number in range(1, 3 * CONNECTIONS_MAX):
        known = known.now(str(number))
    assert len(known.left) == CONNECTIONS_MAX
    assert known.current not in known.left


def test_ids_are_remembered_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.coordinators.transactions.stale_end_txn.IDS_MAX", 2)
    late = StaleEndTxnDetector()
    for name in ("x", "y", "z"):
        late.request_received(name, (1, 0), Client(0, "a"))
        late.request_received(name, (1, 0), Client(0, "b"))
    known = [name for name in ("x", "y", "z") if late.is_late(name, (1, 0), Client(0, "a"))]
    assert known == ["y", "z"]


def test_another_producer_has_left_no_connection_yet() -> None:
    late = StaleEndTxnDetector()
    late.request_received("x", (1, 0), Client(0, "a"))
    late.request_received("x", (1, 0), Client(0, "b"))
    assert not late.is_late("x", (1, 0), Client(0, "b"))
    assert not late.is_late("x", (1, 1), Client(0, "a"))
    assert late.is_late("x", (1, 0), Client(0, "a"))
    late.request_received("x", (1, 1), Client(0, "b"))
    late.request_received("x", (1, 1), Client(0, "c"))
    late.request_received("x", (1, 1), Client(0, "a"))
    assert not late.is_late("x", (1, 1), Client(0, "a"))
    late.forget("x")
    assert not late.is_late("x", (1, 1), Client(0, "b"))
