"""Work on schemas that takes time: parse, compare, print. Named by values, carried out elsewhere.

A decision looks results up in `Results`. If one is missing it raises `WorkNeeded` with all that it
needs now; the shell has `perform` called on a thread, adds the results and decides again. So a
decision itself is fast, and its result depends on the state and the request alone.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias, cast

from ottla.registry.rules.errors import Rejection, invalid_schema
from ottla.schemas.contract import Difference, InvalidSchema, ParsedSchema, SchemaEntity, SchemaType
from ottla.schemas.languages import differences, parse

TagPairs: TypeAlias = tuple[tuple[SchemaEntity, frozenset[str]], ...]


class SchemaText(NamedTuple):
    """A schema and the texts it refers to by name, in dependency order."""

    schema_type: SchemaType
    text: str
    references: tuple[tuple[str, str], ...] = ()


class Parse(NamedTuple):
    """Parse a schema; ``validate`` as a new one, ``is_strict`` with its default values."""

    schema: SchemaText
    normalise: bool = False
    validate: bool = False
    is_strict: bool = False


class Compare(NamedTuple):
    """Find why a reader cannot read what was written with the other schema."""

    reader: Parse
    writer: Parse
    policy: str


class Format(NamedTuple):
    """Print a schema in a format of its language."""

    schema: Parse
    format: str


class Retag(NamedTuple):
    """Print a schema with tags added and others removed."""

    schema: Parse
    added: TagPairs
    removed: TagPairs


WorkItem: TypeAlias = Parse | Compare | Format | Retag
WorkResult: TypeAlias = ParsedSchema | list[Difference] | str | InvalidSchema


class WorkNeeded(Exception):
    """A decision needs results that are not there yet."""

    def __init__(self, items: list[WorkItem]) -> None:
        super().__init__(f"{len(items)} items")
        self.items = items


class Results:
    """The results that the decision about one request has so far."""

    def __init__(self) -> None:
        self._results: dict[WorkItem, WorkResult] = {}

    def add(self, item: WorkItem, result: WorkResult) -> None:
        """Add a result; an InvalidSchema is one, too."""
        self._results[item] = result

    def require(self, items: Iterable[WorkItem]) -> None:
        """Ask for many results at once. Raises WorkNeeded."""
        missing = [item for item in items if item not in self._results]
        if missing:
            raise WorkNeeded(missing)

    def parsed(self, item: Parse) -> ParsedSchema:
        """Return a parsed schema. Raises WorkNeeded, and a Rejection if it is none."""
        result = self._get(item)
        if isinstance(result, InvalidSchema):
            raise invalid_text(item.schema.schema_type, result)
        return cast(ParsedSchema, result)

    def canonical_or_none(self, item: Parse) -> str | None:
        """Return the canonical text of a stored schema, None if it cannot be parsed."""
        result = self._get(item)
        return None if isinstance(result, InvalidSchema) else cast(ParsedSchema, result).canonical

    def differences(self, item: Compare) -> list[Difference]:
        """Return the differences. Raises as `parsed`."""
        result = self._get(item)
        if isinstance(result, InvalidSchema):
            raise invalid_text(item.reader.schema.schema_type, result)
        return cast("list[Difference]", result)

    def text(self, item: Format | Retag) -> str:
        """Return a printed schema. Raises as `parsed`."""
        result = self._get(item)
        if isinstance(result, InvalidSchema):
            raise invalid_text(item.schema.schema.schema_type, result)
        return cast(str, result)

    def _get(self, item: WorkItem) -> WorkResult:
        if item not in self._results:
            raise WorkNeeded([item])
        return self._results[item]


def invalid_text(schema_type: SchemaType, error: InvalidSchema) -> Rejection:
    """Return the rejection of a text that is no schema."""
    return invalid_schema(f"Invalid schema of type {schema_type.value}, details: {error}")


def perform(item: WorkItem, parse_item: Callable[[Parse], ParsedSchema]) -> WorkResult:
    """Carry out one item; ``parse_item`` may return what it has parsed before. Slow."""
    try:
        match item:
            case Parse():
                return parse_item(item)
            case Compare():
                reader, writer = parse_item(item.reader), parse_item(item.writer)
                return differences(reader, writer, policy=item.policy)
            case Format():
                return parse_item(item.schema).formatted(item.format)
            case Retag():
                schema = parse_item(item.schema)
                return schema.with_tags(dict(item.added), dict(item.removed)).canonical
    except InvalidSchema as error:
        return error


def parse_schema(item: Parse) -> ParsedSchema:
    """Parse, check and normalise as an item says. Raises InvalidSchema. Slow."""
    text = item.schema
    schema = parse(text.schema_type, text.text, dict(text.references), validate=item.validate)
    if item.validate:
        schema.validate(strict=item.is_strict)
    return schema.normalised() if item.normalise else schema
