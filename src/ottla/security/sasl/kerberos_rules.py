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
import re2  # type: ignore[import-untyped]

_PRINCIPAL: Final = re.compile(r"(?P<primary>[^/@]+)(?:/(?P<instance>[^/@]+))?@(?P<realm>[^/@]+)\Z")
_RULE: Final = re.compile(
    r"RULE:\[(?P<count>\d):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<text>[^/]*)/(?P<global>g)?)?(?P<case>/[LU])?\Z"
)
_PARAMETER: Final = re.compile(r"\$(\d+)")
_JAVA_GROUP: Final = re.compile(r"\$(\d)")
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
    match: str | None = None
    pattern: str | None = None
    text: str = ""
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
        if rule.match is not None and re2.fullmatch(rule.match, base) is None:
            return None
        if rule.pattern is not None:
            base = re2.sub(rule.pattern, rule.text, base, count=0 if rule.is_global else 1)
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
    for pattern in (found["match"], found["pattern"]):
        _check_pattern(text, pattern)
    return _Rule(
        count,
        found["format"],
        found["match"],
        found["pattern"],
        _JAVA_GROUP.sub(r"\\\1", found["text"] or ""),
        found["global"] is not None,
        (found["case"] or "")[1:],
    )


def _check_pattern(rule: str, pattern: str | None) -> None:
    if pattern is None:
        return
    try:
        re2.compile(pattern)
    except re2.error as error:
        raise BadKerberosRules(f"{rule!r}: {pattern!r} is not a regular expression") from error
