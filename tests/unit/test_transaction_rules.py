"""What is decided about each request of a transactional producer, in Kafka's error codes."""

from typing import Any

import pytest
from transaction_world import P0, P1, Transactor, World

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


def ready(version: int = 2, **settings: Any) -> tuple[World, Transactor]:
    world = World(**settings)
    client = Transactor(world, version)
    assert client.init() is ErrorCode.NONE
    return world, client


def put(world: World, **fields: Any) -> Transaction:
    """Put a state into the log as if an earlier coordinator had written it."""
    state = Transaction(
        **{
            "transactional_id": "x",
            "producer_id": ProducerId(7),
            "producer_epoch": ProducerEpoch(3),
            "timeout_ms": 60_000,
            "started_at": world.clock.now(),
            "updated_at": world.clock.now(),
            **fields,
        }
    )
    world.machine.replay(state.record(2), Origin(Offset(0)))
    assert world.state() == state
    return state


def init(world: World, producer_id: int = -1, epoch: int = -1, timeout_ms: int = 1000) -> Any:
    return world.init(InitProducerIdRequest("x", timeout_ms, producer_id, epoch))


def end(world: World, epoch: int, commit: bool, client: Client, producer_id: int = 7) -> Any:
    return world.end(EndTxnRequest("x", producer_id, epoch, commit), client)


# -- InitProducerId ----------------------------------------------------------------------


def test_a_new_id_begins_at_epoch_0_and_each_producer_gets_the_next() -> None:
    world = World()
    first = init(world)
    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    second = init(world)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_beyond_the_broker_s_limit_is_refused(timeout_ms: int) -> None:
    world = World()
    reply = init(world, timeout_ms=timeout_ms)
    assert reply.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (reply.producer_id, reply.producer_epoch) == (-1, -1)
    assert not world.machine.transactions


@pytest.mark.parametrize("status", [Status.PREPARE_COMMIT, Status.PREPARE_ABORT])
def test_requests_while_markers_are_written_return_concurrent_transactions(status: Status) -> None:
    world = World()
    before = put(world, status=status, partitions=frozenset({P0}))
    assert init(world).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.state() == before


def test_an_open_transaction_is_aborted_with_the_next_epoch_before_a_new_producer_begins() -> None:
    world = World()
    put(world, status=Status.ONGOING, partitions=frozenset({P0}))
    assert init(world).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    fenced = world.state()
    assert (fenced.status, fenced.producer_epoch) == (Status.PREPARE_ABORT, 4)
    assert fenced.partitions == frozenset({P0})
    assert world.woken == 1
    world.pump()
    assert world.state().status is Status.COMPLETE_ABORT
    assert init(world).producer_epoch == 5


def test_exhausted_epochs_give_the_producer_another_id() -> None:
    world = World()
    put(world, producer_epoch=ProducerEpoch(EPOCH_MAX - 1))
    reply = init(world)
    assert (reply.error_code, reply.producer_epoch) == (ErrorCode.NONE, 0)
    assert reply.producer_id != 7
    assert world.state().previous_producer_id == 7


def test_producer_that_sends_its_epoch_gets_the_next_and_may_retry() -> None:
    """KIP-360: the answer may be lost, so the same question has the same answer."""
    world = World()
    put(world)
    assert init(world, 7, 3).producer_epoch == 4
    assert init(world, 7, 3).producer_epoch == 4
    assert init(world, 7, 2).error_code == ErrorCode.PRODUCER_FENCED
    # Another producer has taken over: what the first says it has is no more.
    assert init(world).producer_epoch == 5
    assert init(world, 7, 3).error_code == ErrorCode.PRODUCER_FENCED
    assert init(world, 7, 4).error_code == ErrorCode.PRODUCER_FENCED
    assert init(world, 8, 5).error_code == ErrorCode.PRODUCER_FENCED


