"""Encodes Protobuf messages, and declares messages for columns.

A column of structs becomes a message in proto3 (`message_of`): every field of a plain type is
``optional``, so that a null stays a null; structs are nested messages, lists ``repeated`` fields,
maps ``map`` fields, and timestamps ``google.protobuf.Timestamp``. Fields are numbered in the order
of the columns: a column that is added must come last, as the registry's compatibility rules demand.
"""

import datetime
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from ottla.formats.protobuf_values import descriptor_set, first_message
from ottla.formats.schema_bounds import BadSchema

Datum: TypeAlias = Any
Field: TypeAlias = descriptor_pb2.FieldDescriptorProto
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_TIMESTAMP_FILE: Final = "google/protobuf/timestamp.proto"
_FILE: Final = "schema.proto"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_PACKAGE: Final = re.compile(r"\bpackage\s+([\w.]+)\s*;")
_MESSAGE: Final = re.compile(r"\bmessage\s+(\w+)\s*\{")
_TYPES: Final[dict[pa.DataType, tuple[int, str]]] = {
    pa.bool_(): (Field.TYPE_BOOL, "bool"),
    pa.int8(): (Field.TYPE_INT32, "int32"),
    pa.int16(): (Field.TYPE_INT32, "int32"),
    pa.int32(): (Field.TYPE_INT32, "int32"),
    pa.int64(): (Field.TYPE_INT64, "int64"),
    pa.float32(): (Field.TYPE_FLOAT, "float"),
    pa.float64(): (Field.TYPE_DOUBLE, "double"),
    pa.string(): (Field.TYPE_STRING, "string"),
    pa.binary(): (Field.TYPE_BYTES, "bytes"),
}
_MAP_KEYS: Final = frozenset({"bool", "int32", "int64", "string"})


class DeclaredMessage(msgspec.Struct, frozen=True):
    """A message as the text of a ``.proto`` file, and as a serialized set of descriptors."""

    text: str
    descriptors: bytes


# -- values ------------------------------------------------------------------------


def message_encoder(descriptors: bytes, message: str | None = None) -> Callable[[object], bytes]:
    """Return a function that serializes one datum as a message; None: the first of the schema.

    The function raises ValueError for a datum that does not fit.

    Raises:
        BadSchema: the descriptors cannot be used, or have no such message.
    """
    pool = descriptor_pool.DescriptorPool()
    name = message or first_message(descriptors)
    try:
        for each in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            pool.Add(each)
        found = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        raise BadSchema(f"the schema has no message {name!r}") from None
    except (DecodeError, TypeError) as error:
        raise BadSchema(f"not a set of Protobuf descriptors: {error}") from error

    def encode(datum: object) -> bytes:
        made = found()
        if not isinstance(datum, Mapping):
            raise ValueError(f"a {name} is not {type(datum).__name__}")  # noqa: TRY004
        try:
            _fill(made, datum)
        except (TypeError, OverflowError) as error:
            raise ValueError(f"does not fit the schema: {error}") from error
        return bytes(made.SerializeToString(deterministic=True))

    return encode


def _fill(message: Message, datum: Mapping[str, Datum]) -> None:
    kind: Descriptor = message.DESCRIPTOR
    for name, value in datum.items():
        field = kind.fields_by_name.get(name)
        if field is None:
            raise ValueError(f"{kind.full_name} has no field {name!r}")
        if value is not None:
            _set(message, field, value)


def _set(message: Message, field: FieldDescriptor, value: Datum) -> None:
    target = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        item = field.message_type.fields_by_name["value"]
        for key, each in dict(value).items():
            if item.message_type is not None:
                _fill_one(target[key], item, each)
            else:
                target[key] = _scalar(item, each)
    elif field.is_repeated:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{field.name} is a list, not {type(value).__name__}")
        for each in value:
            if each is None:
                raise ValueError(f"{field.name}: a list in Protobuf has no nulls")
            if field.message_type is not None:
                _fill_one(target.add(), field, each)
            else:
                target.append(_scalar(field, each))
    elif field.message_type is not None:
        target.SetInParent()
        _fill_one(target, field, value)
    else:
        setattr(message, field.name, _scalar(field, value))


def _fill_one(message: Message, field: FieldDescriptor, value: Datum) -> None:
    if message.DESCRIPTOR.full_name == _TIMESTAMP:
        stamp: Any = message
        if isinstance(value, str):
            stamp.FromJsonString(value)
        elif isinstance(value, datetime.datetime):
            stamp.FromDatetime(value)
        else:
            raise ValueError(f"{field.name} is a timestamp, not {type(value).__name__}")
        return
    if not isinstance(value, Mapping):
        raise ValueError(f"{field.name} is a message, not {type(value).__name__}")  # noqa: TRY004
    _fill(message, value)


def _scalar(field: FieldDescriptor, value: Datum) -> Datum:
    if field.enum_type is not None and isinstance(value, str):
        known = field.enum_type.values_by_name.get(value)
        if known is None:
            raise ValueError(f"{field.name}: {value!r} is not among {field.enum_type.name}")
        return known.number
    if field.type == FieldDescriptor.TYPE_BYTES and isinstance(value, str):
        return value.encode("latin-1")
    return value


