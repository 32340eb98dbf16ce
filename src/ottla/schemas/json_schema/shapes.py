"""The view of a JSON Schema that comparisons use: every schema has one kind.

A schema that states several things (a type and an enum, say) is a combination of all of them, and a
schema with several types is a combination of any of them. References are resolved. The views are
those of the libraries that Confluent's registry uses, because its rules depend on them.
"""

from dataclasses import dataclass, field
from typing import Final

from ottla.schemas.contract import InvalidSchema
from ottla.schemas.json_schema.documents import CHAIN_MAX, Documents
from ottla.schemas.json_schema.keywords import Keywords
from ottla.schemas.json_text import Json

TYPES: Final = ("string", "number", "integer", "boolean", "null", "object", "array")
CRITERIA: Final = ("allOf", "anyOf", "oneOf")
# Without a type, these keywords say which kind of value is meant.
KIND_KEYWORDS: Final[dict[str, frozenset[str]]] = {
    "object": frozenset(
        {
            "properties",
            "required",
            "minProperties",
            "maxProperties",
            "dependencies",
            "dependentRequired",
            "dependentSchemas",
            "patternProperties",
            "additionalProperties",
            "unevaluatedProperties",
            "propertyNames",
        }
    ),
    "array": frozenset(
        {
            "items",
            "prefixItems",
            "additionalItems",
            "unevaluatedItems",
            "minItems",
            "maxItems",
            "uniqueItems",
            "contains",
            "minContains",
            "maxContains",
        }
    ),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    ),
}


@dataclass(slots=True, eq=False)
class Shape:
    """A schema of one kind: a type, enum, const, not, conditional, combined, empty or false.

    ``node`` is the schema it comes from (several shapes may share one). ``subschemas`` are those of
    a combination, ``criterion`` says how many of them must match.
    """

    kind: str
    node: dict[str, Json] = field(default_factory=dict)
    criterion: str = ""
    subschemas: list["Shape | Json"] = field(default_factory=list)
    is_integer: bool = False
    keywords: Keywords = field(default_factory=Keywords)


EMPTY: Final = Shape("empty")
FALSE: Final = Shape("false")


class Shapes:
    """The shapes of all schemas of one document, made when first used."""

    def __init__(self, documents: Documents, *, is_modern: bool) -> None:
        self._documents = documents
        self._is_modern = is_modern
        self._shapes: dict[int, Shape] = {}

    def of(self, schema: "Shape | Json") -> Shape:
        """Return the shape of a schema or of the schema it refers to. Raises InvalidSchema."""
        for _ in range(CHAIN_MAX):
            if isinstance(schema, Shape):
                return schema
            if isinstance(schema, bool):
                return EMPTY if schema else FALSE
            if not isinstance(schema, dict):
                raise InvalidSchema(
                    f"Invalid JSON schema: expected an object or boolean, found {str(schema)[:50]}"
                )
            target = self._target(schema)
            if target is None:
                return self._made(schema)
            schema = target
        raise InvalidSchema(f"Invalid JSON schema: a $ref that leads to {CHAIN_MAX} others")

    def _target(self, node: dict[str, Json]) -> Json:
        """Return what a schema that consists of a reference refers to."""
        keyword = reference_keyword(node)
        if keyword is None or (self._is_modern and self._statements(node, keyword)):
            return None
        return self._resolve(node, keyword)

    def _resolve(self, node: dict[str, Json], keyword: str) -> Json:
        reference = node[keyword]
        if not isinstance(reference, str):
            raise InvalidSchema(f"Invalid JSON schema: {keyword} must be a string")
        return self._documents.resolve(reference, self._documents.base_of(node))

    def _statements(self, node: dict[str, Json], reference: str) -> bool:
        """Return whether a schema says more than its reference does."""
        relevant = frozenset({"type", "enum", "const", "not", "if", *CRITERIA}).union(
            *KIND_KEYWORDS.values()
        )
        return any(key in relevant for key in node if key != reference)

    def _made(self, node: dict[str, Json]) -> Shape:
        if (shape := self._shapes.get(id(node))) is None:
            shape = self._shapes[id(node)] = self._make(node)
        return shape

    def _make(self, node: dict[str, Json]) -> Shape:
        parts = [*_value_parts(node), *_typed_parts(node)]
        keyword = reference_keyword(node)
        if keyword is not None:
            parts.append(Shape("reference", subschemas=[self._resolve(node, keyword)]))
        if not parts:
            return Shape("empty", node)
        if len(parts) == 1:
            return parts[0]
        subschemas: list[Shape | Json] = [
            part.subschemas[0] if part.kind == "reference" else part for part in parts
        ]
        return Shape("combined", node, "allOf", subschemas)


def reference_keyword(node: dict[str, Json]) -> str | None:
    """Return the keyword by which ``node`` refers to another schema."""
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        if keyword in node:
            return keyword
    return None


def _value_parts(node: dict[str, Json]) -> list[Shape]:
    """Return the parts that state something about values of every type."""
    parts: list[Shape] = []
    if "enum" in node:
        if not isinstance(node["enum"], list):
            raise InvalidSchema("Invalid JSON schema: enum must be an array")
        parts.append(Shape("enum", node))
    for criterion in CRITERIA:
        if criterion in node:
            subschemas = node[criterion]
            if not isinstance(subschemas, list):
                raise InvalidSchema(f"Invalid JSON schema: {criterion} must be an array")
            parts.append(Shape("combined", node, criterion, list(subschemas)))
    if "not" in node:
        parts.append(Shape("not", node))
    if "const" in node:
        parts.append(Shape("const", node))
    if "if" in node and ("then" in node or "else" in node):
        parts.append(Shape("conditional", node))
    return parts


def _typed_parts(node: dict[str, Json]) -> list[Shape]:
    types = node.get("type")
    if isinstance(types, str):
        return [_typed(types, node)]
    if isinstance(types, list):
        return [Shape("combined", node, "anyOf", [_typed(type_, node) for type_ in types])]
    if types is not None:
        raise InvalidSchema("Invalid JSON schema: type must be a string or an array of strings")
    return [
        _typed(kind, node)
        for kind, keywords in KIND_KEYWORDS.items()
        if not keywords.isdisjoint(node)
    ]


def _typed(type_: Json, node: dict[str, Json]) -> Shape:
    if type_ not in TYPES:
        raise InvalidSchema(f"Invalid JSON schema: unknown type: {str(type_)[:50]!r}")
    kind = "number" if type_ == "integer" else str(type_)
    keywords = Keywords.of(node, kind)
    return Shape(kind, node, is_integer=type_ == "integer", keywords=keywords)
