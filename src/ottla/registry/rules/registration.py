"""The decision to register a schema, and the look-up of one by its content.

Order: mode, then members that the subject's settings and its last version add, then the canonical
text. A content that the subject has already is answered without a record; one that another subject
of the context has gets the same id; any other gets the next id. Compatibility is checked against
versions that are not deleted. In mode IMPORT the request names id and version, and nothing is
compared.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from ottla.registry.rules import errors
from ottla.registry.rules.compatibility import Candidate, compatibility_errors
from ottla.registry.rules.decision import Decision
from ottla.registry.rules.entities import (
    AVRO,
    Metadata,
    Reference,
    RegisterRequest,
    RuleSet,
    SchemaTags,
    StoredSchema,
    SubjectConfig,
    guid_of,
)
from ottla.registry.rules.records import (
    ContextRecord,
    RegistryRecord,
    SchemaRecord,
)
from ottla.registry.rules.references import resolve, schema_type_of, stored_text
from ottla.registry.rules.replies import own_members, registered_reply
from ottla.registry.rules.rule_sets import (
    check_rule_set,
    merge_metadata,
    merge_rule_sets,
    version_in,
    with_version,
    without_version,
)
from ottla.registry.rules.schema_work import Parse, Results, Retag, SchemaText, TagPairs
from ottla.registry.rules.settings import (
    DEFAULTS,
    FORWARD,
    IMPORT,
    READWRITE,
    Defaults,
    config_in_scope,
    is_read_only,
    mode_in_scope,
)
from ottla.registry.rules.state import LATEST, RegistryState, with_guid
from ottla.registry.rules.subjects import (
    DEFAULT_CONTEXT,
    context_of,
    context_prefix,
    is_valid_subject,
)
from ottla.schemas.contract import SchemaEntity, SchemaType

ID_MAX: Final = 2**31 - 1
# Linear on every text: no two parts can match the same white space.
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+(?:=\s*){0,2}\Z")


class Registration(msgspec.Struct, frozen=True):
    """A request to register a schema. ``subject`` is normalised."""

    subject: str
    body: RegisterRequest
    normalize: bool = False
    is_forced: bool = False


class Draft(msgspec.Struct, frozen=True):
    """The schema of a request, with what settings and the last version add."""

    subject: str
    text: str
    schema_type: SchemaType
    references: tuple[Reference, ...]
    metadata: Metadata | None
    rule_set: RuleSet | None

    def parse_item(
        self, state: RegistryState, *, normalise: bool, validate: bool = False, strict: bool = False
    ) -> Parse:
        """Return the item that parses it. Raises a Rejection if a reference is missing."""
        texts = resolve(state, self.subject, self.references)
        return Parse(SchemaText(self.schema_type, self.text, texts), normalise, validate, strict)

    def guid(self, canonical: str) -> str:
        """Return the content address with this canonical text."""
        return guid_of(canonical, self.references, self.metadata, self.rule_set)


def decide_registration(
    state: RegistryState,
    request: Registration,
    results: Results,
    defaults: Defaults = DEFAULTS,
) -> Decision:
    """Decide a registration. Raises a Rejection, or WorkNeeded."""
    subject, body = request.subject, request.body
    check_rule_set(body.rule_set)
    if not is_valid_subject(subject):
        raise errors.invalid_subject(subject)
    mode = mode_in_scope(state, subject)
    _check_mode(subject, mode, body)
    config = config_in_scope(state, subject, defaults)
    is_import = mode in (IMPORT, FORWARD)
    normalise = request.normalize or bool(config.normalize)
    new_version = state.next_version(subject)
    draft = draft_of(state, request, results)
    if not is_import:
        draft = _populated(state, config, draft, body, new_version, results)
    if not draft.text.strip():
        raise errors.invalid_schema("Empty schema")
    has_id = body.id is not None and body.id >= 0
    item = draft.parse_item(
        state,
        normalise=normalise,
        validate=not has_id,
        strict=not has_id and bool(config.validate_new_schemas),
    )
    parsed = results.parsed(item)
    existing = _existing(state, draft, parsed.canonical, body, results)
    if existing is not None:
        return Decision(registered_reply(existing, text=echoed_text(body)))
    if not is_import and not request.is_forced:
        _check_compatible(state, config, draft, item, results)
    version = _version(body, new_version, is_import=is_import)
    schema = _stored(state, draft, parsed.canonical, body, version)
    records = [*_context_records(state, subject), *_obsolete(state, schema)]
    records.append(SchemaRecord(subject, version, schema))
    change = f"registered subject={subject!r} version={version} id={schema.id}"
    reply = registered_reply(with_guid(schema), text=echoed_text(body))
    return Decision(reply, records, change)


def echoed_text(body: RegisterRequest) -> str | None:
    """Return the text of a request that is a descriptor in base64; None for any other.

    Such a client (the serializer of Python) expects its own form in the reply.
    """
    text = body.schema or ""
    is_descriptor = body.schema_type == "PROTOBUF" and _BASE64.match(text) is not None
    return text if is_descriptor else None


def without_content(decision: Decision, body: RegisterRequest) -> Decision:
    """Return a decision whose reply shows a client that may not read only what it has sent."""
    return msgspec.structs.replace(decision, reply=own_members(decision.reply, body))


def _check_mode(subject: str, mode: str, body: RegisterRequest) -> None:
    context = context_prefix(context_of(subject))
    place = f"Subject {subject} in context {context}"
    if is_read_only(mode):
        raise errors.not_permitted(f"{place} is in read-only mode")
    if body.id is not None and body.id >= 0:
        if mode not in (IMPORT, FORWARD):
            raise errors.not_permitted(f"{place} is not in import mode")
        if body.id > ID_MAX:
            raise errors.id_mismatch(f"The id {body.id} is out of range")
    elif mode != READWRITE:
        raise errors.not_permitted(f"{place} is not in read-write mode")


def draft_of(state: RegistryState, request: Registration, results: Results) -> Draft:
    """Return the schema of a request; tags that it adds or removes are applied."""
    body = request.body
    draft = Draft(
        request.subject,
        body.schema or "",
        schema_type_of(body.schema_type),
        tuple(body.references or ()),
        body.metadata,
        body.rule_set,
    )
    if not body.schema_tags_to_add and not body.schema_tags_to_remove:
        return draft
    item = draft.parse_item(state, normalise=False)
    added, removed = tag_pairs(body.schema_tags_to_add), tag_pairs(body.schema_tags_to_remove)
    return msgspec.structs.replace(draft, text=results.text(Retag(item, added, removed)))


def tag_pairs(tags: Sequence[SchemaTags] | None) -> TagPairs:
    """Return the tags of a request, as a value."""
    return tuple(
        (
            SchemaEntity(entry.schema_entity.entity_path, entry.schema_entity.entity_type),
            frozenset(entry.tags),
        )
        for entry in tags or ()
    )


def _populated(
    state: RegistryState,
    config: SubjectConfig,
    draft: Draft,
    body: RegisterRequest,
    new_version: int | None,
    results: Results,
) -> Draft:
    """Add what the last version and the subject's settings have and the request leaves open."""
    previous = state.latest(draft.subject)
    if not draft.text.strip() and previous is not None:
        draft = msgspec.structs.replace(
            draft,
            text=previous.schema,
            schema_type=schema_type_of(previous.schema_type),
            references=tuple(previous.references or ()),
        )
    if body.propagate_schema_tags and previous is not None:
        old_tags = results.parsed(stored_text(state, previous)).tags
        if old_tags:
            item = draft.parse_item(state, normalise=False)
            pairs = tuple(sorted((entity, frozenset(tags)) for entity, tags in old_tags.items()))
            draft = msgspec.structs.replace(draft, text=results.text(Retag(item, pairs, ())))
    return with_settings(config, draft, body, previous, new_version)


