"""The active controller: decide, append, and reply once the records are committed and applied.

    submit(decide) -> decide(newest state) -> append as one batch -> newest state' = state + records
                      ... committed, applied, published ...        -> reply

Decisions are made one after the other, each against a state that contains the records of all
earlier ones, committed or not. A reply is sent when the published image contains the records; a
decision without records waits for the records it may have read.

A leadership begins once everything written before it is applied. In an empty log its first records
are those that formatting left. When it ends, waiting requests fail with NOT_CONTROLLER, since
whether the appended records will be committed is unknown, and the newest state is dropped.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from ottla.controller.decision import ControllerState, Decision, Steps, parts
from ottla.metadata.image import Image
from ottla.metadata.replay import RECORDS_PER_STEP, apply, apply_steps
from ottla.protocol.faults import Fault, NotController, RequestTimedOut
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.raft.core.effects import Role, RoleChanged
from ottla.runtime.ports import Clock
from ottla.runtime.trusted_time import TrustedClock

log = logging.getLogger(__name__)

# Changes that may wait for their commit at once; each belongs to a request. A Kafka broker has at
# most `queued.max.requests` (500) in flight.
PENDING_MAX: Final = 10_000

# The pause of a controller whose log accepts no records.
RETRY_MS: Final = 100

NOTHING: Final = Offset(-1)
LONG_AGO: Final = Millis(0)

# Records that enclose a transaction: they change nothing by themselves.
_BRACKETS: Final = (AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord)

Reply = TypeVar("Reply", bound=Message | None)
T = TypeVar("T")


class Quorum(Protocol):
    """The log, as its leader writes it."""

    async def propose(self, records: Sequence[Versioned], epoch: LeaderEpoch) -> Offset:
        """Append one batch, return its first offset. On a `Fault` nothing was appended."""
        ...

    def end_offset(self) -> Offset:
        """Return the offset of the next record."""
        ...

    def resign(self, epoch: LeaderEpoch) -> None:
        """Resign leadership of an epoch."""
        ...


class Committed(Protocol):
    """The state that is committed and applied here."""

    @property
    def image(self) -> Image:
        """The published image."""
        ...

    def is_in_transaction(self) -> bool:
        """Whether a transaction of records has begun and not ended."""
        ...


class Moment(msgspec.Struct, frozen=True):
    """The input of a decision.

    ``now`` is monotonic, for deadlines, ``wall`` is for records; expiry times use ``expiry``.
    """

    state: ControllerState
    now: Millis
    wall: Millis
    expiry: Millis
    next_offset: Offset
    epoch: LeaderEpoch

    @property
    def image(self) -> Image:
        """The newest image."""
        return self.state.image


Decide = Callable[[Moment], Decision[Reply] | Steps[Decision[Reply]]]


class PeriodicTask(Protocol):
    """Work that the active controller does periodically, without a request."""

    @property
    def name(self) -> str:
        """The name in log lines."""
        ...

    @property
    def interval_ms(self) -> int:
        """The time between two rounds."""
        ...

    def begin(self, moment: Moment) -> None:
        """Drop the state of an earlier leadership: a new one begins."""
        ...

    def decide(self, moment: Moment) -> Decision[None]:
        """Return the records to write now; called again at once while there are any."""
        ...


class ControllerSettings(msgspec.Struct, frozen=True):
    """Limits of the controller. With ``idle_ms`` 0 it writes no NoOpRecord."""

    idle_ms: int = 500
    pending_max: int = PENDING_MAX


class _Pending(msgspec.Struct, frozen=True):
    """A reply that waits until everything up to ``offset`` is applied."""

    offset: Offset
    done: "asyncio.Future[None]"


class _Leadership(msgspec.Struct, eq=False):
    """One leadership of this node. ``state`` is None until it may decide."""

    epoch: LeaderEpoch
    start: Offset
    state: ControllerState | None = None
    last_offset: Offset = NOTHING
    written_at: Millis = LONG_AGO
    pending: deque[_Pending] = msgspec.field(default_factory=deque)
    # Decisions are serialized even if appending takes a while.
    turn: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    due: dict[str, Millis] = msgspec.field(default_factory=dict)


class ControllerParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a controller. ``bootstrap`` are the first records of an empty log."""

    quorum: Quorum
    committed: Committed
    clock: Clock
    bootstrap: Sequence[Versioned] = ()
    periodic_tasks: Sequence[PeriodicTask] = ()
    settings: ControllerSettings = ControllerSettings()


async def _in_steps(steps: Steps[T]) -> T:
    """Run ``steps`` to the end; the event loop runs after each of them."""
    try:
        while True:
            next(steps)
            await asyncio.sleep(0)
    except StopIteration as end:
        result: T = end.value
        return result


