"""Principals: who a connection belongs to, and how a certificate's subject becomes one.

A principal is written ``type:name``; the type of every authenticated user is ``User``. The subject
of a client certificate is written as Java does (RFC 2253, last component first) and then goes
through ``ssl.principal.mapping.rules``:

    RULE:^CN=(.*?),OU=Users.*$/$1/L, DEFAULT

The first rule whose pattern matches the whole name applies; ``L`` and ``U`` change the case of the
result, DEFAULT takes the name as it is. A name that no rule matches is not a valid principal.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

USER: Final = "User"
ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a connection on a listener without authentication."""

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|\Z)"
)


class Principal(NamedTuple):
    """A type, in practice ``User``, and a name."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


def parse_principal(text: str) -> Principal:
    """Read ``type:name``; the name may contain colons."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)


class NoMatchingRule(ValueError):
    """No mapping rule matches a certificate's subject."""


class BadMappingRules(ValueError):
    """``ssl.principal.mapping.rules`` that cannot be read; the message shows where."""


class _Rule(NamedTuple):
    """One mapping rule; DEFAULT has no pattern."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        mapped = found.expand(self.replacement)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)


class PrincipalMapper:
    """Maps the subject of a certificate to a principal by configured rules."""

    def __init__(self, rules: str) -> None:
        self._rules: Sequence[_Rule] = tuple(_parse_rules(rules))

    def principal(self, subject: str) -> Principal:
        """Return the principal of a subject, as `certificates.subject_name` writes it.

        Raises:
            NoMatchingRule: the connection must be refused.
        """
        for rule in self._rules:
            if (mapped := rule.apply(subject)) is not None:
                return Principal(USER, mapped)
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules matches {subject!r}")


def _parse_rules(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None or found.end() == position:
            raise BadMappingRules(f"no mapping rule: {text[position : position + 60]!r}")
        position = found.end()
        rules.append(_rule(found))
    return rules or [_Rule(None, "", "")]


def _rule(found: re.Match[str]) -> _Rule:
    if found["default"]:
        return _Rule(None, "", "")
    try:
        pattern = re.compile(_unescape_slash(found["pattern"]))
    except re.error as error:
        raise BadMappingRules(f"bad pattern {found['pattern']!r}: {error}") from error
    replacement = re.sub(r"\$(\d)", r"\\g<\1>", _unescape_slash(found["replacement"]))
    return _Rule(pattern, replacement, found["case"])


def _unescape_slash(text: str) -> str:
    return text.replace("\\/", "/")
