"""Whether a payload is one of its schema, for brokers that validate records. Pure and bounded.

`payload_check` returns a function that raises ValueError for a payload that consumers could not
decode. Payloads and schemas are hostile: a check ends after `STEPS_MAX` steps, each of which is
linear in the size of the payload.

    Avro        the bytes are walked by the schema; nothing is built
    JSON        parsed, then validated by the keywords of the schema's draft
    Protobuf    parsed by the message that the path before it names
"""

import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ottla.formats.wire_format import split_indexes
from ottla.schemas.avro.model import AvroType, Container, Enum, Fixed, Record, Union
from ottla.schemas.contract import InvalidSchema, ParsedSchema, SchemaType

Check: TypeAlias = Callable[[bytes, int], None]
"""Checks the payload that begins at a position. Raises ValueError."""
Name: TypeAlias = Callable[[bytes, int], str | None]

DEPTH_MAX: Final = 200
"""Levels of nested values."""
STEPS_MAX: Final = 1_000_000
"""Values of Avro, or keywords of a JSON Schema, in one check: a few seconds at most."""
_LONG_BYTES_MAX: Final = 10
_INT_RANGE: Final = range(-(2**31), 2**31)


class _Budget:
    """Counts the steps of one check."""

    def __init__(self) -> None:
        self.left = STEPS_MAX

    def spend(self) -> None:
        """Count a step. Raises ValueError."""
        self.left -= 1
        if self.left < 0:
            raise ValueError(f"the schema needs more than {STEPS_MAX} steps to check it")


def payload_check(schema: ParsedSchema) -> tuple[Name, Check]:
    """Return functions that name the record of a payload, and check it.

    Raises:
        ValueError: the schema cannot be used for this; the message says why.
    """
    match schema.schema_type:
        case SchemaType.AVRO:
            return (lambda data, start: schema.name), _avro_check(schema)
        case SchemaType.JSON:
            return (lambda data, start: schema.name), _json_check(schema)
        case SchemaType.PROTOBUF:
            return _protobuf_check(schema)


# -- Avro --------------------------------------------------------------------------


def _avro_check(schema: ParsedSchema) -> Check:
    from ottla.schemas.avro.schema import AvroSchema

    assert isinstance(schema, AvroSchema)
    root = schema.root

    def check(data: bytes, start: int) -> None:
        try:
            end = _AvroWalk(data).skip(root, start, 0)
        except IndexError:
            raise ValueError("the payload is cut off") from None
        if end != len(data):
            raise ValueError(f"{len(data) - end} bytes remain after the value")

    return check


