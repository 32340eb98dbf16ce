"""How a message is declared: one class with the fields of all its versions, and one schema.

    class Coordinator(Message):
        key: str = ""
        node_id: int = 0

        SCHEMA: ClassVar[Schema] = Schema(
            fields=(Field("key", STRING, (4, 6)), Field("node_id", INT32, (4, 6))),
        )

    class FindCoordinatorResponse(Message):
        error_message: str | None = None
        coordinators: list[Coordinator] = field(default_factory=list)

        SCHEMA: ClassVar[Schema] = Schema(
            versions=(0, 6), flexible=3, api_key=10,
            fields=(
                Field("error_message", STRING, (1, 3), nullable=(1, 3)),
                Field("coordinators", array_of(Coordinator), (4, 6)),
            ),
        )

A schema lists fields in wire order with the versions of each; all version ranges are inclusive.
The default of a field is the class's default, stated once, there. A nested class has fields only:
its versions and flexibility are those of the message that holds it. `codec` turns (class,
version) into code; nothing here reads or writes a byte.

Python types: integers ``int``, ``STRING`` ``str``, ``BYTES`` ``bytes``, ``RECORDS`` any buffer
(decoded: a view into the frame), ``UUID`` a `Uuid` whose absence is ``ZERO_UUID``, arrays
``list``. Only a field that is nullable in some version is typed ``| None``.
"""

import enum
from typing import ClassVar, Final, TypeAlias

import msgspec

Versions: TypeAlias = tuple[int, int]
"""First and last version, both included."""


class Kind(enum.Enum):
    """What a type looks like on the wire; the first group has a fixed size."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    FLOAT64 = "float64"
    UUID = "uuid"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    ARRAY = "array"
    STRUCT = "struct"


SECRET_FIELDS: Final = frozenset(
    {"auth_bytes", "hmac", "salt", "salted_password", "server_key", "stored_key"}
)
"""Names of fields, in any message, that hold credentials."""


OWN_TAG_FIRST: Final = 10_000
"""The first tag of our own fields in Kafka's messages: far above the tags that Kafka uses."""


class Message(msgspec.Struct, gc=False):
    """Base of every message and nested struct. Mutable; equal when all fields are.

    Every field has Kafka's default, so ``FetchRequest()`` is a valid message. A field that
    a version lacks is ignored when encoding and has its default after decoding. Messages
    must be trees: the garbage collector does not traverse them.
    """

    SCHEMA: ClassVar["Schema"]

    def __repr__(self) -> str:
        """Return every field except credentials: messages may be logged."""
        shown = (
            f"{name}={'[hidden]' if name in SECRET_FIELDS else repr(getattr(self, name))}"
            for name in self.__struct_fields__
        )
        return f"{type(self).__name__}({', '.join(shown)})"


class Type(msgspec.Struct, frozen=True):
    """The type of a field: a kind, and the element type of an array or the class of a struct."""

    kind: Kind
    element: "Type | None" = None
    """Of an array: never an array itself, Kafka has none."""
    struct: type[Message] | None = None


class Field(msgspec.Struct, frozen=True):
    """One field of a message.

    Where ``tagged`` holds, the field travels in the tagged section under ``tag`` and is left
    out when it equals its default; in other versions it stands in line. Tags are only used in
    flexible versions. ``flexible=False`` keeps the old length form of a string even in a
    flexible version: Kafka does so for the client id of the request header, alone.
    """

    name: str
    type: Type
    versions: Versions
    nullable: Versions | None = None
    tag: int | None = None
    tagged: Versions | None = None
    flexible: bool = True


class Schema(msgspec.Struct, frozen=True):
    """The layout of a message over its versions; fields in wire order.

    ``flexible`` is the first version with compact lengths and tagged fields (KIP-482), None
    for never. ``versions`` is None for a nested struct, ``api_key`` is None if it is not an API.
    """

    fields: tuple[Field, ...]
    versions: Versions | None = None
    flexible: int | None = None
    api_key: int | None = None


BOOL = Type(Kind.BOOL)
INT8 = Type(Kind.INT8)
INT16 = Type(Kind.INT16)
UINT16 = Type(Kind.UINT16)
INT32 = Type(Kind.INT32)
UINT32 = Type(Kind.UINT32)
INT64 = Type(Kind.INT64)
FLOAT64 = Type(Kind.FLOAT64)
UUID = Type(Kind.UUID)
STRING = Type(Kind.STRING)
BYTES = Type(Kind.BYTES)
RECORDS = Type(Kind.RECORDS)


def struct_of(struct: type[Message]) -> Type:
    """Return the type of a nested struct."""
    return Type(Kind.STRUCT, struct=struct)


def array_of(element: Type | type[Message]) -> Type:
    """Return the type of an array of primitives or of nested structs."""
    inner = element if isinstance(element, Type) else struct_of(element)
    assert inner.kind is not Kind.ARRAY
    return Type(Kind.ARRAY, element=inner)


def covers(versions: Versions | None, version: int) -> bool:
    """Return whether a range includes a version; None includes nothing."""
    return versions is not None and versions[0] <= version <= versions[1]
