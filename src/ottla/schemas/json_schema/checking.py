"""Whether a whole JSON Schema can be used: types of keywords, known types, references."""

from collections.abc import Iterator

from ottla.schemas.contract import InvalidSchema
from ottla.schemas.json_schema.shapes import Shape, Shapes
from ottla.schemas.json_text import Json

# A property whose name starts with this is reserved for the registry.
RESERVED_PREFIX = "$$"


def check_schema(shapes: Shapes, root: Json) -> None:
    """Check the schema and everything it uses. Raises InvalidSchema."""
    seen: set[int] = set()
    waiting: list[Shape | Json] = [root]
    while waiting:
        shape = shapes.of(waiting.pop())
        if id(shape) not in seen:
            seen.add(id(shape))
            waiting.extend(_parts(shape))


def check_names(root: Json) -> None:
    """Check the names of the top-level properties. Raises InvalidSchema."""
    properties = root.get("properties") if isinstance(root, dict) else None
    for name in properties if isinstance(properties, dict) else ():
        if name.startswith(RESERVED_PREFIX):
            raise InvalidSchema(
                f"#/properties/{name}: Field names cannot start with {RESERVED_PREFIX} prefix"
            )


def _parts(shape: Shape) -> Iterator[Shape | Json]:
    keywords = shape.keywords
    yield from shape.subschemas
    yield from keywords.properties.values()
    yield from keywords.pattern_properties.values()
    yield from keywords.dependency_schemas.values()
    yield from keywords.items
    yield from keywords.other_schemas
    for schema in (keywords.additional, keywords.unevaluated, keywords.all_items):
        if schema is not None:
            yield schema
    if shape.kind == "not":
        yield shape.node["not"]
    if shape.kind == "conditional":
        for keyword in ("if", "then", "else"):
            if keyword in shape.node:
                yield shape.node[keyword]