class Controller:
    """`Service`: active while this node leads the quorum and has applied all earlier records."""

    name = "controller"

    def __init__(self, parts: ControllerParts) -> None:
        self._parts = parts
        self._clock = TrustedClock.of(parts.clock)
        self._leadership: _Leadership | None = None
        self._applied = NOTHING
        self._wake = asyncio.Event()

    # -- state -----------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""
        return self._leadership is not None and self._leadership.state is not None

    @property
    def newest(self) -> ControllerState | None:
        """The newest state, committed or not; None while this node is not active."""
        return None if self._leadership is None else self._leadership.state

    @property
    def pending(self) -> int:
        """How many replies wait for their commit."""
        return 0 if self._leadership is None else len(self._leadership.pending)

    @property
    def committed_image(self) -> Image:
        """The image that reads are served from."""
        return self._parts.committed.image

    # -- notifications ---------------------------------------------------------

    def on_role(self, change: RoleChanged) -> None:
        """Handle a new role. Never writes itself: it may be called in the middle of a raft step."""
        leadership = self._leadership
        is_leader = change.role is Role.LEADER
        if leadership is not None and is_leader and leadership.epoch == change.epoch:
            return
        if leadership is not None:
            self._end_leadership(leadership)
        if is_leader:
            assert change.epoch_start_offset is not None
            self._leadership = _Leadership(change.epoch, change.epoch_start_offset)
            self._wake.set()

    def on_applied(self, offset: Offset) -> None:
        """Send the replies that waited for ``offset``, which is now applied and published."""
        self._applied = offset
        leadership = self._leadership
        if leadership is None:
            return
        if leadership.state is None:
            self._wake.set()
        while leadership.pending and leadership.pending[0].offset <= self._applied:
            pending = leadership.pending.popleft()
            if not pending.done.done():
                pending.done.set_result(None)

    def _end_leadership(self, leadership: _Leadership) -> None:
        log.info(
            "controller no longer active epoch=%d pending=%d",
            leadership.epoch,
            len(leadership.pending),
        )
        self._leadership = None
        leadership.state = None
        while leadership.pending:
            done = leadership.pending.popleft().done
            if not done.done():
                done.set_exception(NotController("leadership was lost before the commit"))

    # -- decisions -------------------------------------------------------------

    async def submit(self, decide: Decide[Reply]) -> Reply:
        """Decide, write, and return the reply once its records are committed and applied.

        Raises:
            NotController: this node does not lead, or lost leadership: the change may still commit.
            RequestTimedOut: too many changes are waiting; nothing was done.
            RecordTooLarge: the records do not fit one batch; nothing was done.
        """
        leadership = self._active()
        if len(leadership.pending) >= self._parts.settings.pending_max:
            raise RequestTimedOut(f"{len(leadership.pending)} changes are waiting for their commit")
        async with leadership.turn:
            decided = decide(self._moment(leadership))
            decision = await _in_steps(decided) if isinstance(decided, Generator) else decided
            await self._append_all(leadership, decision)
            done = self._park(leadership)
        await done
        return decision.reply

    async def _append_all(self, leadership: _Leadership, decision: Decision[Reply]) -> None:
        """Write the records of a decision and of all its slices; the loop runs in between."""
        current: Decision[Reply] | Decision[None] = decision
        while True:
            for part in parts(current.records):
                await self._append(leadership, part)
            if current.then is None:
                return
            await asyncio.sleep(0)
            current = current.then(self._moment(leadership).image)

    def _active(self) -> _Leadership:
        if self._leadership is None or self._leadership.state is None:
            raise NotController("this node is not the active controller")
        return self._leadership

    def _moment(self, leadership: _Leadership) -> Moment:
        if self._leadership is not leadership or leadership.state is None:
            raise NotController("leadership was lost")
        clock, end = self._clock, self._parts.quorum.end_offset()
        return Moment(
            leadership.state, clock.monotonic(), clock.now(), clock.expiry(), end, leadership.epoch
        )

    async def _append(self, leadership: _Leadership, records: Sequence[Versioned]) -> None:
        """Write one batch and include it in the state of the next decision.

        The state is computed first: records that do not apply to it must not reach the log.
        """
        if leadership.state is None:
            raise NotController("leadership was lost")
        state = leadership.state
        messages = (record.message for record in records)
        _, delta = await _in_steps(apply_steps(state.image, messages))
        after = state.after(delta)
        if len(records) > RECORDS_PER_STEP:
            await asyncio.sleep(0)  # encoding and writing them takes a turn of its own
        await self._propose(leadership, records)
        if self._leadership is not leadership:
            raise NotController("leadership was lost")
        leadership.state = after

    async def _propose(self, leadership: _Leadership, records: Sequence[Versioned]) -> None:
        try:
            base = await self._parts.quorum.propose(records, leadership.epoch)
        except Fault:
            raise
        except BaseException:
            # Whether it was appended is unknown, so the newest state is unknown, too.
            self._parts.quorum.resign(leadership.epoch)
            if self._leadership is leadership:
                self._end_leadership(leadership)
            raise
        leadership.last_offset = Offset(base + len(records) - 1)
        leadership.written_at = self._parts.clock.monotonic()

    def _park(self, leadership: _Leadership) -> "asyncio.Future[None]":
        """Return a future that completes once everything written so far is applied."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._leadership is not leadership:
            done.set_exception(NotController("leadership was lost before the commit"))
        elif leadership.last_offset <= self._applied:
            done.set_result(None)
        else:
            leadership.pending.append(_Pending(leadership.last_offset, done))
        return done

    # -- the controller's own work ----------------------------------------------

    async def run(self, ready: Callable[[], None]) -> None:
        """Start each leadership, and run the periodic tasks of an active controller."""
        ready()
        try:
            while True:
                self._wake.clear()
                wait_ms = await self._work()
                try:
                    async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        finally:
            if self._leadership is not None:
                self._end_leadership(self._leadership)

    async def _work(self) -> int | None:
        """Run what is due; return the milliseconds until the next task, None if there is none."""
        leadership = self._leadership
        if leadership is None:
            return None
        try:
            if leadership.state is None:
                return await self._open(leadership)
            for task in self._parts.periodic_tasks:
                await self._do(leadership, task)
            await self._write_no_op_when_idle(leadership)
        except NotController:
            # A replica that has stopped accepts no records, and does not report its role.
            return RETRY_MS if self._leadership is leadership else 0
        now = self._parts.clock.monotonic()
        times = list(leadership.due.values())
        if self._parts.settings.idle_ms:
            times.append(Millis(leadership.written_at + self._parts.settings.idle_ms))
        return max(1, min(times) - now) if times else None

    async def _open(self, leadership: _Leadership) -> int | None:
        """Become active, once everything before this leadership is applied."""
        if self._applied < leadership.start - 1:
            return None
        async with leadership.turn:
            await self._write_opening(leadership)
            moment = self._moment(leadership)
        for task in self._parts.periodic_tasks:
            task.begin(moment)
            leadership.due[task.name] = Millis(moment.now + task.interval_ms)
        leadership.written_at = moment.now
        log.info("controller active epoch=%d next_offset=%d", leadership.epoch, moment.next_offset)
        return 0

    async def _write_opening(self, leadership: _Leadership) -> None:
        """Write the records that precede any request."""
        committed = self._parts.committed
        image = committed.image
        if committed.is_in_transaction():
            # The leader of that transaction is gone; its records do not count.
            await self._propose(leadership, [Versioned(AbortTransactionRecord(), 0)])
        if self._leadership is not leadership:
            raise NotController("leadership was lost")
        leadership.state = ControllerState.of(image)
        if image.features.metadata_version() is None and self._parts.bootstrap:
            log.info("appended bootstrap records count=%d", len(self._parts.bootstrap))
            messages = [record.message for record in self._parts.bootstrap]
            counting = [message for message in messages if not isinstance(message, _BRACKETS)]
            _, delta = apply(image, counting)
            await self._propose(leadership, self._parts.bootstrap)
            self._moment(leadership)
            leadership.state = leadership.state.after(delta)

    async def _do(self, leadership: _Leadership, task: PeriodicTask) -> None:
        now = self._parts.clock.monotonic()
        if leadership.due[task.name] > now:
            return
        leadership.due[task.name] = Millis(now + task.interval_ms)
        try:
            while await self._has_written(leadership, task):
                pass
        except (RequestTimedOut, NotController) as error:
            log.info("controller task postponed task=%s reason=%s", task.name, error)

    async def _has_written(self, leadership: _Leadership, task: PeriodicTask) -> bool:
        """Run one round of a task; return whether there was something to write.

        A round is one decision; the next one is based on it.
        """
        before = leadership.last_offset
        await self.submit(task.decide)
        return leadership.last_offset != before

    async def _write_no_op_when_idle(self, leadership: _Leadership) -> None:
        """Write a NoOpRecord, so that followers can tell the age of an idle leader's records."""
        idle_ms = self._parts.settings.idle_ms
        now = self._parts.clock.monotonic()
        is_known = self._moment(leadership).image.features.metadata_version() is not None
        if idle_ms and is_known and now - leadership.written_at >= idle_ms:
            async with leadership.turn:
                self._moment(leadership)
                await self._append(leadership, [Versioned(NoOpRecord(), 0)])
        elif not is_known:
            leadership.written_at = now