def with_settings(
    config: SubjectConfig,
    draft: Draft,
    body: RegisterRequest,
    previous: StoredSchema | None,
    new_version: int | None,
) -> Draft:
    """Merge metadata and rules: the settings' defaults, the schema's own, their overrides."""
    metadata, rule_set = draft.metadata, draft.rule_set
    if previous is not None:
        metadata = previous.metadata if metadata is None else metadata
        rule_set = previous.rule_set if rule_set is None else rule_set
    metadata = merge_metadata(
        merge_metadata(config.default_metadata, metadata), config.override_metadata
    )
    rule_set = merge_rule_sets(
        merge_rule_sets(config.default_rule_set, rule_set), config.override_rule_set
    )
    is_numbered = bool(body.version) or version_in(metadata) is not None
    if new_version is not None and is_numbered:
        metadata = with_version(metadata, new_version)
    return msgspec.structs.replace(draft, metadata=metadata, rule_set=rule_set)


def _existing(
    state: RegistryState,
    draft: Draft,
    canonical: str,
    body: RegisterRequest,
    results: Results,
) -> StoredSchema | None:
    """Return the version that the subject already has of a content."""
    if body.version == LATEST:
        latest = state.latest(draft.subject)
        versions = [] if latest is None else [latest]
        return _with_content(state, versions, draft, canonical, results)
    if body.version:
        stored = state.version(draft.subject, body.version) if body.version > 0 else None
        is_same = stored is not None and stored.guid == draft.guid(canonical)
        return stored if is_same and stored is not None and body.id in (None, stored.id) else None
    stored = find_content(state, draft, canonical, results)
    if stored is None or (body.id is not None and 0 <= body.id != stored.id):
        return None
    return stored


