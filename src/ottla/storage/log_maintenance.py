"""Retention applied to a log: which segments are old, and their deletion."""

from ottla.protocol.types import Millis
from ottla.storage.log import Log
from ottla.storage.retention import LogState, Policy, RetentionPlan, plan_retention


def delete_old_segments(log: Log, now: Millis) -> RetentionPlan:
    """Delete the segments that ``cleanup.policy``, ``retention.ms`` or ``retention.bytes`` expire.

    The files stay under ``.deleted`` for a while: a reader may still use them.
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
