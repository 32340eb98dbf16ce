"""Decodes values of one Protobuf message each into the columns of its descriptor.

The schema file is the output of ``protoc --include_imports --descriptor_set_out=FILE``. Producers
that use a schema registry write five bytes and a list of indexes before the message (0, the schema
id, then zigzag varints: the count and each index); these are skipped.

==========================  ================================
Protobuf                    column
==========================  ================================
int32, sint32, sfixed32     int
the other 32 and 64 bits    bigint
float, double, bool         float, double, boolean
string, enum                string
bytes                       binary
message, map, repeated      struct, map, array
google.protobuf.Timestamp   timestamp
==========================  ================================

An unset field with presence (a message, ``optional``) is null; any other unset field has its
default, as in Protobuf's own readers.
"""

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, TypeAlias

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from ottla.formats.schema_bounds import BadSchema, FieldCount
from ottla.formats.wire_format import split_frame, split_indexes

Datum: TypeAlias = Any
"""The value of a field, of any Protobuf type."""

_INT32: Final = frozenset(
    {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32}
)
_SCALAR: Final = {
    FieldDescriptor.CPPTYPE_INT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.int64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_INT64_MAX: Final = 2**63 - 1
_GOOGLE_FILE: Final = re.compile(r"google/protobuf/(compiler/)?[a-z_]+\.proto")


class ProtobufValues:
    """Decodes values of one message type."""

    def __init__(self, descriptors: bytes, message: str, *, framed: bool = False) -> None:
        self._made_of = (descriptors, message, framed)
        pool = descriptor_pool.DescriptorPool()
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
            for each in files.file:
                pool.Add(each)
            self._descriptor = pool.FindMessageTypeByName(message)
        except KeyError:
            raise BadSchema(f"the schema file has no message {message!r}") from None
        except (DecodeError, TypeError) as error:
            raise BadSchema(f"not a set of Protobuf descriptors: {error}") from error
        self._class = message_factory.GetMessageClass(self._descriptor)
        self.is_framed = framed
        self.columns = pa.schema(list(_Columns().struct(self._descriptor, ())))

    def __reduce__(self) -> tuple[object, ...]:
        # Message classes cannot be pickled: each worker builds its own.
        return _made_of, self._made_of

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return one value's columns.

        Raises:
            ValueError: the bytes are not such a message, or a number does not fit its column.
        """
        found = self._class()
        try:
            found.ParseFromString(_unframed(value) if self.is_framed else value)
        except DecodeError as error:
            raise ValueError(f"not a {self._descriptor.name}: {error}") from error
        return _fields(found)


def _made_of(descriptors: bytes, message: str, framed: bool) -> ProtobufValues:
    return ProtobufValues(descriptors, message, framed=framed)


def _unframed(value: bytes) -> bytes:
    _, start = split_frame(value)
    return value[split_indexes(value, start)[1] :]


# -- descriptors of a registry -----------------------------------------------


def descriptor_set(files: Mapping[str, bytes]) -> bytes:
    """Return serialized file descriptors as one set, with Google's own files that they import.

    Raises:
        BadSchema: a file is not a descriptor, or imports one that is not there.
    """
    found: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    for name, content in files.items():
        try:
            file = descriptor_pb2.FileDescriptorProto.FromString(content)
        except DecodeError as error:
            raise BadSchema(f"{name} is not a Protobuf descriptor: {error}") from error
        file.name = name
        for imported in file.dependency:
            if imported not in found:
                found[imported] = _google_file(imported)
        found[name] = file
    return bytes(descriptor_pb2.FileDescriptorSet(file=found.values()).SerializeToString())


def _google_file(name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return one of the files that come with Protobuf. Raises BadSchema."""
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if _GOOGLE_FILE.fullmatch(name) is None:
        raise BadSchema(f"the schema imports {name}, which is not among its references")
    try:
        descriptor = import_module(module).DESCRIPTOR
    except ImportError:
        raise BadSchema(f"the schema imports {name}, which does not exist") from None
    return descriptor_pb2.FileDescriptorProto.FromString(descriptor.serialized_pb)


def message_at(descriptors: bytes, indexes: Sequence[int]) -> str:
    """Return the full name of the message at a path in the last file of a set.

    Raises:
        ValueError: there is none.
    """
    file = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file[-1]
    names, level = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if not 0 <= index < len(level):
            raise ValueError(f"the schema has no message at {list(indexes)}")
        names.append(level[index].name)
        level = level[index].nested_type
    return ".".join(names)


def first_message(descriptors: bytes) -> str:
    """Return the full name of the first message. Raises BadSchema if there is none."""
    try:
        return message_at(descriptors, (0,))
    except ValueError as error:
        raise BadSchema(str(error)) from error


# -- columns -----------------------------------------------------------------


class _Columns:
    """Makes the columns of a descriptor; a message that several fields have is expanded in each."""

    def __init__(self) -> None:
        self._count = FieldCount()

    def struct(self, descriptor: Descriptor, path: tuple[str, ...]) -> pa.StructType:
        """Return the type of a message inside of those in ``path``. Raises BadSchema."""
        if descriptor.full_name in path:
            raise BadSchema(f"{descriptor.full_name} is recursive: {' > '.join(path)}")
        inside = (*path, descriptor.full_name)
        return pa.struct(
            [pa.field(each.name, self._column(each, inside)) for each in descriptor.fields]
        )

    def _column(self, field: FieldDescriptor, path: tuple[str, ...]) -> pa.DataType:
        self._count.add(len(path))
        if _is_map(field):
            key, value = (field.message_type.fields_by_name[each] for each in ("key", "value"))
            return pa.map_(self._single(key, path), self._single(value, path))
        one = self._single(field, path)
        return pa.list_(one) if field.is_repeated else one

    def _single(self, field: FieldDescriptor, path: tuple[str, ...]) -> pa.DataType:
        if field.message_type is not None:
            if field.message_type.full_name == _TIMESTAMP:
                return pa.timestamp("us", "UTC")
            return self.struct(field.message_type, path)
        if field.type in _INT32:
            return pa.int32()
        if field.type == FieldDescriptor.TYPE_BYTES:
            return pa.binary()
        return _SCALAR.get(field.cpp_type, pa.string())


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return field.is_repeated and kind is not None and kind.GetOptions().map_entry


# -- values ------------------------------------------------------------------


def _fields(message: Message) -> dict[str, Any]:
    return {each.name: _value(message, each) for each in message.DESCRIPTOR.fields}


def _value(message: Message, field: FieldDescriptor) -> Datum:
    found = getattr(message, field.name)
    if _is_map(field):
        value = field.message_type.fields_by_name["value"]
        return [(key, _plain(value, found[key])) for key in found]
    if field.is_repeated:
        return [_plain(field, each) for each in found]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(field, found)


def _plain(field: FieldDescriptor, value: Datum) -> Datum:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return value.seconds * 1_000_000 + value.nanos // 1000
        return _fields(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if isinstance(value, int) and value > _INT64_MAX:
        raise ValueError(f"{field.name}: {value} does not fit a bigint")
    return value
