"""A parsed Avro schema: what the registry sees of this package."""

from collections.abc import Mapping
from functools import cached_property

from ottla.schemas.avro.compatibility import compare_types
from ottla.schemas.avro.model import AvroType, Record
from ottla.schemas.avro.normalising import normalise
from ottla.schemas.avro.parsing import AvroParser
from ottla.schemas.avro.printing import print_avro
from ottla.schemas.avro.tags import change_tags, read_tags
from ottla.schemas.contract import Difference, InvalidSchema, ParsedSchema, SchemaType, Tags


def parse_avro(text: str, references: Mapping[str, str], *, validate: bool) -> "AvroSchema":
    """Parse a schema whose references are given in dependency order. Raises InvalidSchema."""
    parser = AvroParser(is_strict=validate)
    names: set[str] = set()
    for reference, reference_text in references.items():
        try:
            names.add(parser.parse(reference_text).full_name)
        except InvalidSchema as error:
            raise InvalidSchema(f"Reference {reference}: {error}") from None
    root = parser.parse(text)
    return AvroSchema(text, references, root, frozenset(names), is_strict=validate)


def compare_avro(reader: ParsedSchema, writer: ParsedSchema) -> list[Difference]:
    """Return why ``reader`` cannot read data of ``writer``."""
    assert isinstance(reader, AvroSchema)
    assert isinstance(writer, AvroSchema)
    return compare_types(reader.root, writer.root)


class AvroSchema(ParsedSchema):
    """A parsed Avro schema. ``root`` is never changed."""

    schema_type = SchemaType.AVRO

    def __init__(
        self,
        text: str,
        references: Mapping[str, str],
        root: AvroType,
        reference_names: frozenset[str],
        *,
        is_strict: bool,
    ) -> None:
        self._text = text
        self._references = references
        self.root = root
        self._reference_names = reference_names
        self._is_strict = is_strict

    @property
    def text(self) -> str:
        """The text as the client sent it."""
        return self._text

    @cached_property
    def canonical(self) -> str:
        """The text that Avro's Java library prints, without the types of the references."""
        return print_avro(self.root, self._reference_names)

    @property
    def name(self) -> str | None:
        """The full name of the record; None for other types."""
        return self.root.full_name if isinstance(self.root, Record) else None

    @property
    def references(self) -> Mapping[str, str]:
        """The texts of the referenced schemas by name."""
        return self._references

    @cached_property
    def tags(self) -> Tags:
        """The inline tags of records and fields."""
        return read_tags(self.root)

    def normalised(self) -> "AvroSchema":
        """Return the schema with properties and aliases in order."""
        copy = self._copy()
        normalise(copy.root)
        return copy._reparsed()

    def formatted(self, format: str) -> str:
        """Return ``canonical``, or with ``resolved`` the text with the types of references."""
        if format.strip().lower() == "resolved":
            return print_avro(self.root)
        return self.canonical

    def with_tags(self, added: Tags, removed: Tags) -> "AvroSchema":
        """Return the schema with tags added, then removed. Raises InvalidSchema."""
        copy = self._copy()
        change_tags(copy.root, added, removed)
        return copy._reparsed()

    def has_top_level_field(self, name: str) -> bool:
        """Return whether the record has a field of this name."""
        return isinstance(self.root, Record) and any(
            field.name == name for field in self.root.fields
        )

    def validate(self, *, strict: bool = False) -> None:
        """Check the names and, if ``strict``, the default values. Raises InvalidSchema."""
        if strict and not self._is_strict:
            parse_avro(self._text, self._references, validate=True)

    def _copy(self) -> "AvroSchema":
        return parse_avro(self._text, self._references, validate=self._is_strict)

    def _reparsed(self) -> "AvroSchema":
        return parse_avro(self.canonical, self._references, validate=self._is_strict)
