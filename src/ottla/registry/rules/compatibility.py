"""Which stored versions a new schema must be compatible with, and what is said if it is not.

    BACKWARD    the new schema reads what was written with the last version
    FORWARD     the last version reads what was written with the new schema
    FULL        both
    _TRANSITIVE all versions instead of the last one
    NONE        nothing is compared

A compatibility group leaves out the versions whose metadata has another value of its property.
"""

from typing import NamedTuple

from ottla.registry.rules.entities import Metadata, StoredSchema, SubjectConfig
from ottla.registry.rules.references import stored_text
from ottla.registry.rules.schema_work import Compare, Parse, Results
from ottla.registry.rules.state import RegistryState


class Candidate(NamedTuple):
    """A new schema."""

    schema: Parse
    metadata: Metadata | None


def compatibility_errors(
    state: RegistryState,
    config: SubjectConfig,
    candidate: Candidate,
    previous: list[StoredSchema],
    results: Results,
) -> list[str]:
    """Return why a schema is not compatible with previous versions, which are ascending."""
    level = config.compatibility_level or "BACKWARD"
    compared = _compared(config, level, candidate, previous)
    policy = "LENIENT" if config.compatibility_policy == "LENIENT" else "STRICT"
    pairs = [(schema, _items(level, candidate.schema, stored_text(state, schema), policy))
             for schema in compared]  # fmt: skip
    results.require(item for _, items in pairs for item, _ in items)
    for schema, items in pairs:
        errors = [
            _braced(difference.message(*names))
            for item, names in items
            for difference in results.differences(item)
        ]
        if errors:
            is_validated = "true" if config.validate_fields else "false"
            return [
                *errors,
                f"{{oldSchemaVersion: {schema.version}}}",
                f"{{oldSchema: '{schema.schema}'}}",
                f"{{validateFields: '{is_validated}', compatibility: '{level}'}}",
            ]
    return []


def _braced(message: str) -> str:
    return message if message.startswith("{") else f"{{{message}}}"


def _compared(
    config: SubjectConfig, level: str, candidate: Candidate, previous: list[StoredSchema]
) -> list[StoredSchema]:
    """Return the versions to compare with, newest first."""
    if level == "NONE":
        return []
    group = config.compatibility_group
    if group is not None:
        value = _property(candidate.metadata, group)
        previous = [schema for schema in previous if _property(schema.metadata, group) == value]
    newest_first = previous[::-1]
    return newest_first if level.endswith("_TRANSITIVE") else newest_first[:1]


def _property(metadata: Metadata | None, key: str) -> str | None:
    properties = None if metadata is None else metadata.properties
    return None if properties is None else properties.get(key)


def _items(
    level: str, new: Parse, old: Parse, policy: str
) -> list[tuple[Compare, tuple[str, str]]]:
    """Return the comparisons of one pair, and the names of their reader and writer."""
    kind = level.removesuffix("_TRANSITIVE")
    items = []
    if kind in ("BACKWARD", "FULL"):
        items.append((Compare(new, old, policy), ("new", "old")))
    if kind in ("FORWARD", "FULL"):
        items.append((Compare(old, new, policy), ("old", "new")))
    return items
