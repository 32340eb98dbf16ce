"""Decisions to change settings and modes. ``subject`` is None for the registry's own."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ottla.registry.rules import errors
from ottla.registry.rules.decision import Decision
from ottla.registry.rules.entities import SubjectConfig
from ottla.registry.rules.records import (
    ClearSubjectRecord,
    ConfigRecord,
    ModeRecord,
    RegistryRecord,
    SchemaRecord,
)
from ottla.registry.rules.replies import config_reply, config_update_reply
from ottla.registry.rules.rule_sets import check_rule_set
from ottla.registry.rules.settings import (
    DEFAULTS,
    FORWARD,
    IMPORT,
    LEVELS,
    MODES,
    POLICIES,
    Defaults,
    is_read_only,
    mode_in_scope,
    own_config,
    own_mode,
)
from ottla.registry.rules.state import RegistryState
from ottla.registry.rules.subjects import (
    GLOBAL_CONTEXT,
    context_of,
    context_prefix,
    is_valid_subject,
    parse_subject,
)

_MEMBERS: Final = {
    name: field.name
    for field in msgspec.structs.fields(SubjectConfig)
    for name in (field.encode_name,)
    if name != "subject"
}


def decide_config_update(
    state: RegistryState, subject: str | None, body: Mapping[str, Any]
) -> Decision:
    """Decide new settings: members of the request replace old ones, null removes one."""
    _check_subject(subject)
    changes = _config_changes(body)
    _check_writable(state, subject)
    old = state.configs.get(subject) or SubjectConfig(subject=subject)
    new = msgspec.structs.replace(old, **changes)
    change = f"configured subject={subject!r} members={','.join(sorted(changes))}"
    return Decision(config_update_reply(new), [ConfigRecord(subject, new)], change)


def _config_changes(body: Mapping[str, Any]) -> dict[str, Any]:
    members = {"compatibilityLevel" if key == "compatibility" else key: body[key] for key in body}
    known = {key: value for key, value in members.items() if key in _MEMBERS}
    level = known.get("compatibilityLevel")
    if level is not None:
        known["compatibilityLevel"] = level = str(level).upper()
        if level not in LEVELS:
            raise errors.invalid_level()
    policy = known.get("compatibilityPolicy")
    if policy is not None:
        known["compatibilityPolicy"] = policy = str(policy).upper()
        if policy not in POLICIES:
            text = f"Invalid compatibility policy. Valid values are {', '.join(POLICIES)}"
            raise errors.Rejection(42203, text)
    try:
        parsed = msgspec.convert(known, SubjectConfig, strict=False)
    except msgspec.ValidationError as error:
        raise errors.Rejection(422, str(error)) from error
    check_rule_set(parsed.default_rule_set)
    check_rule_set(parsed.override_rule_set)
    return {_MEMBERS[key]: getattr(parsed, _MEMBERS[key]) for key in known}


def decide_config_deletion(
    state: RegistryState, subject: str | None, defaults: Defaults = DEFAULTS
) -> Decision:
    """Decide to remove settings. The reply is what they were."""
    old = own_config(state, subject, defaults)
    if old is None:
        raise errors.subject_not_found(subject or "")
    _check_writable(state, subject)
    change = f"configuration removed subject={subject!r}"
    reply = config_reply(old)
    return Decision(reply, [ConfigRecord(subject, None)], change)


def decide_mode_update(
    state: RegistryState, subject: str | None, mode: str | None, *, is_forced: bool
) -> Decision:
    """Decide a new mode; null removes it. IMPORT needs a subject without versions, or force."""
    _check_subject(subject)
    upper = None if mode is None else mode.upper()
    if upper is not None and upper not in MODES:
        raise errors.invalid_mode()
    is_global = subject is not None and parse_subject(subject) == (GLOBAL_CONTEXT, "")
    if upper == FORWARD and not is_global:
        raise errors.Rejection(42204, "Forward mode only supported on global level")
    records: list[RegistryRecord] = []
    if upper == IMPORT and mode_in_scope(state, subject) != IMPORT and not is_forced:
        records = _cleared(state, subject)
    records.append(ModeRecord(subject, upper))
    change = f"mode set subject={subject!r} mode={upper}"
    # As in the request, like Confluent's.
    return Decision({} if mode is None else {"mode": mode}, records, change)


def _cleared(state: RegistryState, subject: str | None) -> list[RegistryRecord]:
    """Return the records that remove what was deleted softly, before schemas are imported."""
    if state.has_subject(subject):
        raise errors.not_permitted("Cannot import since found existing subjects")
    records: list[RegistryRecord] = []
    for name in state.subjects(subject, deleted=True):
        for schema in state.versions(name, deleted=True):
            if state.referrers((name, schema.version), deleted=True):
                raise errors.reference_exists(name, schema.version)
            records.append(SchemaRecord(name, schema.version, None))
    return [*records, ClearSubjectRecord(subject)]


def decide_mode_deletion(
    state: RegistryState, subject: str | None, *, is_recursive: bool = False
) -> Decision:
    """Decide to remove a mode, with ``is_recursive`` also those of a context's subjects."""
    old = own_mode(state, subject)
    is_context = subject is None or not parse_subject(subject).subject
    if old is None and not is_recursive:
        raise errors.subject_not_found(subject or "")
    records: list[RegistryRecord] = [ModeRecord(subject, None)]
    if is_recursive and is_context:
        context = context_of(subject or "")
        records += [
            ModeRecord(name, None)
            for name in state.modes
            if name is not None and name != subject and context_of(name) == context
        ]
    reply = {} if old is None else {"mode": old}
    return Decision(reply, records, f"mode removed subject={subject!r}")


def _check_subject(subject: str | None) -> None:
    if subject is not None and not is_valid_subject(subject, is_setting=True):
        raise errors.invalid_subject(subject)


def _check_writable(state: RegistryState, subject: str | None) -> None:
    if is_read_only(mode_in_scope(state, subject)):
        context = context_prefix(context_of(subject or ""))
        text = f"Subject {subject} in context {context} is in read-only mode"
        raise errors.not_permitted(text)
