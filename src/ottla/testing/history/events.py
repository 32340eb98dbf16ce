"""The events of a history: one JSON object per line, in any order, by one monotonic clock.

    {"f": "send", "time": 17, "process": "p1", "phase": "invoke", "partition": "t-0", "value": "a"}
    {"f": "send", "time": 29, "process": "p1", "partition": "t-0", "value": "a", "offset": 0}

``f`` is the operation, ``time`` is in nanoseconds, ``phase`` is ``ok`` when absent. A process is
one producer or one consumer from its start to its end: a recreated client has a new name. It does
one thing at a time except for sends, which may be in flight together. A partition is named
``topic-index``. Every value is sent once, by one client, in the whole history.
"""

import enum
from collections.abc import Iterable

import msgspec


class HistoryMalformed(Exception):
    """The input is not a valid history; nothing can be concluded about the cluster."""


class Phase(enum.StrEnum):
    """The state of an operation: started, succeeded, failed for certain, or unknown."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Isolation(enum.StrEnum):
    """The isolation level of a consumer."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="f", omit_defaults=True):
    """The fields of every event."""

    time: int
    process: str
    phase: Phase = Phase.OK


class Send(Event, frozen=True, kw_only=True, tag="send"):
    """A value was sent. ``offset``: its acknowledged offset, if known.

    ``txn`` names one transaction, not a transactional id, and is unique in the history.
    """

    partition: str
    value: str
    offset: int | None = None
    txn: str | None = None
    idempotent: bool = True


class Assign(Event, frozen=True, kw_only=True, tag="assign"):
    """A consumer starts to read a partition, or seeks. ``position``: where, if known."""

    partition: str
    position: int | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED


class Poll(Event, frozen=True, kw_only=True, tag="poll"):
    """Records that a consumer received, as ``offset, value``; ``txn``: the one they are read in."""

    partition: str
    records: tuple[tuple[int, str], ...]
    txn: str | None = None


class Final(Event, frozen=True, kw_only=True, tag="final"):
    """A consumer has read to the end. ``time``: when it asked for the end, not when it reached it.

    It must have received everything acknowledged before that time, from its position on.
    """

    partition: str


class Trim(Event, frozen=True, kw_only=True, tag="trim"):
    """Records below an offset may be deleted legitimately: by retention, or DeleteRecords."""

    partition: str
    below: int


class End(Event, frozen=True, kw_only=True, tag="end"):
    """A transaction is being committed or aborted."""

    txn: str
    commit: bool


class CommitOffset(Event, frozen=True, kw_only=True, tag="commit_offset"):
    """A group's offset is being written; ``is_reset`` when it may decrease."""

    group: str
    partition: str
    offset: int
    txn: str | None = None
    is_reset: bool = False


class FetchOffset(Event, frozen=True, kw_only=True, tag="fetch_offset"):
    """A group's offset was fetched, a stable one (KIP-447). None: there is none."""

    group: str
    partition: str
    offset: int | None = None


class Watermark(Event, frozen=True, kw_only=True, tag="watermark"):
    """The high watermark and last stable offset that a partition's leader reported to a client."""

    partition: str
    high: int | None = None
    last_stable: int | None = None


class Leader(Event, frozen=True, kw_only=True, tag="leader"):
    """A node acted as leader in an epoch: it accepted a write or served a read."""

    partition: str
    epoch: int
    node: int


class Replica(Event, frozen=True, kw_only=True, tag="replica"):
    """The contents of a replica at the end: ``base offset, digest`` of each batch, in order."""

    partition: str
    node: int
    high_watermark: int
    batches: tuple[tuple[int, str], ...]


class Fault(Event, frozen=True, kw_only=True, tag="fault"):
    """A fault was injected."""

    name: str


class Heal(Event, frozen=True, kw_only=True, tag="heal"):
    """All faults are repaired."""


AnyEvent = (
    Send
    | Assign
    | Poll
    | Final
    | Trim
    | End
    | CommitOffset
    | FetchOffset
    | Watermark
    | Leader
    | Replica
    | Fault
    | Heal
)

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def to_line(event: AnyEvent) -> bytes:
    """Return an event as its line, including the newline."""
    return _ENCODER.encode(event) + b"\n"


def read_lines(lines: Iterable[bytes]) -> list[AnyEvent]:
    """Read events; empty lines are skipped.

    Raises:
        HistoryMalformed: a line is not an event; the message has its number, from 1.
    """
    events = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            events.append(_DECODER.decode(line))
        except msgspec.DecodeError as error:
            raise HistoryMalformed(f"line {number}: {error}") from error
    return events
