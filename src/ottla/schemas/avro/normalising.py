"""Order everything in Avro types whose order has no meaning, as ``normalize=true`` asks for.

Properties and aliases are sorted, ``logicalType`` with its precision and scale first; empty docs of
named types are dropped; numbers of type float and double get a fraction. Types are changed in
place: normalise only types that nothing else uses.
"""

from ottla.schemas.avro.model import (
    AvroType,
    Container,
    Field,
    Fixed,
    NamedType,
    Record,
    Union,
    parts_of,
)
from ottla.schemas.json_text import Json, sort_keys

_LONG_LOGICAL = {
    "time-micros",
    "timestamp-millis",
    "timestamp-micros",
    "timestamp-nanos",
    "local-timestamp-millis",
    "local-timestamp-micros",
    "local-timestamp-nanos",
}


def normalise(root: AvroType) -> None:
    """Normalise ``root`` and every type below it."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        type_ = waiting.pop()
        if id(type_) in seen:
            continue
        seen.add(id(type_))
        _normalise_one(type_)
        waiting.extend(parts_of(type_))


def _normalise_one(type_: AvroType) -> None:
    if isinstance(type_, NamedType):
        type_.doc = type_.doc or None
        type_.aliases.sort(key=lambda alias: alias.full)
    first = [key for key in _logical_keys(type_) if key in type_.properties]
    rest = sorted(key for key in type_.properties if key not in first)
    type_.properties = {key: sort_keys(type_.properties[key]) for key in [*first, *rest]}
    if isinstance(type_, Record):
        for field in type_.fields:
            _normalise_field(field)


def _normalise_field(field: Field) -> None:
    field.aliases.sort()
    field.properties = {key: sort_keys(field.properties[key]) for key in sorted(field.properties)}
    if field.has_default:
        field.default = sort_keys(_with_fractions(field.default, field.type))


def _with_fractions(value: Json, type_: AvroType) -> Json:
    match type_:
        case AvroType(kind="float" | "double") if type(value) is int:
            return _as_float(value)
        case Container(kind="array") if isinstance(value, list):
            return [_with_fractions(item, type_.item) for item in value]
        case Container() if isinstance(value, dict):
            return {key: _with_fractions(item, type_.item) for key, item in value.items()}
        case Record() if isinstance(value, dict):
            types = {field.name: field.type for field in type_.fields}
            return {
                key: _with_fractions(item, types[key]) if key in types else item
                for key, item in value.items()
            }
        case Union() if type_.branches:
            return _with_fractions(value, type_.branches[0])
        case _:
            return value


def _as_float(value: int) -> Json:
    try:
        return float(value)
    except OverflowError:
        return value


def _logical_keys(type_: AvroType) -> list[str]:
    """Return the properties of a valid logical type of Avro, in the order to print them."""
    logical = type_.properties.get("logicalType")
    match logical, type_.kind:
        case "decimal", ("bytes" | "fixed") if _is_decimal(type_):
            has_scale = type_.properties.get("scale", 0) != 0
            return ["logicalType", "precision", *(["scale"] if has_scale else [])]
        case (("uuid" | "big-decimal"), ("string" | "bytes")) | (("date" | "time-millis"), "int"):
            return ["logicalType"]
        case (("uuid" | "duration"), "fixed") if isinstance(type_, Fixed):
            return ["logicalType"] if type_.size == (16 if logical == "uuid" else 12) else []
        case str(), "long" if logical in _LONG_LOGICAL:
            return ["logicalType"]
        case _:
            return []


def _is_decimal(type_: AvroType) -> bool:
    precision, scale = type_.properties.get("precision"), type_.properties.get("scale", 0)
    return type(precision) is int and type(scale) is int and precision > 0 <= scale <= precision
