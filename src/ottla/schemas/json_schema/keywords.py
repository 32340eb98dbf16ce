"""The keywords of objects, arrays, strings and numbers, with their types checked.

The drafts differ in names: ``dependencies`` became ``dependentRequired`` and ``dependentSchemas``
(2019-09); ``items`` as an array and ``additionalItems`` became ``prefixItems`` and ``items``
(2020-12). Here both spellings give the same attributes.
"""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from ottla.schemas.contract import InvalidSchema
from ottla.schemas.json_schema.patterns import check_pattern
from ottla.schemas.json_text import Json

Number = int | float | Decimal
NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


@dataclass(slots=True, eq=False)
class Keywords:
    """What a schema says about one type. None stands for a keyword that is absent.

    ``additional`` is the schema of additional properties or items: True if there is none, False if
    they are forbidden. ``unevaluated`` is None if absent.
    """

    limits: dict[str, Number] = field(default_factory=dict)
    pattern: str | None = None
    properties: dict[str, Json] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    pattern_properties: dict[str, Json] = field(default_factory=dict)
    additional: Json = True
    unevaluated: Json = None
    dependencies: dict[str, frozenset[str]] = field(default_factory=dict)
    dependency_schemas: dict[str, Json] = field(default_factory=dict)
    all_items: Json = None
    items: list[Json] = field(default_factory=list)
    is_unique: bool = False
    other_schemas: list[Json] = field(default_factory=list)

    @staticmethod
    def of(node: dict[str, Json], kind: str) -> "Keywords":
        """Return the keywords of ``node`` that concern ``kind``. Raises InvalidSchema."""
        match kind:
            case "object":
                return _object(node)
            case "array":
                return _array(node)
            case "string":
                pattern = node.get("pattern")
                if pattern is not None:
                    if not isinstance(pattern, str):
                        raise _invalid("pattern", "a string")
                    check_pattern(pattern)
                return Keywords(limits=_counts(node, "minLength", "maxLength"), pattern=pattern)
            case "number":
                return Keywords(limits=_numbers(node))
            case _:
                return Keywords()


def _object(node: dict[str, Json]) -> Keywords:
    required = node.get("required", [])
    if not isinstance(required, list):
        raise _invalid("required", "an array")
    arrays, schemas = _dependencies(node)
    patterns = _schemas(node, "patternProperties")
    for pattern in patterns:
        check_pattern(pattern)
    additional = node.get("additionalProperties", True)
    return Keywords(
        limits=_counts(node, "minProperties", "maxProperties"),
        properties=_schemas(node, "properties"),
        required=frozenset(name for name in required if isinstance(name, str)),
        pattern_properties=patterns,
        additional=True if additional is None else additional,
        unevaluated=node.get("unevaluatedProperties"),
        dependencies=arrays,
        dependency_schemas=schemas,
        other_schemas=[node[key] for key in ("propertyNames",) if key in node],
    )


def _dependencies(
    node: dict[str, Json],
) -> tuple[dict[str, frozenset[str]], dict[str, Json]]:
    arrays: dict[str, frozenset[str]] = {}
    schemas = _schemas(node, "dependentSchemas")
    for keyword in ("dependencies", "dependentRequired"):
        for name, value in _schemas(node, keyword).items():
            if isinstance(value, list):
                arrays[name] = frozenset(item for item in value if isinstance(item, str))
            elif keyword == "dependencies":
                schemas[name] = value
            else:
                raise _invalid("dependentRequired", "arrays of strings")
    return arrays, schemas


def _array(node: dict[str, Json]) -> Keywords:
    items = node.get("items")
    prefix = node.get("prefixItems")
    if prefix is not None and not isinstance(prefix, list):
        raise _invalid("prefixItems", "an array")
    additional = node.get("additionalItems", True)
    all_items: Json = None
    if isinstance(prefix, list) and not isinstance(items, list):
        additional = True if items is None else items
        items = prefix
    elif items is not None and not isinstance(items, list):
        # No item at all is what a closed tuple without items says, too.
        all_items = None if isinstance(items, bool) else items
        additional = items is not False
    return Keywords(
        limits=_counts(node, "minItems", "maxItems", "minContains", "maxContains"),
        all_items=all_items,
        items=list(items) if isinstance(items, list) else [],
        additional=True if additional is None else additional,
        unevaluated=node.get("unevaluatedItems"),
        is_unique=node.get("uniqueItems") is True,
        other_schemas=[node[key] for key in ("contains",) if key in node],
    )


def _schemas(node: dict[str, Json], keyword: str) -> dict[str, Json]:
    value = node.get(keyword, {})
    if not isinstance(value, dict):
        raise _invalid(keyword, "an object")
    return dict(value)


def _counts(node: dict[str, Json], *keywords: str) -> dict[str, Number]:
    limits: dict[str, Number] = {}
    for keyword in keywords:
        value = node.get(keyword)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, Number):
            raise _invalid(keyword, "a number")
        limits[keyword] = value
    return limits


def _numbers(node: dict[str, Json]) -> dict[str, Number]:
    limits: dict[str, Number] = {}
    for keyword in NUMBERS:
        value = node.get(keyword)
        if value is None or (isinstance(value, bool) and keyword.startswith("exclusive")):
            continue  # draft 4: a boolean beside minimum or maximum
        if isinstance(value, bool) or not isinstance(value, Number):
            raise _invalid(keyword, "a number")
        limits[keyword] = value
    return limits


def _invalid(keyword: str, expected: str) -> InvalidSchema:
    return InvalidSchema(f"Invalid JSON schema: {keyword} must be {expected}")
