"""``sasl.kerberos.principal.to.local.rules``: user names of Kerberos principals.

    DEFAULT                                       the first part, for principals of our own realm
    RULE:[n:string](regexp)s/pattern/text/g/L     for principals of n parts, realm not counted

In ``string``, ``$0`` is the realm and ``$1`` to ``$n`` are the parts. A rule applies if the string
matches the regular expression as a whole, or there is none. ``s/pattern/text/`` replaces the first
match, with ``g`` every one; ``/L`` and ``/U`` change the case of the result. The first rule that
applies decides, as in Apache Kafka.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from ottla.security.java_pattern import BadPattern, JavaPattern, Replacement

_PRINCIPAL: Final = re.compile(r"(?P<primary>[^/@]+)(?:/(?P<instance>[^/@]+))?@(?P<realm>[^/@]+)\Z")
_RULE: Final = re.compile(
    r"RULE:\[(?P<count>\d):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<text>[^/]*)/(?P<global>g)?)?/?(?P<case>[LU])?\Z"
)
_PARAMETER: Final = re.compile(r"\$(\d+)")
_NOT_SIMPLE: Final = re.compile(r"[/@]")


class BadKerberosRules(ValueError):
    """Rules that cannot be read."""


class NoUserName(ValueError):
    """No rule gives a principal a user name."""


class KerberosName(msgspec.Struct, frozen=True):
    """``primary[/instance]@realm``."""

    primary: str
    instance: str | None
    realm: str


class _Rule(msgspec.Struct, frozen=True):
    count: int
    format: str
    match: JavaPattern | None = None
    pattern: JavaPattern | None = None
    replacement: Replacement | None = None
    is_global: bool = False
    case: str = ""


def parse_name(text: str) -> KerberosName:
    """Read a principal. Raises `NoUserName` for one without realm or of more than two parts."""
    found = _PRINCIPAL.match(text)
    if found is None:
        raise NoUserName(f"{text[:200]!r} is not a principal of one or two parts and a realm")
    return KerberosName(found["primary"], found["instance"], found["realm"])


class KerberosRules:
    """Maps principals to user names."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Read the rules. Raises `BadKerberosRules`."""
        self._realm = default_realm
        self._rules = tuple(_parse(each.strip()) for each in rules if each.strip())

    def user_of(self, principal: str) -> str:
        """Return the user name of a principal. Raises `NoUserName`."""
        name = parse_name(principal)
        parts = [name.realm, name.primary, *([name.instance] if name.instance else [])]
        for rule in self._rules:
            user = self._apply(rule, name, parts)
            if user is None:
                continue
            if not user or _NOT_SIMPLE.search(user):
                raise NoUserName(f"the user name of {principal[:200]!r} is empty or not simple")
            return user
        raise NoUserName(f"no rule applies to {principal[:200]!r}")

    def _apply(self, rule: _Rule | None, name: KerberosName, parts: list[str]) -> str | None:
        if rule is None:
            return name.primary if name.realm == self._realm else None
        if len(parts) - 1 != rule.count:
            return None
        base = _PARAMETER.sub(lambda found: parts[int(found[1])], rule.format)
        if rule.match is not None and not rule.match.matches(base):
            return None
        if rule.pattern is not None and rule.replacement is not None:
            base = rule.pattern.replace(base, rule.replacement, only_first=not rule.is_global)
        return {"L": base.lower(), "U": base.upper()}.get(rule.case, base)


def _parse(text: str) -> _Rule | None:
    """Return a rule; None for DEFAULT."""
    if text == "DEFAULT":
        return None
    found = _RULE.match(text)
    if found is None:
        raise BadKerberosRules(f"{text!r} is neither DEFAULT nor RULE:[n:string](regexp)s/../../")
    count = int(found["count"])
    if any(int(number) > count for number in _PARAMETER.findall(found["format"])):
        raise BadKerberosRules(f"{text!r} names a part that a principal of {count} does not have")
    match, pattern, replacement = _patterns(text, found)
    return _Rule(
        count,
        found["format"],
        match,
        pattern,
        replacement,
        found["global"] is not None,
        found["case"] or "",
    )


def _patterns(
    rule: str, found: re.Match[str]
) -> tuple[JavaPattern | None, JavaPattern | None, Replacement | None]:
    try:
        match = None if found["match"] is None else JavaPattern(found["match"])
        if found["pattern"] is None:
            return match, None, None
        pattern = JavaPattern(found["pattern"])
        return match, pattern, Replacement(found["text"], pattern)
    except BadPattern as error:
        raise BadKerberosRules(f"{rule!r}: {error}") from error
