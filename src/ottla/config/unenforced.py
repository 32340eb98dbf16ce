"""Settings that ask for security which this version does not have: TLS, SASL, an authorizer.

They are refused, in a file as well as at run time: a node that took them would run open to
everybody while its configuration says otherwise.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ottla.config.key_definition import Scope
from ottla.config.key_table import KEYS, base_of_listener_key
from ottla.config.problems import Problem
from ottla.config.values import to_text

_PREFIXES: Final = ("sasl.", "ssl.")
# Keys that ask for security, each with the value that asks for none. Those of the authorizer are
# no keys of Kafka's own table: the authorizer reads them.
_ASKING: Final[Mapping[str, str]] = MappingProxyType(
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
        is_asking = text.strip() != _ASKING.get(base, text.strip())
        if key is not None and base.startswith(_PREFIXES):
            is_asking = text.strip() != (to_text(key.default_value) or "")
        if is_asking:
            rule = "is not enforced: there is no TLS, SASL or authorizer yet; remove the key"
            yield Problem(name, None, rule)
