"""Retention applied to a log: which segments are old, and their deletion."""

from ottla.protocol.types import Millis, Offset
from ottla.storage.log.log import Log
from ottla.storage.log.retention import (
    LogState,
    Policy,
    RetentionPlan,
    is_start_explained,
    plan_retention,
)


def delete_old_segments(log: Log, now: Millis) -> RetentionPlan:
    """Delete the segments that ``cleanup.policy``, ``retention.ms`` or ``retention.bytes`` expire.

    A log whose segments are copied to remote storage keeps the copied ones for
    ``local.retention.ms`` and ``local.retention.bytes`` only, and its start does not move.
    The files stay under ``.deleted`` for a while: a reader may still use them.
    """
    remote_end = Offset(log.remote_end) if log.config.is_copied else None
    state = LogState(log.deletable_start, log.high_watermark, log.log_end_offset, remote_end)
    plan = plan_retention(log.segments, _policy(log), state, now)
    if not plan.is_empty:
        log.delete_segments(plan.base_offsets)
    return plan


def is_start_allowed(log: Log, offset: Offset, now: Millis) -> bool:
    """Whether the retention settings alone allow deleting every segment below ``offset``."""
    state = LogState(offset, log.high_watermark, log.log_end_offset)
    return is_start_explained(log.segments, _policy(log), state, now)


def _policy(log: Log) -> Policy:
    config = log.config
    return Policy(config.is_deleted, config.disk_retention_ms, config.disk_retention_bytes)
