"""A parsed JSON Schema: what the registry sees of this package."""

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from ottla.schemas.contract import Difference, InvalidSchema, ParsedSchema, SchemaType, Tags
from ottla.schemas.json_schema.checking import check_names, check_schema
from ottla.schemas.json_schema.compatibility import compare_schemas
from ottla.schemas.json_schema.documents import Documents
from ottla.schemas.json_schema.shapes import Shapes
from ottla.schemas.json_schema.tags import change_tags, read_tags
from ottla.schemas.json_text import Json, read_json, sort_keys, write_json

# From 2019-09 on, a $ref may have other keywords beside it.
MODERN_DRAFTS: Final = ("/draft/2019-09/", "/draft/2020-12/")


def parse_json_schema(text: str, references: Mapping[str, str], *, validate: bool) -> "JsonSchema":
    """Parse a schema whose references are given by name. Raises InvalidSchema."""
    root = read_json(text, "JSON", is_exact=True)
    if not isinstance(root, dict | bool):
        raise InvalidSchema(
            "Invalid JSON schema: expected an object or boolean at the root, found"
            f" {write_json(root)[:50]}"
        )
    schema = JsonSchema(text, references, root)
    if validate:
        schema.validate()
    return schema


def compare_json_schemas(
    reader: ParsedSchema, writer: ParsedSchema, *, policy: str
) -> list[Difference]:
    """Return why ``reader`` does not accept data of ``writer``."""
    assert isinstance(reader, JsonSchema)
    assert isinstance(writer, JsonSchema)
    return compare_schemas((writer.shapes, writer.root), (reader.shapes, reader.root), policy)


class JsonSchema(ParsedSchema):
    """A parsed JSON Schema. ``root`` is never changed."""

    schema_type = SchemaType.JSON

    def __init__(self, text: str, references: Mapping[str, str], root: Json) -> None:
        self._text = text
        self._references = references
        self.root = root

    @property
    def text(self) -> str:
        """The text as the client sent it."""
        return self._text

    @cached_property
    def canonical(self) -> str:
        """The text without white space; the order of members is that of the client."""
        return write_json(self.root)

    @property
    def name(self) -> str | None:
        """The title, if there is one."""
        title = self.root.get("title") if isinstance(self.root, dict) else None
        return title if isinstance(title, str) else None

    @property
    def references(self) -> Mapping[str, str]:
        """The texts of the referenced schemas by name."""
        return self._references

    @cached_property
    def shapes(self) -> Shapes:
        """The view that comparisons use."""
        dialect = self.root.get("$schema") if isinstance(self.root, dict) else None
        is_modern = isinstance(dialect, str) and any(draft in dialect for draft in MODERN_DRAFTS)
        return Shapes(Documents(self.root, self._references), is_modern=is_modern)

    @cached_property
    def tags(self) -> Tags:
        """The inline tags of objects and properties."""
        return read_tags(self.root)

    def normalised(self) -> "JsonSchema":
        """Return the schema with the members of all objects in order."""
        return JsonSchema(self._text, self._references, sort_keys(self.root))

    def formatted(self, format: str) -> str:
        """Return ``canonical``: there is no other format."""
        return self.canonical

    def with_tags(self, added: Tags, removed: Tags) -> "JsonSchema":
        """Return the schema with tags added, then removed. Raises InvalidSchema."""
        root = read_json(self.canonical, "JSON", is_exact=True)
        change_tags(root, added, removed)
        return JsonSchema(write_json(root), self._references, root)

    def has_top_level_field(self, name: str) -> bool:
        """Return whether the schema has a property of this name."""
        properties = self.root.get("properties") if isinstance(self.root, dict) else None
        return isinstance(properties, dict) and name in properties

    def validate(self, *, strict: bool = False) -> None:
        """Check keywords and references and, if ``strict``, names. Raises InvalidSchema."""
        check_schema(self.shapes, self.root)
        if strict:
            check_names(self.root)
