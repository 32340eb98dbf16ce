"""Inline tags of Protobuf schemas: ``tags`` of the options ``confluent.field_meta`` and others.

The path of a message is a dot and its full name, the path of a field adds the name of the field.
"""

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

from ottla.schemas.contract import EntityKind, InvalidSchema, SchemaEntity, Tags
from ottla.schemas.protobuf.linking import messages_of
from ottla.schemas.protobuf.options import flat, parse_aggregate
from ottla.schemas.protobuf.tokens import TokenStream

META_FILE: Final = "confluent/meta.proto"
META_NAMES: Final = {
    EntityKind.RECORD.value: "confluent.message_meta",
    EntityKind.FIELD.value: "confluent.field_meta",
}


def read_tags(file: pb.FileDescriptorProto) -> dict[SchemaEntity, frozenset[str]]:
    """Return the tags of every message and field that has some."""
    return {
        entity: frozenset(labels)
        for entity, holder in _entities(file)
        if holder.HasField("options") and (labels := _labels(holder, entity.kind))
    }


def change_tags(file: pb.FileDescriptorProto, added: Tags, removed: Tags) -> None:
    """Add tags to ``file`` in place, then remove tags. Raises InvalidSchema."""
    entities = dict(_entities(file))
    for entity in dict.fromkeys([*added, *removed]):
        path = entity.path if entity.path.startswith(".") else f".{entity.path}"
        holder = entities.get(SchemaEntity(path, entity.kind))
        if holder is None:
            raise InvalidSchema(f"No matching path '{entity.path}' found in the schema")
        labels = [*_labels(holder, entity.kind), *sorted(added.get(entity, ()))]
        labels = [label for label in dict.fromkeys(labels) if label not in removed.get(entity, ())]
        _write(holder, entity.kind, labels)
        if labels and META_FILE not in file.dependency:
            file.dependency.append(META_FILE)


def _entities(file: pb.FileDescriptorProto) -> Iterator[tuple[SchemaEntity, Any]]:
    for message, path in messages_of(file):
        yield SchemaEntity.of(f".{path}", EntityKind.RECORD), message
        for field in message.field:
            yield SchemaEntity.of(f".{path}.{field.name}", EntityKind.FIELD), field


def _is_tags(option: pb.UninterpretedOption, kind: str) -> bool:
    first = option.name[0]
    if not first.is_extension or first.name_part.lstrip(".") != META_NAMES[kind]:
        return False
    return len(option.name) == 1 or option.name[1].name_part == "tags"


def _labels(holder: Any, kind: str) -> list[str]:  # noqa: ANN401
    labels: list[str] = []
    for option in holder.options.uninterpreted_option:
        if not _is_tags(option, kind):
            continue
        if len(option.name) > 1:
            labels.append(option.string_value.decode(errors="replace"))
            continue
        values = parse_aggregate(option.aggregate_value).get("tags", [])
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, str) and value.startswith('"'):
                labels.append(TokenStream(value).string())
    return labels


def _write(holder: Any, kind: str, labels: list[str]) -> None:  # noqa: ANN401
    """Replace the tags; other members of the same option stay."""
    for index, option in reversed(list(enumerate(holder.options.uninterpreted_option))):
        if not _is_tags(option, kind):
            continue
        fields = {} if len(option.name) > 1 else parse_aggregate(option.aggregate_value)
        fields.pop("tags", None)
        if fields:
            option.aggregate_value = " ".join(f"{key}: {flat(v)}" for key, v in fields.items())
        else:
            del holder.options.uninterpreted_option[index]
    for label in labels:
        option = holder.options.uninterpreted_option.add()
        option.name.add(name_part=META_NAMES[kind], is_extension=True)
        option.name.add(name_part="tags", is_extension=False)
        option.string_value = label.encode()
    if not holder.options.ListFields():
        holder.ClearField("options")
