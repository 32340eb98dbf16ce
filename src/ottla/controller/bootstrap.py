"""The first records of a new cluster's metadata log, and the text format of its SCRAM users.

The records of a new cluster are its features, metadata.version first, then SCRAM users and ACLs.
``ottla format`` writes them to a file; the first active controller appends them to the empty log,
all or none (`records_for_empty_log`).

A SCRAM user is given as Kafka's storage tool takes it:

    SCRAM-SHA-256=[name=alice,password=secret,iterations=8192,salt="base64"]
    SCRAM-SHA-512=[name=alice,saltedpassword="base64",salt="base64"]

Commas always separate, so no value can contain one; quotes around a value are dropped. An error
says what is wrong, and never contains a value: it may be the password, or part of it.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.controller.config_alterations import config_record
from ottla.controller.config_rules import ALL_BROKERS, MIN_INSYNC_REPLICAS
from ottla.metadata.access import ScramUser
from ottla.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURES,
    KRAFT_VERSION,
    default_levels,
    unmet_needs,
)
from ottla.metadata.metadata_versions import METADATA_VERSION, MetadataVersion
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from ottla.protocol.internal.metadata_security import UserScramCredentialRecord
from ottla.runtime.lazy import LazyModule
from ottla.runtime.ports import Random
from ottla.security.acl import Acl

# Needed to format a cluster with users or ACLs, not to start a node.
if TYPE_CHECKING:
    from ottla.controller import acls as acl_rules
    from ottla.controller import scram as scram_rules
    from ottla.security.sasl import scram as scram_keys
else:
    acl_rules = LazyModule("ottla.controller.acls")
    scram_rules = LazyModule("ottla.controller.scram")
    scram_keys = LazyModule("ottla.security.sasl.scram")

SALT_BYTES = 24
TRANSACTION_NAME = "Bootstrap records"

_SCRAM_KEYS = frozenset({"name", "salt", "iterations", "password", "saltedpassword"})


class BadBootstrap(Exception):
    """The requested first records of a new cluster are invalid; the message says why."""


# -- features ------------------------------------------------------------------------------------


def feature_levels(version: MetadataVersion, requested: Mapping[str, int]) -> dict[str, int]:
    """Return the levels of a new cluster: those requested, the others by ``version``.

    Raises `BadBootstrap` for an unknown feature or level, or for an unmet dependency.
    """
    for name, level in requested.items():
        if name == METADATA_VERSION:
            if level != version:
                raise BadBootstrap(
                    f"{METADATA_VERSION} {level} contradicts {int(version)}, the level of {version}"
                )
        elif name not in FEATURES:
            known = ", ".join(sorted(FEATURES))
            raise BadBootstrap(f"unknown feature {name}; known features are {known}")
        elif level not in [known.level for known in FEATURES[name]]:
            raise BadBootstrap(f"feature {name} has no level {level}")
    levels = default_levels(version) | dict(requested)
    for name, level in levels.items():
        for needed, least in unmet_needs(name, level, levels):
            raise BadBootstrap(f"feature {name} at level {level} needs {needed} at {least}")
    return levels


def feature_records(levels: Mapping[str, int]) -> list[Versioned]:
    """Return the records of finalized levels, metadata.version first, the others by name.

    Level 0 needs no record, and kraft.version is kept in control records.
    """
    others = sorted(set(levels) - {METADATA_VERSION, KRAFT_VERSION})
    names = [METADATA_VERSION, *(name for name in others if levels[name] > 0)]
    return [
        Versioned(FeatureLevelRecord(name=name, feature_level=levels[name]), 0) for name in names
    ]


# -- all records ---------------------------------------------------------------------------------


def bootstrap_records(
    levels: Mapping[str, int],
    scram: Sequence[UserScramCredentialRecord] = (),
    acls: Iterable[Acl] = (),
    *,
    random: Random,
) -> list[Versioned]:
    """Return the first records of a new cluster. Raises `BadBootstrap`."""
    version = MetadataVersion(levels[METADATA_VERSION])
    if scram and not version.is_scram_supported():
        raise BadBootstrap(f"{METADATA_VERSION} {version} does not support SCRAM")
    users = [ScramUser(record.mechanism, record.name) for record in scram]
    if len(set(users)) < len(users):
        raise BadBootstrap("a SCRAM user occurs twice for one mechanism")
    records = feature_records(levels)
    records += [Versioned(record, 0) for record in scram]
    for acl in dict.fromkeys(acls):
        refusal = acl_rules.refuse_acl(acl)
        if refusal is not None:
            raise BadBootstrap(f"invalid ACL: {refusal.message}")
        records.append(acl_rules.acl_record(random.uuid(), acl))
    return records


def records_for_empty_log(
    bootstrap: Sequence[Versioned], min_insync_replicas: int, is_transaction_open: bool
) -> list[Versioned]:
    """Return the records that the first active controller appends to an empty log.

    If the metadata.version supports transactions, the records are enclosed in one, and a
    transaction that an earlier controller left open is aborted first. With eligible leader replicas
    enabled, min.insync.replicas becomes a setting of the cluster (KIP-966), from the controller's
    file.
    """
    levels = {
        record.message.name: record.message.feature_level
        for record in bootstrap
        if isinstance(record.message, FeatureLevelRecord)
    }
    middle = list(bootstrap)
    if levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
        value = str(min_insync_replicas)
        middle.append(config_record(ALL_BROKERS, MIN_INSYNC_REPLICAS, value))
    if not MetadataVersion(levels[METADATA_VERSION]).is_metadata_transaction_supported():
        assert not is_transaction_open, "an open transaction below the version that supports them"
        return middle
    begin: list[Versioned] = []
    if is_transaction_open:
        begin.append(Versioned(AbortTransactionRecord(reason="Controller failover"), 0))
    begin.append(Versioned(BeginTransactionRecord(name=TRANSACTION_NAME), 0))
    return [*begin, *middle, Versioned(EndTransactionRecord(), 0)]


# -- SCRAM users as text -------------------------------------------------------------------------


def parse_scram(text: str, random: Random) -> UserScramCredentialRecord:
    """Parse one SCRAM user. Raises `BadBootstrap`, without any value of the text."""
    mechanism, inner = _split_mechanism(text.strip())
    values = _values(inner)
    name = values.get("name", "")
    if not name:
        raise BadBootstrap("a SCRAM user needs a name")
    iterations = _iterations(values.get("iterations"))
    given = _decoded("salt", values["salt"]) if "salt" in values else None
    salt = random.bytes(SALT_BYTES) if given is None else given
    if "password" in values:
        if not values["password"]:
            raise BadBootstrap("the password of a SCRAM user is empty")
        salted = scram_keys.salted_password(mechanism, values["password"], salt, iterations)
    elif "saltedpassword" not in values:
        raise BadBootstrap("a SCRAM user needs a password or a saltedpassword")
    elif given is None:
        raise BadBootstrap("a saltedpassword needs the salt it was derived with")
    else:
        salted = _decoded("saltedpassword", values["saltedpassword"])
    return scram_rules.credential_record(ScramUser(mechanism, name), salt, salted, iterations)


def _split_mechanism(text: str) -> "tuple[scram_keys.ScramMechanism, str]":
    name, equals, rest = text.partition("=")
    if not equals:
        raise BadBootstrap("a SCRAM user must be written as MECHANISM=[name=...,password=...]")
    mechanism = next((known for known in scram_keys.ScramMechanism if str(known) == name), None)
    if mechanism is None:
        known = " and ".join(map(str, scram_keys.ScramMechanism))
        raise BadBootstrap(f"unknown SCRAM mechanism; known are {known}")
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
        return scram_keys.ITERATIONS_MIN
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", text):
        raise BadBootstrap("the iterations of a SCRAM user must be a number")
    least, most = scram_keys.ITERATIONS_MIN, scram_keys.ITERATIONS_MAX
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
