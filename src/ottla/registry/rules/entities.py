"""What the registry stores and answers: schemas, metadata, rule sets and settings.

Members have the names of the REST API. Absent members are None and left out when written; unknown
ones are ignored. `guid_of` is the content address of a schema: MD5 over its text, references,
metadata and rules, as a UUID.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

Guid: TypeAlias = str
AVRO: Final = "AVRO"


class Entity(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A JSON object. Members that have their default are left out."""


class Reference(Entity, frozen=True):
    """Another schema, by which name it is known inside of this one."""

    name: str | None = None
    subject: str | None = None
    version: int | None = None


class Metadata(Entity, frozen=True):
    """What users say about a schema."""

    tags: dict[str, list[str]] | None = None
    properties: dict[str, str] | None = None
    sensitive: list[str] | None = None


class Rule(Entity, frozen=True):
    """A rule that clients run."""

    name: str | None = None
    doc: str | None = None
    kind: str | None = None
    mode: str | None = None
    type: str | None = None
    tags: list[str] | None = None
    params: dict[str, str] | None = None
    expr: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    disabled: bool = False


class RuleSet(Entity, frozen=True):
    """The rules of a schema."""

    migration_rules: list[Rule] | None = None
    domain_rules: list[Rule] | None = None
    encoding_rules: list[Rule] | None = None
    enable_at: str | None = None


class StoredSchema(Entity, frozen=True):
    """One version of a subject. ``schema_type`` is None for Avro; ``ts`` is milliseconds."""

    subject: str
    version: int
    id: int
    schema: str = ""
    md5: str | None = None
    schema_type: str | None = None
    references: list[Reference] | None = None
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    deleted: bool = False
    guid: str | None = None
    ts: int | None = None


class SubjectConfig(Entity, frozen=True):
    """The settings of a subject, a context or the registry, as stored."""

    subject: str | None = None
    alias: str | None = None
    alias_for_deks: str | None = None
    normalize: bool | None = None
    validate_fields: bool | None = None
    validate_new_schemas: bool | None = None
    validate_rules: bool | None = None
    compatibility_level: str | None = None
    compatibility_policy: str | None = None
    compatibility_group: str | None = None
    default_metadata: Metadata | None = None
    override_metadata: Metadata | None = None
    default_rule_set: RuleSet | None = None
    override_rule_set: RuleSet | None = None


class RegisterRequest(Entity, frozen=True):
    """The body of a registration, a look-up or a compatibility check."""

    schema: str | None = None
    schema_type: str | None = None
    references: list[Reference] | None = None
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    version: int | None = None
    id: int | None = None
    schema_tags_to_add: list["SchemaTags"] | None = None
    schema_tags_to_remove: list["SchemaTags"] | None = None
    propagate_schema_tags: bool | None = None


class EntityName(Entity, frozen=True):
    """A record or a field within a schema."""

    entity_path: str = ""
    entity_type: str = ""


class SchemaTags(Entity, frozen=True):
    """The tags of a record or a field."""

    schema_entity: EntityName = EntityName()
    tags: list[str] = msgspec.field(default_factory=list)


class TagsRequest(Entity, frozen=True):
    """The body of a request that adds tags to a schema and removes others."""

    new_version: int | None = None
    tags_to_add: list[SchemaTags] | None = None
    tags_to_remove: list[SchemaTags] | None = None
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    rules_to_merge: RuleSet | None = None
    rules_to_remove: list[str] | None = None


def guid_of(
    text: str,
    references: Iterable[Reference],
    metadata: Metadata | None,
    rule_set: RuleSet | None,
) -> Guid:
    """Return the content address of a schema."""
    return guid_of_md5(md5_of(text, references, metadata, rule_set))


def guid_of_md5(digest: bytes) -> Guid:
    """Write an MD5 as a UUID."""
    text = digest.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def md5_of(
    text: str,
    references: Iterable[Reference],
    metadata: Metadata | None,
    rule_set: RuleSet | None,
) -> bytes:
    """Return the MD5 over a schema's text, references, metadata and rules."""
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    for piece in _pieces(references, metadata, rule_set):
        digest.update(piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogatepass"))
    return digest.digest()


def _pieces(
    references: Iterable[Reference], metadata: Metadata | None, rule_set: RuleSet | None
) -> Iterator[str | bytes]:
    for reference in references:
        yield from (reference.name or "", reference.subject or "")
        if reference.version is not None:
            yield reference.version.to_bytes(4, "big", signed=True)
    if metadata is not None:
        yield b"\1"
        yield from _metadata_pieces(metadata)
    if rule_set is not None:
        yield b"\1"
        for rules in (rule_set.migration_rules, rule_set.domain_rules, rule_set.encoding_rules):
            for rule in rules or ():
                yield from _rule_pieces(rule)
        yield rule_set.enable_at or ""


def _metadata_pieces(metadata: Metadata) -> Iterator[str]:
    for key, tags in sorted((metadata.tags or {}).items()):
        yield key
        yield from sorted(set(tags))
    for pair in sorted((metadata.properties or {}).items()):
        yield from pair
    yield from sorted(set(metadata.sensitive or ()))


def _rule_pieces(rule: Rule) -> Iterator[str | bytes]:
    for part in (rule.name, rule.doc, rule.kind, rule.mode, rule.type):
        yield part or ""
    yield from sorted(set(rule.tags or ()))
    for pair in sorted((rule.params or {}).items()):
        yield from pair
    for part in (rule.expr, rule.on_success, rule.on_failure):
        yield part or ""
    if rule.disabled:
        yield b"\1"
