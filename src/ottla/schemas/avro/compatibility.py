"""Whether a reader's Avro schema can read what was written with the writer's.

The resolution of the Avro specification; rules, paths (JSON pointers into the reader's schema) and
messages are those that Avro's Java library and Confluent's registry give.
"""

from dataclasses import dataclass
from typing import Final

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
from ottla.schemas.bounds import DIFFERENCES_MAX, PAIRS_MAX
from ottla.schemas.contract import Difference, InvalidSchema
from ottla.schemas.nested_calls import Call, run_nested

# Which types of a writer a reader's type also reads.
PROMOTIONS: Final[dict[str, tuple[str, ...]]] = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}


def compare_types(reader: AvroType, writer: AvroType) -> list[Difference]:
    """Return why ``reader`` cannot read data of ``writer``; at most DIFFERENCES_MAX reasons.

    Raises:
        InvalidSchema: the schemas have too many pairs of types to compare.
    """
    return run_nested(_Comparison().compare(reader, writer, _Location(None, "")))


@dataclass(frozen=True, slots=True)
class _Location:
    """A path as a linked list: most paths are never printed."""

    parent: "_Location | None"
    token: str

    def below(self, *tokens: str) -> "_Location":
        location = self
        for token in tokens:
            location = _Location(location, token)
        return location

    def __str__(self) -> str:
        tokens: list[str] = []
        location = self
        while location.parent is not None:
            tokens.append(location.token)
            location = location.parent
        return "/" + "/".join(reversed(tokens))


class _AmbiguousField(Exception):
    """Several fields of the writer match a field of the reader."""


Result = list[Difference]


class _Comparison:
    """One comparison. A pair of types in progress counts as compatible: recursion ends there."""

    def __init__(self) -> None:
        self._results: dict[tuple[int, int], Result] = {}

    def compare(self, reader: AvroType, writer: AvroType, where: _Location) -> Call[Result]:
        pair = id(reader), id(writer)
        if (result := self._results.get(pair)) is not None:
            return result
        if len(self._results) >= PAIRS_MAX:
            raise InvalidSchema(f"The schemas have more than {PAIRS_MAX} pairs of types to compare")
        self._results[pair] = []
        result = yield self._compute(reader, writer, where)
        differences: Result = result[:DIFFERENCES_MAX]
        self._results[pair] = differences
        return differences

    def _compute(self, reader: AvroType, writer: AvroType, where: _Location) -> Call[Result]:
        result: Result
        match reader, writer:
            case Union(), Union():
                result = yield self._unions(reader, writer, where)
            case _, Union():
                result = yield self._every_branch(reader, writer, where)
            case Union(), _:
                result = yield self._any_branch(reader, writer, where)
            case Container(), Container() if reader.kind == writer.kind:
                member = "items" if reader.kind == "array" else "values"
                result = yield self.compare(reader.item, writer.item, where.below(member))
            case Fixed(), Fixed():
                result = [*_names(reader, writer, where), *_sizes(reader, writer, where)]
            case Enum(), Enum():
                result = [*_names(reader, writer, where), *_symbols(reader, writer, where)]
            case Record(), Record():
                result = _names(reader, writer, where)
                result += yield self._fields(reader, writer, where.below("fields"))
            case _ if writer.kind in (reader.kind, *PROMOTIONS.get(reader.kind, ())):
                result = []
            case _:
                result = [_type_mismatch(reader, writer, where)]
        return result

    def _unions(self, reader: Union, writer: Union, where: _Location) -> Call[Result]:
        result: Result = []
        for index, branch in enumerate(writer.branches):
            if (yield self.compare(reader, branch, _Location(None, ""))):
                result.append(_missing_branch(branch, where.below(str(index))))
        return result

    def _every_branch(self, reader: AvroType, writer: Union, where: _Location) -> Call[Result]:
        result: Result = []
        for index, branch in enumerate(writer.branches):
            result += yield self.compare(reader, branch, where.below(str(index)))
        return result

    def _any_branch(self, reader: Union, writer: AvroType, where: _Location) -> Call[Result]:
        for branch in reader.branches:
            if not (yield self.compare(branch, writer, _Location(None, ""))):
                return []
        return [_missing_branch(writer, where)]

    def _fields(self, reader: Record, writer: Record, where: _Location) -> Call[Result]:
        result: Result = []
        writer_fields = {field.name: field for field in writer.fields}
        for index, field in enumerate(reader.fields):
            location = where.below(str(index))
            try:
                match = _writer_field(field, writer_fields)
            except _AmbiguousField:
                result.append(_ambiguous(field, writer, location))
                continue
            if match is not None:
                result += yield self.compare(field.type, match.type, location.below("type"))
            elif not field.has_default:
                if isinstance(field.type, Enum) and field.type.default is not None:
                    # As Avro's Java library: an enum's own default is no default of the field.
                    result.append(_type_mismatch(field.type, writer, location.below("type")))
                else:
                    result.append(_no_default(field, location))
            if len(result) >= DIFFERENCES_MAX:
                break
        return result


