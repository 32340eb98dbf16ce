"""Settings that require security which this version does not have: an authorizer, tokens.

They are refused, in a file as well as at run time: a node that accepted them would run open to
everybody while its configuration says otherwise. TLS and SASL settings are enforced from the file
and cannot be changed at run time.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ottla.config.key_definition import Key, Scope
from ottla.config.key_table import KEYS, base_of_listener_key
from ottla.config.problems import Problem
from ottla.config.values import to_text

_PREFIXES: Final = ("sasl.", "ssl.")
# Keys that require security, each with the value that requires none. Those of the authorizer are
# not in Kafka's own table: the authorizer reads them.
_SECURITY_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "allow.everyone.if.no.acl.found": "true",
        "delegation.token.secret.key": "",
        "super.users": "",
    }
)


def unenforced_problems(
    settings: Mapping[str, str], *, is_dynamic: bool = False
) -> Iterator[Problem]:
    """Yield each setting that requires security; its value may be secret and is not shown."""
    for name, text in settings.items():
        key = KEYS[Scope.BROKER].get(name) or base_of_listener_key(name)
        base = name if key is None else key.name
        is_unenforced = text.strip() != _SECURITY_KEYS.get(base, text.strip())
        if is_unenforced:
            yield Problem(name, None, "is not enforced: there is no authorizer yet; remove the key")
        elif is_dynamic and key is not None and _is_changed(key, text):
            rule = "can be changed only in the configuration file of the node"
            yield Problem(name, None, rule)


def _is_changed(key: Key, text: str) -> bool:
    is_security = key.name.startswith(_PREFIXES)
    return is_security and text.strip() != (to_text(key.default_value) or "")
