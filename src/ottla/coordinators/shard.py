"""One partition of an internal topic, and its state machine.

    LOADING --end of the log--> ACTIVE --leadership lost, or the log failed--> CLOSED
       \\---------------------------------------------------------------------^

While active: decide, append, replay at once, and reply when committed. Nothing here waits: the
runtime calls `load_step` until the log is read and `on_due` when a timer is due, and the partition
calls back when its high watermark advances.

Offset commits may linger between decide and append (`lingering`); they are written before any other
decision is made.

Invariants: the state of the machine is the result of its log up to ``end``. A reply is sent only
when everything that its decision could have read is committed. A closed shard replies nothing but
NOT_COORDINATOR, and its machine is discarded: uncommitted changes cannot be undone.
"""

import enum
import logging
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from ottla.coordinators.batches import (
    Decode,
    MarkerFound,
    ReadBatch,
    build_batches,
    read_batches,
)
from ottla.coordinators.decision import (
    LATER,
    Answer,
    CancelTimer,
    Decision,
    Origin,
    Packed,
    ReplyFuture,
    SetTimer,
    StateMachine,
    TimerChange,
)
from ottla.coordinators.lingering import ADAPTIVE, Held, Lingering
from ottla.coordinators.pending_replies import PendingReplies, RecordedReply, Views
from ottla.coordinators.ports import ShardLog
from ottla.coordinators.timers import Timers
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    BatchTooLargeForSegment,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    CorruptBatch,
    Fault,
    FencedLeaderEpoch,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeader,
    RecordTooLarge,
    StorageFailed,
    UnknownLeaderEpoch,
    UnsupportedMagic,
)
from ottla.protocol.records.batch import Compression
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.writer import Producer, build_keyed_batch
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.runtime.ports import Clock
from ottla.runtime.trusted_time import TrustedClock

log = logging.getLogger(__name__)

View = TypeVar("View")
Machine = TypeVar("Machine", bound=StateMachine[object])
Decide: TypeAlias = Callable[[Machine, Millis], Decision]

# Errors after which the shard closes: it is unknown whether the batch is, or stays, in the log.
_LOST: Final = (NotLeader, FencedLeaderEpoch, UnknownLeaderEpoch, StorageFailed)


TIMERS_PER_TURN: Final = 50
"""Timers that fire in one turn of the event loop: each may write, for about half a millisecond."""