class _AvroWalk:
    """Walks one payload. Positions are in ``data``; IndexError is raised beyond its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._budget = _Budget()

    def skip(self, kind: AvroType, position: int, depth: int) -> int:
        """Return where a value ends. Raises ValueError."""
        self._budget.spend()
        if depth > DEPTH_MAX:
            raise ValueError(f"the value is nested deeper than {DEPTH_MAX} levels")
        match kind:
            case Record():
                for field in kind.fields:
                    position = self.skip(field.type, position, depth + 1)
                return position
            case Union():
                index, position = _long(self._data, position)
                if not 0 <= index < len(kind.branches):
                    raise ValueError(f"the union has no branch {index}")
                return self.skip(kind.branches[index], position, depth + 1)
            case Container():
                return self._skip_blocks(kind, position, depth)
            case Enum():
                index, position = _long(self._data, position)
                if not 0 <= index < len(kind.symbols):
                    raise ValueError(f"{kind.full_name} has no symbol {index}")
                return position
            case Fixed():
                return _within(self._data, position + kind.size)
            case _:
                return _skip_primitive(kind.kind, self._data, position)

    def _skip_blocks(self, kind: Container, position: int, depth: int) -> int:
        """Skip the blocks of an array or a map."""
        while True:
            count, position = _long(self._data, position)
            if count == 0:
                return position
            if count < 0:
                count = -count
                _, position = _long(self._data, position)  # the bytes of the block
            for _ in range(count):
                before = position
                if kind.kind == "map":
                    position = _skip_primitive("string", self._data, position)
                position = self.skip(kind.item, position, depth + 1)
                if position == before:
                    break  # items without bytes: however many, they are all alike


def _skip_primitive(kind: str, data: bytes, position: int) -> int:
    match kind:
        case "null":
            return position
        case "boolean":
            if data[position] > 1:
                raise ValueError(f"{data[position]} is no boolean")
            return position + 1
        case "int":
            value, position = _long(data, position)
            if value not in _INT_RANGE:
                raise ValueError(f"{value} is no int")
            return position
        case "long":
            return _long(data, position)[1]
        case "float" | "double":
            return _within(data, position + (4 if kind == "float" else 8))
        case _:
            return _skip_bytes(kind, data, position)


def _skip_bytes(kind: str, data: bytes, position: int) -> int:
    length, start = _long(data, position)
    if length < 0:
        raise ValueError(f"a {kind} of {length} bytes")
    end = _within(data, start + length)
    if kind == "string":
        data[start:end].decode()  # UnicodeDecodeError is a ValueError
    return end


def _within(data: bytes, end: int) -> int:
    if end > len(data):
        raise ValueError("the payload is cut off")
    return end


def _long(data: bytes, position: int) -> tuple[int, int]:
    raw = shift = 0
    for _ in range(_LONG_BYTES_MAX):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFFFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise ValueError("a number has more than 10 bytes")


# -- JSON Schema -------------------------------------------------------------------


def _json_check(schema: ParsedSchema) -> Check:
    try:
        from jsonschema import exceptions, validators
        from referencing import Registry, Resource
        from referencing.exceptions import Unresolvable
        from referencing.jsonschema import DRAFT202012
    except ModuleNotFoundError as error:
        raise ValueError(
            f"the broker cannot validate JSON: the module {error.name} is not installed there "
            "(pip install 'ottla[registry]')"
        ) from error
    root: Any = json.loads(schema.text)
    budget = _Budget()
    kind = validators.validator_for(root, default=validators.Draft7Validator)
    bounded: dict[str, Any] = {
        name: _counted(function, budget) for name, function in kind.VALIDATORS.items()
    }
    bounded |= {"uniqueItems": _unique_items, "pattern": _pattern}
    bounded["patternProperties"] = _pattern_properties
    resources: Any = Registry()
    for name, text in schema.references.items():
        resource = Resource.from_contents(json.loads(text), default_specification=DRAFT202012)
        resources = resources.with_resource(name, resource)
    validator = validators.extend(kind, bounded)(root, registry=resources)

    def check(data: bytes, start: int) -> None:
        budget.left = STEPS_MAX
        try:
            value = json.loads(data[start:])
            failure = next(iter(validator.iter_errors(value)), None)
        except RecursionError:
            raise ValueError("the value is nested too deeply") from None
        except (exceptions.SchemaError, exceptions.UndefinedTypeCheck, Unresolvable) as error:
            raise ValueError(f"the schema cannot be applied: {error!r:.200}") from None
        if failure is not None:
            path = "/".join(map(str, failure.absolute_path))
            raise ValueError(f"{f'{path}: ' if path else ''}{failure.message[:200]}")

    return check


def _counted(function: Any, budget: _Budget) -> Any:  # noqa: ANN401 - jsonschema's functions
    def count(validator: Any, keyword: Any, value: Any, schema: Any) -> Any:  # noqa: ANN401
        budget.spend()
        return function(validator, keyword, value, schema)

    return count


def _unique_items(validator: Any, keyword: Any, value: Any, schema: Any) -> Any:  # noqa: ANN401
    """Compare the items of an array in linear time; jsonschema's own way may be quadratic."""
    from jsonschema.exceptions import ValidationError

    if keyword and validator.is_type(value, "array"):
        texts = {json.dumps(_plain(item), sort_keys=True) for item in value}
        if len(texts) < len(value):
            yield ValidationError("the array has equal items")


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a value in which equal numbers have one form: 1.0 is 1 in JSON Schema."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _pattern(validator: Any, keyword: Any, value: Any, schema: Any) -> Any:  # noqa: ANN401
    """Match in linear time, by RE2; a pattern that it does not know matches everything."""
    from jsonschema.exceptions import ValidationError

    from ottla.schemas.json_schema.patterns import matches

    if validator.is_type(value, "string") and matches(keyword, value) is False:
        yield ValidationError(f"{value[:100]!r} does not match {keyword[:100]!r}")


def _pattern_properties(validator: Any, keyword: Any, value: Any, schema: Any) -> Any:  # noqa: ANN401
    from ottla.schemas.json_schema.patterns import matches

    if validator.is_type(value, "object"):
        for pattern, subschema in keyword.items():
            for name, item in value.items():
                if matches(pattern, name):
                    yield from validator.descend(item, subschema, path=name, schema_path=pattern)


# -- Protobuf ----------------------------------------------------------------------


def _protobuf_check(schema: ParsedSchema) -> tuple[Name, Check]:
    from google.protobuf import message_factory
    from google.protobuf.message import DecodeError

    from ottla.schemas.protobuf.schema import ProtobufSchema

    assert isinstance(schema, ProtobufSchema)
    try:
        file, pool = schema.linked.root, schema.linked.check()
    except InvalidSchema as error:
        raise ValueError(f"the schema cannot be used: {error}") from error
    classes: dict[str, Any] = {}

    def split(data: bytes, start: int) -> tuple[str, int]:
        indexes, position = split_indexes(data, start)
        names, level = [file.package] if file.package else [], file.message_type
        for index in indexes:
            if index >= len(level):
                raise ValueError(f"the schema has no message at {indexes}")
            names.append(level[index].name)
            level = level[index].nested_type
        return ".".join(names), position

    def check(data: bytes, start: int) -> None:
        name, position = split(data, start)
        if name not in classes:
            classes[name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        try:
            classes[name]().ParseFromString(data[position:])
        except DecodeError as error:
            raise ValueError(f"not a {name}: {error}") from error

    return (lambda data, start: split(data, start)[0]), check
