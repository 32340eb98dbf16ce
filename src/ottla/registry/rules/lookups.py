"""Answers about subjects, versions, ids and guids, from the state alone. Raise Rejections."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from ottla.registry.rules import errors
from ottla.registry.rules.compatibility import Candidate, compatibility_errors
from ottla.registry.rules.entities import StoredSchema
from ottla.registry.rules.references import stored_text
from ottla.registry.rules.registration import (
    Draft,
    Registration,
    draft_of,
    find_content,
    with_settings,
)
from ottla.registry.rules.replies import Json, content_reply, schema_reply
from ottla.registry.rules.schema_work import Format, Results
from ottla.registry.rules.settings import DEFAULTS, Defaults, config_in_scope, replace_alias
from ottla.registry.rules.state import LATEST, Place, RegistryState
from ottla.registry.rules.subjects import (
    DEFAULT_CONTEXT,
    context_of,
    context_prefix,
    has_prefix,
    parse_subject,
    qualify,
)
from ottla.schemas.contract import Tags

VERSION_MAX: Final = 2**31 - 1
Item = TypeVar("Item")
Sees = Callable[[str], bool]
"""Says whether the client may see a subject."""


class Filter(msgspec.Struct, frozen=True):
    """Which versions a list contains: those that are not deleted, all, or deleted ones only."""

    deleted: bool = False
    deleted_only: bool = False
    deleted_as_negative: bool = False
    """Whether all versions are listed, and deleted ones have a minus sign."""

    def admits(self, is_deleted: bool) -> bool:
        """Say whether one belongs to the list."""
        if self.deleted_as_negative:
            return True
        return is_deleted if self.deleted_only else self.deleted or not is_deleted


class Page(msgspec.Struct, frozen=True):
    """A part of a list. A limit that is not positive, or above the largest, is the largest."""

    offset: int = 0
    limit: int = -1

    def of(self, items: Iterable[Item], limit_max: int = 20_000) -> list[Item]:
        """Return the part. Items behind it are not made."""
        start = max(0, self.offset)
        limit = self.limit if 0 < self.limit <= limit_max else limit_max
        return list(islice(items, start, start + limit))


def parse_version(text: str) -> int:
    """Return the version in a path: a number, or `LATEST`."""
    stripped = text.strip()
    if stripped.lower() == "latest":
        return LATEST
    try:
        version = int(stripped) if stripped.isascii() and len(stripped) < 12 else 0
    except ValueError:
        version = 0
    if version != LATEST and not 0 < version <= VERSION_MAX:
        raise errors.invalid_version(text)
    return version


def find_version(
    state: RegistryState, subject: str, version: int, *, deleted: bool = False
) -> StoredSchema:
    """Return a version. A name without context may be that of a subject in another one."""
    for name in _candidates(state, subject):
        schema = state.version(name, version, deleted=deleted)
        if schema is not None:
            return schema
    if not state.has_subject(subject, deleted=deleted):
        raise errors.subject_not_found(subject)
    raise errors.version_not_found(version)


def _candidates(state: RegistryState, subject: str) -> Iterator[str]:
    name = replace_alias(state, subject)
    yield name
    parsed = parse_subject(name)
    if parsed.context == DEFAULT_CONTEXT and parsed.subject:
        for context in state.contexts:
            if context != DEFAULT_CONTEXT:
                yield context_prefix(context) + parsed.subject


def find_id(state: RegistryState, schema_id: int, subject: str = "") -> list[StoredSchema]:
    """Return the versions with an id: in the context of ``subject``, or in any if it is there."""
    parsed = parse_subject(subject)
    contexts = [parsed.context]
    if parsed.context == DEFAULT_CONTEXT and parsed.subject:
        contexts += [context for context in state.contexts if context != DEFAULT_CONTEXT]
    for context in contexts:
        places = list(state.places(context, schema_id))
        if context != parsed.context:
            name = context_prefix(context) + parsed.subject
            places = places if any(place[0] == name for place in places) else []
        if places:
            return _sorted_places(state, places, subject)
    return []


def _sorted_places(state: RegistryState, places: list[Place], subject: str) -> list[StoredSchema]:
    """Return versions: those of the subject first, then those that are not deleted."""
    schemas = [state.stored(place) for place in sorted(places)]
    return sorted(schemas, key=lambda schema: (schema.subject != subject, schema.deleted))


def find_guid(state: RegistryState, guid: str) -> list[tuple[str, int]]:
    """Return the contexts and ids of a content address."""
    pairs = ((context, state.id_of(context, guid.lower())) for context in state.contexts)
    return [(context, schema_id) for context, schema_id in pairs if schema_id is not None]


def id_reply(
    state: RegistryState,
    schema: StoredSchema,
    *,
    text: str | None = None,
    with_max_id: bool = False,
) -> Json:
    """Return a schema as GET /schemas/ids/ID does."""
    reply = content_reply(msgspec.structs.replace(schema, deleted=False), text=text)
    if with_max_id:
        reply["maxId"] = state.max_id(context_of(schema.subject))
    return reply


def formatted(
    state: RegistryState, schema: StoredSchema, format_name: str, results: Results
) -> str | None:
    """Return the text in a format; None without one. Raises WorkNeeded."""
    if not format_name.strip():
        return None
    return results.text(Format(stored_text(state, schema), format_name))


def with_qualified_references(schema: StoredSchema) -> StoredSchema:
    """Return a schema whose references name the context, too."""
    if context_of(schema.subject) == DEFAULT_CONTEXT or not schema.references:
        return schema
    references = [
        msgspec.structs.replace(reference, subject=qualify(schema.subject, reference.subject or ""))
        for reference in schema.references
    ]
    return msgspec.structs.replace(schema, references=references)


def tags_reply(tags: Tags, names: Sequence[str]) -> list[Json]:
    """Return the tagged records and fields of a schema that have one of the names, or any."""
    wants_all = "*" in names
    return [
        {
            "schemaEntity": {"entityPath": entity.path, "entityType": entity.kind},
            "tags": sorted(own),
        }
        for entity, own in sorted(tags.items())
        if wants_all or own & set(names)
    ]


def list_subjects(state: RegistryState, prefix: str, wanted: Filter, sees: Sees) -> Iterator[str]:
    """Yield the subjects with a prefix."""
    for subject, is_deleted in state.subjects_with_prefix(prefix):
        if wanted.admits(is_deleted) and sees(subject):
            yield subject


def list_versions(state: RegistryState, subject: str, wanted: Filter) -> list[int]:
    """Return the numbers of a subject's versions."""
    name = replace_alias(state, subject)
    if not state.has_subject(name, deleted=wanted.deleted or wanted.deleted_only):
        raise errors.subject_not_found(subject)
    versions = state.versions(name, deleted=True)
    has_signs = wanted.deleted_as_negative
    return [
        -schema.version if has_signs and schema.deleted else schema.version
        for schema in versions
        if wanted.admits(schema.deleted)
    ]


