"""Settings that require security which this node would not enforce: it refuses them.

A node that accepted them would run open to everybody while its configuration says otherwise: the
keys of the authorizer need one to be configured. Settings of TLS, SASL and the authorizer are
enforced from the file; at run time only logins, and the stores of a listener, can be altered.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ottla.config.key_definition import Key, Scope, Update
from ottla.config.key_table import KEYS, base_of_listener_key
from ottla.config.problems import Problem
from ottla.config.values import to_text

_PREFIXES: Final = ("sasl.", "ssl.")
# The keys of TLS stores: of one listener they can be altered at run time, as in Kafka.
STORE_KEYS: Final = frozenset(
    {"ssl.key.password"}
    | {key for key in KEYS[Scope.BROKER] if key.startswith(("ssl.keystore.", "ssl.truststore."))}
)
# The keys of SASL that Kafka takes at run time, also of one listener, or of one of its mechanisms.
LOGIN_KEYS: Final = frozenset(
    name
    for name, key in KEYS[Scope.BROKER].items()
    if name.startswith("sasl.") and key.update is Update.PER_BROKER
)
PEER_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
"""The one login key that no listener has of its own."""
AUTHORIZER: Final = "authorizer.class.name"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"
SUPER_USERS: Final = "super.users"
# Keys that require security, each with the value that requires none. Those of the authorizer are
# not in Kafka's own table: the authorizer reads them.
_AUTHORIZER_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {ALLOW_EVERYONE: "true", SUPER_USERS: ""}
)


def unenforced_problems(
    settings: Mapping[str, str], *, is_dynamic: bool = False
) -> Iterator[Problem]:
    """Yield each setting that requires security; its value may be secret and is not shown."""
    for name, text in settings.items():
        key = KEYS[Scope.BROKER].get(name) or base_of_listener_key(name)
        base = name if key is None else key.name
        if base in _AUTHORIZER_KEYS and text.strip() != _AUTHORIZER_KEYS[base]:
            if is_dynamic or not settings.get(AUTHORIZER, "").strip():
                rule = (
                    f"is not enforced: set it in the configuration file of the node, with "
                    f"{AUTHORIZER}"
                )
                yield Problem(name, None, rule)
        elif is_dynamic and key is not None and _is_fixed(name, key, text):
            rule = "can be changed only in the configuration file of the node"
            yield Problem(name, None, rule)


def _is_fixed(name: str, key: Key, text: str) -> bool:
    if name == key.name:
        is_alterable = name in LOGIN_KEYS
    else:
        is_alterable = key.name in STORE_KEYS | LOGIN_KEYS - {PEER_MECHANISM}
    is_security = key.name.startswith(_PREFIXES) and not is_alterable
    return is_security and text.strip() != (to_text(key.default_value) or "")