class ShardState(enum.Enum):
    """The state of a shard."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class ShardSettings(msgspec.Struct, frozen=True):
    """``write_timeout_ms``: how long a reply waits for its commit (``offsets.commit.timeout.ms``).

    A load reads, decodes and replays ``load_bytes`` per step. ``linger_ms`` is as in `lingering`.
    """

    clock: Clock
    decode: Decode
    write_timeout_ms: int = 5000
    load_bytes: int = 64 * 1024
    compression: Compression = Compression.NONE
    linger_ms: int = 0


class Shard(Generic[Machine]):
    """One shard during one leadership of this node over its partition.

    ``on_lost`` is called once, when the shard closes by itself; ``on_timers`` whenever a timer may
    be due earlier than before; ``on_held`` when `flush` has to be called soon.
    """

    def __init__(
        self,
        name: str,
        epoch: LeaderEpoch,
        log_: ShardLog,
        machine: Machine,
        settings: ShardSettings,
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.machine = machine
        self.state = ShardState.LOADING
        self.on_lost: Callable[[], None] = _nothing
        self.on_timers: Callable[[], None] = _nothing
        self.on_held: Callable[[], None] = _nothing
        self._log = log_
        self._settings = settings
        self._clock = TrustedClock.of(settings.clock)
        self._end = log_.log_start
        self._loaded_end = log_.log_start
        self._timers = Timers()
        self._pending = PendingReplies()
        self._lingering = Lingering()
        self._views: Views[object] = Views(machine.view())
        self._unsubscribe = log_.on_advanced(self._on_advanced)

    @property
    def end(self) -> Offset:
        """The offset after the last record that is in the state."""
        return self._end

    def now(self) -> Millis:
        """Return the time of a decision: records written now have it as their timestamp."""
        return self._clock.stamp()

    # -- load ----------------------------------------------------------------

    def load_step(self) -> bool:
        """Replay the next piece of the log; return whether the shard is active now.

        Raises:
            Fault: the log cannot be read, or holds records of another kind. The shard is closed.
        """
        assert self.state is ShardState.LOADING
        try:
            if self._end < self._log.log_end and self._load_piece():
                return False
        except BaseException:
            self.close()
            raise
        self._moved_to(self._log.log_end)
        self._loaded_end = self._end
        self.state = ShardState.ACTIVE
        self._carry_out(self.machine.on_loaded(self._clock.stamp()), RecordedReply())
        return True

    def _load_piece(self) -> bool:
        """Replay the result of one read; return whether it contained anything."""
        data = self._log.read(self._end, self._settings.load_bytes)
        before = self._end
        try:
            for batch in read_batches(data, self._end, self._settings.decode):
                self._replay_batch(batch)
            if self._end == before and len(data):
                raise CorruptBatch(f"{self.name}: no whole batch at offset {before}")
        except (CorruptBatch, UnsupportedMagic) as fault:
            raise self._log.damaged(before, fault) from fault
        return len(data) > 0

    def _replay_batch(self, batch: ReadBatch) -> None:
        for found in batch.found:
            if isinstance(found, MarkerFound):
                self.machine.on_marker(found.producer, found.marker, found.offset)
            else:
                self.machine.replay(found.record, found.origin)
        self._moved_to(batch.end)

    def _moved_to(self, end: Offset) -> None:
        self._end = end
        self._views.note(end, self.machine.view(), self._log.high_watermark)

    # -- decide --------------------------------------------------------------

    def check_active(self) -> None:
        """Raise CoordinatorLoading or NotCoordinator unless the shard is active."""
        if self.state is ShardState.LOADING:
            raise CoordinatorLoading(self.name)
        if self.state is ShardState.CLOSED:
            raise NotCoordinator(self.name)

    @property
    def is_caught_up(self) -> bool:
        """Whether everything that was in the log when it was loaded is known to be committed.

        Until then `committed` may be older than what the previous leader has returned to clients: a
        new leader learns the high watermark from its followers.
        """
        return self._log.high_watermark >= self._loaded_end

    def committed(self) -> object:
        """Return the machine's view of what is committed. Raises as `check_active`."""
        self.check_active()
        return self._views.committed

    def submit(
        self,
        decide: Callable[[Machine, Millis], Decision],
        future: ReplyFuture,
        *,
        may_linger: bool = False,
    ) -> None:
        """Decide, write, and answer the future when committed.

        A fault that ``decide`` raises fails the future and changes nothing. Any other error is a
        bug in the middle of a state change: the shard is closed before the error is raised.
        ``may_linger``: this decision does not depend on lingering commits being written.
        """
        if not may_linger:
            self.flush()
        try:
            self.check_active()
            decision = decide(self.machine, self._clock.stamp())
        except Fault as fault:
            future.fail(fault)
            return
        except BaseException:
            self._lose()
            raise
        if not (decision.may_linger and self._linger(decision, future)):
            self._carry_out(decision, future)

    def end_transaction(
        self, producer: Producer, marker: EndTxnMarker, future: ReplyFuture, version: int = 0
    ) -> None:
        """Write the marker that ends a producer's transaction here; answer None when committed.

        ``version`` is the transaction's: from 2 on the log recognises a late marker by its epoch.
        """
        self.flush()
        now = self._clock.stamp()
        try:
            self.check_active()
            batch = build_end_txn_marker(marker, producer, now)
            end = self._log.append(batch, epoch=self.epoch, now=now, transaction_version=version)
        except _LOST as fault:
            self._lose()
            future.fail(NotCoordinator(f"{self.name}: {fault}"))
        except Fault as fault:
            future.fail(fault_for_client(fault))
        else:
            self.machine.on_marker(producer, marker, Offset(end - 1))
            self._moved_to(end)
            self._answer_when_committed([Answer(future, None)])

    def _carry_out(self, decision: Decision, future: ReplyFuture) -> None:
        self.flush()
        try:
            if self.state is ShardState.CLOSED:
                raise NotLeader(f"{self.name}: lost while writing")
            self._write(decision)
        except _LOST as fault:
            log.warning("shard lost shard=%s epoch=%d reason=%s", self.name, self.epoch, fault)
            self._lose()
            replies = [answer.future for answer in _answers(decision, future)]
            _fail_all(replies, NotCoordinator(f"{self.name}: {fault}"))
        except Fault as fault:
            self._refuse(decision, fault_for_client(fault), future)
        except BaseException:
            self._lose()
            raise
        else:
            self.change_timers(decision.timers)
            self._answer_when_committed(_answers(decision, future))

    def _write(self, decision: Decision) -> None:
        """Append and replay. A decision that may be split can fail after some of its batches."""
        if decision.packed is not None:
            self._write_packed(decision.packed, decision.producer)
        if not decision.records:
            return
        now, settings = self._clock.stamp(), self._settings
        batch_max = self._log.batch_bytes_max
        for batch, records in build_batches(decision, now, batch_max, settings.compression):
            end = self._log.append(batch, epoch=self.epoch, now=now)
            if self.state is ShardState.CLOSED:
                raise NotLeader(f"{self.name}: lost while writing")
            first = end - len(records)
            for index, record in enumerate(records):
                origin = Origin(Offset(first + index), decision.producer)
                self.machine.replay(record, origin)
            self._moved_to(end)

    def _write_packed(self, packed: Packed, producer: Producer | None) -> None:
        now, pairs = self._clock.stamp(), packed.pairs()
        batch = build_keyed_batch(pairs, now, producer, self._settings.compression)
        end = self._log.append(batch, epoch=self.epoch, now=now)
        if self.state is ShardState.CLOSED:
            raise NotLeader(f"{self.name}: lost while writing")
        packed.replay(Offset(end - len(pairs)), producer)
        self._moved_to(end)

    # -- linger --------------------------------------------------------------

    def _linger(self, decision: Decision, future: ReplyFuture) -> bool:
        """Keep a decision to be written with others; return False if it has to be written now."""
        linger_ms, packed = self._settings.linger_ms, decision.packed
        if not linger_ms or packed is None:
            return False
        if linger_ms == ADAPTIVE and self._log.commits_at_once:
            return False
        pairs, lingering = packed.pairs(), self._lingering
        if not lingering.fits(pairs, self._log.batch_bytes_max):
            self.flush()
            if self.state is ShardState.CLOSED:
                return False
            if not lingering.fits(pairs, self._log.batch_bytes_max):
                return False
        lingering.hold(Held(decision, packed, pairs, future))
        if len(lingering) == 1:
            if linger_ms == ADAPTIVE:
                self.on_held()
            else:
                lingering.due = Millis(self._clock.monotonic() + linger_ms)
                self.on_timers()
        return True

    def flush(self) -> None:
        """Write the lingering commits, in order and in one batch."""
        held = self._lingering.take()
        if not held:
            return
        try:
            first = self._append_held(held)
        except _LOST as fault:
            self._lose()
            _fail_all([each.future for each in held], NotCoordinator(f"{self.name}: {fault}"))
        except Fault as fault:
            for each in held:
                self._refuse(each.decision, fault_for_client(fault), each.future)
        except BaseException:
            self._lose()
            _fail_all([each.future for each in held], NotCoordinator(self.name))
            raise
        else:
            self._take_held(held, first)

    def _append_held(self, held: Sequence[Held]) -> Offset:
        """Append the lingering commits; return the offset of the first record."""
        self.check_active()
        now = self._clock.stamp()
        pairs = [pair for each in held for pair in each.pairs]
        batch = build_keyed_batch(pairs, now, None, self._settings.compression)
        end = self._log.append(batch, epoch=self.epoch, now=now)
        if self.state is ShardState.CLOSED:
            raise NotLeader(f"{self.name}: lost while writing")
        return Offset(end - len(pairs))

    def _take_held(self, held: Sequence[Held], first: Offset) -> None:
        answers: list[Answer] = []
        for each in held:
            each.packed.replay(first, None)
            first = Offset(first + len(each.pairs))
            self.change_timers(each.decision.timers)
            answers += _answers(each.decision, each.future)
        self._moved_to(first)
        self._answer_when_committed(answers)

    # -- at once -------------------------------------------------------------

    def _is_idle(self) -> bool:
        """Whether the shard is active and nothing waits to be written, committed or answered."""
        is_waiting = self._pending or self._lingering or self._settings.linger_ms > 0
        return self.state is ShardState.ACTIVE and not is_waiting

    def write_at_once(
        self, batch: bytearray, records: int, now: Millis, replay: Callable[[], None]
    ) -> bool:
        """Write a plain batch that is committed once appended, and call ``replay``.

        Return False, with nothing done, if the commit has to wait for followers or for earlier
        replies. A shard that fails to write is closed.
        """
        if not self._is_idle() or self._settings.compression is not Compression.NONE:
            return False
        try:
            end = self._log.append_at_once(batch, records, epoch=self.epoch, now=now)
        except StorageFailed:
            self._lose()
            return False
        # A shard that was closed meanwhile has no state: the client retries elsewhere.
        if end is None or not self._is_idle():
            return False
        replay()
        self._moved_to(end)
        return True

    def _refuse(self, decision: Decision, fault: Fault, future: ReplyFuture) -> None:
        """Let the machine undo what is not in the log; fail the request with the fault."""
        after = Decision() if decision.refused is None else decision.refused(fault)
        assert not after.records, "what undoes a refused write must not write"
        self.change_timers(after.timers)
        answers = _answers(after, future) if after.reply is not None else list(after.answers)
        if answers:
            self._answer_when_committed(answers)
        if after.reply is None and decision.reply is not LATER:
            future.fail(fault)

    def change_timers(self, changes: Sequence[TimerChange]) -> None:
        """Set and cancel timers."""
        if not changes:
            return
        now = self._clock.monotonic()
        for change in changes:
            match change:
                case SetTimer():
                    self._timers.set(change.key, Millis(now + change.delay_ms))
                case CancelTimer():
                    self._timers.cancel(change.key)
        self.on_timers()

    # -- commit --------------------------------------------------------------

    def _answer_when_committed(self, answers: list[Answer]) -> None:
        if not answers:
            return
        if self._end <= self._log.high_watermark and not self._pending:
            _answer_all(answers)
            return
        deadline = Millis(self._clock.monotonic() + self._settings.write_timeout_ms)
        self._pending.add(self._end, deadline, answers)
        self.on_timers()
        self._on_advanced()

    def _on_advanced(self) -> None:
        if self.state is ShardState.CLOSED:
            return
        committed = self._log.high_watermark
        self._views.commit(committed)
        _answer_all(self._pending.take_committed(committed))

    # -- time ----------------------------------------------------------------

    def next_due(self) -> Millis | None:
        """Return when `on_due` has to be called, on the monotonic clock."""
        times = (self._timers.next(), self._pending.next_deadline(), self._lingering.due)
        return min((time for time in times if time is not None), default=None)

    def on_due(self) -> None:
        """Fire the timers that are due and fail the replies that waited too long.

        At most `TIMERS_PER_TURN` timers fire; `next_due` tells whether there are more. All members
        of a large group may time out at the same moment.
        """
        now = self._clock.monotonic()
        late = CoordinatorNotAvailable(f"{self.name}: not committed in time")
        _fail_all(self._pending.take_overdue(now), late)
        if self._lingering.due is not None and self._lingering.due <= now:
            self.flush()
        for key in self._timers.take_due(now, TIMERS_PER_TURN):
            self.flush()
            if self.state is not ShardState.ACTIVE:
                return
            decision = self.machine.on_timer(key, self._clock.times())
            self._carry_out(decision, RecordedReply())

    # -- end -----------------------------------------------------------------

    def close(self) -> None:
        """Stop coordinating; pending requests fail with NOT_COORDINATOR. May be called twice."""
        if self.state is ShardState.CLOSED:
            return
        self.state = ShardState.CLOSED
        self._unsubscribe()
        fault = NotCoordinator(f"{self.name}: leadership was lost")
        held = [each.future for each in self._lingering.take()]
        _fail_all([*self._pending.take_all(), *held, *self.machine.on_unloaded()], fault)

    def _lose(self) -> None:
        self.close()
        self.on_lost()


class TooMuchToWrite(Fault):
    """A decision that does not fit into a batch of the topic; the client cannot make it smaller."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


def fault_for_client(fault: Fault) -> Fault:
    """Return the error that a coordinator's client expects for an error of the log."""
    if isinstance(fault, NotEnoughReplicas):
        return CoordinatorNotAvailable(str(fault))
    if isinstance(fault, RecordTooLarge | BatchTooLargeForSegment):
        return TooMuchToWrite(str(fault))
    return fault


def _answers(decision: Decision, future: ReplyFuture) -> list[Answer]:
    answers = list(decision.answers)
    if decision.reply is not LATER:
        answers.append(Answer(future, decision.reply))
    return answers


def _answer_all(answers: Sequence[Answer]) -> None:
    for future, reply in answers:
        future.answer(reply)


def _fail_all(futures: Sequence[ReplyFuture], fault: Fault) -> None:
    for future in futures:
        future.fail(fault)


def _nothing() -> None:
    return None