def list_referrers(
    state: RegistryState, schema: StoredSchema, *, deleted: bool = False
) -> list[int]:
    """Return the ids of the schemas that refer to a version."""
    referrers = state.referrers((schema.subject, schema.version), deleted=deleted)
    return sorted({referrer.id for referrer in referrers})


class SchemaFilter(msgspec.Struct, frozen=True):
    """Which versions GET /schemas returns."""

    prefix: str = ""
    deleted: bool = False
    latest_only: bool = False
    rule_type: str = ""
    with_aliases: bool = False


def list_schemas(
    state: RegistryState, wanted: SchemaFilter, sees: Sees, page: Page, limit_max: int
) -> list[Json]:
    """Return a page of the versions of all subjects with a prefix."""
    aliases = _aliases(state, wanted)
    replies = []
    for schema in page.of(_list_versions(state, wanted, sees), limit_max):
        reply = schema_reply(schema)
        if schema.subject in aliases:
            reply["aliases"] = aliases[schema.subject]
        replies.append(reply)
    return replies


def _aliases(state: RegistryState, wanted: SchemaFilter) -> dict[str, list[str]]:
    aliases: dict[str, list[str]] = {}
    if wanted.with_aliases:
        for subject, config in state.configs.items():
            if subject is not None and config.alias and has_prefix(wanted.prefix, subject):
                aliases.setdefault(replace_alias(state, subject), []).append(subject)
    return aliases


def _list_versions(
    state: RegistryState, wanted: SchemaFilter, sees: Sees
) -> Iterator[StoredSchema]:
    for subject, _ in state.subjects_with_prefix(wanted.prefix):
        if not sees(subject):
            continue
        versions = state.versions(subject, deleted=wanted.deleted)
        for schema in versions[-1:] if wanted.latest_only else versions:
            if not wanted.rule_type or _has_rule(schema, wanted.rule_type):
                yield schema


def _has_rule(schema: StoredSchema, rule_type: str) -> bool:
    rules = schema.rule_set
    if rules is None:
        return False
    lists = (rules.migration_rules, rules.domain_rules, rules.encoding_rules)
    return any(rule.type == rule_type for part in lists for rule in part or ())


