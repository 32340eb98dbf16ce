"""Maps JSON Schema to columns, and objects of JSON to their fields.

==========================================  =========================================
JSON Schema                                 column
==========================================  =========================================
integer, number, boolean, string            bigint, double, boolean, string
object with properties                      struct (the outermost: columns)
object with additionalProperties only       map
array with items                            array
null and one other type                     that one
anything else (several types, no type)      string: the JSON text
==========================================  =========================================
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

from ottla.formats.schema_bounds import BadSchema, FieldCount

Json: TypeAlias = Any

_SCALAR: Final = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}
_DEPTH_MAX: Final = 50


def json_columns(declared: Json) -> pa.Schema:
    """Return the columns of a schema whose outermost type is an object.

    Raises:
        BadSchema: it is not, or a reference cannot be resolved or is recursive.
    """
    kind = _type(declared, declared, 0, FieldCount())
    if not pa.types.is_struct(kind):
        raise BadSchema("the outermost type of a JSON Schema must be an object with properties")
    return pa.schema(list(kind))


def _type(declared: Json, root: Json, depth: int, count: FieldCount) -> pa.DataType:
    count.add(depth)
    if depth > _DEPTH_MAX:
        raise BadSchema("the schema is recursive, or nested too deeply")
    if not isinstance(declared, Mapping):
        return pa.string()
    if "$ref" in declared:
        return _type(_referenced(str(declared["$ref"]), root), root, depth + 1, count)
    for word in ("oneOf", "anyOf"):
        if word in declared:
            others = [each for each in declared[word] if each != {"type": "null"}]
            return _type(others[0], root, depth + 1, count) if len(others) == 1 else pa.string()
    kind = declared.get("type")
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        kind = others[0] if len(others) == 1 else None
    if kind == "object":
        return _object(declared, root, depth, count)
    if kind == "array":
        return pa.list_(_type(declared.get("items"), root, depth + 1, count))
    return _SCALAR.get(str(kind), pa.string())


def _object(declared: Mapping[str, Json], root: Json, depth: int, count: FieldCount) -> pa.DataType:
    properties = declared.get("properties")
    if properties:
        return pa.struct(
            [(name, _type(each, root, depth + 1, count)) for name, each in properties.items()]
        )
    more = declared.get("additionalProperties")
    if isinstance(more, Mapping):
        return pa.map_(pa.string(), _type(more, root, depth + 1, count))
    return pa.string()


def _referenced(text: str, root: Json) -> Json:
    if not text.startswith("#"):
        raise BadSchema(f"the reference {text!r} is not within the schema")
    found = root
    for step in filter(None, text[1:].split("/")):
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or name not in found:
            raise BadSchema(f"the reference {text!r} leads nowhere")
        found = found[name]
    return found


def json_fields(found: Mapping[str, Json], columns: pa.Schema) -> dict[str, Any]:
    """Return the fields of an object that have a column, in the form of their columns.

    Raises:
        ValueError: a field has another type.
    """
    return {each.name: _fitted(found.get(each.name), each.type, each.name) for each in columns}


def _fitted(value: Json, kind: pa.DataType, path: str) -> Any:  # noqa: ANN401, PLR0911 - any type
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else json.dumps(value)
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        return {e.name: _fitted(value.get(e.name), e.type, f"{path}.{e.name}") for e in kind}
    if pa.types.is_map(kind) and isinstance(value, Mapping):
        return [(name, _fitted(each, kind.item_type, path)) for name, each in value.items()]
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_fitted(each, kind.value_type, f"{path}[]") for each in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if pa.types.is_floating(kind) and is_number:
        return float(value)
    if pa.types.is_integer(kind) and is_number and math.isfinite(value) and value == int(value):
        return int(value)
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return value
    raise ValueError(f"field {path} is {json.dumps(value)[:50]}, not {kind}")