# -- schemas -------------------------------------------------------------------------


def declared_name(text: str) -> str:
    """Return the full name of the first message of a ``.proto`` file. Raises BadSchema."""
    plain = _COMMENT.sub(" ", text)
    message, package = _MESSAGE.search(plain), _PACKAGE.search(plain)
    if message is None:
        raise BadSchema("not a Protobuf schema: it declares no message")
    return f"{package[1]}.{message[1]}" if package else message[1]


def message_of(kind: pa.DataType, name: str) -> DeclaredMessage:
    """Declare a message for a column of structs. Raises BadSchema."""
    if not pa.types.is_struct(kind):
        raise BadSchema(f"{name}: a Protobuf message is made from a struct, not from {kind}")
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, syntax="proto3")
    lines = _declare(kind, file.message_type.add(), _named(re.sub(r"\W", "_", name)), "")
    head = ['syntax = "proto3";']
    if any(_TIMESTAMP in line for line in lines):
        file.dependency.append(_TIMESTAMP_FILE)
        head.append(f'import "{_TIMESTAMP_FILE}";')
    text = "\n".join([*head, *lines]) + "\n"
    return DeclaredMessage(text, descriptor_set({_FILE: file.SerializeToString()}))


def _declare(
    kind: pa.StructType, message: descriptor_pb2.DescriptorProto, name: str, outer: str
) -> list[str]:
    """Fill a descriptor with the fields of a struct; return the lines of its text."""
    message.name = name
    path = f"{outer}.{name}"
    nested: list[str] = []
    lines = []
    for number, each in enumerate(kind, 1):
        field = message.field.add(
            name=_named(each.name), number=number, label=Field.LABEL_OPTIONAL, json_name=each.name
        )
        shown = _typed(each.type, field, message, path, nested)
        lines.append(f"  {shown} {each.name} = {number};")
    body = [*(f"  {line}" for line in nested), *lines]
    return [f"message {name} {{", *body, "}"]


def _typed(
    kind: pa.DataType,
    field: Field,
    message: descriptor_pb2.DescriptorProto,
    path: str,
    nested: list[str],
) -> str:
    """Set the type of a field; return it as text."""
    if pa.types.is_map(kind):
        return _mapped(kind, field, message, path, nested)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if pa.types.is_list(kind.value_type) or pa.types.is_map(kind.value_type):
            raise BadSchema(f"{field.name}: Protobuf has no lists of {kind.value_type}")
        field.label = Field.LABEL_REPEATED
        return f"repeated {_single(kind.value_type, field, message, path, nested)}"
    shown = _single(kind, field, message, path, nested)
    if field.type == Field.TYPE_MESSAGE:
        return shown
    # A field of a plain type has presence by an oneof of its own.
    field.proto3_optional = True
    field.oneof_index = len(message.oneof_decl)
    message.oneof_decl.add(name=f"_{field.name}")
    return f"optional {shown}"


def _single(
    kind: pa.DataType,
    field: Field,
    message: descriptor_pb2.DescriptorProto,
    path: str,
    nested: list[str],
) -> str:
    if kind in _TYPES:
        number, shown = _TYPES[kind]
        field.type = number
        return shown
    field.type = Field.TYPE_MESSAGE
    if pa.types.is_timestamp(kind):
        field.type_name = f".{_TIMESTAMP}"
        return _TIMESTAMP
    if pa.types.is_struct(kind):
        name = f"{field.name}_message"
        nested += _declare(kind, message.nested_type.add(), name, path)
        field.type_name = f"{path}.{name}"
        return name
    raise BadSchema(f"{field.name}: Protobuf has no type for {kind}; cast the column")


def _mapped(
    kind: pa.MapType,
    field: Field,
    message: descriptor_pb2.DescriptorProto,
    path: str,
    nested: list[str],
) -> str:
    camel = "".join(part[:1].upper() + part[1:] for part in field.name.split("_"))
    entry = message.nested_type.add(name=f"{camel}Entry")
    entry.options.map_entry = True
    parts = []
    for number, (name, each) in enumerate((("key", kind.key_type), ("value", kind.item_type)), 1):
        inner = entry.field.add(
            name=name, number=number, label=Field.LABEL_OPTIONAL, json_name=name
        )
        if pa.types.is_struct(each):
            raise BadSchema(f"{field.name}: maps of structs cannot be written as Protobuf")
        parts.append(_single(each, inner, message, path, nested))
    if parts[0] not in _MAP_KEYS:
        raise BadSchema(f"{field.name}: a map in Protobuf cannot have keys of {kind.key_type}")
    field.label, field.type = Field.LABEL_REPEATED, Field.TYPE_MESSAGE
    field.type_name = f"{path}.{camel}Entry"
    return f"map<{parts[0]}, {parts[1]}>"


def _named(name: str) -> str:
    if _NAME.match(name) is None:
        raise BadSchema(f"{name!r} is not a name in Protobuf: use letters, digits and _")
    return name