def find_metadata(
    state: RegistryState, subject: str, pairs: dict[str, str], *, deleted: bool = False
) -> StoredSchema:
    """Return the newest version whose metadata has these properties."""
    name = replace_alias(state, subject)
    for schema in state.versions(name, deleted=deleted)[::-1]:
        properties = None if schema.metadata is None else schema.metadata.properties
        if properties is not None and pairs.items() <= properties.items():
            return schema
    if not state.has_subject(name, deleted=deleted):
        raise errors.subject_not_found(subject)
    raise errors.schema_not_found()


def look_up(
    state: RegistryState,
    request: Registration,
    results: Results,
    defaults: Defaults = DEFAULTS,
    *,
    deleted: bool = False,
) -> StoredSchema:
    """Return the version of a subject that has the content of a request. Raises WorkNeeded."""
    config = config_in_scope(state, request.subject, defaults)
    normalise = request.normalize or bool(config.normalize)
    for name in _candidates(state, request.subject):
        own = msgspec.structs.replace(request, subject=name)
        schema = _look_up_in(state, own, results, normalise=normalise, deleted=deleted)
        if schema is not None:
            return schema
    if not state.has_subject(replace_alias(state, request.subject), deleted=deleted):
        raise errors.subject_not_found(request.subject)
    raise errors.schema_not_found()


def _look_up_in(
    state: RegistryState, request: Registration, results: Results, *, normalise: bool, deleted: bool
) -> StoredSchema | None:
    if not state.has_subject(request.subject, deleted=deleted):
        return None
    draft = draft_of(state, request, results)
    if not draft.text.strip():
        return None
    schema = _with_content(state, draft, results, normalise=normalise, deleted=deleted)
    if schema is not None:
        return schema
    # As a registration would: with what settings and the last version add.
    config = config_in_scope(state, request.subject)
    previous = state.latest(request.subject)
    populated = with_settings(config, draft, request.body, previous, None)
    if populated == draft:
        return None
    return _with_content(state, populated, results, normalise=normalise, deleted=deleted)


def _with_content(
    state: RegistryState, draft: Draft, results: Results, *, normalise: bool, deleted: bool
) -> StoredSchema | None:
    canonical = results.parsed(draft.parse_item(state, normalise=normalise)).canonical
    return find_content(state, draft, canonical, results, deleted=deleted)


def find_registered(
    state: RegistryState, request: Registration, results: Results, defaults: Defaults = DEFAULTS
) -> StoredSchema | None:
    """Return what a registration would return without writing, if that is certain; else None.

    Any node may answer it: a committed version stays.
    """
    body = request.body
    config = config_in_scope(state, request.subject, defaults)
    settings = (
        config.default_metadata,
        config.override_metadata,
        config.default_rule_set,
        config.override_rule_set,
    )
    tags = (body.schema_tags_to_add, body.schema_tags_to_remove, body.propagate_schema_tags)
    has_id = body.id is not None and body.id >= 0
    if any(settings) or any(tags) or body.version or has_id:
        return None
    normalise = request.normalize or bool(config.normalize)
    return _look_up_in(state, request, results, normalise=normalise, deleted=False)


def compared_version(state: RegistryState, subject: str, version: int) -> StoredSchema | None:
    """Return the version to compare a schema with; None: any schema may be the first one.

    Raises:
        Rejection: a version is named that does not exist.
    """
    for name in _candidates(state, subject):
        schema = state.version(name, version)
        if schema is not None:
            return schema
    if version != LATEST:
        raise errors.version_not_found(version)
    return None


def check_compatibility(
    state: RegistryState,
    request: Registration,
    version: int | None,
    results: Results,
    defaults: Defaults = DEFAULTS,
) -> list[str]:
    """Return why a schema cannot be registered: against one version, or as a registration does."""
    subject = replace_alias(state, request.subject)
    if version is None:
        previous = state.versions(subject)
    else:
        previous = [
            schema for schema in (compared_version(state, subject, version),) if schema is not None
        ]
    config = config_in_scope(state, subject, defaults)
    draft = draft_of(state, msgspec.structs.replace(request, subject=subject), results)
    if not draft.text.strip():
        raise errors.invalid_schema("Empty schema")
    normalise = request.normalize or bool(config.normalize)
    item = draft.parse_item(state, normalise=normalise, validate=True)
    results.parsed(item)
    candidate = Candidate(item, draft.metadata)
    return compatibility_errors(state, config, candidate, previous, results)
