"""The events that the core takes. Every event carries the monotonic time.

The driver passes one event at a time and performs all effects of a step before the next event.
``token`` and ``ticket`` are opaque numbers: tokens are the driver's, for incoming requests; tickets
are the core's, for outgoing requests and flushes.
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
    """Time passed: at the latest at the last `SetTimer`. Early or repeated ticks are harmless."""

    now: Millis


class Requested(msgspec.Struct, frozen=True):
    """An incoming request; exactly one `Answer` with the same token follows, now or later."""

    now: Millis
    token: int
    request: Request


class Replied(msgspec.Struct, frozen=True):
    """The reply to a `Send`. One that the core no longer waits for is ignored."""

    now: Millis
    ticket: int
    reply: Reply


class Unanswered(msgspec.Struct, frozen=True):
    """A `Send` failed: no connection, or it was lost.

    ``is_refused``: the connection was refused, so no process listened at the address.
    """

    now: Millis
    ticket: int
    is_refused: bool = False


class Flushed(msgspec.Struct, frozen=True):
    """The `Flush` of that ticket is complete: what it covered survives power loss."""

    now: Millis
    ticket: int


class Propose(msgspec.Struct, frozen=True):
    """A batch of ``records_count`` records to append as leader of ``epoch``, all or nothing.

    Accepted if `AppendRecords` with this payload follows, else `RefuseProposal`.
    """

    now: Millis
    epoch: LeaderEpoch
    records_count: int
    payload: object


class SnapshotInstalled(msgspec.Struct, frozen=True):
    """`InstallSnapshot` is complete: durable, and the log starts at its end.

    ``voters`` is None for a snapshot without a VotersRecord (``kraft.version`` 0).
    """

    now: Millis
    snapshot: LogPosition
    kraft_version: int
    voters: VoterSet | None


class SnapshotRejected(msgspec.Struct, frozen=True):
    """A downloaded snapshot failed its checks and was deleted."""

    now: Millis
    snapshot: LogPosition


class SnapshotTaken(msgspec.Struct, frozen=True):
    """This node wrote a snapshot of its own, durably."""

    now: Millis
    snapshot: LogPosition


class Resign(msgspec.Struct, frozen=True):
    """Resign leadership of ``epoch``; ignored if this node does not lead it."""

    now: Millis
    epoch: LeaderEpoch


class UpgradeKRaftVersion(msgspec.Struct, frozen=True):
    """Raise the finalized ``kraft.version``; answered like a voter change."""

    now: Millis
    token: int
    level: int
    is_validate_only: bool = False


class Shutdown(msgspec.Struct, frozen=True):
    """Stop taking part: a leader resigns, and this replica is never a candidate again.

    `ShutdownReady` follows when this node can stop without disruption; the driver bounds the wait.
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