def test_lost_init_reply_is_not_repeated_after_another_producer_got_the_epoch() -> None:
    """The write behind the first answer was refused, so the epoch went to somebody else."""
    world = World()
    put(world)
    world.log.fault = NotEnoughReplicas("one of two")
    assert init(world, 7, 3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.fault = None
    assert init(world).producer_epoch == 4
    assert init(world, 7, 3).error_code == ErrorCode.PRODUCER_FENCED


def test_an_id_rotated_for_a_named_epoch_is_given_again_to_who_asks_again() -> None:
    world = World()
    put(world, producer_epoch=ProducerEpoch(EPOCH_MAX - 1))
    first = init(world, 7, EPOCH_MAX - 1)
    again = init(world, 7, EPOCH_MAX - 1)
    assert (first.producer_id, first.producer_epoch) == (again.producer_id, 0)
    assert again.producer_epoch == 0
    assert init(world, 7, 5).error_code == ErrorCode.PRODUCER_FENCED


def test_unknown_producer_may_send_any_epoch() -> None:
    assert init(World(), 99, 4).error_code == ErrorCode.NONE


# -- AddPartitionsToTxn ---------------------------------------------------------------------


def test_partitions_are_added_once_and_begin_the_clock() -> None:
    world = World()
    put(world, started_at=Millis(-1))
    world.clock.advance(50)
    assert world.add("x", Producer(7, 3), [P0], OLD) is ErrorCode.NONE
    began, written = world.state().started_at, len(world.log.batches)
    assert began == world.clock.now()
    world.clock.advance(50)
    assert world.add("x", Producer(7, 3), [P0], OLD) is ErrorCode.NONE
    assert len(world.log.batches) == written
    assert world.add("x", Producer(7, 3), [P0, P1], OLD) is ErrorCode.NONE
    assert world.state().partitions == frozenset({P0, P1})
    assert world.state().started_at == began


def test_partitions_of_an_earlier_transaction_are_not_in_the_next() -> None:
    world, client = ready()
    client.produce(P0, "a")
    client.end(True)
    world.pump()
    client.produce(P1, "b")
    assert world.state().partitions == frozenset({P1})


@pytest.mark.parametrize(
    ("producer", "code"),
    [
        (Producer(8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Producer(7, 2), ErrorCode.PRODUCER_FENCED),
        (Producer(7, 4), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_only_the_producer_of_the_id_adds_and_verifies(producer: Producer, code: ErrorCode) -> None:
    world = World()
    put(world, status=Status.ONGOING, partitions=frozenset({P0}))
    assert world.add("x", producer, [P1], NEW) is code
    assert world.verify("x", producer, P0) is code
    assert world.add("y", producer, [P1], NEW) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.state().partitions == frozenset({P0})


@pytest.mark.parametrize("status", [Status.PREPARE_COMMIT, Status.PREPARE_ABORT])
def test_nothing_is_added_to_a_transaction_that_is_being_ended(status: Status) -> None:
    world = World()
    put(world, status=status, partitions=frozenset({P0}))
    assert world.add("x", Producer(7, 3), [P1], NEW) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.verify("x", Producer(7, 3), P0) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_partition_that_was_not_added_is_not_verified() -> None:
    world = World()
    put(world, status=Status.ONGOING, partitions=frozenset({P0}))
    assert world.verify("x", Producer(7, 3), P0) is ErrorCode.NONE
    assert world.verify("x", Producer(7, 3), P1) is ErrorCode.TRANSACTION_ABORTABLE


# -- EndTxn ------------------------------------------------------------------------------------


def test_the_end_of_a_transaction_raises_the_epoch_of_version_2_alone() -> None:
    for client, epoch in ((OLD, 3), (NEW, 4)):
        world = World()
        put(world, status=Status.ONGOING, partitions=frozenset({P0}), version=client.version)
        reply = end(world, 3, True, client)
        assert (reply.error_code, reply.producer_epoch) == (ErrorCode.NONE, epoch)
        assert world.state().producer_epoch == epoch
        assert world.state().status is Status.PREPARE_COMMIT


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
    # version 2 with the present epoch: nothing is open, an abort is let through
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
    world = World()
    put(world, status=status, version=client.version)
    assert end(world, 3, commit, client).error_code == code


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
    world = World()
    before = put(world, status=status, version=2)
    reply = end(world, 2, commit, NEW)
    assert reply.error_code == code
    assert world.state() == before
    if code is ErrorCode.NONE:
        assert (reply.producer_id, reply.producer_epoch) == (7, 3)


def test_end_txn_of_another_producer_is_rejected() -> None:
    for client in (OLD, NEW):
        world = World()
        put(world, status=Status.ONGOING, version=client.version)
        assert end(world, 2, True, client).error_code == ErrorCode.PRODUCER_FENCED
        assert end(world, 4, True, client).error_code == ErrorCode.PRODUCER_FENCED
        mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert end(world, 3, True, client, producer_id=8).error_code == mapping
        assert world.state().status is Status.ONGOING
    unknown = World().end(EndTxnRequest("y", 7, 3, True), NEW)
    assert unknown.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_end_txn_right_after_a_commit_is_busy_until_markers_are_written() -> None:
    world = World()
    put(world, status=Status.ONGOING, partitions=frozenset({P0}), version=2)
    first = end(world, 3, True, NEW)
    for commit in (True, False):
        reply = end(world, first.producer_epoch, commit, NEW)
        assert reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.pump()
    assert end(world, first.producer_epoch, False, NEW).error_code == ErrorCode.NONE


@pytest.mark.parametrize("status", [Status.PREPARE_COMMIT, Status.PREPARE_ABORT])
def test_requests_of_version_2_are_busy_before_they_are_fenced(status: Status) -> None:
    # Among them may be the producer id that takes over once the markers are written.
    for producer in (Producer(8, 0), Producer(7, 2), Producer(7, 4)):
        world = World()
        put(world, status=status, partitions=frozenset({P0}), version=2)
        code = ErrorCode.CONCURRENT_TRANSACTIONS
        assert world.add("x", producer, [P1], NEW) is code
        assert end(world, producer.epoch, True, NEW, producer.id).error_code == code
        assert init(world, producer.id, producer.epoch).error_code == code


@pytest.mark.parametrize("status", [Status.PREPARE_COMMIT, Status.PREPARE_ABORT])
def test_end_and_verification_of_older_clients_are_fenced_before_they_are_busy(
    status: Status,
) -> None:
    for producer, code in (
        (Producer(8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Producer(7, 2), ErrorCode.PRODUCER_FENCED),
    ):
        world = World()
        put(world, status=status, partitions=frozenset({P0}))
        assert end(world, producer.epoch, True, OLD, producer.id).error_code == code
        assert world.verify("x", producer, P0) is code


def test_the_producer_id_that_takes_over_waits_for_the_markers() -> None:
    world = World()
    last = ProducerEpoch(EPOCH_MAX - 1)
    put(world, status=Status.ONGOING, producer_epoch=last, version=2)
    given = end(world, last, True, NEW)
    producer = Producer(given.producer_id, given.producer_epoch)
    assert world.add("x", producer, [P0], NEW) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.pump()
    assert world.add("x", producer, [P0], NEW) is ErrorCode.NONE


def test_an_abort_of_nothing_has_no_partitions_and_still_completes() -> None:
    world, client = ready()
    client.produce(P0, "a")
    client.end(True)
    world.pump()
    assert client.end(False) is ErrorCode.NONE
    assert world.state().partitions == frozenset()
    world.pump()
    assert world.state().status is Status.COMPLETE_ABORT
    assert world.visible() == {"a"}


def test_the_last_epoch_of_version_2_passes_to_another_producer_id_with_the_markers() -> None:
    world = World()
    last = ProducerEpoch(EPOCH_MAX - 1)
    put(world, status=Status.ONGOING, producer_epoch=last, version=2)
    first = end(world, last, True, NEW)
    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    assert first.producer_id != 7
    prepared = world.state()
    assert (prepared.producer_id, prepared.producer_epoch) == (7, EPOCH_MAX)
    assert end(world, last, True, NEW).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.pump()
    done = world.state()
    assert (done.producer_id, done.producer_epoch) == (first.producer_id, 0)
    again = end(world, last, True, NEW)
    assert (again.error_code, again.producer_id) == (ErrorCode.NONE, first.producer_id)
    assert end(world, last, False, NEW).error_code == ErrorCode.INVALID_TXN_STATE


def test_records_rejected_by_the_log_change_nothing() -> None:
    world = World()
    before = put(world, status=Status.ONGOING, partitions=frozenset({P0}))
    world.log.fault = NotEnoughReplicas("one of two")
    assert end(world, 3, True, NEW).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.state() == before
    assert world.woken == 0


def test_markers_are_due_only_once_the_decision_is_committed() -> None:
    world = World()
    put(world, status=Status.ONGOING, partitions=frozenset({P0}))
    world.log.follows = False
    assert end(world, 3, True, NEW).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (world.woken, world.due()) == (0, [])
    world.log.commit()
    assert world.woken == 1
    assert [each.transactional_id for each in world.due()] == ["x"]


def test_the_markers_of_another_transaction_complete_nothing() -> None:
    world = World()
    ended = put(world, status=Status.PREPARE_COMMIT)
    put(world, status=Status.PREPARE_ABORT)
    world.complete(ended)
    assert world.state().status is Status.PREPARE_ABORT


# -- time -------------------------------------------------------------------------------------


def test_a_transaction_beyond_its_time_is_aborted_and_its_producer_fenced() -> None:
    world, client = ready()
    client.produce(P0, "a")
    world.wait(60_000)
    assert world.state().status is Status.ONGOING
    world.wait(10_000)
    assert world.state().status is Status.PREPARE_ABORT
    world.pump()
    assert client.produce(P0, "b") is ErrorCode.PRODUCER_FENCED
    assert world.visible() == set()


def test_fence_rejected_by_the_log_is_retried() -> None:
    world, client = ready()
    client.produce(P0, "a")
    world.log.fault = NotEnoughReplicas("one of two")
    world.wait(70_000)
    assert world.state().status is Status.ONGOING
    world.log.fault = None
    world.wait(10_000)
    assert world.state().status is Status.PREPARE_ABORT


def test_unused_transactional_ids_expire_and_open_ones_do_not() -> None:
    world = World(expiration_ms=1000, expire_interval_ms=5000)
    put(world)
    put(world, transactional_id="x", status=Status.COMPLETE_ABORT)
    world.machine.replay(
        Transaction(
            transactional_id="open",
            producer_id=ProducerId(9),
            producer_epoch=ProducerEpoch(0),
            timeout_ms=10**9,
            status=Status.ONGOING,
            started_at=world.clock.now(),
            updated_at=world.clock.now(),
        ).record(2),
        Origin(Offset(1)),
    )
    world.wait(5000)
    assert list(world.machine.transactions) == ["open"]
    assert init(world).producer_epoch == 0


def test_a_coordinator_that_takes_over_finds_the_markers_that_are_due() -> None:
    world, client = ready()
    client.produce(P0, "a")
    client.end(True)
    woken = world.woken
    world.crash()
    assert world.woken == woken + 1
    world.pump()
    assert world.visible() == {"a"}


def test_unwritten_markers_are_sent_again() -> None:
    world, client = ready()
    client.produce(P0, "a")
    client.end(True)
    woken = world.woken
    world.wait(10_000)
    assert world.woken == woken + 1


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
        late.heard(name, (1, 0), Client(0, "a"))
        late.heard(name, (1, 0), Client(0, "b"))
    known = [name for name in ("x", "y", "z") if late.is_late(name, (1, 0), Client(0, "a"))]
    assert known == ["y", "z"]


def test_another_producer_has_left_no_connection_yet() -> None:
    late = StaleEndTxnDetector()
    late.heard("x", (1, 0), Client(0, "a"))
    late.heard("x", (1, 0), Client(0, "b"))
    assert not late.is_late("x", (1, 0), Client(0, "b"))
    assert not late.is_late("x", (1, 1), Client(0, "a"))
    assert late.is_late("x", (1, 0), Client(0, "a"))
    late.heard("x", (1, 1), Client(0, "b"))
    late.heard("x", (1, 1), Client(0, "c"))
    late.heard("x", (1, 1), Client(0, "a"))
    assert not late.is_late("x", (1, 1), Client(0, "a"))
    late.forget("x")
    assert not late.is_late("x", (1, 1), Client(0, "b"))