def _writer_field(field: Field, writer_fields: dict[str, Field]) -> Field | None:
    names = dict.fromkeys([field.name, *field.aliases])
    matches = [writer_fields[name] for name in names if name in writer_fields]
    if len(matches) > 1:
        raise _AmbiguousField
    return matches[0] if matches else None


def _names(reader: NamedType, writer: NamedType, where: _Location) -> Result:
    """Names without namespace must be equal, or an alias of the reader the writer's full name."""
    if reader.name.simple == writer.name.simple or writer.name in reader.aliases:
        return []
    path = str(where.below("name"))
    message = (f"Named type at '{path}': the ", " schema does not know the name in the ", " schema")
    return [_difference("NAME_MISMATCH", path, f"writer: {writer.full_name}", message)]


def _sizes(reader: Fixed, writer: Fixed, where: _Location) -> Result:
    if reader.size == writer.size:
        return []
    path = str(where.below("size"))
    message = (
        f"Fixed type at '{path}' has another size in the ",
        " schema than in the ",
        " schema",
    )
    detail = f"writer: {writer.size}, reader: {reader.size}"
    return [_difference("FIXED_SIZE_MISMATCH", path, detail, message)]


def _symbols(reader: Enum, writer: Enum, where: _Location) -> Result:
    missing = sorted(set(writer.symbols).difference(reader.symbols))
    if not missing or reader.default is not None:
        return []
    path, detail = str(where.below("symbols")), f"[{', '.join(missing)}]"
    message = (
        "The ",
        f" schema lacks symbols {detail} and a default at '{path}', known to the ",
        " schema",
    )
    return [_difference("MISSING_ENUM_SYMBOLS", path, detail, message)]


def _type_mismatch(reader: AvroType, writer: AvroType, where: _Location) -> Difference:
    path = str(where)
    detail = f"a reader of {reader.kind.upper()} cannot read {writer.kind.upper()}"
    message = (
        f"Type at '{path}' of the ",
        " schema cannot read the type in the ",
        " schema",
    )
    return _difference("TYPE_MISMATCH", path, detail, message)


def _missing_branch(writer: AvroType, where: _Location) -> Difference:
    path, detail = str(where), f"no branch for {writer.kind.upper()}"
    message = (
        "The ",
        f" schema has no branch in the union at '{path}' for a type of the ",
        " schema",
    )
    return _difference("MISSING_UNION_BRANCH", path, detail, message)


def _no_default(field: Field, where: _Location) -> Difference:
    path = str(where)
    message = (
        f"Field '{field.name}' at '{path}' of the ",
        " schema needs a default, because it is not in the ",
        " schema",
    )
    return _difference("READER_FIELD_MISSING_DEFAULT_VALUE", path, field.name, message)


def _ambiguous(field: Field, writer: Record, where: _Location) -> Difference:
    text = (
        f"Field {field.name} of the reader fits several fields of {writer.full_name}, by its name"
        " and its aliases"
    )
    return Difference("AMBIGUOUS_FIELD", str(where), text, (text,))


def _difference(rule: str, path: str, detail: str, description: tuple[str, ...]) -> Difference:
    first, *rest = description
    parts = [f"{{errorType:'{rule}', description:'{first}", *rest]
    parts[-1] += f"', additionalInfo:'{detail}'}}"
    return Difference(rule, path, detail, tuple(parts))
