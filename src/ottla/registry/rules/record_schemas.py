"""The schemas that records name, as brokers validate them. Pure.

A schema is that of an id in the default context, or in another context whose subject has the name
that the records' topic gives it; names of subjects are compared without their context. Deleted
versions do not count: a producer may not use them any more.
"""

from collections.abc import Iterator

from ottla.registry.rules.entities import StoredSchema
from ottla.registry.rules.errors import Rejection
from ottla.registry.rules.references import stored_text
from ottla.registry.rules.schema_work import SchemaText
from ottla.registry.rules.state import RegistryState
from ottla.registry.rules.subjects import parse_subject


def versions_of(state: RegistryState, ref: int | str) -> list[StoredSchema]:
    """Return the versions, not deleted, that have an id or a guid."""
    return [schema for schema in _all_versions(state, ref) if not schema.deleted]


def _all_versions(state: RegistryState, ref: int | str) -> Iterator[StoredSchema]:
    for context in state.contexts:
        number = ref if isinstance(ref, int) else state.id_of(context, ref)
        for place in () if number is None else state.places(context, number):
            yield state.stored(place)


def subjects_of(versions: list[StoredSchema]) -> frozenset[str]:
    """Return the subjects of versions, without their contexts."""
    return frozenset(parse_subject(schema.subject).subject for schema in versions)


def text_of(state: RegistryState, versions: list[StoredSchema]) -> SchemaText | None:
    """Return the text of versions of one id; None if a reference is missing."""
    try:
        return stored_text(state, versions[0]).schema
    except Rejection:
        return None
