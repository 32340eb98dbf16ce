"""Rejects settings that require security this version does not have: TLS, SASL, an authorizer.

They are rejected in a file and at run time: a node that accepted them would run unprotected,
against its configuration.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ottla.config.key_definition import Scope
from ottla.config.key_table import KEYS, base_of_listener_key
from ottla.config.problems import Problem
from ottla.config.values import to_text

_PREFIXES: Final = ("sasl.", "ssl.")
# Keys that require security, each with the value that requires none. Those of the authorizer are
# not in Kafka's own table: the authorizer reads them.
_SECURITY_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "allow.everyone.if.no.acl.found": "true",
        "connections.max.reauth.ms": "0",
        "delegation.token.secret.key": "",
        "security.inter.broker.protocol": "PLAINTEXT",
        "super.users": "",
    }
)


def unenforced_problems(settings: Mapping[str, str]) -> Iterator[Problem]:
    """Yield each setting that requires security; its value may be secret and is not shown."""
    for name, text in settings.items():
        key = KEYS[Scope.BROKER].get(name) or base_of_listener_key(name)
        base = name if key is None else key.name
        is_required = text.strip() != _SECURITY_KEYS.get(base, text.strip())
        if key is not None and base.startswith(_PREFIXES):
            is_required = text.strip() != (to_text(key.default_value) or "")
        if is_required:
            rule = "is not enforced: there is no TLS, SASL or authorizer yet; remove the key"
            yield Problem(name, None, rule)
