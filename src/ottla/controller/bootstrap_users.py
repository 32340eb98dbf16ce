"""The SCRAM users of a new cluster, as text.

A SCRAM user is given as Kafka's storage tool takes it:

    SCRAM-SHA-256=[name=alice,password=secret,iterations=8192,salt="base64"]
    SCRAM-SHA-512=[name=alice,saltedpassword="base64",salt="base64"]

Commas always separate, so no value can contain one; quotes around a value are dropped. An error
says what is wrong, and never contains a value: it may be the password, or part of it.
"""

import base64
import binascii
import re
from typing import Final

from ottla.controller.bootstrap import BadBootstrap
from ottla.controller.scram import credential_record
from ottla.metadata.access import ScramUser
from ottla.protocol.internal.metadata_security import UserScramCredentialRecord
from ottla.runtime.ports import Random
from ottla.security.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    salted_password,
)

SALT_BYTES: Final = 24
_SCRAM_KEYS: Final = frozenset({"name", "salt", "iterations", "password", "saltedpassword"})


def parse_scram(text: str, random: Random) -> UserScramCredentialRecord:
    """Parse one SCRAM user. Raises `BadBootstrap`, without any value of the text."""
    mechanism, inner = _split_mechanism(text.strip())
    values = _values(inner)
    name = values.get("name", "")
    if not name:
        raise BadBootstrap("a SCRAM user needs a name")
    iterations = _iterations(values.get("iterations"))
    decoded = _decoded("salt", values["salt"]) if "salt" in values else None
    salt = random.bytes(SALT_BYTES) if decoded is None else decoded
    if "password" in values:
        if not values["password"]:
            raise BadBootstrap("the password of a SCRAM user is empty")
        salted = salted_password(mechanism, values["password"], salt, iterations)
    elif "saltedpassword" not in values:
        raise BadBootstrap("a SCRAM user needs a password or a saltedpassword")
    elif decoded is None:
        raise BadBootstrap("a saltedpassword needs the salt it was derived with")
    else:
        salted = _decoded("saltedpassword", values["saltedpassword"])
    return credential_record(ScramUser(mechanism, name), salt, salted, iterations)


def _split_mechanism(text: str) -> tuple[ScramMechanism, str]:
    name, equals, rest = text.partition("=")
    if not equals:
        raise BadBootstrap("a SCRAM user must be written as MECHANISM=[name=...,password=...]")
    mechanism = next((mechanism for mechanism in ScramMechanism if str(mechanism) == name), None)
    if mechanism is None:
        names = " and ".join(map(str, ScramMechanism))
        raise BadBootstrap(f"unknown SCRAM mechanism; known are {names}")
    if not (rest.startswith("[") and rest.endswith("]") and len(rest) > 1):
        raise BadBootstrap("the part after the SCRAM mechanism must be enclosed in [ and ]")
    return mechanism, rest[1:-1]


def _values(inner: str) -> dict[str, str]:
    values = {}
    for component in inner.rstrip(",").split(","):
        key, equals, value = component.partition("=")
        if not equals:
            raise BadBootstrap("a SCRAM user consists of key=value parts without further commas")
        if key not in _SCRAM_KEYS:
            raise BadBootstrap(f"the keys of a SCRAM user are {', '.join(sorted(_SCRAM_KEYS))}")
        if len(value) > 1 and value.startswith('"') and value.endswith('"'):
            value = value[1:-1]
        values[key] = value
    return values


def _iterations(text: str | None) -> int:
    if text is None:
        return ITERATIONS_MIN
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", text):
        raise BadBootstrap("the iterations of a SCRAM user must be a number")
    least, most = ITERATIONS_MIN, ITERATIONS_MAX
    if not least <= int(text) <= most:
        raise BadBootstrap(f"iterations must be between {least} and {most}")
    return int(text)


def _decoded(key: str, text: str) -> bytes:
    try:
        value = base64.b64decode(
            text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True
        )
    except binascii.Error:
        value = b""
    if not value:
        raise BadBootstrap(f"the {key} of a SCRAM user must be base64")
    return value
