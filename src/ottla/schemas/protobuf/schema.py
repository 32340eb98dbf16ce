"""A parsed Protobuf schema: what the registry sees of this package.

A schema arrives as the text of a .proto file, or as a ``FileDescriptorProto`` in base64 (the Python
serializer sends that). A descriptor is printed and its text parsed, so that both are one form.
"""

import base64
import binascii
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.message import DecodeError, Message

from ottla.schemas.contract import Difference, InvalidSchema, ParsedSchema, SchemaType, Tags
from ottla.schemas.protobuf.compatibility import compare_files
from ottla.schemas.protobuf.interpreting import encode_options, write_options
from ottla.schemas.protobuf.linking import (
    Linked,
    completed,
    joined,
    messages_of,
    remove_options,
)
from ottla.schemas.protobuf.normalising import normalised_text
from ottla.schemas.protobuf.parsing import parse_file
from ottla.schemas.protobuf.printing import default_json_name, print_file
from ottla.schemas.protobuf.tags import change_tags, read_tags


def parse_protobuf(text: str, references: Mapping[str, str], *, validate: bool) -> "ProtobufSchema":
    """Parse a schema; references are named as the file imports them. Raises InvalidSchema."""
    schema = ProtobufSchema(text, references, _read(text, references))
    if validate:
        schema.validate()
    return schema


def compare_protobuf(reader: ParsedSchema, writer: ParsedSchema) -> list[Difference]:
    """Return why ``reader`` cannot read data of ``writer``."""
    assert isinstance(reader, ProtobufSchema)
    assert isinstance(writer, ProtobufSchema)
    return compare_files(writer.linked, reader.linked)


def _read(text: str, references: Mapping[str, str]) -> pb.FileDescriptorProto:
    descriptor = _descriptor(text)
    if descriptor is None:
        return parse_file(text)
    try:
        linked = Linked(descriptor, {name: _read(t, {}) for name, t in references.items()})
        pool = linked.check()
    except InvalidSchema:
        pool = None
    write_options(descriptor, pool)
    for message, _ in messages_of(descriptor):
        for field in message.field:  # protoc's output names every field
            if field.json_name == default_json_name(field.name):
                field.ClearField("json_name")
    return parse_file(print_file(descriptor))


def _descriptor(text: str) -> pb.FileDescriptorProto | None:
    """Return the descriptor if ``text`` is one in base64, otherwise None."""
    try:
        data = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    try:
        descriptor = pb.FileDescriptorProto.FromString(data)
    except DecodeError:
        return None
    is_empty = not descriptor.ListFields()
    if not is_empty:
        _check_texts(descriptor)
    return None if is_empty else descriptor


def _check_texts(message: Message) -> None:
    """Check that all strings are UTF-8: the library returns others as bytes."""
    for field, value in message.ListFields():
        values = _items(value)
        if field.type == field.TYPE_STRING and any(isinstance(item, bytes) for item in values):
            raise InvalidSchema(f"Invalid Protobuf schema: {field.name} is not UTF-8")
        if field.type == field.TYPE_MESSAGE:
            for item in values:
                _check_texts(item)


def _items(value: Any) -> list[Any]:  # noqa: ANN401 - of any field
    """Return the value of a field as a list; of a map its values that are messages."""
    if hasattr(value, "items"):
        return [item for item in value.values() if isinstance(item, Message)]
    return list(value) if hasattr(value, "extend") else [value]


class ProtobufSchema(ParsedSchema):
    """A parsed Protobuf schema. ``file`` has names and options as written, and is not changed."""

    schema_type = SchemaType.PROTOBUF

    def __init__(
        self, text: str, references: Mapping[str, str], file: pb.FileDescriptorProto
    ) -> None:
        self._text = text
        self._references = references
        self._file = file

    @property
    def text(self) -> str:
        """The text as the client sent it."""
        return self._text

    @cached_property
    def canonical(self) -> str:
        """The text in Confluent's layout, without comments."""
        return print_file(self._file)

    @property
    def name(self) -> str | None:
        """The full name of the first message, or of the first enum."""
        types = [*self._file.message_type, *self._file.enum_type]
        return joined(self._file.package, types[0].name) if types else None

    @property
    def references(self) -> Mapping[str, str]:
        """The texts of the referenced schemas by name."""
        return self._references

    @cached_property
    def linked(self) -> Linked:
        """The file and its imports with all names resolved. Raises InvalidSchema."""
        references = {name: _read(text, {}) for name, text in self._references.items()}
        return Linked(self._file, references)

    @cached_property
    def tags(self) -> Tags:
        """The inline tags of messages and fields."""
        return read_tags(self._file)

    def normalised(self) -> "ProtobufSchema":
        """Return the schema with fields, options and imports in order, and names resolved."""
        text = normalised_text(self.linked)
        return ProtobufSchema(text, self._references, parse_file(text))

    def formatted(self, format: str) -> str:
        """Return ``canonical``, the ``serialized`` descriptor, or text without extensions."""
        match format.strip().lower():
            case "serialized":
                return base64.b64encode(self.descriptor().SerializeToString()).decode()
            case "ignore_extensions":
                return print_file(self._file, has_extensions=False)
            case _:
                return self.canonical

    def descriptor(self) -> pb.FileDescriptorProto:
        """Return the descriptor that protoc would give. Raises InvalidSchema."""
        linked = self.linked
        file = completed(linked.root)
        encode_options(file, linked, linked.check())
        remove_options(file)
        return file

    def with_tags(self, added: Tags, removed: Tags) -> "ProtobufSchema":
        """Return the schema with tags added, then removed. Raises InvalidSchema."""
        file = pb.FileDescriptorProto.FromString(self._file.SerializeToString())
        change_tags(file, added, removed)
        return ProtobufSchema(print_file(file), self._references, file)

    def has_top_level_field(self, name: str) -> bool:
        """Return whether the first message has a field of this name."""
        messages = self._file.message_type
        return bool(messages) and any(field.name == name for field in messages[0].field)

    def validate(self, *, strict: bool = False) -> None:
        """Check that all names are defined and Protobuf accepts the file. Raises InvalidSchema."""
        self.linked.check()
