"""What every schema language offers: parsed schemas, differences between them, and one error.

All calls are synchronous and pure. Parsing and comparing take 0.1 to 1 ms per KiB of text (Protobuf
is the slowest), normalising up to 2 ms; the slowest text of 1 MB takes about 2 s. A caller on an
event loop moves texts above ``SLOW_CHARACTERS`` to a worker thread.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Up to this many characters (a schema with its references) every call takes less than about 5 ms.
SLOW_CHARACTERS: Final = 4 * 1024


class SchemaType(enum.Enum):
    """The language of a schema, by the name that the REST API uses."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class InvalidSchema(Exception):
    """The text is no schema of its language; the message says what is wrong and where."""


class EntityKind(enum.Enum):
    """What a tag is attached to, by the name that the REST API uses (``entityType``)."""

    RECORD = "sr_record"
    FIELD = "sr_field"


@dataclass(frozen=True, slots=True, order=True)
class SchemaEntity:
    """A record or a field within a schema (``entityPath``, for example ``com.acme.Order.id``).

    Protobuf paths start with a dot and the package; JSON Schema paths with ``object``.
    """

    path: str
    kind: str

    @staticmethod
    def of(path: str, kind: EntityKind) -> "SchemaEntity":
        """Return the entity of ``kind`` at ``path``."""
        return SchemaEntity(path, kind.value)


Tags = Mapping[SchemaEntity, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason why a reader's schema cannot read what was written with the writer's.

    ``rule`` is Confluent's name of it, ``path`` says where, ``detail`` what differs. ``parts`` is
    the message, cut where the names of the reader's and then the writer's schema go.
    """

    rule: str
    path: str
    detail: str
    parts: tuple[str, ...]

    def message(self, reader: str = "new", writer: str = "old") -> str:
        """Return the message; for FORWARD pass ``("old", "new")``, as the old schema reads."""
        first, *rest = self.parts
        return first + "".join(
            name + part for name, part in zip((reader, writer), rest, strict=False)
        )

    def __str__(self) -> str:
        return self.message()


class ParsedSchema(ABC):
    """A schema of one language, immutable. Two schemas are the same if ``canonical`` is equal."""

    __slots__ = ()

    schema_type: SchemaType

    @property
    @abstractmethod
    def text(self) -> str:
        """The text as the client sent it."""

    @property
    @abstractmethod
    def canonical(self) -> str:
        """The text to store and compare: independent of white space and order of attributes."""

    @property
    @abstractmethod
    def name(self) -> str | None:
        """The full name of the record or first message, or the title; None if there is none."""

    @property
    @abstractmethod
    def references(self) -> Mapping[str, str]:
        """The texts of the referenced schemas by name, in dependency order."""

    @property
    @abstractmethod
    def tags(self) -> Tags:
        """The inline tags (``confluent:tags``) of every record and field that has some."""

    @abstractmethod
    def normalised(self) -> "ParsedSchema":
        """Return the schema with everything ordered whose order has no meaning (``normalize``)."""

    @abstractmethod
    def formatted(self, format: str) -> str:
        """Return the text in a format of the language; an unknown format gives ``canonical``.

        Avro: ``resolved``. Protobuf: ``serialized`` and ``ignore_extensions``.
        """

    @abstractmethod
    def with_tags(self, added: Tags, removed: Tags) -> "ParsedSchema":
        """Return the schema with tags added, then removed.

        Raises:
            InvalidSchema: a path names no entity of this schema.
        """

    @abstractmethod
    def has_top_level_field(self, name: str) -> bool:
        """Return whether the record, object or first message has a field of this name."""

    @abstractmethod
    def validate(self, *, strict: bool = False) -> None:
        """Check what parsing does not: links to references; if ``strict``, default values, too.

        Raises:
            InvalidSchema: the schema can be parsed, but must not be registered.
        """
