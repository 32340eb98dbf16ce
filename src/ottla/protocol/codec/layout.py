"""The wire layout of one version of a message, derived from its schema.

Everything that depends on the version is decided here, not in `reading` and `writing`.
"""

from functools import cache
from typing import NamedTuple

import msgspec

from ottla.protocol.schema import Field, Kind, Message, Type, covers

# Kinds of a fixed size with their big-endian `struct` format. A non-zero byte is true.
FORMATS = {
    Kind.BOOL: "?",
    Kind.INT8: "b",
    Kind.INT16: "h",
    Kind.UINT16: "H",
    Kind.INT32: "i",
    Kind.UINT32: "I",
    Kind.INT64: "q",
    Kind.FLOAT64: "d",
    Kind.UUID: "16s",
}
SIZES = {
    Kind.BOOL: 1,
    Kind.INT8: 1,
    Kind.INT16: 2,
    Kind.UINT16: 2,
    Kind.INT32: 4,
    Kind.UINT32: 4,
    Kind.INT64: 8,
    Kind.FLOAT64: 8,
    Kind.UUID: 16,
}


class Part(NamedTuple):
    """One field as it is in one version."""

    name: str
    type: Type
    is_nullable: bool
    is_compact: bool
    """Lengths are varints of length + 1; else int16 for strings, int32 for the rest."""
    is_tagged: bool = False
    """A struct that may be null says so by 0, not by -1 as one in line does; 1 if it is there."""


class Layout(NamedTuple):
    """A struct as it is in one version: fields in line, then tagged ones by rising tag."""

    struct: type[Message]
    parts: tuple[Part, ...]
    tagged: tuple[tuple[int, Part], ...]
    is_flexible: bool


def layout_of(struct: type[Message], version: int, is_flexible: bool) -> Layout:
    """Return the layout of a message or nested struct in a version."""
    names = tuple(field.name for field in struct.SCHEMA.fields)
    assert sorted(names) == sorted(struct.__struct_fields__), struct
    parts = []
    tagged = []
    for field in struct.SCHEMA.fields:
        if not covers(field.versions, version):
            continue
        part = _part(field, version, is_flexible)
        if covers(field.tagged, version):
            assert field.tag is not None and is_flexible, (struct, field.name)  # noqa: PT018
            tagged.append((field.tag, part._replace(is_tagged=True)))
        else:
            parts.append(part)
    return Layout(struct, tuple(parts), tuple(sorted(tagged)), is_flexible)


def _part(field: Field, version: int, is_flexible: bool) -> Part:
    is_nullable = covers(field.nullable, version)
    return Part(field.name, field.type, is_nullable, is_flexible and field.flexible)


def element_layout(type_: Type, version: int, is_flexible: bool) -> Layout:
    """Return the layout of a struct field or array element."""
    assert type_.struct is not None
    return layout_of(type_.struct, version, is_flexible)


def size_min(type_: Type, version: int, is_flexible: bool) -> int:
    """Return the minimum bytes of a non-null value of a type in a version."""
    if type_.kind in SIZES:
        return SIZES[type_.kind]
    if type_.kind is Kind.STRUCT:
        layout = element_layout(type_, version, is_flexible)
        return struct_size_min(layout, version)
    if is_flexible:
        return 1
    return 2 if type_.kind is Kind.STRING else 4


def struct_size_min(layout: Layout, version: int) -> int:
    """Return the minimum bytes of a struct in a version; zero only if it has no field."""
    size = 1 if layout.is_flexible else 0
    for part in layout.parts:
        is_null_smaller = part.is_nullable and part.type.kind is Kind.STRUCT
        size += 1 if is_null_smaller else size_min(part.type, version, part.is_compact)
    return size


@cache
def has_records(struct: type[Message], version: int) -> bool:
    """Return whether a message carries record batches, which are returned as views."""
    for field in struct.SCHEMA.fields:
        if not covers(field.versions, version):
            continue
        inner = field.type.element or field.type
        if inner.kind is Kind.RECORDS:
            return True
        if inner.struct is not None and has_records(inner.struct, version):
            return True
    return False


def default_of(struct: type[Message], name: str) -> object:
    """Return a fresh default of a field."""
    for field in msgspec.structs.fields(struct):
        if field.name == name:
            if field.default_factory is not msgspec.NODEFAULT:
                return field.default_factory()
            assert field.default is not msgspec.NODEFAULT, (struct, name)
            return field.default
    raise AssertionError((struct, name))
