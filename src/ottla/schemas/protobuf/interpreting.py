"""Options between their two forms: as written, and encoded in the options of a descriptor.

Descriptors of protoc (base64 input) have encoded options; custom ones are extensions that only a
pool with their declarations can decode. ``format=serialized`` needs the encoded form again. An
option whose declaration is missing is left out.
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool, message_factory, text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from ottla.schemas.contract import InvalidSchema
from ottla.schemas.protobuf.linking import Linked, joined, messages_of
from ottla.schemas.protobuf.options import option_texts

Holder = Any


def holders_of(file: pb.FileDescriptorProto) -> Iterator[tuple[Holder, str]]:
    """Yield everything in a file that can have options, with the scope of their names."""
    yield file, file.package
    for holder in [*file.extension, *file.service]:
        yield holder, file.package
    for service in file.service:
        yield from ((method, file.package) for method in service.method)
    yield from _enum_holders(file.enum_type, file.package)
    for message, path in messages_of(file):
        yield message, path
        for holder in [*message.field, *message.extension, *message.oneof_decl]:
            yield holder, path
        yield from ((part, path) for part in message.extension_range)
        yield from _enum_holders(message.enum_type, path)


def _enum_holders(enums: Any, path: str) -> Iterator[tuple[Holder, str]]:  # noqa: ANN401
    for enum in enums:
        yield enum, path
        yield from ((value, joined(path, enum.name)) for value in enum.value)


def write_options(
    file: pb.FileDescriptorProto, pool: "descriptor_pool.DescriptorPool | None"
) -> None:
    """Turn encoded options into written ones, in place. ``pool`` knows the custom options."""
    for holder, _ in holders_of(file):
        if holder.HasField("options"):
            is_map_entry = isinstance(holder, pb.DescriptorProto) and holder.options.map_entry
            options = _decoded(holder.options, pool)
            written = [*holder.options.uninterpreted_option]
            for field, value in options.ListFields():
                if field.name not in ("uninterpreted_option", "map_entry"):
                    written += _written(field, value)
            copies = [pb.UninterpretedOption.FromString(o.SerializeToString()) for o in written]
            holder.ClearField("options")
            if is_map_entry:
                holder.options.map_entry = True
            if copies:
                holder.options.uninterpreted_option.extend(copies)


def _decoded(options: Any, pool: "descriptor_pool.DescriptorPool | None") -> Any:  # noqa: ANN401
    if pool is None:
        return options
    try:
        descriptor = pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
    except KeyError:  # the file does not import descriptor.proto: it has no custom options
        return options
    decoded = message_factory.GetMessageClass(descriptor)()
    try:
        decoded.ParseFromString(options.SerializeToString())
    except DecodeError:
        name = options.DESCRIPTOR.name
        raise InvalidSchema(f"Invalid Protobuf schema: a custom option in {name}") from None
    return decoded


def _written(field: FieldDescriptor, value: Any) -> Iterator[pb.UninterpretedOption]:  # noqa: ANN401
    is_repeated = not isinstance(value, str | bytes) and hasattr(value, "append")
    for item in value if is_repeated else [value]:
        option = pb.UninterpretedOption()
        name = field.full_name if field.is_extension else field.name
        option.name.add(name_part=name, is_extension=field.is_extension)
        match item:
            case bool():
                option.identifier_value = "true" if item else "false"
            case int() if field.enum_type is not None:
                known = field.enum_type.values_by_number.get(item)
                option.identifier_value = known.name if known else str(item)
            case int() if item < 0:
                option.negative_int_value = item
            case int():
                option.positive_int_value = item
            case float():
                option.double_value = item
            case str():
                option.string_value = item.encode()
            case bytes():
                option.string_value = item
            case _:
                option.aggregate_value = _aggregate(item)
        yield option


def _aggregate(message: Message) -> str:
    try:
        return str(text_format.MessageToString(message, as_one_line=True))
    except (TypeError, ValueError):  # a string that is not UTF-8
        name = message.DESCRIPTOR.full_name
        raise InvalidSchema(f"Invalid Protobuf schema: a value of {name}") from None


def encode_options(
    file: pb.FileDescriptorProto, linked: Linked, pool: "descriptor_pool.DescriptorPool"
) -> None:
    """Turn written options into encoded ones, in place."""
    for holder, scope in holders_of(file):
        if not holder.HasField("options") or not holder.options.uninterpreted_option:
            continue
        written = [*holder.options.uninterpreted_option]
        options = _decoded(holder.options, pool)
        del options.uninterpreted_option[:]
        for option in written:
            _encode(option, options, linked, scope)
        encoded = options.SerializeToString()
        holder.ClearField("options")
        holder.options.ParseFromString(encoded)


def _encode(option: pb.UninterpretedOption, options: Any, linked: Linked, scope: str) -> None:  # noqa: ANN401
    names = []
    for part in option.name:
        name = part.name_part
        if part.is_extension:
            full_name = linked.find_extension(name, scope)
            if full_name is None:
                return
            name = f"[{full_name}]"
        names.append(name)
    value = option_texts([option], is_sorted=False)[0].partition(" = ")[2]
    is_message = option.HasField("aggregate_value")
    text = f"{names[-1]}{' ' if is_message else ': '}{value}"
    for name in reversed(names[:-1]):
        text = f"{name} {{ {text} }}"
    copy = type(options)()
    copy.CopyFrom(options)
    try:
        text_format.Merge(text, copy, descriptor_pool=options.DESCRIPTOR.file.pool)
    except (text_format.ParseError, ValueError):
        return
    options.CopyFrom(copy)
