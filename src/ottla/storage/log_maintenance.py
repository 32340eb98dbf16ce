"""What a log needs done now and then, beside compaction: old segments and idle producers."""

from typing import NamedTuple

from ottla.protocol.types import Millis
from ottla.storage.log import Log
from ottla.storage.retention import LogState, Policy, RetentionPlan, plan_retention


class MaintenanceResult(NamedTuple):
    """What was done: the segments that retention took, files removed, producers forgotten."""

    retention: RetentionPlan
    segments_purged: int
    producers_expired: int


def run_maintenance(log: Log, now: Millis) -> MaintenanceResult:
    """Do all of it once. ``now`` is `TrustedClock.expiry`: it decides what is old.

    Raises:
        StorageFailed: the disk failed; the log starts where it did or where it was to.
    """
    plan = delete_old_segments(log, now)
    return MaintenanceResult(plan, log.purge_deleted(), log.producers.expire(now))


def delete_old_segments(log: Log, now: Millis) -> RetentionPlan:
    """Delete what ``cleanup.policy``, ``retention.ms`` and ``retention.bytes`` say.

    The files stay under ``.deleted`` for a while: a reader may be in the middle of one.
    """
    config = log.config
    plan = plan_retention(
        log.segments,
        Policy(config.is_deleted, config.retention_ms, config.retention_bytes),
        LogState(log.log_start_offset, log.high_watermark, log.log_end_offset),
        now,
    )
    if not plan.is_empty:
        log.delete_segments(plan.base_offsets)
    return plan
