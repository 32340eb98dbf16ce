"""Whether a reader's Protobuf schema can read what was written with the writer's.

Confluent's rules: messages are compared by name, fields by number. Adding, removing and renaming
fields is harmless, because readers skip unknown numbers; changing the type of a number is not,
unless both types have the same encoding.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from google.protobuf import descriptor_pb2 as pb

from ottla.schemas.bounds import DIFFERENCES_MAX, PAIRS_MAX
from ottla.schemas.contract import Difference, InvalidSchema
from ottla.schemas.nested_calls import Call, run_nested
from ottla.schemas.protobuf.linking import Linked, joined

_Field: Final = pb.FieldDescriptorProto
# Types with the same encoding. A field may change within a group.
SCALAR_GROUPS: Final[dict[int, str]] = {
    **dict.fromkeys(
        (
            _Field.TYPE_INT32,
            _Field.TYPE_INT64,
            _Field.TYPE_UINT32,
            _Field.TYPE_UINT64,
            _Field.TYPE_BOOL,
            _Field.TYPE_ENUM,
        ),
        "number",
    ),
    **dict.fromkeys((_Field.TYPE_SINT32, _Field.TYPE_SINT64), "signed number"),
    **dict.fromkeys((_Field.TYPE_STRING, _Field.TYPE_BYTES), "text"),
    **dict.fromkeys((_Field.TYPE_FIXED32, _Field.TYPE_SFIXED32), "fixed32"),
    **dict.fromkeys((_Field.TYPE_FIXED64, _Field.TYPE_SFIXED64), "fixed64"),
    _Field.TYPE_FLOAT: "float",
    _Field.TYPE_DOUBLE: "double",
}
# The words are ours; the names of the rules are those that clients know.
MESSAGES: Final[dict[str, tuple[str, str, str]]] = {
    "PACKAGE_CHANGED": ("Package at '{}': the ", " schema has another one than the ", " schema"),
    "MESSAGE_REMOVED": ("The ", " schema lacks message '{}' of the ", " schema"),
    "FIELD_KIND_CHANGED": (
        "Field '{}' has a type of another kind in the ",
        " schema than in the ",
        " schema",
    ),
    "FIELD_SCALAR_KIND_CHANGED": (
        "Field '{}' has a scalar type in the ",
        " schema that cannot read the one of the ",
        " schema",
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "Field '{}' refers to another message in the ",
        " schema than in the ",
        " schema",
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "Numeric field '{}' has another label in the ",
        " schema than in the ",
        " schema",
    ),
    "REQUIRED_FIELD_ADDED": (
        "Field '{}' is required by the ",
        " schema, but not in the ",
        " schema",
    ),
    "REQUIRED_FIELD_REMOVED": ("The ", " schema lacks field '{}', required by the ", " schema"),
    "ONEOF_FIELD_REMOVED": ("The ", " schema lacks field '{}' in a oneof of the ", " schema"),
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Oneof '{}' of the ",
        " schema combines several fields that stand alone in the ",
        " schema",
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "Oneof '{}' of the ",
        " schema takes in a field that stands outside of it in the ",
        " schema",
    ),
}
Path = tuple[str, ...]
Result = list[Difference]


def compare_files(writer: Linked, reader: Linked) -> list[Difference]:
    """Return why ``reader`` cannot read data of ``writer``. Raises InvalidSchema if too large."""
    result: Result = []
    if writer.root.package != reader.root.package:
        result.append(_difference("PACKAGE_CHANGED", ()))
    comparison = _Comparison(writer, reader)
    scopes = writer.root.package, reader.root.package
    result += run_nested(
        comparison.types(writer.root.message_type, reader.root.message_type, scopes, ())
    )
    return result[:DIFFERENCES_MAX]


def _difference(rule: str, path: Path) -> Difference:
    where = "#/" + "/".join(path)
    texts = [text.replace("{}", where) for text in MESSAGES[rule]]
    texts[0] = f'{{errorType:"{rule}", description:"{texts[0]}'
    texts[-1] += '"}'
    return Difference(rule, where, rule.replace("_", " ").capitalize(), tuple(texts))


@dataclass(slots=True)
class _Fields:
    """The fields of a message by number, and the oneof that each one is in."""

    by_number: dict[int, pb.FieldDescriptorProto] = field(default_factory=dict)
    oneof_of: dict[int, str] = field(default_factory=dict)
    oneofs: dict[str, list[int]] = field(default_factory=dict)

    @staticmethod
    def of(message: pb.DescriptorProto) -> "_Fields":
        fields = _Fields()
        synthetic = {part.oneof_index for part in message.field if part.proto3_optional}
        names = [oneof.name for oneof in message.oneof_decl]
        fields.oneofs = {name: [] for i, name in enumerate(names) if i not in synthetic}
        for part in message.field:
            fields.by_number[part.number] = part
            if part.HasField("oneof_index") and part.oneof_index not in synthetic:
                if part.oneof_index >= len(names):
                    continue
                name = names[part.oneof_index]
                fields.oneof_of[part.number] = name
                fields.oneofs[name].append(part.number)
        return fields


class _Comparison:
    """One comparison. A pair of messages is compared once; recursion ends there."""

    def __init__(self, writer: Linked, reader: Linked) -> None:
        self._writer = writer
        self._reader = reader
        self._results: dict[tuple[str, str], Result] = {}
        self._steps = 0

    def types(
        self,
        writer: Iterable[pb.DescriptorProto],
        reader: Iterable[pb.DescriptorProto],
        scopes: tuple[str, str],
        path: Path,
    ) -> Call[Result]:
        """Compare messages of one scope by name."""
        old = {message.name: message for message in writer if not message.options.map_entry}
        new = {message.name: message for message in reader if not message.options.map_entry}
        result: Result = []
        for name in old:
            if name not in new:
                result.append(_difference("MESSAGE_REMOVED", (*path, name)))
                continue
            names = joined(scopes[0], name), joined(scopes[1], name)
            result += yield self._messages(names, (*path, name))
            if len(result) >= DIFFERENCES_MAX:
                break
        return result

    def _messages(self, names: tuple[str, str], path: Path) -> Call[Result]:
        """Compare two messages by their full names. ``path`` is that of the first use."""
        if names in self._results:
            return self._results[names]
        self._steps += 1
        if self._steps > PAIRS_MAX:
            raise InvalidSchema(f"The schemas have more than {PAIRS_MAX} pairs to compare")
        self._results[names] = []
        writer, reader = self._writer.types[names[0]], self._reader.types[names[1]]
        assert isinstance(writer, pb.DescriptorProto)
        assert isinstance(reader, pb.DescriptorProto)
        old, new = _Fields.of(writer), _Fields.of(reader)
        result = list(_oneof_moves(old, new, path))
        for number in sorted(old.by_number.keys() | new.by_number.keys()):
            result += yield self._field(old, new, number, path)
        result += yield self.types(writer.nested_type, reader.nested_type, names, path)
        self._results[names] = result[:DIFFERENCES_MAX]
        return self._results[names]

    def _field(self, old: _Fields, new: _Fields, number: int, path: Path) -> Call[Result]:
        before, after = old.by_number.get(number), new.by_number.get(number)
        oneof = new.oneof_of.get(number)
        if after is None:
            assert before is not None
            return list(_removed(before, old, new, path))
        if before is None:
            is_required = oneof is None and after.label == _Field.LABEL_REQUIRED
            where = (*path, str(number))
            return [_difference("REQUIRED_FIELD_ADDED", where)] if is_required else []
        where = (*path, oneof, str(number)) if oneof else (*path, str(number))
        labels = before.label, after.label
        if oneof or number in old.oneof_of:
            labels = _Field.LABEL_OPTIONAL, _Field.LABEL_OPTIONAL
        is_written = _has_label(before, self._writer), _has_label(after, self._reader)
        if not all(is_written):
            labels = _Field.LABEL_OPTIONAL, _Field.LABEL_OPTIONAL
        result: Result = yield self._kinds(before, after, labels, where)
        return result

    def _kinds(
        self,
        before: pb.FieldDescriptorProto,
        after: pb.FieldDescriptorProto,
        labels: tuple[int, int],
        path: Path,
    ) -> Call[Result]:
        old_entry, new_entry = _entry(before, self._writer), _entry(after, self._reader)
        kinds = [
            "map" if entry else "scalar" if part.type in SCALAR_GROUPS else "message"
            for entry, part in ((old_entry, before), (new_entry, after))
        ]
        result: Result = []
        if kinds[0] != kinds[1]:
            result.append(_difference("FIELD_KIND_CHANGED", path))
        elif old_entry is not None and new_entry is not None:
            optional = _Field.LABEL_OPTIONAL, _Field.LABEL_OPTIONAL
            for old, new in zip(old_entry.field, new_entry.field, strict=False):
                result += yield self._kinds(old, new, optional, path)
        elif kinds[0] == "scalar":
            result += _scalars(before, after, labels, path)
        else:
            result += yield self._named_types(before.type_name[1:], after.type_name[1:], path)
        return result

    def _named_types(self, old: str, new: str, path: Path) -> Call[Result]:
        names = [
            name.removeprefix(f"{linked.packages[name]}.")
            for name, linked in ((old, self._writer), (new, self._reader))
        ]
        if names[0] != names[1]:
            return [_difference("FIELD_NAMED_TYPE_CHANGED", path)]
        result = yield self._messages((old, new), tuple(names[0].split(".")))
        return [*result, _difference("FIELD_NAMED_TYPE_CHANGED", path)] if result else []


def _has_label(part: pb.FieldDescriptorProto, linked: Linked) -> bool:
    """Return whether the text states a label; proto3 has no word for a singular field."""
    if not part.HasField("label"):
        return False
    if part.label != _Field.LABEL_OPTIONAL or part.proto3_optional:
        return True
    return linked.root.syntax not in ("proto3", "editions")


def _entry(part: pb.FieldDescriptorProto, linked: Linked) -> pb.DescriptorProto | None:
    type_ = linked.types.get(part.type_name[1:]) if part.type_name else None
    is_map = isinstance(type_, pb.DescriptorProto) and type_.options.map_entry
    return type_ if is_map and isinstance(type_, pb.DescriptorProto) else None


def _scalars(
    before: pb.FieldDescriptorProto,
    after: pb.FieldDescriptorProto,
    labels: tuple[int, int],
    path: Path,
) -> Result:
    group = SCALAR_GROUPS[before.type]
    if group != SCALAR_GROUPS[after.type]:
        return [_difference("FIELD_SCALAR_KIND_CHANGED", path)]
    if labels[0] != labels[1] and group != "text":
        return [_difference("FIELD_NUMERIC_LABEL_CHANGED", path)]
    return []


def _removed(
    part: pb.FieldDescriptorProto, old: _Fields, new: _Fields, path: Path
) -> Iterator[Difference]:
    """Yield why a field must not be removed. A whole oneof may be."""
    oneof = old.oneof_of.get(part.number)
    if oneof is not None:
        is_deleted = oneof not in new.oneofs and not any(
            number in new.by_number for number in old.oneofs[oneof]
        )
        if not is_deleted:
            yield _difference("ONEOF_FIELD_REMOVED", (*path, oneof, str(part.number)))
    elif part.label == _Field.LABEL_REQUIRED:
        yield _difference("REQUIRED_FIELD_REMOVED", (*path, str(part.number)))


def _oneof_moves(old: _Fields, new: _Fields, path: Path) -> Iterator[Difference]:
    """Yield oneofs that make fields exclude each other which could be set together before."""
    for oneof, numbers in new.oneofs.items():
        earlier = {
            old.oneof_of.get(number) or str(number) for number in numbers if number in old.by_number
        }
        moved = [
            number for number in numbers if number in old.by_number and number not in old.oneof_of
        ]
        if len(earlier) > 1:
            rule = "MULTIPLE_FIELDS_MOVED_TO_ONEOF"
            if len(moved) <= 1:
                rule = "FIELD_MOVED_TO_EXISTING_ONEOF"
            yield _difference(rule, (*path, oneof))
