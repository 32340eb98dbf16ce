"""Render an answer as a table for people, or as JSON or YAML for programs.

An answer is a list of rows or one document, both made of names and plain values. The first row
determines the columns of a table. A `ByteCount` is in a suitable unit in a table.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.cli.terminal.output import Output
from ottla.cli.terminal.table_layout import fit, is_wide, pair_lines, row_lines
from ottla.operations.escaping import escape, escape_json
from ottla.operations.rows import Answer as Answer
from ottla.operations.rows import Plain as Plain
from ottla.operations.rows import Row as Row
from ottla.operations.sizes import ByteCount, human

_INDENT: Final = "  "


def render(answer: Answer, output: Output, width: int | None = None) -> str:
    """Return an answer as text that ends with a newline, or is empty.

    Tables are made to fit into ``width``; None: each row is one line, however long.
    """
    if output is Output.JSON:
        return escape_json(json.dumps(answer, indent=2, ensure_ascii=False)) + "\n"
    if output is Output.YAML:
        return "\n".join(_yaml(answer)) + "\n"
    if isinstance(answer, Mapping):
        return _text(_pairs(answer, width))
    return _text(_table(answer, width))


def render_line(row: Row, output: Output) -> str:
    """Return one of a stream of answers; each is complete once it is printed."""
    if output is Output.YAML:
        return "---\n" + render(row, output)
    return escape_json(json.dumps(row, ensure_ascii=False)) + "\n"


# -- tables ------------------------------------------------------------------------


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _table(rows: Sequence[Row], width: int | None) -> list[str]:
    if not rows:
        return []
    names = list(rows[0])
    cells = _cells(names, rows)
    if is_wide([max(map(len, column)) for column in zip(*cells, strict=True)], width):
        # Columns that say nothing make space for the others.
        names = [name for name in names if any(row.get(name) is not None for row in rows)]
        cells = _cells(names, rows)
    numeric = [_is_numeric([row.get(name) for row in rows]) for name in names]
    widths = fit(cells, numeric, width)
    if is_wide(widths, width):
        return _blocks(rows, width)
    return [line for row in cells for line in row_lines(row, widths, numeric)]


def _cells(names: Sequence[str], rows: Sequence[Row]) -> list[list[str]]:
    header = [escape(name).upper().replace("_", "-") for name in names]
    return [header, *([_cell(row.get(name)) for name in names] for row in rows)]


def _blocks(rows: Sequence[Row], width: int | None) -> list[str]:
    """Return a table with too many columns: each row as pairs, after an empty line."""
    lines: list[str] = []
    for row in rows:
        lines += [*([""] if lines else []), *_pairs(row, width)]
    return lines


def _is_numeric(column: Sequence[Plain]) -> bool:
    """Return whether a column has numbers alone, where they are known."""
    known = [each for each in column if each is not None]
    return bool(known) and all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in known
    )


def _pairs(document: Row, width: int | None) -> list[str]:
    name_width = max((len(escape(name)) for name in document), default=0)
    lines = []
    for key, value in document.items():
        name = escape(key)
        if isinstance(value, Sequence) and value and isinstance(value[0], Mapping):
            rows = [each for each in value if isinstance(each, Mapping)]
            inner = _table(rows, None if width is None else width - len(_INDENT))
            lines += ["", f"{name}:"] + [f"{_INDENT}{line}".rstrip() for line in inner]
        else:
            lines += pair_lines(name, _cell(value), name_width, width)
    return lines


def _cell(value: Plain) -> str:  # noqa: PLR0911 - one per kind
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case ByteCount():
            return human(value)
        case str():
            return escape(value)
        case Mapping():
            return ",".join(f"{escape(name)}={_cell(each)}" for name, each in value.items())
        case Sequence():
            return ",".join(map(_cell, value))
        case _:
            return str(value)


def exact_bytes(rows: Sequence[Row]) -> list[Row]:
    """Return rows whose sizes are printed as numbers in a table, too."""
    return [
        {name: int(each) if isinstance(each, ByteCount) else each for name, each in row.items()}
        for row in rows
    ]


# -- YAML --------------------------------------------------------------------------


def _yaml(value: Plain) -> list[str]:
    """Return lines in block style. Strings that are not plain words are quoted, like JSON."""
    if isinstance(value, Mapping) and value:
        lines = []
        for name, each in value.items():
            lines += _yaml_entry(f"{_scalar(name)}:", each, "  ")
        return lines
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        lines = []
        for each in value:
            inner = _yaml(each)
            lines.append(f"- {inner[0]}")
            lines += [f"  {line}" for line in inner[1:]]
        return lines
    return [_scalar(value)]


def _yaml_entry(head: str, value: Plain, indent: str) -> list[str]:
    is_block = isinstance(value, Mapping | Sequence) and not isinstance(value, str) and bool(value)
    inner = _yaml(value)
    if not is_block:
        return [f"{head} {inner[0]}"]
    return [head] + [f"{indent}{line}" for line in inner]


def _scalar(value: object) -> str:
    if isinstance(value, str) and value.replace("_", "").isalpha() and value.isascii():
        return value if value.lower() not in _YAML_WORDS else json.dumps(value)
    if isinstance(value, str):
        # JSON writes code points beyond 16 bits as two surrogates: two characters in YAML.
        return "".join(
            [
                '"',
                *(f"\\U{ord(c):08X}" if c > "\uffff" else json.dumps(c)[1:-1] for c in value),
                '"',
            ]
        )
    return json.dumps(value)


# Plain words that YAML 1.1 or 1.2 does not read as strings.
_YAML_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan"})
