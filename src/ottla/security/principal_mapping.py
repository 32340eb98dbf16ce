"""How the subject of a client certificate becomes a principal: ``ssl.principal.mapping.rules``.

The subject is written as Java does (RFC 2253, last component first) and then goes through rules:

    RULE:^CN=(.*?),OU=Users.*$/$1/L, DEFAULT

The first rule whose pattern matches the whole name applies; ``L`` and ``U`` change the case of the
result, DEFAULT takes the name as it is. A name that no rule matches is not a valid principal, and
neither is an empty one: a subject can be empty. Without any rule nobody has a principal.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.security.java_pattern import BadPattern, JavaPattern, Replacement
from ottla.security.principal import USER, CertificateRefused, Principal

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|(?=,)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|\Z)"
)


class NoMatchingRule(CertificateRefused):
    """No mapping rule matches a certificate's subject, or the name that it gives is empty."""


class BadMappingRules(ValueError):
    """``ssl.principal.mapping.rules`` that cannot be read; the message shows where."""


class _Rule(NamedTuple):
    """One mapping rule; DEFAULT has no pattern."""

    pattern: JavaPattern | None = None
    replacement: Replacement | None = None
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None or self.replacement is None:
            return name
        if not self.pattern.matches(name):
            return None
        # Kafka replaces every match within the name, not the match of the whole.
        mapped = self.pattern.replace(name, self.replacement)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)


class PrincipalMapper:
    """Maps the subject of a certificate to a principal by configured rules."""

    def __init__(self, rules: str) -> None:
        """Read the rules. Raises `BadMappingRules`."""
        self._rules: Sequence[_Rule] = tuple(_parse_rules(rules))

    def principal(self, subject: str) -> Principal:
        """Return the principal of a subject, as `certificates.subject_name` writes it.

        Raises:
            NoMatchingRule: the connection must be refused.
        """
        for rule in self._rules:
            if (mapped := rule.apply(subject)) is not None:
                if not mapped:
                    raise NoMatchingRule(f"the user name of the subject {subject!r} is empty")
                return Principal(USER, mapped)
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules matches {subject!r}")


def _parse_rules(text: str) -> Iterator[_Rule]:
    """Yield the rules; empty ones are ignored, as in Kafka."""
    text = text.strip()
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None or found.end() == position:
            raise BadMappingRules(f"no mapping rule: {text[position : position + 60]!r}")
        position = found.end()
        if found["default"]:
            yield _Rule()
        elif found["pattern"] is not None:
            yield _rule(found)


def _rule(found: re.Match[str]) -> _Rule:
    try:
        pattern = JavaPattern(found["pattern"])
        replacement = Replacement(found["replacement"], pattern, keeps_unknown=True)
    except BadPattern as error:
        raise BadMappingRules(str(error)) from error
    return _Rule(pattern, replacement, found["case"])
