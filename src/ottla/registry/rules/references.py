"""References of a schema to versions of subjects, resolved to texts."""

from collections.abc import Sequence
from typing import Final

from ottla.registry.rules.entities import AVRO, Reference, StoredSchema
from ottla.registry.rules.errors import invalid_schema
from ottla.registry.rules.schema_work import Parse, SchemaText
from ottla.registry.rules.state import LATEST, RegistryState
from ottla.registry.rules.subjects import qualify
from ottla.schemas.contract import SchemaType

REFERENCES_MAX: Final = 1_000
"""Schemas that one refers to, directly and indirectly."""


def schema_type_of(text: str | None) -> SchemaType:
    """Return the language of a request. Raises a Rejection."""
    try:
        return SchemaType(text or AVRO)
    except ValueError:
        raise invalid_schema(f"Invalid schema type {(text or '')[:100]}") from None


def resolve(
    state: RegistryState, subject: str, references: Sequence[Reference] | None
) -> tuple[tuple[str, str], ...]:
    """Return the names and texts of all referenced schemas, each after those it refers to.

    Raises:
        Rejection: one does not exist, or there are too many.
    """
    texts: dict[str, str] = {}
    open_names: list[str] = []
    _resolve(state, subject, references, texts, open_names)
    return tuple(texts.items())


def _resolve(
    state: RegistryState,
    subject: str,
    references: Sequence[Reference] | None,
    texts: dict[str, str],
    open_names: list[str],
) -> None:
    for reference in references or ():
        name = reference.name or ""
        if name in texts or name in open_names:
            continue
        if len(texts) + len(open_names) >= REFERENCES_MAX or len(open_names) > 100:
            raise invalid_schema(f"The schema has more than {REFERENCES_MAX} references")
        stored = _referenced(state, subject, reference)
        open_names.append(name)
        _resolve(state, stored.subject, stored.references, texts, open_names)
        open_names.pop()
        texts[name] = stored.schema


def _referenced(state: RegistryState, subject: str, reference: Reference) -> StoredSchema:
    if not reference.name or not reference.subject or reference.version is None:
        raise invalid_schema("Invalid schema reference: name, subject and version must be set")
    name = qualify(subject, reference.subject)
    # A deleted version still resolves: what refers to it must stay readable.
    stored = state.version(name, reference.version, deleted=reference.version != LATEST)
    if stored is None:
        text = f'No schema reference found for subject "{reference.subject}" and version '
        raise invalid_schema(f"{text}{reference.version}")
    return stored


def stored_text(state: RegistryState, schema: StoredSchema) -> Parse:
    """Return the item that parses a stored schema."""
    references = resolve(state, schema.subject, schema.references)
    return Parse(SchemaText(schema_type_of(schema.schema_type), schema.schema, references))
