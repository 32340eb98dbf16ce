"""JSON to Avro types: names, namespaces, aliases, references by full name, default values.

A name must be defined before it is used: in the schema itself, further left, or in a reference.
"""

import re
from collections.abc import Iterable
from typing import Final

from ottla.schemas.avro.defaults import check_default
from ottla.schemas.avro.model import (
    COMPLEX,
    PRIMITIVES,
    AvroType,
    Container,
    Enum,
    Field,
    Fixed,
    Name,
    NamedType,
    Primitive,
    Record,
    Union,
    parts_of,
)
from ottla.schemas.contract import InvalidSchema
from ottla.schemas.json_text import Json, read_json, write_json

# Levels of types within types, also through names: what recursive functions over types can bear.
HEIGHT_MAX: Final = 200
FIXED_SIZE_MAX: Final = 2**31 - 1
# What Avro's specification allows, and what its Java library accepted without strict validation.
STRICT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LENIENT_NAME: Final = re.compile(r"[^\W\d]\w*")
ORDERS: Final = ("ascending", "descending", "ignore")
SCHEMA_RESERVED: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
ENUM_RESERVED: Final = SCHEMA_RESERVED | {"default"}
FIELD_RESERVED: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})
# A quoted piece of the schema in a message has at most this many characters.
QUOTED_MAX: Final = 100


class AvroParser:
    """Parses the texts of one schema and its references; they share one table of names."""

    def __init__(self, *, is_strict: bool) -> None:
        self._is_strict = is_strict
        self._name_pattern = STRICT_NAME if is_strict else LENIENT_NAME
        self._types: dict[str, NamedType] = {}
        self._definitions: dict[str, tuple[str, dict[str, Json]]] = {}

    def parse(self, text: str) -> AvroType:
        """Parse one text. Raises InvalidSchema."""
        return self._parse(read_json(text, "Avro"), "", "/")

    def _parse(self, node: Json, space: str, path: str) -> AvroType:
        match node:
            case str():
                return self._named(node, space, path)
            case list():
                return self._union(node, space, path)
            case dict():
                return self._object(node, space, path)
            case _:
                raise _invalid(path, f"expected a name, an object or an array, not {_quoted(node)}")

    def _named(self, text: str, space: str, path: str) -> AvroType:
        if text in PRIMITIVES:
            return Primitive(text)
        name = Name.of(text, space)
        known = self._types.get(name.full) or self._types.get(name.simple)
        if known is None or (known.full_name != name.full and "." in text):
            raise _invalid(path, f"undefined name: {_quoted(text)}")
        return known

    def _object(self, node: dict[str, Json], space: str, path: str) -> AvroType:
        kind = node.get("type")
        match kind:
            case "record" | "error":
                return self._record(node, space, path)
            case "enum":
                return self._enum(node, space, path)
            case "fixed":
                return self._fixed(node, space, path)
            case "array" | "map":
                kind = str(kind)
                member = "items" if kind == "array" else "values"
                if member not in node:
                    raise _invalid(path, f"{kind} without {member!r}")
                item = self._parse(node[member], space, f"{path}{member}/")
                properties = _properties(node, SCHEMA_RESERVED)
                return self._measured(Container(kind, properties, item=item), path)
            case str() if kind in PRIMITIVES:
                return Primitive(kind, _properties(node, SCHEMA_RESERVED))
            case str():
                return self._named(kind, space, f"{path}type/")
            case None:
                raise _invalid(path, f"no type: {_quoted(node)}")
            case _:
                raise _invalid(path, f"type must be a string, not {_quoted(kind)}")

    def _union(self, nodes: list[Json], space: str, path: str) -> AvroType:
        branches: list[AvroType] = []
        names: set[str] = set()
        for index, node in enumerate(nodes):
            branch = self._parse(node, space, f"{path}{index}/")
            if isinstance(branch, Union):
                raise _invalid(path, "a union directly within a union")
            if branch.full_name in names:
                raise _invalid(path, f"duplicate in union: {_quoted(branch.full_name)}")
            names.add(branch.full_name)
            branches.append(branch)
        return self._measured(Union("union", branches=branches), path)

    def _record(self, node: dict[str, Json], space: str, path: str) -> AvroType:
        name = self._name(node, space, path)
        field_nodes = node.get("fields")
        if not isinstance(field_nodes, list):
            raise _invalid(path, f"record {_quoted(name.full)} has no fields")
        record = Record(
            "record",
            _properties(node, SCHEMA_RESERVED),
            name=name,
            doc=_text(node, "doc"),
            aliases=self._aliases(node, name, path),
            is_error=node["type"] == "error",
        )
        if known := self._define(record, node, space, path):
            return known
        names: set[str] = set()
        for index, field_node in enumerate(field_nodes):
            record_field = self._field(field_node, name.space, f"{path}fields/{index}/")
            if record_field.name in names:
                raise _invalid(path, f"duplicate field {_quoted(record_field.name)}")
            names.add(record_field.name)
            record.fields.append(record_field)
        if self._is_strict:
            for index, record_field in enumerate(record.fields):
                check_default(record_field, f"{path}fields/{index}")
        return self._measured(record, path)

    def _field(self, node: Json, space: str, path: str) -> Field:
        if not isinstance(node, dict):
            raise _invalid(path, f"a field must be an object, not {_quoted(node)}")
        name = self._simple_name(node.get("name"), "field name", path)
        if "type" not in node:
            raise _invalid(path, f"field {_quoted(name)} has no type")
        type_ = self._parse(node["type"], space, f"{path}type/")
        order = node.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in ORDERS:
            raise _invalid(path, f"order must be one of {', '.join(ORDERS)}, not {_quoted(order)}")
        return Field(
            name=name,
            type=type_,
            doc=_text(node, "doc"),
            has_default="default" in node,
            default=_default_of(node.get("default"), type_, path),
            order=order.lower(),
            aliases=_texts(node, "aliases", path),
            properties=_properties(node, FIELD_RESERVED),
        )

    def _enum(self, node: dict[str, Json], space: str, path: str) -> AvroType:
        name = self._name(node, space, path)
        if not isinstance(node.get("symbols"), list):
            raise _invalid(path, f"enum {_quoted(name.full)} has no symbols")
        symbols = _texts(node, "symbols", path)
        for symbol in symbols:
            self._simple_name(symbol, "symbol", path)
        if len(set(symbols)) < len(symbols):
            raise _invalid(path, f"duplicate symbol in enum {_quoted(name.full)}")
        default = node.get("default")
        if default is not None and default not in symbols:
            raise _invalid(path, f"the default {_quoted(default)} is not one of the symbols")
        enum = Enum(
            "enum",
            _properties(node, ENUM_RESERVED),
            name=name,
            doc=_text(node, "doc"),
            aliases=self._aliases(node, name, path),
            symbols=symbols,
            default=default if isinstance(default, str) else None,
        )
        return self._define(enum, node, space, path) or enum

    def _fixed(self, node: dict[str, Json], space: str, path: str) -> AvroType:
        name = self._name(node, space, path)
        size = node.get("size")
        if type(size) is not int or not 0 <= size <= FIXED_SIZE_MAX:
            raise _invalid(path, f"fixed {_quoted(name.full)} needs a size, not {_quoted(size)}")
        fixed = Fixed(
            "fixed",
            _properties(node, SCHEMA_RESERVED),
            name=name,
            doc=_text(node, "doc"),
            aliases=self._aliases(node, name, path),
            size=size,
        )
        return self._define(fixed, node, space, path) or fixed

    def _define(
        self, type_: NamedType, node: dict[str, Json], space: str, path: str
    ) -> NamedType | None:
        """Enter a type into the table. Returns the known type if it has the same definition."""
        full = type_.name.full
        if full in self._definitions:
            if self._definitions[full] == (space, node):
                return self._types[full]
            raise _invalid(path, f"can't redefine {_quoted(full)}")
        self._types[full] = type_
        self._definitions[full] = (space, node)
        return None

    def _measured(self, type_: AvroType, path: str) -> AvroType:
        type_.height = 1 + max((part.height for part in parts_of(type_)), default=0)
        if type_.height > HEIGHT_MAX:
            raise _invalid(path, f"types nested more than {HEIGHT_MAX} levels deep")
        return type_

    def _name(self, node: dict[str, Json], space: str, path: str) -> Name:
        text, namespace = node.get("name"), node.get("namespace")
        if not isinstance(text, str):
            raise _invalid(path, f"no name: {_quoted(node)}")
        name = Name.of(text, namespace if isinstance(namespace, str) else space)
        self._simple_name(name.simple, "name", path)
        self._check_space(name.space, path)
        if name.full in PRIMITIVES or (self._is_strict and name.full in COMPLEX):
            raise _invalid(path, f"{_quoted(name.full)} is the name of a type of Avro")
        return name

    def _simple_name(self, name: Json, noun: str, path: str) -> str:
        if not isinstance(name, str):
            raise _invalid(path, f"no {noun}: {_quoted(name)}")
        if not self._name_pattern.fullmatch(name):
            raise _invalid(path, f"illegal {noun}: {_quoted(name)}")
        return name

    def _check_space(self, space: str, path: str) -> None:
        if space and self._is_strict and not all(map(STRICT_NAME.fullmatch, space.split("."))):
            raise _invalid(path, f"illegal namespace: {_quoted(space)}")

    def _aliases(self, node: dict[str, Json], name: Name, path: str) -> list[Name]:
        return [Name.of(alias, name.space) for alias in _texts(node, "aliases", path)]


