"""Types of an Avro schema. Named types are shared: a recursive record refers to itself.

Types are compared by identity. ``properties`` holds every attribute that the specification does not
reserve, also ``logicalType``, in the order of the text.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.schemas.json_text import Json

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
COMPLEX: Final = frozenset({"record", "error", "enum", "array", "map", "union", "fixed"})


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a type. ``space`` is empty for the null namespace."""

    simple: str
    space: str

    @staticmethod
    def of(text: str, space: str) -> "Name":
        """Return the name of ``text``, which is within ``space`` unless it has dots."""
        before, dot, simple = text.rpartition(".")
        return Name(simple, before) if dot else Name(text, space)

    @property
    def full(self) -> str:
        """The name with its namespace."""
        return f"{self.space}.{self.simple}" if self.space else self.simple

    def relative_to(self, space: str) -> str:
        """Return the shortest text that means this name within ``space``."""
        is_short = self.space and self.space == space and self.simple not in PRIMITIVES | COMPLEX
        return self.simple if is_short else self.full


@dataclass(slots=True, eq=False)
class AvroType:
    """Any type. ``height`` is the number of levels of types below, without recursion."""

    kind: str
    properties: dict[str, Json] = field(default_factory=dict)
    height: int = 1

    @property
    def full_name(self) -> str:
        """The name that tells branches of a union apart."""
        return self.kind


@dataclass(slots=True, eq=False)
class Primitive(AvroType):
    """A type without parts."""


@dataclass(slots=True, eq=False)
class Container(AvroType):
    """An array or a map of ``item``."""

    item: AvroType = field(kw_only=True)


@dataclass(slots=True, eq=False)
class Union(AvroType):
    """One of several types."""

    branches: list[AvroType] = field(kw_only=True)


@dataclass(slots=True, eq=False)
class NamedType(AvroType):
    """A record, enum or fixed. ``aliases`` are full names."""

    name: Name = field(kw_only=True)
    doc: str | None = field(kw_only=True, default=None)
    aliases: list[Name] = field(kw_only=True, default_factory=list)

    @property
    def full_name(self) -> str:
        """The name with its namespace."""
        return self.name.full


@dataclass(slots=True, eq=False)
class Enum(NamedType):
    """One of the symbols."""

    symbols: list[str] = field(kw_only=True)
    default: str | None = field(kw_only=True, default=None)


@dataclass(slots=True, eq=False)
class Fixed(NamedType):
    """A fixed number of bytes."""

    size: int = field(kw_only=True)


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record. ``has_default`` tells a default of null from none."""

    name: str
    type: AvroType
    doc: str | None
    has_default: bool
    default: Json
    order: str
    aliases: list[str]
    properties: dict[str, Json]


@dataclass(slots=True, eq=False)
class Record(NamedType):
    """A record, or an error of a protocol."""

    fields: list[Field] = field(kw_only=True, default_factory=list)
    is_error: bool = field(kw_only=True, default=False)


def parts_of(type_: AvroType) -> Iterator[AvroType]:
    """Yield the types that ``type_`` directly consists of."""
    match type_:
        case Container():
            yield type_.item
        case Union():
            yield from type_.branches
        case Record():
            for record_field in type_.fields:
                yield record_field.type
