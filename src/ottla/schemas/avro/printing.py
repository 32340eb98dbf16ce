"""Avro types to JSON, in the order of attributes that Avro's Java library prints.

A named type is printed where it first occurs, and by its name afterwards. Attributes: type, name,
namespace (if it differs from the enclosing one), doc, the parts, other properties, aliases.
"""

from collections.abc import Iterable

from ottla.schemas.avro.model import (
    AvroType,
    Container,
    Enum,
    Field,
    Fixed,
    NamedType,
    Record,
    Union,
)
from ottla.schemas.json_text import Json, write_json


def print_avro(type_: AvroType, names: Iterable[str] = ()) -> str:
    """Return the text of a schema; types whose full name is in ``names`` are not defined in it."""
    return write_json(to_json(type_, names))


def to_json(type_: AvroType, names: Iterable[str] = ()) -> Json:
    """Return the JSON value of a schema, as ``print_avro`` does."""
    return _Printer(set(names)).node_of(type_, "")


class _Printer:
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def node_of(self, type_: AvroType, space: str) -> Json:
        match type_:
            case NamedType():
                return self._named(type_, space)
            case Union():
                return [self.node_of(branch, space) for branch in type_.branches]
            case Container():
                member = "items" if type_.kind == "array" else "values"
                item = self.node_of(type_.item, space)
                return {"type": type_.kind, member: item} | type_.properties
            case _:
                if not type_.properties:
                    return type_.kind
                return {"type": type_.kind} | type_.properties

    def _named(self, type_: NamedType, space: str) -> Json:
        name = type_.name
        if name.full in self._names:
            return name.relative_to(space)
        self._names.add(name.full)
        is_error = isinstance(type_, Record) and type_.is_error
        node: dict[str, Json] = {"type": "error" if is_error else type_.kind, "name": name.simple}
        if name.space != space:
            node["namespace"] = name.space
        if type_.doc is not None:
            node["doc"] = type_.doc
        match type_:
            case Record():
                node["fields"] = [self._field(field, name.space) for field in type_.fields]
            case Enum():
                node["symbols"] = list(type_.symbols)
                if type_.default is not None:
                    node["default"] = type_.default
            case Fixed():
                node["size"] = type_.size
        node |= type_.properties
        if type_.aliases:
            node["aliases"] = [alias.relative_to(name.space) for alias in type_.aliases]
        return node

    def _field(self, field: Field, space: str) -> Json:
        node: dict[str, Json] = {"name": field.name, "type": self.node_of(field.type, space)}
        if field.doc is not None:
            node["doc"] = field.doc
        if field.has_default:
            node["default"] = field.default
        if field.order != "ascending":
            node["order"] = field.order
        if field.aliases:
            node["aliases"] = list(field.aliases)
        return node | field.properties
