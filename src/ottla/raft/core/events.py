"""What the core can be told. Every event carries the monotonic time.

The driver hands over one event at a time and carries out all effects of a step before the
next. ``token`` and ``ticket`` are opaque numbers: the driver's for a request that came in,
the core's for a request that went out or a flush it asked for.
"""

import msgspec

from ottla.protocol.types import LeaderEpoch, Millis
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.messages import Reply, Request
from ottla.raft.core.voters import VoterSet


class Start(msgspec.Struct, frozen=True):
    """The first event, once the log is recovered."""

    now: Millis


class Tick(msgspec.Struct, frozen=True):
    """Time passed: at the latest at the last `SetTimer`. Early or repeated ticks do no harm."""

    now: Millis


class Requested(msgspec.Struct, frozen=True):
    """Somebody asks; exactly one `Answer` with the same token follows, now or later."""

    now: Millis
    token: int
    request: Request


class Replied(msgspec.Struct, frozen=True):
    """The answer to a `Send`. One that is no longer waited for is ignored."""

    now: Millis
    ticket: int
    reply: Reply


class Unanswered(msgspec.Struct, frozen=True):
    """A `Send` failed: no connection, or none any more."""

    now: Millis
    ticket: int


class Flushed(msgspec.Struct, frozen=True):
    """The `Flush` of that ticket is done: what it covered survives power loss."""

    now: Millis
    ticket: int


class Propose(msgspec.Struct, frozen=True):
    """A batch of ``records_count`` records to append as leader of ``epoch``, whole or not at all.

    Accepted when `AppendRecords` with this payload comes out, else `RefuseProposal`.
    """

    now: Millis
    epoch: LeaderEpoch
    records_count: int
    payload: object


class SnapshotInstalled(msgspec.Struct, frozen=True):
    """`InstallSnapshot` was carried out: durable, and the log starts at its end.

    ``voters`` is None for a snapshot without a VotersRecord (``kraft.version`` 0).
    """

    now: Millis
    snapshot: LogPosition
    kraft_version: int
    voters: VoterSet | None


class SnapshotRejected(msgspec.Struct, frozen=True):
    """A downloaded snapshot did not pass its checks and was thrown away."""

    now: Millis
    snapshot: LogPosition


class SnapshotTaken(msgspec.Struct, frozen=True):
    """This node wrote a snapshot of its own, durably."""

    now: Millis
    snapshot: LogPosition


class Resign(msgspec.Struct, frozen=True):
    """Give leadership of ``epoch`` up; ignored where this node does not lead it."""

    now: Millis
    epoch: LeaderEpoch


class UpgradeKRaftVersion(msgspec.Struct, frozen=True):
    """Raise the finalised ``kraft.version``; answered like a voter change."""

    now: Millis
    token: int
    level: int
    is_validate_only: bool = False


class Shutdown(msgspec.Struct, frozen=True):
    """Stop taking part: a leader resigns, nobody here is nominated again.

    `ShutdownReady` follows when leaving disturbs nobody; the driver bounds the wait.
    """

    now: Millis


Event = (
    Start
    | Tick
    | Requested
    | Replied
    | Unanswered
    | Flushed
    | Propose
    | SnapshotInstalled
    | SnapshotRejected
    | SnapshotTaken
    | Resign
    | UpgradeKRaftVersion
    | Shutdown
)
