"""The SQL that reads a field of a JSON object as a type of DuckDB, and nothing but that type.

DuckDB's own conversion rounds 2.5 to 2, reads true as 1 and makes null of what it cannot convert.
Here a field is first taken as JSON text, and converted only if the text is what Spark's JSON reader
accepts for that type, so that ``ottla sql`` and tables have the same values:

==============  ======================================================================
type            JSON
==============  ======================================================================
integers        a number without fraction and exponent, in the range of the type
float, double   a number; or one of "NaN", "Infinity", "-Infinity"
decimal         a number, rounded to the scale; or such a number as a string
boolean         true or false
varchar         a string; the JSON text of anything else
date, time      a string
timestamp       a string; with an offset, the moment in UTC
struct, list    an object or array whose parts fit
==============  ======================================================================

The tokens NaN and Infinity are not JSON, although DuckDB reads them.
"""

import json
from typing import Any, Final

import duckdb

from ottla.formats.sql_names import duckdb_text

_INTEGERS: Final = frozenset(
    each + kind
    for kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
    for each in ("", "U")
)
_DEPTH_MAX: Final = 32
_FLOATS: Final = ("FLOAT", "DOUBLE")
_WORDS: Final = ("NaN", "Infinity", "-Infinity")
_NO_JSON: Final = ("NaN", "Infinity", "-Infinity", "nan", "inf", "-inf", "Inf", "-Inf")
_NUMBER: Final = r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?"
_HAS_OFFSET: Final = ':[0-9.]+([zZ]|[-+][0-9:]+)"$'
"""The end of the JSON text of a timestamp."""
_SIMPLE: Final = ("DATE", "TIME", "UUID", "TIMESTAMP WITH TIME ZONE")
_ZONED: Final = "TIMESTAMP WITH TIME ZONE"


def _is_nested(kind: str) -> bool:
    """Say whether a type has parts: a structure of JSON, or a nested type of DuckDB."""
    return kind[:1] in ("{", "[") or kind.endswith("]") or kind.startswith(("STRUCT", "MAP"))


def converted(raw: str, kind: str) -> str:
    """Return an expression for a field of a type; null if it does not fit.

    ``raw`` is an expression for its JSON text, of DuckDB's type JSON, and null for a null.
    """
    if kind == "JSON":
        return raw
    if _is_nested(kind):
        structure = kind if kind[:1] in ("{", "[") else json.dumps(kind)
        condition = f"NOT {_misfits(raw, _parts_of(kind))}"
        value = f"try(json_transform({raw}, {duckdb_text(structure)}))"
    else:
        condition, value = _scalar(raw, kind)
    return f"CASE WHEN {condition} THEN {value} END"


def _scalar(raw: str, kind: str) -> tuple[str, str]:
    """Return the condition under which a field fits, and its value then."""
    text, content = f"CAST({raw} AS VARCHAR)", f"({raw} ->> '$')"
    unquoted = f"trim({text}, '\"')"  # cheaper; a string with escapes is none of these types
    condition, value = _begins(raw, '"'), f"try_cast({unquoted} AS {kind})"
    if kind in _INTEGERS:
        value = f"try_cast({text} AS {kind})"
        condition = f"{value}::VARCHAR = {text}"  # 2.5 would be rounded, "7" has quotes
    elif kind in _FLOATS:
        words = ", ".join(duckdb_text(f'"{each}"') for each in _WORDS)
        condition = f"({_is_number(text)} OR {text} IN ({words}))"
    elif kind == "BOOLEAN":
        condition = f"{text} IN ('true', 'false')"
    elif kind == "VARCHAR":
        condition = f"{text} NOT IN ({', '.join(map(duckdb_text, _NO_JSON))})"
        value = content
    elif kind.startswith("DECIMAL"):
        condition = f"regexp_full_match({unquoted}, '{_NUMBER}')"
    elif kind.startswith("TIMESTAMP") and kind != _ZONED:
        moment = f"make_timestamp(epoch_us(try_cast({unquoted} AS TIMESTAMPTZ)))::{kind}"
        has_offset = f"regexp_matches({text}, '{_HAS_OFFSET}')"
        value = f"CASE WHEN {has_offset} THEN {moment} ELSE {value} END"
    elif kind not in _SIMPLE:
        value = f"try_cast({content} AS {kind})"
    return condition, value


def _is_number(text: str) -> str:
    """Return a condition: the JSON text begins as a number does, and is not -Infinity."""
    digit = "BETWEEN ascii('0') AND ascii('9')"
    return (
        f"(ascii({text}) {digit} OR "
        f"(ascii({text}) = ascii('-') AND ascii(substr({text}, 2, 1)) {digit}))"
    )


def _begins(raw: str, character: str) -> str:
    return f"starts_with(CAST({raw} AS VARCHAR), '{character}')"


# -- nested values -------------------------------------------------------------------


def _misfits(raw: str, kind: "Kind", depth: int = 0) -> str:
    """Return a condition: the JSON text is of another type, or a part of it is."""
    if isinstance(kind, str):
        own = f"{converted(raw, kind)} IS NULL"
        if kind.startswith("TIMESTAMP") and kind != _ZONED:  # nested, DuckDB drops the offset
            own = f"({own} OR regexp_matches(CAST({raw} AS VARCHAR), '{_HAS_OFFSET}'))"
        return f"({raw} IS NOT NULL AND {own})"
    if depth >= _DEPTH_MAX:
        raise ValueError(f"more than {_DEPTH_MAX} levels of nested types")
    no_object, no_array = f"NOT {_begins(raw, '{')}", f"NOT {_begins(raw, '[')}"
    if isinstance(kind, dict):
        fields = [
            _misfits(_no_null(f"json_extract({raw}, {duckdb_text(_path(name))})"), each, depth + 1)
            for name, each in kind.items()
        ]
        return f"({raw} IS NOT NULL AND ({' OR '.join([no_object, *fields])}))"
    part = f"x{depth}"
    parts, wrong = f"json_extract({raw}, '$[*]')", no_array
    if isinstance(kind, tuple):
        parts, wrong = f"json_extract({raw}, '$.*')", no_object
    element = _misfits(_no_null(part), kind[0], depth + 1)
    some = f"len(list_filter({parts}, lambda {part}: {element})) > 0"
    return f"({raw} IS NOT NULL AND ({wrong} OR {some}))"


def _no_null(raw: str) -> str:
    return f"nullif({raw}, 'null'::JSON)"


def _path(name: str) -> str:
    """Return the path of a member in the language of JSON pointers."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


Kind = str | dict[str, "Kind"] | list["Kind"] | tuple["Kind"]
"""A type: a name of DuckDB's, a struct, a list, or a map with such values."""


def _parts_of(kind: str) -> Kind:
    """Return a nested type in parts."""
    return _loaded(kind) if kind[:1] in ("{", "[") else _of_type(duckdb.sqltype(kind))


def _loaded(kind: str) -> Kind:
    parts: Kind = json.loads(kind)
    return parts


def _of_type(kind: Any) -> Kind:  # noqa: ANN401 - a type of DuckDB
    if kind.id == "struct":
        return {name: _of_type(each) for name, each in kind.children}
    if kind.id in ("list", "array"):
        return [_of_type(kind.children[0][1])]
    if kind.id == "map":
        return (_of_type(kind.children[1][1]),)
    return str(kind)
