"""What the metadata log of a new cluster begins with, and the text it is asked for with.

The records of a new cluster are its features, metadata.version first, then SCRAM users and
ACLs. ``ottla format`` writes them to a file; the first active controller appends them to the
empty log, all or none (`records_for_empty_log`).

A SCRAM user is given as Kafka's storage tool takes it:

    SCRAM-SHA-256=[name=alice,password=secret,iterations=8192,salt="base64"]
    SCRAM-SHA-512=[name=alice,saltedpassword="base64",salt="base64"]

Commas always separate, so no value holds one; quotes around a value are dropped. An error names
what is wrong, and never a value: it may be the password, or run into it.
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

# Needed where a cluster is formatted with users or ACLs, not where a node starts.
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
    """What an operator asked a new cluster to begin with is not possible; the message says why."""


# -- features ------------------------------------------------------------------------------------


def feature_levels(version: MetadataVersion, asked: Mapping[str, int]) -> dict[str, int]:
    """Return the levels of a new cluster: those asked for, the others as ``version`` has them.

    Raises `BadBootstrap` for a feature or level that there is not, or that needs another.
    """
    for name, level in asked.items():
        if name == METADATA_VERSION:
            if level != version:
                raise BadBootstrap(
                    f"{METADATA_VERSION} {level} is not {int(version)}, of {version}"
                )
        elif name not in FEATURES:
            known = ", ".join(sorted(FEATURES))
            raise BadBootstrap(f"unknown feature {name}; there are {known}")
        elif level not in [known.level for known in FEATURES[name]]:
            raise BadBootstrap(f"feature {name} has no level {level}")
    levels = default_levels(version) | dict(asked)
    for name, level in levels.items():
        for needed, least in unmet_needs(name, level, levels):
            raise BadBootstrap(f"feature {name} at level {level} needs {needed} at {least}")
    return levels


def feature_records(levels: Mapping[str, int]) -> list[Versioned]:
    """Return the records of finalized levels, metadata.version first, the others by name.

    Level 0 is absence, and kraft.version is kept in control records.
    """
    others = sorted(set(levels) - {METADATA_VERSION, KRAFT_VERSION})
    names = [METADATA_VERSION, *(name for name in others if levels[name] > 0)]
    return [
        Versioned(FeatureLevelRecord(name=name, feature_level=levels[name]), 0) for name in names
    ]


# -- the whole -----------------------------------------------------------------------------------


def bootstrap_records(
    levels: Mapping[str, int],
    scram: Sequence[UserScramCredentialRecord] = (),
    acls: Iterable[Acl] = (),
    *,
    random: Random,
) -> list[Versioned]:
    """Return what a new cluster begins with. Raises `BadBootstrap`."""
    version = MetadataVersion(levels[METADATA_VERSION])
    if scram and not version.is_scram_supported():
        raise BadBootstrap(f"{METADATA_VERSION} {version} has no SCRAM")
    users = [ScramUser(record.mechanism, record.name) for record in scram]
    if len(set(users)) < len(users):
        raise BadBootstrap("a SCRAM user is named twice for one mechanism")
    records = feature_records(levels)
    records += [Versioned(record, 0) for record in scram]
    for acl in dict.fromkeys(acls):
        refusal = acl_rules.refuse_acl(acl)
        if refusal is not None:
            raise BadBootstrap(f"an ACL is not possible: {refusal.message}")
        records.append(acl_rules.acl_record(random.uuid(), acl))
    return records


def records_for_empty_log(
    bootstrap: Sequence[Versioned], min_insync_replicas: int, is_transaction_open: bool
) -> list[Versioned]:
    """Return what the first active controller appends, on top of nothing.

    Where the metadata.version knows transactions the records are bracketed by one, and one that
    an earlier controller left open is given up first. With eligible leader replicas
    min.insync.replicas becomes a setting of the cluster (KIP-966), from the controller's file.
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
        assert not is_transaction_open, "a transaction below the version that has them"
        return middle
    begin: list[Versioned] = []
    if is_transaction_open:
        begin.append(Versioned(AbortTransactionRecord(reason="Controller failover"), 0))
    begin.append(Versioned(BeginTransactionRecord(name=TRANSACTION_NAME), 0))
    return [*begin, *middle, Versioned(EndTransactionRecord(), 0)]


# -- SCRAM users as text -------------------------------------------------------------------------


def parse_scram(text: str, random: Random) -> UserScramCredentialRecord:
    """Read one SCRAM user. Raises `BadBootstrap`, without any value of the text."""
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
        raise BadBootstrap("a saltedpassword needs the salt it was made with")
    else:
        salted = _decoded("saltedpassword", values["saltedpassword"])
    return scram_rules.credential_record(ScramUser(mechanism, name), salt, salted, iterations)


def _split_mechanism(text: str) -> "tuple[scram_keys.ScramMechanism, str]":
    name, equals, rest = text.partition("=")
    if not equals:
        raise BadBootstrap("a SCRAM user is given as MECHANISM=[name=...,password=...]")
    mechanism = next((known for known in scram_keys.ScramMechanism if str(known) == name), None)
    if mechanism is None:
        known = " and ".join(map(str, scram_keys.ScramMechanism))
        raise BadBootstrap(f"there is no such SCRAM mechanism; there are {known}")
    if not (rest.startswith("[") and rest.endswith("]") and len(rest) > 1):
        raise BadBootstrap("what follows the SCRAM mechanism stands in [ and ]")
    return mechanism, rest[1:-1]


def _values(inner: str) -> dict[str, str]:
    values = {}
    for component in inner.rstrip(",").split(","):
        key, equals, value = component.partition("=")
        if not equals:
            raise BadBootstrap("each part of a SCRAM user is key=value, and no value has a comma")
        if key not in _SCRAM_KEYS:
            raise BadBootstrap(f"a SCRAM user has {', '.join(sorted(_SCRAM_KEYS))} and no more")
        if len(value) > 1 and value.startswith('"') and value.endswith('"'):
            value = value[1:-1]
        values[key] = value
    return values


def _iterations(text: str | None) -> int:
    if text is None:
        return scram_keys.ITERATIONS_MIN
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", text):
        raise BadBootstrap("the iterations of a SCRAM user are no number")
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
        raise BadBootstrap(f"the {key} of a SCRAM user is no base64")
    return value
