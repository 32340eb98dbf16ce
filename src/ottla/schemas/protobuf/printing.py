"""A ``FileDescriptorProto`` to text, laid out as Confluent's registry does.

Order: syntax, package, imports, options, messages, enums, extensions, services. Within a message:
reserved, options, fields, oneofs, groups, extension ranges, extensions, messages, enums, each
section after an empty line. Comments are lost. Only ``uninterpreted_option`` is printed.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

from ottla.schemas.protobuf.options import option_texts, quoted

RANGE_END: Final = 536_870_912
ENUM_RANGE_END: Final = 2**31 - 1
_Field: Final = pb.FieldDescriptorProto
TYPE_NAMES: Final = {
    number: name.removeprefix("TYPE_").lower() for name, number in _Field.Type.items()
}
LABEL_NAMES: Final = {
    number: name.removeprefix("LABEL_").lower() for name, number in _Field.Label.items()
}


def print_file(
    file: pb.FileDescriptorProto, *, is_sorted: bool = False, has_extensions: bool = True
) -> str:
    """Return the text of a file; ``is_sorted`` also sorts options, as normalised texts have."""
    return _Printer(file, is_sorted=is_sorted, has_extensions=has_extensions).text()


def default_json_name(name: str) -> str:
    """Return the name of a field in JSON if the file gives none."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


class _Printer:
    def __init__(
        self, file: pb.FileDescriptorProto, *, is_sorted: bool, has_extensions: bool
    ) -> None:
        self._file = file
        self._is_sorted = is_sorted
        self._has_extensions = has_extensions

    def text(self) -> str:
        file = self._file
        lines: list[str] = []
        if file.syntax == "editions":
            edition = pb.Edition.Name(file.edition).removeprefix("EDITION_")
            lines.append(f'edition = "{edition}";')
        elif file.syntax and not (self._is_sorted and file.syntax == "proto2"):
            lines.append(f'syntax = "{file.syntax}";')
        if file.package:
            lines.append(f"package {file.package};")
        sections = [
            self._imports(),
            self._option_lines(file.options),
            [line for message in file.message_type for line in self._message(message)]
            + [line for enum in file.enum_type for line in self._enum(enum)],
            self._extends(file.extension, file.message_type),
            [line for service in file.service for line in self._service(service)],
        ]
        for section in sections:
            if section:
                lines += ["", *section]
        return "".join(f"{line}\n" for line in lines)

    def _imports(self) -> list[str]:
        public, weak = set(self._file.public_dependency), set(self._file.weak_dependency)
        plain = [name for i, name in enumerate(self._file.dependency) if i not in public]
        weak_names = set(self._names(weak))
        lines = [f'import {"weak " if name in weak_names else ""}"{name}";' for name in plain]
        public_lines = [f'import public "{name}";' for name in self._names(public)]
        return [*lines, *public_lines]

    def _names(self, indexes: set[int]) -> list[str]:
        return [name for i, name in enumerate(self._file.dependency) if i in indexes]

    def _option_lines(self, options: Any) -> list[str]:  # noqa: ANN401
        texts = option_texts(options.uninterpreted_option, is_sorted=self._is_sorted)
        return [line for text in texts for line in f"option {text};".split("\n")]

    def _bracketed(self, texts: list[str]) -> str:
        if not texts:
            return ""
        if len(texts) == 1:
            return f" [{texts[0]}]"
        lines = [line for text in texts for line in (text + ",").split("\n")]
        lines[-1] = lines[-1].removesuffix(",")
        return " [\n" + "".join(f"  {line}\n" for line in lines) + "]"

    def _message(self, message: pb.DescriptorProto) -> list[str]:
        return self._body(f"message {message.name}", message)

    def _body(self, head: str, message: pb.DescriptorProto) -> list[str]:
        entries, groups = _map_entries(message), _group_names(message.field)
        extension_groups = _group_names(message.extension)
        nested = [
            line
            for part in message.nested_type
            if part.name not in entries.keys() | groups | extension_groups
            for line in self._message(part)
        ]
        nested += [line for enum in message.enum_type for line in self._enum(enum)]
        plain = [field for field in message.field if _is_plain(field)]
        sections = [
            _reserved(message.reserved_range, message.reserved_name, is_enum=False),
            self._option_lines(message.options),
            [line for field in plain for line in self._field(field, entries)],
            [line for oneof in self._oneofs(message, entries) for line in oneof],
            self._groups(message),
            self._extension_ranges(message) if self._has_extensions else [],
            self._extends(message.extension, message.nested_type),
            nested,
        ]
        return _block(head, [section for section in sections if section])

    def _field(
        self, field: pb.FieldDescriptorProto, entries: dict[str, pb.DescriptorProto]
    ) -> list[str]:
        entry = entries.get(field.type_name.rpartition(".")[2])
        is_map = entry is not None and field.label == _Field.LABEL_REPEATED
        if is_map and entry is not None:
            type_name = f"map<{_type_name(entry.field[0])}, {_type_name(entry.field[1])}>"
        else:
            type_name = _type_name(field)
        label = "" if is_map else self._label(field)
        texts = option_texts(field.options.uninterpreted_option, is_sorted=self._is_sorted)
        if field.HasField("default_value"):
            is_text = field.type in (_Field.TYPE_STRING, _Field.TYPE_BYTES)
            value = quoted(field.default_value) if is_text else field.default_value
            texts.append(f"default = {value}")
        if field.json_name:
            texts.append(f"json_name = {quoted(field.json_name)}")
        options = self._bracketed(sorted(texts) if self._is_sorted else texts)
        return f"{label}{type_name} {field.name} = {field.number}{options};".split("\n")

    def _label(self, field: pb.FieldDescriptorProto) -> str:
        is_member = field.HasField("oneof_index") and not field.proto3_optional
        is_implied = field.label == _Field.LABEL_OPTIONAL and (
            self._file.syntax in ("proto3", "editions") and not field.proto3_optional
        )
        if not field.HasField("label") or is_member or is_implied:
            return ""
        return f"{LABEL_NAMES[field.label]} "

    def _oneofs(
        self, message: pb.DescriptorProto, entries: dict[str, pb.DescriptorProto]
    ) -> Iterator[list[str]]:
        members_of: dict[int, list[pb.FieldDescriptorProto]] = {}
        for field in message.field:
            if field.HasField("oneof_index") and field.type != _Field.TYPE_GROUP:
                members_of.setdefault(field.oneof_index, []).append(field)
        for index, oneof in enumerate(message.oneof_decl):
            members = members_of.get(index, [])
            if any(field.proto3_optional for field in members):
                continue
            sections = [
                self._option_lines(oneof.options),
                [line for field in members for line in self._field(field, entries)],
            ]
            yield _block(f"oneof {oneof.name}", [section for section in sections if section])

    def _groups(self, message: pb.DescriptorProto) -> list[str]:
        bodies = {nested.name: nested for nested in message.nested_type}
        return [
            line
            for field in message.field
            if field.type == _Field.TYPE_GROUP
            for line in self._group(field, bodies)
        ]

    def _group(
        self, field: pb.FieldDescriptorProto, bodies: dict[str, pb.DescriptorProto]
    ) -> list[str]:
        name = field.type_name.rpartition(".")[2]
        body = bodies.get(name, pb.DescriptorProto())
        return self._body(f"{self._label(field)}group {name} = {field.number}", body)

    def _extension_ranges(self, message: pb.DescriptorProto) -> list[str]:
        lines: list[str] = []
        for part in message.extension_range:
            texts = option_texts(part.options.uninterpreted_option, is_sorted=self._is_sorted)
            numbers = _range(part.start, part.end, RANGE_END)
            lines += f"extensions {numbers}{self._bracketed(texts)};".split("\n")
        return lines

    def _extends(self, extensions: Any, nested: Any) -> list[str]:  # noqa: ANN401
        if not self._has_extensions:
            return []
        lines: list[str] = []
        bodies = {message.name: message for message in nested}
        for extendee, group in groupby(extensions, lambda field: field.extendee):
            body: list[str] = []
            for field in group:
                is_group = field.type == _Field.TYPE_GROUP
                body += self._group(field, bodies) if is_group else self._field(field, {})
            lines += _block(f"extend {extendee}", [body])
        return lines

    def _enum(self, enum: pb.EnumDescriptorProto) -> list[str]:
        values: list[str] = []
        for value in enum.value:
            texts = option_texts(value.options.uninterpreted_option, is_sorted=self._is_sorted)
            values += f"{value.name} = {value.number}{self._bracketed(texts)};".split("\n")
        reserved = _reserved(enum.reserved_range, enum.reserved_name, is_enum=True)
        # Unlike in messages, no empty line follows the reserved numbers.
        body = [*reserved, *self._option_lines(enum.options), *values]
        return _block(f"enum {enum.name}", [body] if body else [])

    def _service(self, service: pb.ServiceDescriptorProto) -> list[str]:
        methods: list[str] = []
        for method in service.method:
            request = ("stream " if method.client_streaming else "") + method.input_type
            response = ("stream " if method.server_streaming else "") + method.output_type
            head = f"rpc {method.name} ({request}) returns ({response})"
            options = self._option_lines(method.options)
            if options:
                methods += [f"{head} {{", *(f"  {line}" for line in options), "};"]
            else:
                methods.append(f"{head};")
        sections = [self._option_lines(service.options), methods]
        return _block(f"service {service.name}", [section for section in sections if section])


