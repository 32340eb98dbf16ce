"""Keeps the largest ids in the topic, where a change would remove the last record that shows them.

Compaction removes versions that were deleted for good or replaced by an import. What is left of
such an id is the newest NOOP record, which says how far ids were given.
"""

from collections.abc import Sequence

from ottla.registry.rules.records import (
    ClearSubjectRecord,
    NoopRecord,
    RegistryRecord,
    SchemaRecord,
)
from ottla.registry.rules.state import RegistryState
from ottla.registry.rules.subjects import context_of


def with_used_ids(
    state: RegistryState, records: Sequence[RegistryRecord]
) -> Sequence[RegistryRecord]:
    """Return the records of a change, after one with the largest ids where they need it.

    The record is needed, too, if an earlier one was lost: another registry writes NOOPs without a
    value, and so removes ours.
    """
    if not records:
        return records
    contexts = {context for record in records for context in _contexts_of_lost_ids(state, record)}
    if not contexts and not state.has_unkept_ids:
        return records
    return [NoopRecord(state.used_ids(contexts)), *records]


def _contexts_of_lost_ids(state: RegistryState, record: RegistryRecord) -> list[str]:
    """Return the contexts in which a record removes a version, or gives it another id."""
    match record:
        case SchemaRecord():
            old = state.version(record.subject, record.version, deleted=True)
            is_lost = old is not None and (record.value is None or record.value.id != old.id)
            return [context_of(record.subject)] if is_lost else []
        case ClearSubjectRecord():
            names = state.subjects(record.subject, deleted=True)
            return [context_of(name) for name in names]
    return []
