"""Escape control characters of records and names before they reach a terminal or a page.

A value may contain any bytes: an escape sequence could move the cursor, change the title or make
the terminal send input to the shell. So control characters are printed in escaped form. Values that
go to a file or a pipe are not changed; JSON has its own escapes, and always uses them.
"""

import json
import unicodedata
from typing import Final

# Control, format (bidirectional overrides among them), lone surrogates, private use, line and
# paragraph separators.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def escape(text: str, *, keep: str = "") -> str:
    r"""Return ``text`` with unprintable characters as ``\n``, ``\x1b`` or ``\u202e``.

    Characters in ``keep`` stay. A backslash stays too: this is for eyes, not to be read back.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each in keep or unicodedata.category(each) not in _HIDDEN else _escaped(each)
        for each in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def escape_json(text: str) -> str:
    r"""Return a JSON text of the same data, with unprintable characters as ``\u009b``.

    `json.dumps` escapes control characters below 32 alone. Line ends between the parts stay.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(
        each
        if each == "\n" or unicodedata.category(each) not in _HIDDEN
        else json.dumps(each)[1:-1]
        for each in text
    ).replace("\x7f", "\\u007f")


def readable(data: bytes) -> str:
    r"""Return bytes as text; bytes that are not UTF-8 become ``\xff``."""
    return data.decode("utf-8", "backslashreplace")
