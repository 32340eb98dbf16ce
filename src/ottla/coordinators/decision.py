"""The shape of every coordinator: a state machine whose state is its log, and what it decides.

    decide(machine, now) -> Decision(records, reply, answers, timers)

A machine changes durable state in `StateMachine.replay` alone, which is called with each record
of a decision right after it was appended, and with all records of the log when a shard is
loaded. Replaying the log therefore always gives the live state. What is not in the log, as who
waits for a rebalance, a machine may keep beside it; it is lost when the shard is.

A decision is made against the newest state, which holds records that are not committed yet.
Its reply and answers leave once everything written so far is committed. What must be read
committed is asked of a `StateMachine.view` instead, which the shard keeps for the high watermark.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from ottla.protocol.faults import Fault
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import Millis, Offset
from ottla.runtime.trusted_time import Times

TimerKey: TypeAlias = tuple[str, ...]
"""What a timer is for. The first part says the kind, as ``("session", group, member)``."""


class Origin(NamedTuple):
    """Where a replayed record stands, and who wrote it inside a transaction, if so."""

    offset: Offset
    producer: Producer | None = None


class ReplyFuture(Protocol):
    """A request that will be answered, once. A machine keeps it and names it in an `Answer`."""

    def answer(self, reply: Any) -> None:  # noqa: ANN401 - each request has a reply of its own
        """Let the reply leave."""
        ...

    def fail(self, fault: Fault) -> None:
        """Let the request fail."""
        ...


class Answer(NamedTuple):
    """The reply to a request that was left waiting by an earlier decision."""

    future: ReplyFuture
    reply: Any


class SetTimer(NamedTuple):
    """Call `StateMachine.on_timer` in ``delay_ms``; replaces the timer of the same key."""

    key: TimerKey
    delay_ms: int


class CancelTimer(NamedTuple):
    """Forget a timer, if it is set."""

    key: TimerKey


TimerChange: TypeAlias = SetTimer | CancelTimer


class Later:
    """The type of `LATER`."""

    def __repr__(self) -> str:
        return "LATER"


LATER = Later()
"""In place of a reply: the machine has kept the future and will answer it by an `Answer`."""


class Packed(Protocol):
    """Many records of one kind that are written in one batch and replayed as one.

    One by one they would cost more than what they are for.
    """

    def pairs(self) -> Sequence[tuple[bytes, bytes | None]]:
        """Return keys and values as the log shall have them, at least one."""
        ...

    def replay(self, first: Offset, producer: Producer | None) -> None:
        """Take them into the state of their machine; the first of them stands at ``first``."""
        ...


class Decision(msgspec.Struct, frozen=True):
    """What to write, whom to answer when it is committed, and which timers change.

    ``records`` go into one batch and hold or fall together, unless ``may_split``; ``packed`` are
    records, too, which stand in their place. With ``producer`` they are part of its transaction:
    `StateMachine.replay` sees it as their origin.
    ``refused`` is called when the log took nothing (too few replicas in sync, too large): it
    undoes what the machine changed beside its log, and may answer others; its records are not
    written. The reply is then the fault itself unless it says otherwise. Timers change, and
    answers leave, only if the records were taken.
    ``may_linger``: ``packed`` is all there is to write, and no other decision of its kind depends
    on whether it is written yet (see `lingering`).
    """

    records: Sequence[CoordinatorRecord] = ()
    reply: Any = None
    answers: Sequence[Answer] = ()
    timers: Sequence[TimerChange] = ()
    producer: Producer | None = None
    may_split: bool = False
    refused: "Callable[[Fault], Decision] | None" = None
    packed: Packed | None = None
    may_linger: bool = False


NOTHING = Decision()

View_co = TypeVar("View_co", covariant=True)


class StateMachine(Protocol, Generic[View_co]):
    """The state of one shard. Everything is synchronous and free of clock, randomness and I/O.

    ``replay`` and ``on_marker`` must take whatever a log can hold: a record about something
    that is not there changes nothing.
    """

    def replay(self, record: CoordinatorRecord, origin: Origin) -> None:
        """Take a record of the log into the state."""
        ...

    def on_marker(self, producer: Producer, marker: EndTxnMarker, offset: Offset) -> None:
        """End the transaction of a producer: its records count, or never were."""
        ...

    def view(self) -> View_co:
        """Return the present state for readers, immutable, in constant time."""
        ...

    def on_loaded(self, now: Millis) -> Decision:
        """Begin to coordinate: the log is replayed to its end. Sets the first timers."""
        ...

    def on_timer(self, key: TimerKey, times: Times) -> Decision:
        """Do what a timer was set for; it is no longer set.

        What expires goes by ``times.expiry``, timeouts by ``times.monotonic``.
        """
        ...

    def on_unloaded(self) -> Sequence[ReplyFuture]:
        """Give up; return the futures still kept, which then fail with NOT_COORDINATOR."""
        ...
