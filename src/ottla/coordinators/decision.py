"""The interface of every coordinator: a state machine over a log, and the decisions it makes.

    decide(machine, now) -> Decision(records, reply, answers, timers)

A machine changes durable state only in `StateMachine.replay`, which is called with each record of a
decision right after it was appended, and with all records of the log when a shard is loaded.
Replaying the log therefore always gives the live state. A machine may keep state that is not in the
log, such as members waiting for a rebalance; it is lost with the shard.

A decision is made against the newest state, which includes uncommitted records. Its reply and
answers are sent once everything written so far is committed. Committed reads use a
`StateMachine.view`, which the shard keeps for the high watermark.
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
"""Identifies a timer. The first part is its kind, as in ``("session", group, member)``."""


class Origin(NamedTuple):
    """The offset of a replayed record, and the producer whose transaction it belongs to, if any."""

    offset: Offset
    producer: Producer | None = None


class ReplyFuture(Protocol):
    """The reply of a request, to be set once. A machine may keep it and use it in an `Answer`."""

    def answer(self, reply: Any) -> None:  # noqa: ANN401 - each request has a reply of its own
        """Send the reply."""
        ...

    def fail(self, fault: Fault) -> None:
        """Fail the request."""
        ...


class Answer(NamedTuple):
    """The reply to a request that an earlier decision left waiting."""

    future: ReplyFuture
    reply: Any


class SetTimer(NamedTuple):
    """Call `StateMachine.on_timer` in ``delay_ms``; replaces the timer of the same key."""

    key: TimerKey
    delay_ms: int


class CancelTimer(NamedTuple):
    """Remove a timer, if it is set."""

    key: TimerKey


TimerChange: TypeAlias = SetTimer | CancelTimer


class Later:
    """The type of `LATER`."""

    def __repr__(self) -> str:
        return "LATER"


LATER = Later()
"""Used as a reply: the machine keeps the future and will answer it by an `Answer`."""


class Packed(Protocol):
    """Many records of one kind that are written in one batch and replayed together.

    Writing and replaying them one by one would be too slow.
    """

    def pairs(self) -> Sequence[tuple[bytes, bytes | None]]:
        """Return the keys and values of the records, at least one."""
        ...

    def replay(self, first: Offset, producer: Producer | None) -> None:
        """Apply the records to the state of their machine; the first one is at offset ``first``."""
        ...


class Decision(msgspec.Struct, frozen=True):
    """The records to write, the replies to send once they are committed, and the timers to change.

    ``records`` are written atomically in one batch, unless ``may_split``; ``packed`` are records,
    too, and used instead. With ``producer`` they are part of its transaction: `StateMachine.replay`
    gets it as their origin. ``refused`` is called when the log rejects the batch (too few replicas
    in sync, too large): it undoes what the machine changed beside its log, and may answer other
    requests; its records are not written. The reply is then the fault itself, unless ``refused``
    returns another. Timers change and answers are sent only if the records were written.
    ``may_linger``: the decision writes only ``packed``, and no other commit depends on whether it
    is written yet (see `lingering`).
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

    ``replay`` and ``on_marker`` must accept whatever a log can hold: a record about something
    unknown changes nothing.
    """

    def replay(self, record: CoordinatorRecord, origin: Origin) -> None:
        """Apply a record of the log to the state."""
        ...

    def on_marker(self, producer: Producer, marker: EndTxnMarker, offset: Offset) -> None:
        """End the transaction of a producer: apply its records, or discard them."""
        ...

    def view(self) -> View_co:
        """Return the current state for readers: immutable, in constant time."""
        ...

    def on_loaded(self, now: Millis) -> Decision:
        """Start to coordinate: the log is replayed to its end. Sets the first timers."""
        ...

    def on_timer(self, key: TimerKey, times: Times) -> Decision:
        """Handle a timer, which is no longer set.

        Expiration uses ``times.expiry``, timeouts use ``times.monotonic``.
        """
        ...

    def on_unloaded(self) -> Sequence[ReplyFuture]:
        """Stop; return the futures that are still kept, to be failed with NOT_COORDINATOR."""
        ...
