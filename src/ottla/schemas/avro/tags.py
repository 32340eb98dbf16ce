"""Inline tags of Avro schemas: the property ``confluent:tags`` of records and fields.

The path of a record is its full name, the path of a field adds the name of the field.
"""

from collections.abc import Iterator
from typing import Final

from ottla.schemas.avro.model import AvroType, Record, parts_of
from ottla.schemas.contract import EntityKind, InvalidSchema, SchemaEntity, Tags
from ottla.schemas.json_text import Json

TAGS: Final = "confluent:tags"


def read_tags(root: AvroType) -> dict[SchemaEntity, frozenset[str]]:
    """Return the tags of every record and field that has some."""
    tags = {}
    for entity, properties in _entities(root):
        if labels := _labels(properties):
            tags[entity] = frozenset(labels)
    return tags


def change_tags(root: AvroType, added: Tags, removed: Tags) -> None:
    """Add tags to the types of ``root`` in place, then remove tags. Raises InvalidSchema."""
    entities = list(_entities(root))
    for entity in dict.fromkeys([*added, *removed]):
        matches = [properties for candidate, properties in entities if _is_same(entity, candidate)]
        if not matches:
            raise InvalidSchema(f"No matching path '{entity.path}' found in the schema")
        properties = matches[0]
        labels = list(dict.fromkeys([*_labels(properties), *sorted(added.get(entity, ()))]))
        labels = [label for label in labels if label not in removed.get(entity, ())]
        if labels:
            properties[TAGS] = list[Json](labels)
        else:
            properties.pop(TAGS, None)


def _is_same(entity: SchemaEntity, candidate: SchemaEntity) -> bool:
    """Compare paths; a path without a namespace matches a record of any namespace."""
    if entity.kind != candidate.kind:
        return False
    parts = 1 if entity.kind == EntityKind.RECORD.value else 2
    if entity.path.count(".") < parts:
        return candidate.path.split(".")[-parts:] == entity.path.split(".")
    return candidate.path == entity.path


def _labels(properties: dict[str, Json]) -> list[str]:
    labels = properties.get(TAGS)
    if not isinstance(labels, list):
        return []
    return [label for label in labels if isinstance(label, str)]


def _entities(root: AvroType) -> Iterator[tuple[SchemaEntity, dict[str, Json]]]:
    """Yield records and fields, breadth first, with the properties that hold their tags."""
    seen = {id(root)}
    level = [root]
    while level:
        for type_ in level:
            if isinstance(type_, Record):
                yield SchemaEntity.of(type_.full_name, EntityKind.RECORD), type_.properties
                for field in type_.fields:
                    path = f"{type_.full_name}.{field.name}"
                    yield SchemaEntity.of(path, EntityKind.FIELD), field.properties
        below: list[AvroType] = []
        for type_ in level:
            for part in parts_of(type_):
                if id(part) not in seen:
                    seen.add(id(part))
                    below.append(part)
        level = below
