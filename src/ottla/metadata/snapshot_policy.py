"""Decides when to write a snapshot of the image.

By bytes of log since the last one (metadata.log.max.record.bytes.between.snapshots), by time
(metadata.log.max.snapshot.interval.ms), by number of records
(ottla.metadata.snapshot.interval.records), or on an operator's request. Never for an image that the
last snapshot already contains.
"""

import enum

import msgspec

from ottla.protocol.types import Millis


class Reason(enum.Enum):
    """Why a snapshot is due; used in the log line."""

    REQUESTED = "requested"
    BYTES = "bytes since the last one"
    RECORDS = "records since the last one"
    TIME = "time since the last one"


class SnapshotLimits(msgspec.Struct, frozen=True):
    """How much of the log makes a snapshot due. 0 disables a limit of time or records."""

    bytes_max: int
    interval_ms: int
    records_max: int = 0


class SinceSnapshot(msgspec.Struct, frozen=True):
    """What was added to the image since the last snapshot was written or loaded, at ``when``."""

    when: Millis
    bytes: int = 0
    records: int = 0
    is_requested: bool = False

    def with_batch(self, size: int, records: int) -> "SinceSnapshot":
        """Return the state after a batch of ``size`` bytes was published."""
        return SinceSnapshot(
            self.when, self.bytes + size, self.records + records, self.is_requested
        )

    def with_request(self) -> "SinceSnapshot":
        """Return the state after an operator requested a snapshot."""
        return SinceSnapshot(self.when, self.bytes, self.records, is_requested=True)


def decide_snapshot(since: SinceSnapshot, limits: SnapshotLimits, now: Millis) -> Reason | None:
    """Return why a snapshot is due, or None if it is not."""
    if since.records == 0:
        return None
    if since.is_requested:
        return Reason.REQUESTED
    if since.bytes >= limits.bytes_max:
        return Reason.BYTES
    if 0 < limits.records_max <= since.records:
        return Reason.RECORDS
    if limits.interval_ms and now - since.when >= limits.interval_ms:
        return Reason.TIME
    return None
