"""Retention applied to a log: which segments are old, and their deletion."""

from ottla.protocol.types import Millis, Offset
from ottla.storage.log import Log
from ottla.storage.retention import LogState, Policy, RetentionPlan, plan_retention


def delete_old_segments(log: Log, now: Millis) -> RetentionPlan:
    """Delete the segments that ``cleanup.policy``, ``retention.ms`` or ``retention.bytes`` expire.

    A log whose segments are copied to remote storage keeps the copied ones for
    ``local.retention.ms`` and ``local.retention.bytes`` only, and its start does not move.
    The files stay under ``.deleted`` for a while: a reader may still use them.
    """
    config = log.config
    remote_end = Offset(log.remote_end) if config.is_copied else None
    plan = plan_retention(
        log.segments,
        Policy(config.is_deleted, config.disk_retention_ms, config.disk_retention_bytes),
        LogState(log.log_start_offset, log.high_watermark, log.log_end_offset, remote_end),
        now,
    )
    if not plan.is_empty:
        log.delete_segments(plan.base_offsets)
    return plan
