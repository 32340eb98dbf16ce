"""Regular expressions of Java in mapping rules, matched in linear time by RE2.

Rules come from the configuration, but names come from certificates and tickets, so a rule must not
take long on any name. RE2 matches in time linear in the name. What it does not have (look-around,
back-references, possessive quantifiers), and what it would read differently from Java (``&&`` and
nested sets in ``[...]``, ``\\v``, the flag ``U``), is refused when the rule is read.

``.`` does not match a line terminator, of which Java has five, and ``\\s`` is six characters.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import re2  # type: ignore[import-untyped]

PATTERN_BYTES_MAX: Final = 1 << 20
"""A pattern that needs more memory to compile is refused."""

_NOT_A_LINE_TERMINATOR: Final = "[^\\n\\r\\x{85}\\x{2028}\\x{2029}]"
_SPACE: Final = " \\t\\n\\x{0b}\\f\\r"
# A piece of a pattern: a quotation, an escape, an inline flag, or one character.
_PIECE: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\(\?[a-zA-Z-]+|.", re.DOTALL)
_GROUP: Final = re.compile(r"\$(?:(\d+)|\{(\w+)\})|\\(.)|(\$|\\)|([^$\\]+)", re.DOTALL)


class BadPattern(ValueError):
    """A pattern or a replacement that cannot be used; the message says why."""


class JavaPattern:
    """A pattern of Java's syntax."""

    def __init__(self, text: str) -> None:
        """Compile a pattern. Raises `BadPattern`."""
        options = re2.Options()
        options.log_errors = False
        options.max_mem = PATTERN_BYTES_MAX
        try:
            self._compiled: Any = re2.compile("".join(_translated(text)), options)
        except re2.error as error:
            cause = error.args[0] if error.args else ""
            reason = cause.decode(errors="replace") if isinstance(cause, bytes) else str(cause)
            raise BadPattern(
                f"{text!r} cannot be used: {reason} (look-around, back-references and possessive "
                "quantifiers are not supported)"
            ) from None

    @property
    def groups(self) -> int:
        """The number of groups."""
        return int(self._compiled.groups)

    def matches(self, name: str) -> bool:
        """Say whether the pattern matches all of a name."""
        return self._compiled.fullmatch(name) is not None

    def replace(self, name: str, replacement: "Replacement", *, only_first: bool = False) -> str:
        """Replace the matches in a name, as ``Matcher.replaceAll`` and ``replaceFirst`` do."""
        parts: list[str] = []
        position = start = 0
        while start <= len(name):
            match = self._compiled.search(name, start)
            if match is None:
                break
            parts += (name[position : match.start()], replacement.expand(match))
            position = match.end()
            start = position + (match.start() == position)
            if only_first:
                break
        return "".join(parts) + name[position:]


class Replacement:
    """The text that replaces a match: ``$1`` or ``${name}`` is a group, ``\\`` escapes."""

    def __init__(self, text: str, pattern: JavaPattern, *, keeps_unknown: bool = False) -> None:
        """Read a replacement.

        ``keeps_unknown`` leaves ``$7`` as it is where the pattern has groups, but no seventh.

        Raises:
            BadPattern: it names a group that the pattern does not have, or ends in an escape.
        """
        self._parts: list[str | int] = []
        for number, group, escaped, lone, plain in _GROUP.findall(text):
            if number:
                self._parts += _reference(text, number, pattern.groups, keeps_unknown)
            elif group or lone:
                raise BadPattern(f"the replacement {text!r} has {group or lone!r}: not supported")
            else:
                self._parts.append(escaped or plain)

    def expand(self, match: Any) -> str:  # noqa: ANN401 - the library has no types
        """Return the text for one match; a group that took no part in it is empty."""
        return "".join(
            part if isinstance(part, str) else match.group(part) or "" for part in self._parts
        )


def _reference(text: str, number: str, groups: int, keeps_unknown: bool) -> Iterator[str | int]:
    """Yield a group, and the digits after it: as many digits count as name a group."""
    for length in range(len(number), 0, -1):
        if int(number[:length]) <= groups:
            # Java takes digits one by one, so ``$01`` is group 0 and then group 1: number 1.
            yield int(number[:length])
            yield number[length:]
            return
    if groups == 0 or not keeps_unknown:
        raise BadPattern(f"the replacement {text!r} names a group that the pattern does not have")
    yield f"${number}"


def _translated(text: str) -> Iterator[str]:
    """Yield the pieces of a pattern in RE2's syntax. Raises `BadPattern`."""
    is_set = is_set_start = matches_all = False
    for found in _PIECE.finditer(text):
        piece = found[0]
        if piece == "\\v" or (piece.startswith("(?") and "U" in piece):
            raise BadPattern(f"{text!r} cannot be used: {piece!r} is not supported")
        if is_set:
            if piece == "[" or (piece == "&" and text[found.end() : found.end() + 1] == "&"):
                raise BadPattern(f"{text!r} cannot be used: sets in sets are not supported")
            if piece == "\\S":
                raise BadPattern(f"{text!r} cannot be used: \\S in a set is not supported")
            is_set = piece != "]" or is_set_start
            is_set_start = is_set_start and piece == "^"
            yield _SPACE if piece == "\\s" else piece
            continue
        if piece == "[":
            is_set = is_set_start = True
        elif piece.startswith("(?"):
            matches_all = matches_all or "s" in piece.partition("-")[0]
        elif piece == "\\s":
            piece = f"[{_SPACE}]"
        elif piece == "\\S":
            piece = f"[^{_SPACE}]"
        elif piece == "." and not matches_all:
            piece = _NOT_A_LINE_TERMINATOR
        yield piece
