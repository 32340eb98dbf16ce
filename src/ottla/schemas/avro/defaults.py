"""Whether default values fit the types of their fields."""

from collections.abc import Callable
from typing import Final

from ottla.schemas.avro.model import AvroType, Container, Field, Record, Union
from ottla.schemas.contract import InvalidSchema
from ottla.schemas.json_text import Json, write_json

_INT_RANGE = range(-(2**31), 2**31)
_LONG_RANGE = range(-(2**63), 2**63)


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


_PRIMITIVE_CHECKS: Final[dict[str, Callable[[Json], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: type(value) is int and value in _INT_RANGE,
    "long": lambda value: type(value) is int and value in _LONG_RANGE,
    "float": lambda value: type(value) in (int, float),
    "double": lambda value: type(value) in (int, float),
    "string": _is_text,
    "bytes": _is_text,
    "enum": _is_text,
    "fixed": _is_text,
}


def check_default(field: Field, path: str) -> None:
    """Check the default of a field, if it has one. Raises InvalidSchema."""
    if field.has_default and not _Check().fits(field.type, field.default):
        value = write_json(field.default)
        raise InvalidSchema(
            f"Invalid Avro schema at {path}: invalid default for field {field.name}:"
            f" {value[:100]} is not a {field.type.kind}"
        )


class _Check:
    """The check of one default. Results are kept: nested unions would ask exponentially often."""

    def __init__(self) -> None:
        self._results: dict[tuple[int, int], bool] = {}

    def fits(self, type_: AvroType, value: Json) -> bool:
        """Return whether ``value`` is one of ``type_``."""
        if (check := _PRIMITIVE_CHECKS.get(type_.kind)) is not None:
            return check(value)
        pair = id(type_), id(value)
        if pair not in self._results:
            self._results[pair] = self._fits_complex(type_, value)
        return self._results[pair]

    def _fits_complex(self, type_: AvroType, value: Json) -> bool:
        match type_:
            case Container(kind="array"):
                return isinstance(value, list) and all(
                    self.fits(type_.item, item) for item in value
                )
            case Container():
                return isinstance(value, dict) and all(
                    self.fits(type_.item, item) for item in value.values()
                )
            case Union():
                return any(self.fits(branch, value) for branch in type_.branches)
            case Record():
                return isinstance(value, dict) and all(
                    self.fits(field.type, value[field.name])
                    if field.name in value
                    else field.has_default
                    for field in type_.fields
                )
            case _:
                return False
