"""Levels of metadata.version and of the other features, as in Kafka 4.4."""

import pytest

from ottla.metadata import features
from ottla.metadata.features import (
    default_levels,
    supported_features,
    unmet_needs,
)
from ottla.metadata.metadata_versions import (
    DEFAULT_VERSION,
    LATEST_PRODUCTION,
    MINIMUM_VERSION,
    MetadataVersion,
    from_version_string,
    is_metadata_changed,
)
from ottla.metadata.registrations import VersionRange

# Taken from Kafka 4.4.0: level, name, versions of PartitionRecord, PartitionChangeRecord,
# RegisterBrokerRecord, and letters for what the log may contain:
# (S)cram, (T)ransactions, delegation tokens (D), (C)ontroller registrations, directories (A),
# (E)lr, c(O)rdoned directories, (M)igrating brokers, address (R)anges in ACLs, controllers that can
# be (U)nregistered.
KAFKA = """
7 3.3-IV3 0 0 1 -
8 3.4-IV0 0 0 2 M
9 3.5-IV0 0 0 2 M
10 3.5-IV1 0 0 2 M
11 3.5-IV2 0 0 2 SM
12 3.6-IV0 0 0 2 SM
13 3.6-IV1 0 0 2 STM
14 3.6-IV2 0 0 2 STDM
15 3.7-IV0 0 0 2 STDCM
16 3.7-IV1 0 0 2 STDCM
17 3.7-IV2 1 1 3 STDCAM
18 3.7-IV3 1 1 3 STDCAM
19 3.7-IV4 1 1 3 STDCAM
20 3.8-IV0 1 1 3 STDCAM
21 3.9-IV0 1 1 3 STDCAM
22 4.0-IV0 1 1 3 STDCAM
23 4.0-IV1 2 2 3 STDCAEM
24 4.0-IV2 2 2 3 STDCAEM
25 4.0-IV3 2 2 3 STDCAEM
26 4.1-IV0 2 2 3 STDCAEM
27 4.1-IV1 2 2 3 STDCAEM
28 4.2-IV0 2 2 3 STDCAEM
29 4.2-IV1 2 2 3 STDCAEM
30 4.3-IV0 2 2 4 STDCAEOM
31 4.4-IV0 2 2 4 STDCAEOM
32 4.4-IV1 2 2 4 STDCAEOMR
33 4.4-IV2 2 2 4 STDCAEOMRU
"""
ROWS = [line.split() for line in KAFKA.strip().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_levels_support_the_same_as_in_kafka(row: list[str]) -> None:
    level = MetadataVersion(int(row[0]))
    letters = {
        "S": level.is_scram_supported(),
        "T": level.is_metadata_transaction_supported(),
        "D": level.is_delegation_token_supported(),
        "C": level.is_controller_registration_supported(),
        "A": level.is_directory_assignment_supported(),
        "E": level.is_elr_supported(),
        "O": level.is_cordoned_log_dirs_supported(),
        "M": level.is_migration_supported(),
        "R": level.is_cidr_acl_host_supported(),
        "U": level.is_controller_unregistration_supported(),
    }
    assert [
        str(int(level)),
        str(level),
        str(level.partition_record_version()),
        str(level.partition_change_record_version()),
        str(level.register_broker_record_version()),
        "".join(letter for letter, there in letters.items() if there) or "-",
    ] == row


def test_all_levels_are_in_the_table() -> None:
    assert [int(row[0]) for row in ROWS] == [int(level) for level in MetadataVersion]
    assert (str(MINIMUM_VERSION), str(LATEST_PRODUCTION)) == ("3.3-IV3", "4.4-IV2")
    assert str(DEFAULT_VERSION) == "4.2-IV1", "a node of Kafka 4.2 can join a new cluster"


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("4.4", 33),
        ("4.3", 30),
        ("4.2", 29),
        ("4.2.1", 29),
        ("4.2-IV0", 28),
        ("4.0", 25),
        ("3.3", 7),
        ("3.3-IV2", None),
    ],
)
def test_levels_have_names(text: str, level: int | None) -> None:
    assert from_version_string(text) == level


def test_level_changes_that_change_the_metadata() -> None:
    changed = [
        str(MetadataVersion(level))
        for level in range(8, 34)
        if is_metadata_changed(MetadataVersion(level), MetadataVersion(level - 1))
    ]
    old = ["3.4-IV0", "3.5-IV2", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV2"]
    assert changed == [*old, "4.0-IV1", "4.3-IV0", "4.4-IV1", "4.4-IV2"]
    assert is_metadata_changed(LATEST_PRODUCTION, MINIMUM_VERSION)
    assert not is_metadata_changed(LATEST_PRODUCTION, LATEST_PRODUCTION)


@pytest.mark.parametrize(
    # kraft, transaction, group, eligible.leader.replicas, share, streams
    ("text", "levels"),
    [
        ("3.8-IV0", [0, 0, 0, 0, 0, 0]),
        ("3.9-IV0", [1, 0, 0, 0, 0, 0]),
        ("4.0-IV0", [1, 0, 1, 0, 0, 0]),
        ("4.0-IV2", [1, 2, 1, 0, 0, 0]),
        ("4.1-IV0", [1, 2, 1, 1, 0, 0]),
        ("4.2-IV0", [1, 2, 1, 1, 1, 0]),
        ("4.2-IV1", [1, 2, 1, 1, 1, 1]),
        ("4.3-IV0", [1, 2, 1, 1, 1, 1]),
        ("4.4-IV0", [1, 2, 1, 1, 2, 1]),
        ("4.4-IV2", [1, 2, 1, 1, 2, 1]),
    ],
)
def test_new_cluster_starts_with_the_levels_of_its_release(text: str, levels: list[int]) -> None:
    version = from_version_string(text)
    assert version is not None
    found = default_levels(version)
    assert next(iter(found)) == "metadata.version"
    assert list(found.values()) == [int(version), *levels]


def test_node_announces_supported_features() -> None:
    ranges = supported_features()
    assert ranges["metadata.version"] == VersionRange(7, 33)
    assert ranges["transaction.version"] == VersionRange(0, 2)
    assert ranges["metadata.version"].contains(7) and not ranges["share.version"].contains(3)
    assert len(ranges) == 7


def test_level_may_depend_on_another_feature() -> None:
    elr = features.ELIGIBLE_LEADER_REPLICAS_VERSION
    assert unmet_needs(elr, 1, {"metadata.version": 22}) == [("metadata.version", 23)]
    assert unmet_needs(elr, 1, {"metadata.version": 23}) == []
    assert unmet_needs(elr, 0, {}) == [] and unmet_needs("unheard", 1, {}) == []
