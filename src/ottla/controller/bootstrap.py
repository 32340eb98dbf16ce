"""The first records of a new cluster's metadata log.

The records of a new cluster are its features, metadata.version first, then SCRAM users and ACLs.
``ottla format`` writes them to a file; the first active controller appends them to the empty log,
all or none (`records_for_empty_log`).
"""

from collections.abc import Iterable, Mapping, Sequence

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
from ottla.runtime.ports import Random
from ottla.security.acl import Acl

TRANSACTION_NAME = "Bootstrap records"


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
    records += [_acl_record(acl, random) for acl in dict.fromkeys(acls)]
    return records


def _acl_record(acl: Acl, random: Random) -> Versioned:
    from ottla.controller.acls import acl_record, refuse_acl  # few clusters begin with ACLs

    refusal = refuse_acl(acl)
    if refusal is not None:
        raise BadBootstrap(f"invalid ACL: {refusal.message}")
    return acl_record(random.uuid(), acl)


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
