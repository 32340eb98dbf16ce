"""``sasl.jaas.config``: login modules and their options, read as data.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password="secret" user_admin="secret" user_alice="other";

The class name only says which mechanism the options are for. Nothing that the text names is ever
imported or run, whether it comes from a file or from a client.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
USER_PREFIX: Final = "user_"

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<end>;)|(?P<equals>=)"""
    r"""|(?P<word>[^\s;="']+)|(?P<bad>\S))""",
    re.DOTALL,
)


class BadJaas(ValueError):
    """A JAAS configuration that cannot be read. The message repeats nothing: any word of it may be
    a password in the wrong place.
    """


class LoginModule(msgspec.Struct, frozen=True):
    """One entry. The representation hides the options: they hold passwords."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, options hidden)"

    @property
    def users(self) -> dict[str, str]:
        """Passwords by user name, from the options ``user_NAME``."""
        return {
            key.removeprefix(USER_PREFIX): value
            for key, value in self.options.items()
            if key.startswith(USER_PREFIX)
        }


def parse_jaas(text: str) -> tuple[LoginModule, ...]:
    """Read every entry.

    Raises:
        BadJaas: a flag is missing or unknown, an option has no value, or a semicolon is missing.
    """
    tokens = _tokens(text)
    modules: list[LoginModule] = []
    while tokens:
        entry = f"entry {len(modules) + 1}"
        name = _word(tokens, f"the class of {entry}")
        if _word(tokens, f"the control flag of {entry}").lower() not in FLAGS:
            raise BadJaas(f"the control flag of {entry} is unknown; use `required`")
        modules.append(LoginModule(name, _options(tokens, entry)))
    if not modules:
        raise BadJaas("there is no login module")
    return tuple(modules)


def _options(tokens: list[tuple[str, bool]], entry: str) -> dict[str, str]:
    """Take the options of one entry, and the semicolon after them."""
    options: dict[str, str] = {}
    while True:
        if not tokens:
            raise BadJaas(f"{entry} does not end with a semicolon")
        if tokens[0] == (";", False):
            tokens.pop(0)
            return options
        number = len(options) + 1
        key = _word(tokens, f"option {number} of {entry}")
        if not tokens or tokens.pop(0) != ("=", False) or not tokens:
            raise BadJaas(f"option {number} of {entry} has no value")
        value, is_quoted = tokens.pop(0)
        if not is_quoted and value in (";", "="):
            raise BadJaas(f"option {number} of {entry} has no value")
        options[key] = value


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Return words, ``=`` and ``;``, each with whether it was quoted."""
    found: list[tuple[str, bool]] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match["bad"]:
            raise BadJaas(f"a quote is not closed at character {position}")
        position = match.end()
        if match["quoted"]:
            found.append((re.sub(r"\\(.)", r"\1", match["quoted"][1:-1], flags=re.DOTALL), True))
        else:
            found.append((match[0].strip(), False))
    return found


def _word(tokens: list[tuple[str, bool]], expected: str) -> str:
    if not tokens or tokens[0] in ((";", False), ("=", False)):
        raise BadJaas(f"{expected} is missing")
    return tokens.pop(0)[0]
