"""The decision of a shard of transactional ids about each request. Pure.

Every decision is made against the newest state, and its reply is sent when everything it could have
read is committed, errors included: no producer is fenced by a record that may still be lost.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.coordinators.decision import Decision
from ottla.coordinators.transactions.machine import Initialised, TransactionMachine
from ottla.coordinators.transactions.stale_end_txn import Client
from ottla.coordinators.transactions.transaction import (
    COMPLETE,
    EPOCH_BUMPING_VERSION,
    EPOCH_MAX,
    PREPARED,
    Status,
    Transaction,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Millis,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)


class NeedsProducerId:
    """The type of `NEEDS_PRODUCER_ID`."""

    def __repr__(self) -> str:
        return "NEEDS_PRODUCER_ID"


NEEDS_PRODUCER_ID: Final = NeedsProducerId()
"""Used as a reply: decide again, with an unused producer id."""

# -- InitProducerId ------------------------------------------------------------------------


def decide_init(
    machine: TransactionMachine,
    request: InitProducerIdRequest,
    fresh: ProducerId | None,
    now: Millis,
) -> Decision:
    """Give the producer of a transactional id a unique id and epoch.

    An open transaction is aborted first; until its markers are written the producer has to retry. A
    producer that sends its id and epoch (KIP-360) gets the next epoch only if no other producer got
    it meanwhile.
    """
    transactional_id = request.transactional_id or ""
    timeout_ms = request.transaction_timeout_ms
    if not 0 < timeout_ms <= machine.settings.timeout_ms_max:
        return _init_refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    found = machine.transactions.get(transactional_id)
    if found is None:
        if fresh is None:
            return Decision(reply=NEEDS_PRODUCER_ID)
        found = Transaction(
            transactional_id=transactional_id, producer_id=fresh, timeout_ms=timeout_ms
        )
    if found.status in PREPARED:
        return _init_refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if not _may_initialise(found, request):
        return _init_refused(ErrorCode.PRODUCER_FENCED)
    if found.status is Status.ONGOING:
        fenced = found.fenced(machine.settings.server_version(), now)
        return machine.write(fenced, init_reply(ErrorCode.CONCURRENT_TRANSACTIONS))
    return _initialise(machine, found, request, fresh, now)


def _may_initialise(found: Transaction, request: InitProducerIdRequest) -> bool:
    """Whether the id that a producer sends is, or just was, that of this transactional id."""
    if request.producer_id == NO_PRODUCER_ID or found.producer_epoch == NO_PRODUCER_EPOCH:
        return True
    if request.producer_id == found.producer_id:
        return True
    return (
        request.producer_id == found.previous_producer_id
        and request.producer_epoch >= EPOCH_MAX - 1
    )


def _initialise(
    machine: TransactionMachine,
    found: Transaction,
    request: InitProducerIdRequest,
    fresh: ProducerId | None,
    now: Millis,
) -> Decision:
    timeout_ms = request.transaction_timeout_ms
    is_named = request.producer_id != NO_PRODUCER_ID
    named = (request.producer_id, request.producer_epoch)
    current = (found.producer_id, found.producer_epoch)
    is_new = found.producer_epoch == NO_PRODUCER_EPOCH
    if is_named and not is_new and request.producer_epoch != found.producer_epoch:
        if machine.initialised.get(found.transactional_id) != Initialised(*current, named):
            return _init_refused(ErrorCode.PRODUCER_FENCED)
        changed = found.initialised_again(timeout_ms, now)
    elif found.is_exhausted:
        if fresh is None:
            return Decision(reply=NEEDS_PRODUCER_ID)
        changed = found.with_producer_id(fresh, timeout_ms, now)
    else:
        changed = found.with_next_epoch(timeout_ms, now)
    if is_named:
        given = Initialised(changed.producer_id, changed.producer_epoch, named)
        machine.initialised[found.transactional_id] = given
    else:
        machine.initialised.pop(found.transactional_id, None)
    reply = init_reply(ErrorCode.NONE, changed.producer_id, changed.producer_epoch)
    return machine.write(changed, reply)


def init_reply(
    code: ErrorCode,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
) -> InitProducerIdResponse:
    """Return a reply to InitProducerId; without an id if it failed."""
    return InitProducerIdResponse(
        error_code=code, producer_id=producer_id, producer_epoch=producer_epoch
    )


def _init_refused(code: ErrorCode) -> Decision:
    return Decision(reply=init_reply(code))


# -- AddPartitionsToTxn, AddOffsetsToTxn -----------------------------------------------------


def decide_add(
    machine: TransactionMachine,
    transactional_id: str,
    producer: Producer,
    partitions: frozenset[TopicPartition],
    client: Client,
    now: Millis,
) -> Decision:
    """Add partitions to the transaction; the reply is an error code.

    Nothing is written to a partition before the log says that the transaction must end there.
    """
    found = machine.transactions.get(transactional_id)
    code = _objection(found, producer)
    if found is not None and code is ErrorCode.NONE:
        machine.stale_end_txn.request_received(transactional_id, _of(found), client)
    if found is not None and found.status in PREPARED:
        # Before any check: the producer may be the one that takes over with the markers.
        return Decision(reply=ErrorCode.CONCURRENT_TRANSACTIONS)
    if found is None or code is not ErrorCode.NONE:
        return Decision(reply=code)
    if found.status is Status.ONGOING and partitions <= found.partitions:
        return Decision(reply=ErrorCode.NONE)
    return machine.write(found.with_partitions(partitions, client.version, now), ErrorCode.NONE)


def decide_verify(
    machine: TransactionMachine,
    transactional_id: str,
    producer: Producer,
    partitions: Iterable[TopicPartition],
) -> Decision:
    """Check which partitions are part of the open transaction; the reply has a code for each."""
    found = machine.transactions.get(transactional_id)
    code = _objection(found, producer)
    if code is ErrorCode.NONE and found is not None and found.status in PREPARED:
        code = ErrorCode.CONCURRENT_TRANSACTIONS
    if found is None or code is not ErrorCode.NONE:
        return Decision(reply=dict.fromkeys(partitions, code))
    missing = ErrorCode.TRANSACTION_ABORTABLE
    codes: Mapping[TopicPartition, ErrorCode] = {
        each: ErrorCode.NONE if each in found.partitions else missing for each in partitions
    }
    return Decision(reply=codes)


def _objection(found: Transaction | None, producer: Producer) -> ErrorCode:
    if found is None or found.producer_id != producer.id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if found.producer_epoch != producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


# -- EndTxn ------------------------------------------------------------------------------------


def decide_end(
    machine: TransactionMachine,
    request: EndTxnRequest,
    client: Client,
    fresh: ProducerId | None,
    now: Millis,
) -> Decision:
    """Commit or abort. The reply is sent once the decision is committed; the markers follow.

    Under version 2 the reply has the epoch for the next transaction, and a repeated request is
    recognised by the epoch it was sent with. Before version 2, see `stale_end_txn`. While markers
    are being written the client has to retry, whichever end it asks for; under version 2 this is
    checked before its epoch, which may be the one that the first reply returned.
    """
    found = machine.transactions.get(request.transactional_id)
    if found is None:
        return _end_refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_bumping = client.version >= EPOCH_BUMPING_VERSION
    is_repeated = is_bumping and _is_repeated(found, request)
    code = _objection(found, Producer(request.producer_id, request.producer_epoch))
    if found.status in PREPARED and (is_bumping or code is ErrorCode.NONE):
        return _end_refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if code is not ErrorCode.NONE and not is_repeated:
        return _end_refused(code)
    # A client of version 2 may abort a transaction that never began, to get its next epoch.
    is_empty_abort = is_bumping and not is_repeated and not request.committed
    if found.status is Status.ONGOING or is_empty_abort:
        if not is_bumping and _is_late(machine, found, client):
            return _end_refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        return _prepare(machine, found, request.committed, (client.version, fresh), now)
    return _end_again(found, request.committed, is_known=is_repeated or not is_bumping)


def _is_late(machine: TransactionMachine, found: Transaction, client: Client) -> bool:
    """Whether an end is for an earlier transaction; a repeated one is not."""
    if machine.stale_end_txn.is_late(found.transactional_id, _of(found), client):
        return True
    machine.stale_end_txn.request_received(found.transactional_id, _of(found), client)
    return False


def _of(found: Transaction) -> tuple[int, int]:
    return found.producer_id, found.producer_epoch


def _end_again(found: Transaction, commit: bool, *, is_known: bool) -> Decision:
    """Answer an end that was decided before, if it was the same."""
    ended = Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT
    if found.status is ended and is_known:
        return Decision(reply=_end_reply(found))
    return _end_refused(ErrorCode.INVALID_TXN_STATE)


def _is_repeated(found: Transaction, request: EndTxnRequest) -> bool:
    """Whether this request has already ended the transaction: its epoch tells (KIP-890)."""
    if not found.bumps_epoch or found.status not in COMPLETE:
        return False
    sent = (request.producer_id, request.producer_epoch)
    if sent == (found.producer_id, found.producer_epoch - 1):
        return True
    is_rotated = found.producer_epoch == 0
    return is_rotated and sent == (found.previous_producer_id, EPOCH_MAX - 1)


def _prepare(
    machine: TransactionMachine,
    found: Transaction,
    commit: bool,
    by: tuple[int, ProducerId | None],
    now: Millis,
) -> Decision:
    version, fresh = by
    next_producer_id = NO_PRODUCER_ID
    if version >= EPOCH_BUMPING_VERSION and found.is_exhausted:
        if fresh is None:
            return Decision(reply=NEEDS_PRODUCER_ID)
        next_producer_id = fresh
    changed = found.prepared(
        commit=commit, version=version, next_producer_id=next_producer_id, now=now
    )
    return machine.write(changed, _end_reply(changed))


def _end_reply(found: Transaction) -> EndTxnResponse:
    """Return the id and epoch for the next transaction."""
    if found.next_producer_id != NO_PRODUCER_ID and found.bumps_epoch:
        return EndTxnResponse(producer_id=found.next_producer_id, producer_epoch=0)
    return EndTxnResponse(producer_id=found.producer_id, producer_epoch=found.producer_epoch)


def _end_refused(code: ErrorCode) -> Decision:
    return Decision(reply=EndTxnResponse(error_code=code))


# -- markers -------------------------------------------------------------------------------------


def decide_complete(machine: TransactionMachine, ended: Transaction, now: Millis) -> Decision:
    """Note that every marker of ``ended`` is written; ignored if the transaction has changed."""
    found = machine.transactions.get(ended.transactional_id)
    if found != ended:
        return Decision(reply=False)
    return machine.write(ended.completed(now), True)
