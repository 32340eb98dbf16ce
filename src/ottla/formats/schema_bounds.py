"""What a schema may cost: fields, levels, and values whose size no bytes announce.

A schema comes from a file or a registry, where other users write. Named types may refer to each
other, so a few lines can declare millions of columns; a recursive one has values of any depth,
which fastavro skips by recursion in C; and an array of items without bytes may announce 2**60 of
them in ten bytes.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

FIELDS_MAX: Final = 10_000
"""Columns of a schema, with all nested ones."""
LEVELS_MAX: Final = 64


class BadSchema(ValueError):
    """A schema that cannot be mapped to columns; the message names the place in the schema."""


class FieldCount:
    """Counts the fields of a schema while its columns are made. Raises BadSchema."""

    def __init__(self) -> None:
        self._fields = 0

    def add(self, levels: int) -> None:
        """Count a field at a level of nesting."""
        self._fields += 1
        check_size(self._fields, levels)


def check_size(fields: int, levels: int) -> None:
    """Check the number of fields and of levels. Raises BadSchema."""
    if fields > FIELDS_MAX:
        raise BadSchema(f"more than {FIELDS_MAX} columns, with nested ones")
    if levels > LEVELS_MAX:
        raise BadSchema(f"more than {LEVELS_MAX} levels of nested types")


class _Size(NamedTuple):
    fields: int
    levels: int
    has_no_bytes: bool = False


class _Avro:
    """Measures a schema as fastavro parses it; each named type once."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._sizes: dict[str, _Size | None] = {}  # None: being measured

    def size(self, parsed: Any) -> _Size:  # noqa: ANN401 - JSON
        if isinstance(parsed, str):
            return self._by_name(parsed)
        if isinstance(parsed, list):
            return self._joined([self.size(each) for each in parsed])
        measures: dict[str, Callable[[Any], _Size]] = {
            "record": self._record,
            "error": self._record,
            "array": self._array,
            "map": lambda each: self._joined([self.size(each["values"])]),
            "fixed": lambda each: _Size(1, 1, each["size"] <= 0),
            "enum": lambda _: _Size(1, 1),
        }
        measure = measures.get(parsed["type"] if isinstance(parsed["type"], str) else "")
        return self.size(parsed["type"]) if measure is None else measure(parsed)

    def _array(self, parsed: Mapping[str, Any]) -> _Size:
        item = self.size(parsed["items"])
        if item.has_no_bytes:
            raise BadSchema(
                "the items of an array have no bytes, so any number of them can be announced"
            )
        return self._joined([item])

    def _by_name(self, name: str) -> _Size:
        if name not in self._named:
            return _Size(1, 1, name == "null")
        if name not in self._sizes:
            return self.size(self._named[name])
        found = self._sizes[name]
        if found is None:
            raise BadSchema(f"type {name!r} is recursive")
        return found

    def _record(self, parsed: Mapping[str, Any]) -> _Size:
        name = parsed["name"]
        self._sizes[name] = None
        sizes = [self.size(each["type"]) for each in parsed["fields"]]
        found = self._joined(sizes)._replace(has_no_bytes=all(each.has_no_bytes for each in sizes))
        self._sizes[name] = found
        return found

    def _joined(self, parts: list[_Size]) -> _Size:
        fields = sum(each.fields for each in parts) + 1
        levels = max((each.levels for each in parts), default=0) + 1
        check_size(fields, levels)
        return _Size(fields, levels)


def check_avro(parsed: Any, named: Mapping[str, Any]) -> None:  # noqa: ANN401 - JSON
    """Check a schema that fastavro has parsed, with the types that it names. Raises BadSchema."""
    _Avro(named).size(parsed)
