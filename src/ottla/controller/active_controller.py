"""The active controller at work: decide, append, and answer once it is committed and applied.

    submit(decide) -> decide(newest state) -> append as one batch -> newest state' = state + records
                      ... committed, applied, published ...        -> reply

Decisions are made one after the other, each against a state that contains the records of all
before it, committed or not. A reply leaves when the image that everybody sees has the records;
a decision that wrote nothing waits for those it may have looked at.

A leadership begins once everything written before it is applied. In an empty log its first records
are those that formatting left. When it ends, waiting requests fail with NOT_CONTROLLER, since
whether the appended records will be committed is unknown, and the newest state is dropped.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from ottla.controller.decision import ControllerState, Decision, parts
from ottla.metadata.image import Image
from ottla.metadata.replay import apply
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

# Changes that may wait for their commit at once; each has a request behind it. Kafka's brokers
# together have no more than `queued.max.requests` (500) each under way.
PENDING_MAX: Final = 10_000

# How long the controller rests that leads a log which takes nothing.
RETRY_MS: Final = 100

NOTHING: Final = Offset(-1)
LONG_AGO: Final = Millis(0)

# Records that bracket a transaction: they mean nothing by themselves.
_BRACKETS: Final = (AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord)

Reply = TypeVar("Reply", bound=Message | None)


class Quorum(Protocol):
    """The log, as its leader writes it."""

    async def propose(self, records: Sequence[Versioned], epoch: LeaderEpoch) -> Offset:
        """Append one batch, return its first offset. A `Fault` says that nothing was appended."""
        ...

    def end_offset(self) -> Offset:
        """Return where the next record will stand."""
        ...

    def resign(self, epoch: LeaderEpoch) -> None:
        """Give leadership of an epoch up."""
        ...


class Committed(Protocol):
    """The state that is committed and applied here."""

    @property
    def image(self) -> Image:
        """What everybody sees."""
        ...

    def is_in_transaction(self) -> bool:
        """Whether a transaction of records has begun there and not ended."""
        ...


class Moment(msgspec.Struct, frozen=True):
    """What a decision is made upon.

    ``now`` is the deadlines' clock, ``wall`` that of records; what expires goes by ``expiry``.
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


Decide = Callable[[Moment], Decision[Reply]]


class PeriodicTask(Protocol):
    """Work that the active controller does by itself, now and then."""

    @property
    def name(self) -> str:
        """What operators read."""
        ...

    @property
    def interval_ms(self) -> int:
        """How long between two rounds."""
        ...

    def begin(self, moment: Moment) -> None:
        """A leadership begins: forget what was known of an older one."""
        ...

    def decide(self, moment: Moment) -> Decision[None]:
        """Return what there is to write now; asked again at once as long as there is something."""
        ...


class ControllerSettings(msgspec.Struct, frozen=True):
    """Bounds of the controller. ``idle_ms`` 0 writes no NoOpRecord."""

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
    # Decisions follow one another even where appending takes a while.
    turn: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    due: dict[str, Millis] = msgspec.field(default_factory=dict)


class ControllerParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller is made of. ``bootstrap`` are the first records of a log without any."""

    quorum: Quorum
    committed: Committed
    clock: Clock
    bootstrap: Sequence[Versioned] = ()
    periodic_tasks: Sequence[PeriodicTask] = ()
    settings: ControllerSettings = ControllerSettings()


class Controller:
    """`Service`: active while this node leads the quorum, and has applied what came before."""

    name = "controller"

    def __init__(self, parts: ControllerParts) -> None:
        self._parts = parts
        self._clock = TrustedClock.of(parts.clock)
        self._leadership: _Leadership | None = None
        self._applied = NOTHING
        self._wake = asyncio.Event()

    # -- what others see -------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether this node decides at the moment."""
        return self._leadership is not None and self._leadership.state is not None

    @property
    def newest(self) -> ControllerState | None:
        """The newest state, committed or not; None while this node does not decide."""
        return None if self._leadership is None else self._leadership.state

    @property
    def pending(self) -> int:
        """How many replies wait for their commit."""
        return 0 if self._leadership is None else len(self._leadership.pending)

    @property
    def committed_image(self) -> Image:
        """The image that reads are answered from."""
        return self._parts.committed.image

    # -- what happens to it ----------------------------------------------------

    def on_role(self, change: RoleChanged) -> None:
        """Learn of a new role. Never writes by itself: it may be called amid a step of raft."""
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
        """Answer whoever waited for what is now seen: all up to ``offset``, published."""
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
        """Decide, write, and return the reply once what it tells is committed and applied.

        Raises:
            NotController: this node does not lead, or lost leadership: the fate is open then.
            RequestTimedOut: too many changes wait already; nothing was done.
            RecordTooLarge: the records are too many for one batch; nothing was done.
        """
        leadership = self._active()
        if len(leadership.pending) >= self._parts.settings.pending_max:
            raise RequestTimedOut(f"{len(leadership.pending)} changes wait for their commit")
        async with leadership.turn:
            decision = decide(self._moment(leadership))
            for part in parts(decision.records):
                await self._append(leadership, part)
            done = self._park(leadership)
        await done
        return decision.reply

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
        """Write one batch and let it count for the next decision.

        The state is worked out first: records that do not fit it must not reach the log.
        """
        if leadership.state is None:
            raise NotController("leadership was lost")
        _, delta = apply(leadership.state.image, [record.message for record in records])
        after = leadership.state.after(delta)
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
            # Whether it was appended is not known, so the newest state is not known either.
            self._parts.quorum.resign(leadership.epoch)
            if self._leadership is leadership:
                self._end_leadership(leadership)
            raise
        leadership.last_offset = Offset(base + len(records) - 1)
        leadership.written_at = self._parts.clock.monotonic()

    def _park(self, leadership: _Leadership) -> "asyncio.Future[None]":
        """Return what is done once all that this leadership wrote so far is applied."""
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
        """Open reigns as they come, and do the periodic_tasks of an active controller."""
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
        """Do what is due; return the milliseconds until something is, None if nothing will be."""
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
            # A replica that has stopped takes no records, and says nothing of its role.
            return RETRY_MS if self._leadership is leadership else 0
        now = self._parts.clock.monotonic()
        times = list(leadership.due.values())
        if self._parts.settings.idle_ms:
            times.append(Millis(leadership.written_at + self._parts.settings.idle_ms))
        return max(1, min(times) - now) if times else None

    async def _open(self, leadership: _Leadership) -> int | None:
        """Begin to decide, once everything before this leadership is applied."""
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
        """Write what comes before anybody's request."""
        committed = self._parts.committed
        image = committed.image
        if committed.is_in_transaction():
            # Its leader is gone; what it wrote of it does not count.
            await self._propose(leadership, [Versioned(AbortTransactionRecord(), 0)])
        if self._leadership is not leadership:
            raise NotController("leadership was lost")
        leadership.state = ControllerState.of(image)
        if image.features.metadata_version() is None and self._parts.bootstrap:
            log.info("first records of a new cluster count=%d", len(self._parts.bootstrap))
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
            log.info("controller task put off task=%s reason=%s", task.name, error)

    async def _has_written(self, leadership: _Leadership, task: PeriodicTask) -> bool:
        """Do one round of a task; say whether there was something to write.

        A round is what one decision can be about; the next one is made upon it.
        """
        before = leadership.last_offset
        await self.submit(task.decide)
        return leadership.last_offset != before

    async def _write_no_op_when_idle(self, leadership: _Leadership) -> None:
        """Write a record that says nothing, so that followers can tell a quiet leader's age."""
        idle_ms = self._parts.settings.idle_ms
        now = self._parts.clock.monotonic()
        is_known = self._moment(leadership).image.features.metadata_version() is not None
        if idle_ms and is_known and now - leadership.written_at >= idle_ms:
            async with leadership.turn:
                self._moment(leadership)
                await self._append(leadership, [Versioned(NoOpRecord(), 0)])
        elif not is_known:
            leadership.written_at = now
