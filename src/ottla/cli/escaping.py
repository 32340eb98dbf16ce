"""Escape control characters of records and names before they reach a terminal.

A value may contain any bytes: an escape sequence could move the cursor, change the title or make
the terminal send input to the shell. So control characters are printed in escaped form. Output to a
file or a pipe is not changed.
"""

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


def readable(data: bytes) -> str:
    r"""Return bytes as text; bytes that are not UTF-8 become ``\xff``."""
    return data.decode("utf-8", "backslashreplace")