def _block(head: str, sections: list[list[str]]) -> list[str]:
    if not sections:
        return [f"{head} {{}}"]
    lines = [f"{head} {{"]
    for index, section in enumerate(sections):
        if index:
            lines.append("")
        lines += [f"  {line}" for line in section]
    return [*lines, "}"]


def _map_entries(message: pb.DescriptorProto) -> dict[str, pb.DescriptorProto]:
    entries = (part for part in message.nested_type if part.options.map_entry)
    return {entry.name: entry for entry in entries if len(entry.field) == 2}


def _group_names(fields: Iterable[pb.FieldDescriptorProto]) -> set[str]:
    groups = (field for field in fields if field.type == _Field.TYPE_GROUP)
    return {field.type_name.rpartition(".")[2] for field in groups}


def _is_plain(field: pb.FieldDescriptorProto) -> bool:
    is_member = field.HasField("oneof_index") and not field.proto3_optional
    return not is_member and field.type != _Field.TYPE_GROUP


def _type_name(field: pb.FieldDescriptorProto) -> str:
    return str(field.type_name or TYPE_NAMES[field.type])


def _reserved(ranges: Any, names: Iterable[str], *, is_enum: bool) -> list[str]:  # noqa: ANN401
    end = ENUM_RANGE_END + 1 if is_enum else RANGE_END
    numbers = [_range(part.start, part.end + (1 if is_enum else 0), end) for part in ranges]
    # How the file spread them over statements is lost: normalised texts have one statement each.
    return [f"reserved {text};" for text in [*numbers, *(f'"{name}"' for name in names)]]


def _range(start: int, end: int, highest: int) -> str:
    if end - start == 1:
        return str(start)
    return f"{start} to {'max' if end >= highest else end - 1}"
