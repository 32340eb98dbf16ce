"""Tokens of a .proto file, and of the aggregate values of its options."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, NoReturn

from ottla.schemas.contract import InvalidSchema

# Aggregates within aggregates, and messages within messages (protoc allows 32 of these).
NESTING_MAX: Final = 32
TOKENS_MAX: Final = 500_000
_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/|\#[^\n]*)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<symbol>[][{}()<>=;,.:/+-])
    """,
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(
    r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_SIMPLE_ESCAPES: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


class Token(NamedTuple):
    """One token: its kind (name, number, string, symbol, end), text and position."""

    kind: str
    text: str
    position: int


def tokenise(text: str) -> list[Token]:
    """Return the tokens of ``text``, the last one of kind ``end``. Raises InvalidSchema."""
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            fail(text, position, f"unexpected character {text[position]!r}")
        kind = match.lastgroup or ""
        if kind != "space":
            tokens.append(Token(kind, match[0], position))
            if len(tokens) > TOKENS_MAX:
                fail(text, position, f"more than {TOKENS_MAX} tokens")
        position = match.end()
    tokens.append(Token("end", "", len(text)))
    return tokens


def fail(text: str, position: int, problem: str) -> NoReturn:
    """Raise InvalidSchema with line and column of a position."""
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    raise InvalidSchema(f"Invalid Protobuf schema: line {line}, column {column}: {problem}")


class TokenStream:
    """The tokens of a text and the position of the reader."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: Sequence[Token] = tokenise(text)
        self._index = 0

    @property
    def next(self) -> Token:
        """The next token, which is not consumed."""
        return self._tokens[self._index]

    def following(self, distance: int) -> str:
        """Return the text of a token further on."""
        return self._tokens[min(self._index + distance, len(self._tokens) - 1)].text

    def take(self) -> Token:
        """Consume the next token."""
        token = self._tokens[self._index]
        if token.kind == "end":
            self.fail("unexpected end of the file")
        self._index += 1
        return token

    def take_if(self, text: str) -> bool:
        """Consume the next token if it is ``text``."""
        if self.next.text == text and self.next.kind in ("symbol", "name"):
            self._index += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Consume ``text``. Raises InvalidSchema if something else follows."""
        if not self.take_if(text):
            self.fail(f"expected {text!r}")

    def name(self) -> str:
        """Consume an identifier."""
        if self.next.kind != "name":
            self.fail("expected a name")
        return self.take().text

    def full_name(self) -> str:
        """Consume identifiers with dots between them, and perhaps a dot before."""
        text = "." if self.take_if(".") else ""
        text += self.name()
        while self.take_if("."):
            text += "." + self.name()
        return text

    def string(self) -> str:
        """Consume one or more strings, which are joined."""
        if self.next.kind != "string":
            self.fail("expected a string")
        parts = []
        while self.next.kind == "string":
            parts.append(self._unescaped(self.take()))
        return "".join(parts)

    def integer(self, lowest: int, highest: int) -> int:
        """Consume a whole number within bounds."""
        sign = -1 if self.take_if("-") else 1
        token = self.next
        if token.kind != "number" or not re.fullmatch(r"0[xX][0-9a-fA-F]+|[0-9]+", token.text):
            self.fail("expected a whole number")
        if len(token.text) > 30:
            self.fail("number out of range")
        self.take()
        try:
            value = sign * int_of(token.text)
        except ValueError:
            self.fail("expected a whole number")
        if not lowest <= value <= highest:
            self.fail(f"{value} is not between {lowest} and {highest}")
        return value

    def fail(self, problem: str) -> NoReturn:
        """Raise InvalidSchema with the position of the next token."""
        token = self.next
        text = f", not {token.text[:50]!r}" if token.text and "expected" in problem else ""
        fail(self._text, token.position, problem + text)

    def _unescaped(self, token: Token) -> str:
        body = token.text[1:-1]
        if "\\" not in body:
            return body
        try:
            return _ESCAPE.sub(_unescape, body)
        except (ValueError, KeyError):
            fail(self._text, token.position, "invalid escape sequence")


def int_of(text: str) -> int:
    """Return the value of a decimal, octal or hexadecimal number. Raises ValueError."""
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text, 8) if len(text) > 1 and text.startswith("0") else int(text)


def _unescape(match: re.Match[str]) -> str:
    octal, hexadecimal, short, long, simple = match.groups()
    if octal is not None:
        return chr(int(octal, 8) & 0xFF)
    if simple is not None:
        return _SIMPLE_ESCAPES[simple]
    return chr(int(hexadecimal or short or long, 16))
