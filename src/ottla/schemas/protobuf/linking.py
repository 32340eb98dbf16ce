"""Find the files that a schema imports, and the types that its names mean.

``Linked`` holds copies in which every name is resolved (``.package.Message``) and every field has a
type, as protoc's output has them. A descriptor pool then checks what Protobuf requires of a file.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool

from ottla.schemas.bounds import REFERENCES_MAX
from ottla.schemas.contract import InvalidSchema
from ottla.schemas.protobuf.builtin import builtin_file
from ottla.schemas.protobuf.checking import problems_of

ROOT_NAME: Final = "default"
_Field: Final = pb.FieldDescriptorProto


class Linked:
    """A file and the files it imports, with all names resolved.

    ``types`` maps full names without a leading dot to messages and enums, ``packages`` to the
    packages they are declared in.
    """

    def __init__(
        self, root: pb.FileDescriptorProto, references: Mapping[str, pb.FileDescriptorProto]
    ) -> None:
        self.files = _in_order(root, references)
        self.root = self.files[-1]
        self.types: dict[str, pb.DescriptorProto | pb.EnumDescriptorProto] = {}
        self.packages: dict[str, str] = {}
        self.extensions: dict[str, pb.FieldDescriptorProto] = {}
        for file in self.files:
            self._enter_file(file)
        for file in self.files:
            if not file.name.startswith("google/protobuf/"):
                self._resolve_file(file)

    def check(self) -> "descriptor_pool.DescriptorPool":
        """Return a pool with all files. Raises InvalidSchema if Protobuf does not accept them."""
        for message, path in messages_of(self.root):
            for problem in problems_of(message, self.root.syntax):
                raise InvalidSchema(f"Invalid Protobuf schema: {path}: {problem}")
        pool = descriptor_pool.DescriptorPool()
        for file in self.files:
            copy = completed(file)
            remove_options(copy)
            try:
                pool.AddSerializedFile(copy.SerializeToString())
            except (TypeError, ValueError) as error:
                reason = str(error).rpartition("descriptor pool: ")[2]
                raise InvalidSchema(f"Invalid Protobuf schema: {file.name}: {reason}") from None
        return pool

    def find(self, name: str, scope: str) -> str | None:
        """Return the full name of the type that ``name`` means within ``scope``."""
        return _find(name, scope, self.types)

    def find_extension(self, name: str, scope: str) -> str | None:
        """Return the full name of the extension that ``name`` means within ``scope``."""
        return _find(name, scope, self.extensions)

    def _enter_file(self, file: pb.FileDescriptorProto) -> None:
        for message, path in messages_of(file):
            self.types[path] = message
            self.packages[path] = file.package
            for enum in message.enum_type:
                self.types[f"{path}.{enum.name}"] = enum
                self.packages[f"{path}.{enum.name}"] = file.package
            for extension in message.extension:
                self.extensions[f"{path}.{extension.name}"] = extension
        for enum in file.enum_type:
            path = joined(file.package, enum.name)
            self.types[path] = enum
            self.packages[path] = file.package
        for extension in file.extension:
            self.extensions[joined(file.package, extension.name)] = extension

    def _resolve_file(self, file: pb.FileDescriptorProto) -> None:
        for field in file.extension:
            self._resolve_field(field, file.package)
        for message, path in messages_of(file):
            for field in [*message.field, *message.extension]:
                self._resolve_field(field, path)
        for service in file.service:
            for method in service.method:
                method.input_type = self._resolved(method.input_type, file.package)
                method.output_type = self._resolved(method.output_type, file.package)

    def _resolve_field(self, field: pb.FieldDescriptorProto, scope: str) -> None:
        if field.extendee:
            field.extendee = self._resolved(field.extendee, scope)
        if not field.type_name:
            if field.type in (_Field.TYPE_MESSAGE, _Field.TYPE_ENUM, _Field.TYPE_GROUP):
                raise InvalidSchema(f"Invalid Protobuf schema: {scope}.{field.name} has no type")
            return
        field.type_name = self._resolved(field.type_name, scope)
        if isinstance(self.types[field.type_name[1:]], pb.EnumDescriptorProto):
            field.type = _Field.TYPE_ENUM
        elif field.type != _Field.TYPE_GROUP:
            field.type = _Field.TYPE_MESSAGE

    def _resolved(self, name: str, scope: str) -> str:
        full_name = self.find(name, scope)
        if full_name is None:
            raise InvalidSchema(
                f"Invalid Protobuf schema: {scope or 'file'}: {name!r} is not defined"
            )
        return f".{full_name}"


def _find(name: str, scope: str, names: Mapping[str, object]) -> str | None:
    if name.startswith("."):
        return name[1:] if name[1:] in names else None
    while True:
        candidate = joined(scope, name)
        if candidate in names:
            return candidate
        if not scope:
            return None
        scope = scope.rpartition(".")[0]


def joined(scope: str, name: str) -> str:
    """Return the full name of ``name`` within ``scope``."""
    return f"{scope}.{name}" if scope else name


def messages_of(file: pb.FileDescriptorProto) -> Iterator[tuple[pb.DescriptorProto, str]]:
    """Yield every message of a file with its full name, outer ones first."""
    waiting = [(message, joined(file.package, message.name)) for message in file.message_type]
    waiting.reverse()
    while waiting:
        message, path = waiting.pop()
        yield message, path
        nested = [(part, f"{path}.{part.name}") for part in message.nested_type]
        waiting += reversed(nested)


def completed(file: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
    """Return a copy in which every field has a label, as protoc's output has."""
    copy = pb.FileDescriptorProto.FromString(file.SerializeToString())
    fields = [*copy.extension]
    for message, _ in messages_of(copy):
        fields += [*message.field, *message.extension]
    for field in fields:
        if not field.HasField("label"):
            field.label = _Field.LABEL_OPTIONAL
    if copy.syntax == "proto2":
        copy.ClearField("syntax")
    return copy


