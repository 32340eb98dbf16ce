"""Lay out tables and pairs for a terminal: no line is wider than it, and nothing is left out.

Cells that are too wide continue on the next line, after a separator where there is one. Numbers are
never broken. A table that has too many columns for that is printed as one block of pairs per row.
Without a width, as in a file or a pipe, every row is one line.
"""

from collections.abc import Sequence
from typing import Final

GAP: Final = "  "
_TEXT_MIN: Final = 10
"""Columns of text are not made narrower than this."""
_VALUE_MIN: Final = 20
"""Values of pairs are not made narrower than this."""
_SEPARATORS: Final = (" ,;", "-._/:@=")
"""Those between items first, then those within names."""


def fit(cells: Sequence[Sequence[str]], numeric: Sequence[bool], width: int | None) -> list[int]:
    """Return the width of each column; the first row of ``cells`` is the header.

    The columns are narrow enough for ``width`` if that is possible, see `is_wide`.
    """
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if width is None:
        return widths
    floors = [
        _floor(column, is_number)
        for column, is_number in zip(zip(*cells, strict=True), numeric, strict=True)
    ]
    while is_wide(widths, width):
        able = [at for at, floor in enumerate(floors) if widths[at] > floor]
        if not able:
            break
        widths[max(able, key=lambda at: widths[at])] -= 1
    return widths


def _floor(column: Sequence[str], is_number: bool) -> int:
    """Return the least width of a column: that of its numbers, and of a word of its header."""
    head = max(map(len, _words(column[0])))
    widest = max(map(len, column[1:]), default=0)
    return max(head, widest if is_number else min(widest, _TEXT_MIN))


def _words(header: str) -> list[str]:
    words = header.split("-")
    return [f"{each}-" for each in words[:-1]] + words[-1:]


def is_wide(widths: Sequence[int], width: int | None) -> bool:
    """Return whether columns of these widths do not fit."""
    return width is not None and sum(widths) + len(GAP) * (len(widths) - 1) > width


def row_lines(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> list[str]:
    """Return the lines of one row."""
    pieces = [wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
    return [
        GAP.join(
            _padded(each[at] if at < len(each) else "", width, is_number)
            for each, width, is_number in zip(pieces, widths, numeric, strict=True)
        ).rstrip()
        for at in range(max(map(len, pieces), default=1))
    ]


def _padded(text: str, width: int, is_number: bool) -> str:
    return text.rjust(width) if is_number else text.ljust(width)


def wrap(text: str, width: int) -> list[str]:
    """Cut a text into pieces of at most ``width``, after separators where there are some."""
    pieces = []
    while len(text) > width:
        ends = [max(text.rfind(each, 0, width) + 1 for each in some) for some in _SEPARATORS]
        # A piece that is less than half full wastes lines.
        at = next((end for end in ends if end * 2 > width), width)
        pieces.append(text[:at].rstrip())
        text = text[at:].lstrip() if text[at - 1] == " " else text[at:]
    return [*pieces, text]


def pair_lines(name: str, value: str, name_width: int, width: int | None) -> list[str]:
    """Return the lines of a name and its value; what does not fit continues below the value."""
    if width is None:
        return [f"{name.ljust(name_width)}{GAP}{value}".rstrip()]
    space = width - name_width - len(GAP)
    if space < _VALUE_MIN:  # long names: the value has lines of its own
        return [*wrap(name, width), *(f"{GAP}{each}" for each in wrap(value, width - len(GAP)))]
    first, *rest = wrap(value, space)
    lines = [f"{name.ljust(name_width)}{GAP}{first}".rstrip()]
    return lines + [f"{' ' * name_width}{GAP}{each}" for each in rest]