def find_content(
    state: RegistryState,
    draft: Draft,
    canonical: str,
    results: Results,
    *,
    deleted: bool = False,
) -> StoredSchema | None:
    """Return the newest version of the subject with a content, by its address or by its text.

    Texts that another registry has written may differ from ours; so may metadata in the version
    that it names.
    """
    versions = state.versions(draft.subject, deleted=deleted)[::-1]
    return _with_content(state, versions, draft, canonical, results)


def _with_content(
    state: RegistryState,
    versions: list[StoredSchema],
    draft: Draft,
    canonical: str,
    results: Results,
) -> StoredSchema | None:
    guid = draft.guid(canonical)
    for schema in versions:
        if schema.guid == guid:
            return schema
    alike = [schema for schema in versions if _is_alike(schema, draft)]
    items = {schema.version: stored_text(state, schema) for schema in alike}
    results.require(items.values())
    for schema in alike:
        if results.canonical_or_none(items[schema.version]) == canonical:
            return schema
    return None


def _is_alike(schema: StoredSchema, draft: Draft) -> bool:
    return (
        schema_type_of(schema.schema_type) is draft.schema_type
        and tuple(schema.references or ()) == draft.references
        and without_version(schema.metadata) == without_version(draft.metadata)
        and schema.rule_set == draft.rule_set
    )


def _check_compatible(
    state: RegistryState, config: SubjectConfig, draft: Draft, item: Parse, results: Results
) -> None:
    previous = state.versions(draft.subject)
    candidate = Candidate(item, draft.metadata)
    messages = compatibility_errors(state, config, candidate, previous, results)
    if messages:
        raise errors.incompatible(draft.subject, messages)


def _version(body: RegisterRequest, new_version: int, *, is_import: bool) -> int:
    if body.version is None or body.version <= 0:
        return new_version
    if body.version != new_version and not is_import:
        raise errors.invalid_schema("Version is not one more than previous version")
    return body.version


def _stored(
    state: RegistryState, draft: Draft, canonical: str, body: RegisterRequest, version: int
) -> StoredSchema:
    """Return the version to write, with its id."""
    schema = StoredSchema(
        subject=draft.subject,
        version=version,
        id=0,
        schema=canonical,
        schema_type=None if draft.schema_type.value == AVRO else draft.schema_type.value,
        references=list(draft.references) or None,
        metadata=draft.metadata,
        rule_set=draft.rule_set,
    )
    context = context_of(draft.subject)
    guid = draft.guid(canonical)
    schema_id = body.id if body.id is not None and body.id >= 0 else None
    if schema_id is None:
        schema_id = state.id_of(context, guid)
    if schema_id is None:
        schema_id = state.max_id(context) + 1
        if schema_id > ID_MAX:
            raise errors.store_failed("Error while registering the schema: no id is left")
    for place in state.places(context, schema_id):
        if state.stored(place).guid != guid:
            text = f"Overwrite new schema with id {schema_id} in context {context_prefix(context)}"
            raise errors.not_permitted(f"{text} is not permitted.")
    schema = with_guid(msgspec.structs.replace(schema, id=schema_id))
    return msgspec.structs.replace(schema, guid=None)


def _context_records(state: RegistryState, subject: str) -> list[RegistryRecord]:
    context = context_of(subject)
    if context == DEFAULT_CONTEXT or state.has_context_record(context):
        return []
    return [ContextRecord(context, is_present=True)]


def _obsolete(state: RegistryState, schema: StoredSchema) -> list[RegistryRecord]:
    """Return tombstones of deleted versions that had this id, unless something refers to them."""
    return [
        SchemaRecord(old.subject, old.version, None)
        for old in state.versions(schema.subject, deleted=True)
        if old.deleted
        and old.id == schema.id
        and old.version < schema.version
        and not state.referrers((old.subject, old.version), deleted=True)
    ]
