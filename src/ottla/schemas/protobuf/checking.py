"""Rules of Protobuf that protoc checks and a descriptor pool does not."""

from collections.abc import Iterator
from typing import Final

from google.protobuf import descriptor_pb2 as pb

_Field: Final = pb.FieldDescriptorProto
INTERNAL_NUMBERS: Final = range(19_000, 20_000)
NO_MAP_KEYS: Final = frozenset(
    {
        _Field.TYPE_FLOAT,
        _Field.TYPE_DOUBLE,
        _Field.TYPE_BYTES,
        _Field.TYPE_ENUM,
        _Field.TYPE_MESSAGE,
        _Field.TYPE_GROUP,
    }
)


def problems_of(message: pb.DescriptorProto, syntax: str) -> Iterator[str]:
    """Yield what is wrong with the fields of a message, whose names are resolved."""
    reserved_names = set(message.reserved_name)
    ranges = sorted((part.start, part.end) for part in message.reserved_range)
    numbers = sorted(field.number for field in message.field)
    for field in message.field:
        if field.number in INTERNAL_NUMBERS:
            yield f"field {field.name!r}: numbers 19000 to 19999 are Protobuf's own"
        if field.name in reserved_names:
            yield f"field name {field.name!r} is reserved"
        if syntax == "proto3" and field.label == _Field.LABEL_REQUIRED:
            yield f"field {field.name!r}: proto3 has no required fields"
        is_member = field.HasField("oneof_index") and not field.proto3_optional
        if is_member and field.label not in (0, _Field.LABEL_OPTIONAL):
            yield f"field {field.name!r}: a field of a oneof has no label"
    if message.options.map_entry and message.field and message.field[0].type in NO_MAP_KEYS:
        yield "the keys of a map must be integers, booleans or strings"
    yield from _reserved_numbers(numbers, ranges)


def _reserved_numbers(numbers: list[int], ranges: list[tuple[int, int]]) -> Iterator[str]:
    """Yield numbers within reserved ranges. Both lists are in order."""
    index = 0
    last_end = 0
    for start, end in ranges:
        if start < last_end:
            yield f"reserved numbers overlap at {start}"
        last_end = end
        while index < len(numbers) and numbers[index] < start:
            index += 1
        if index < len(numbers) and numbers[index] < end:
            yield f"field number {numbers[index]} is reserved"