def _default_of(value: Json, type_: AvroType, path: str) -> Json:
    """Return a default; a number of type float or double may be written as a string."""
    if type_.kind in ("float", "double") and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise _invalid(path, f"the default {_quoted(value)} is not a number") from None
    return value


def _properties(node: dict[str, Json], reserved: Iterable[str]) -> dict[str, Json]:
    return {key: value for key, value in node.items() if key not in reserved}


def _text(node: dict[str, Json], member: str) -> str | None:
    value = node.get(member)
    return value if isinstance(value, str) else None


def _texts(node: dict[str, Json], member: str, path: str) -> list[str]:
    """Return a list of strings; aliases that are not given are an empty one."""
    values = node.get(member, [])
    if not isinstance(values, list):
        raise _invalid(path, f"{member} must be an array, not {_quoted(values)}")
    texts = []
    for value in values:
        if not isinstance(value, str):
            raise _invalid(path, f"{member} must be strings, not {_quoted(value)}")
        texts.append(value)
    return texts if member == "symbols" else list(dict.fromkeys(texts))


def _quoted(value: Json) -> str:
    text = write_json(value)
    return text if len(text) <= QUOTED_MAX else f"{text[:QUOTED_MAX]}..."


def _invalid(path: str, problem: str) -> InvalidSchema:
    return InvalidSchema(f"Invalid Avro schema at {path.rstrip('/') or '/'}: {problem}")
