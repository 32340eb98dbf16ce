"""Inline tags of JSON Schemas: the keyword ``confluent:tags`` of objects and properties.

Paths: ``object`` is the schema itself, ``object.name`` a property of it, ``object.name.object.id``
a property within, ``array`` leads to the items, ``oneof.0`` to a subschema, ``definitions.Name``
and ``$defs.Name`` (below ``object``) to a definition.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from ottla.schemas.contract import EntityKind, InvalidSchema, SchemaEntity, Tags
from ottla.schemas.json_text import Json

TAGS: Final = "confluent:tags"
CRITERIA: Final = ("allOf", "anyOf", "oneOf")
Entities = dict[SchemaEntity, dict[str, Json]]


def read_tags(root: Json) -> dict[SchemaEntity, frozenset[str]]:
    """Return the tags of every object and property that has some."""
    return {
        entity: frozenset(labels) for entity, node in _entities(root) if (labels := _labels(node))
    }


def change_tags(root: Json, added: Tags, removed: Tags) -> None:
    """Add tags within ``root`` in place, then remove tags. Raises InvalidSchema."""
    entities: Mapping[SchemaEntity, dict[str, Json]] = dict(_entities(root))
    for entity in dict.fromkeys([*added, *removed]):
        if entity not in entities:
            raise InvalidSchema(f"No matching path '{entity.path}' found in the schema")
        node = entities[entity]
        labels = list(dict.fromkeys([*_labels(node), *sorted(added.get(entity, ()))]))
        labels = [label for label in labels if label not in removed.get(entity, ())]
        if labels:
            node[TAGS] = list[Json](labels)
        else:
            node.pop(TAGS, None)


def _labels(node: dict[str, Json]) -> list[str]:
    labels = node.get(TAGS)
    if not isinstance(labels, list):
        return []
    return [label for label in labels if isinstance(label, str)]


def _entities(root: Json) -> Iterator[tuple[SchemaEntity, dict[str, Json]]]:
    """Yield objects and properties with the nodes that hold their tags, outer ones first."""
    waiting: list[tuple[str, Json]] = [("", root)]
    while waiting:
        scope, node = waiting.pop()
        if not isinstance(node, dict):
            continue
        for criterion in CRITERIA:
            subschemas = node.get(criterion)
            for index, subschema in enumerate(subschemas if isinstance(subschemas, list) else ()):
                waiting.append((f"{scope}{criterion.lower()}.{index}.", subschema))
        if "items" in node:
            waiting.append((f"{scope}array.", node["items"]))
        if "not" in node:
            waiting.append((f"{scope}not.", node["not"]))
        yield from _object_entities(scope, node, waiting)


def _object_entities(
    scope: str, node: dict[str, Json], waiting: list[tuple[str, Json]]
) -> Iterator[tuple[SchemaEntity, dict[str, Json]]]:
    if node.get("type", "object") != "object":
        return
    if not scope or scope.endswith((".object.", "array.", "not.")) or scope[-2:-1].isdigit():
        yield SchemaEntity.of(f"{scope}object", EntityKind.RECORD), node
    properties = node.get("properties")
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        path = f"{scope}object.{name}"
        if isinstance(schema, dict):
            yield SchemaEntity.of(path, EntityKind.FIELD), schema
        waiting.append((f"{path}.", schema))
    for keyword in ("definitions", "$defs"):
        definitions = node.get(keyword)
        for name, schema in definitions.items() if isinstance(definitions, dict) else ():
            path = f"{scope}object.{keyword}.{name}."
            if isinstance(schema, dict):
                yield SchemaEntity.of(f"{path}object", EntityKind.RECORD), schema
            waiting.append((path, schema))
