"""Keeping what records and names contain from steering a terminal.

A value may hold any bytes: an escape sequence in it could move the cursor, change the title or
make a terminal answer as if somebody typed. So control characters are shown, not sent. What goes
into a file or a pipe stays as it is.
"""

import unicodedata
from typing import Final

# Control, format (bidirectional overrides among them), lone surrogates, private use, line and
# paragraph separators.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def escape(text: str, *, keep: str = "") -> str:
    r"""Return ``text`` with what is not printable as ``\n``, ``\x1b`` or ``\u202e``.

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
    r"""Return bytes as text; what is no UTF-8 comes out as ``\xff``."""
    return data.decode("utf-8", "backslashreplace")
