"""Decisions to delete versions, subjects and contexts: softly first, then for good.

A version that another schema refers to is not deleted; a soft deletion looks only at referrers
that are not deleted. With the last version that is removed for good, settings and mode of the
subject are removed, too.
"""

import msgspec

from ottla.registry.rules import errors
from ottla.registry.rules.decision import Decision
from ottla.registry.rules.entities import StoredSchema
from ottla.registry.rules.records import (
    ConfigRecord,
    ContextRecord,
    DeleteSubjectRecord,
    ModeRecord,
    RegistryRecord,
    SchemaRecord,
)
from ottla.registry.rules.settings import is_read_only, mode_in_scope
from ottla.registry.rules.state import RegistryState
from ottla.registry.rules.subjects import context_of, context_prefix, parse_subject


def decide_version_deletion(
    state: RegistryState, subject: str, version: int, *, is_permanent: bool
) -> Decision:
    """Decide to delete a version; `LATEST` is the newest. The reply is its number."""
    schema = state.version(subject, version, deleted=True)
    if schema is None:
        if not state.has_subject(subject, deleted=True):
            raise errors.subject_not_found(subject)
        raise errors.version_not_found(version)
    if schema.deleted and not is_permanent:
        raise errors.version_soft_deleted(subject, version)
    _check_writable(state, subject)
    place = (subject, schema.version)
    if state.referrers(place, deleted=is_permanent):
        raise errors.reference_exists(*place)
    if is_permanent and not schema.deleted:
        raise errors.version_not_soft_deleted(subject, schema.version)
    kind = "permanently" if is_permanent else "softly"
    change = f"deleted {kind} subject={subject!r} version={schema.version}"
    if not is_permanent:
        return Decision(schema.version, [_soft(schema)], change)
    records: list[RegistryRecord] = [SchemaRecord(*place, None)]
    if len(state.versions(subject, deleted=True)) == 1:
        records += _settings_removed(state, subject)
    return Decision(schema.version, records, change)


def _soft(schema: StoredSchema) -> SchemaRecord:
    value = msgspec.structs.replace(schema, deleted=True, guid=None)
    return SchemaRecord(schema.subject, schema.version, value)


def decide_subject_deletion(state: RegistryState, subject: str, *, is_permanent: bool) -> Decision:
    """Decide to delete all versions of a subject. The reply is their numbers."""
    every = state.versions(subject, deleted=True)
    active = [schema for schema in every if not schema.deleted]
    if not every:
        raise errors.subject_not_found(subject)
    if not is_permanent and not active:
        raise errors.subject_soft_deleted(subject)
    _check_writable(state, subject)
    schemas = every if is_permanent else active
    for schema in schemas:
        place = (subject, schema.version)
        referrers = state.referrers(place, deleted=is_permanent)
        if any(referrer.subject != subject for referrer in referrers):
            raise errors.reference_exists(*place)
    if is_permanent and active:
        raise errors.subject_not_soft_deleted(subject)
    numbers = [schema.version for schema in schemas]
    kind = "permanently" if is_permanent else "softly"
    change = f"deleted {kind} subject={subject!r} versions={len(numbers)}"
    if not is_permanent:
        return Decision(numbers, [DeleteSubjectRecord(subject, numbers[-1])], change)
    # Newest first: a version may refer to an earlier one of the same subject.
    records = [SchemaRecord(subject, number, None) for number in numbers[::-1]]
    return Decision(numbers, [*records, *_settings_removed(state, subject)], change)


def decide_context_deletion(state: RegistryState, prefix: str) -> Decision:
    """Decide to delete a context without subjects; ``prefix`` is ``:.name:``."""
    if state.has_subject(prefix or None, deleted=True):
        raise errors.context_not_empty(prefix)
    context = parse_subject(prefix).context
    change = f"deleted context={context!r}"
    return Decision(None, [ContextRecord(context, is_present=False)], change)


def _settings_removed(state: RegistryState, subject: str) -> list[RegistryRecord]:
    records: list[RegistryRecord] = []
    if subject in state.modes:
        records.append(ModeRecord(subject, None))
    if subject in state.configs:
        records.append(ConfigRecord(subject, None))
    return records


def _check_writable(state: RegistryState, subject: str) -> None:
    if is_read_only(mode_in_scope(state, subject)):
        context = context_prefix(context_of(subject))
        text = f"Subject {subject} in context {context} is in read-only mode"
        raise errors.not_permitted(text)
