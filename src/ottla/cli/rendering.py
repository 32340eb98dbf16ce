"""Render an answer as a table for people, or as JSON or YAML for programs.

An answer is a list of rows or one document, both made of names and plain values. The first row
determines the columns of a table.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from ottla.cli.escaping import escape
from ottla.cli.output import Output

Plain: TypeAlias = "str | int | float | bool | Sequence[Plain] | Mapping[str, Plain] | None"
Row: TypeAlias = Mapping[str, Plain]
Answer: TypeAlias = Sequence[Row] | Row

_GAP: Final = "  "


def render(answer: Answer, output: Output) -> str:
    """Return an answer as text that ends with a newline, or is empty."""
    if output is Output.JSON:
        return json.dumps(answer, indent=2, ensure_ascii=False) + "\n"
    if output is Output.YAML:
        return "\n".join(_yaml(answer)) + "\n"
    if isinstance(answer, Mapping):
        return _pairs(answer)
    return _table(answer)


def render_line(row: Row, output: Output) -> str:
    """Return one of a stream of answers; each is complete once it is printed."""
    if output is Output.YAML:
        return "---\n" + render(row, output)
    return json.dumps(row, ensure_ascii=False) + "\n"


# -- tables ------------------------------------------------------------------------


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    names = list(rows[0])
    cells = [[name.upper().replace("_", "-") for name in names]]
    cells += [[_cell(row.get(name)) for name in names] for row in rows]
    numeric = [all(_is_number(row.get(name)) for row in rows) for name in names]
    widths = [max(len(line[at]) for line in cells) for at in range(len(names))]
    lines = [
        _GAP.join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in cells
    ]
    return "\n".join(lines) + "\n"


def _is_number(value: Plain) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _pairs(document: Row) -> str:
    width = max((len(name) for name in document), default=0)
    lines = []
    for name, value in document.items():
        if isinstance(value, Sequence) and value and isinstance(value[0], Mapping):
            inner = _table([each for each in value if isinstance(each, Mapping)])
            lines += ["", f"{name}:"] + [f"  {line}" for line in inner.splitlines()]
        else:
            lines.append(f"{name.ljust(width)}{_GAP}{_cell(value)}".rstrip())
    return "\n".join(lines) + "\n"


def _cell(value: Plain) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case str():
            return escape(value)
        case Mapping():
            return ",".join(f"{escape(name)}={_cell(each)}" for name, each in value.items())
        case Sequence():
            return ",".join(map(_cell, value))
        case _:
            return str(value)


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