def remove_options(file: pb.FileDescriptorProto) -> None:
    """Remove options that are not interpreted: a pool has no use for them."""
    holders = [file, *file.enum_type, *file.extension, *file.service]
    holders += [value for enum in file.enum_type for value in enum.value]
    holders += [method for service in file.service for method in service.method]
    for message, _ in messages_of(file):
        holders += [message, *message.field, *message.extension, *message.oneof_decl]
        holders += [*message.extension_range, *message.enum_type]
        holders += [value for enum in message.enum_type for value in enum.value]
    for holder in holders:
        if holder.HasField("options") and holder.options.uninterpreted_option:
            del holder.options.uninterpreted_option[:]


def _in_order(
    root: pb.FileDescriptorProto, references: Mapping[str, pb.FileDescriptorProto]
) -> list[pb.FileDescriptorProto]:
    """Return copies of the imported files, each after those it imports; the root is the last."""
    ordered: dict[str, pb.FileDescriptorProto] = {}
    is_open: set[str] = set()
    copy = pb.FileDescriptorProto.FromString(root.SerializeToString())
    copy.name = root.name or ROOT_NAME
    if copy.name in references or builtin_file(copy.name) is not None:
        copy.name = f"{copy.name}.root"
    stack = [(copy, iter(copy.dependency))]
    while stack:
        file, imports = stack[-1]
        name = next(imports, None)
        if name is None:
            stack.pop()
            ordered[file.name] = file
            continue
        if name in ordered:
            continue
        if name in is_open or name == copy.name:
            raise InvalidSchema(f"Invalid Protobuf schema: {name!r} imports itself")
        source = references.get(name) or builtin_file(name)
        if source is None:
            raise InvalidSchema(f"Invalid Protobuf schema: import {name!r} has no reference")
        if len(is_open) > REFERENCES_MAX:
            raise InvalidSchema("Invalid Protobuf schema: too many imports")
        is_open.add(name)
        imported = pb.FileDescriptorProto.FromString(source.SerializeToString())
        imported.name = name
        stack.append((imported, iter(imported.dependency)))
    return list(ordered.values())
