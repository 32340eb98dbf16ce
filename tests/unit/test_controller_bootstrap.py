"""The first records of a new cluster, and the text format of SCRAM users."""

import base64

import pytest
from controller_images import NEWEST, CountingRandom, feature

from ottla.controller.bootstrap import (
    BadBootstrap,
    bootstrap_records,
    feature_levels,
    records_for_empty_log,
)
from ottla.controller.bootstrap_users import parse_scram
from ottla.controller.scram import credential_record
from ottla.metadata.access import ScramUser
from ottla.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    TRANSACTION_VERSION,
)
from ottla.metadata.image import EMPTY
from ottla.metadata.metadata_versions import METADATA_VERSION, MetadataVersion
from ottla.metadata.replay import replay_all
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from ottla.protocol.internal.metadata_topics import ConfigRecord
from ottla.protocol.schema import Message
from ottla.security.acl import Acl
from ottla.security.sasl.scram import ScramMechanism, salted_password

ACL = Acl(2, "foo", 3, "User:alice", "*", 3, 3)
ELR = ELIGIBLE_LEADER_REPLICAS_VERSION
SALT = base64.b64encode(b"some salt").decode()


def messages(records: list[Versioned]) -> list[Message]:
    return [record.message for record in records]


# -- features ------------------------------------------------------------------------------------


def test_new_cluster_has_the_features_of_its_version() -> None:
    records = bootstrap_records(feature_levels(NEWEST, {}), random=CountingRandom())
    assert messages(records) == [
        feature(METADATA_VERSION, 29),
        feature(ELR, 1),
        feature(GROUP_VERSION, 1),
        feature(SHARE_VERSION, 1),
        feature(STREAMS_VERSION, 1),
        feature(TRANSACTION_VERSION, 2),
    ]


def test_feature_levels_can_be_requested() -> None:
    levels = feature_levels(NEWEST, {TRANSACTION_VERSION: 1, GROUP_VERSION: 0, KRAFT_VERSION: 0})
    assert levels[KRAFT_VERSION] == 0
    image = replay_all(EMPTY, messages(bootstrap_records(levels, random=CountingRandom())))
    assert image.features.level(TRANSACTION_VERSION) == 1
    assert GROUP_VERSION not in image.features.levels


@pytest.mark.parametrize(
    ("version", "asked", "part"),
    [
        (NEWEST, {"x.version": 1}, "unknown feature"),
        (NEWEST, {GROUP_VERSION: 7}, "no level 7"),
        (NEWEST, {METADATA_VERSION: 20}, "contradicts 29"),
        (MetadataVersion.IBP_4_0_IV0, {ELR: 1}, "needs metadata.version at 4.0-IV1"),
    ],
)
def test_invalid_features_are_rejected(
    version: MetadataVersion, asked: dict[str, int], part: str
) -> None:
    with pytest.raises(BadBootstrap, match=part):
        feature_levels(version, asked)


# -- users and ACLs ------------------------------------------------------------------------------


def test_users_and_acls_follow_the_features() -> None:
    user = parse_scram("SCRAM-SHA-256=[name=alice,password=pw]", CountingRandom())
    levels = feature_levels(NEWEST, {})
    records = bootstrap_records(levels, [user], [ACL, ACL], random=CountingRandom())
    assert [type(message).__name__ for message in messages(records)[-2:]] == [
        "UserScramCredentialRecord",
        "AccessControlEntryRecord",
    ]
    image = replay_all(EMPTY, messages(records))
    assert list(image.acls.values()) == [ACL]
    assert list(image.scram) == [ScramUser(1, "alice")]


def test_invalid_users_and_acls_are_rejected() -> None:
    user = parse_scram("SCRAM-SHA-256=[name=alice,password=pw]", CountingRandom())
    levels = feature_levels(NEWEST, {})
    with pytest.raises(BadBootstrap, match="occurs twice"):
        bootstrap_records(levels, [user, user], random=CountingRandom())
    bad = Acl(2, "", 3, "User:alice", "*", 3, 3)
    with pytest.raises(BadBootstrap, match="invalid ACL"):
        bootstrap_records(levels, [], [bad], random=CountingRandom())
    old = feature_levels(MetadataVersion.IBP_3_5_IV1, {})
    with pytest.raises(BadBootstrap, match="does not support SCRAM"):
        bootstrap_records(old, [user], random=CountingRandom())


# -- the empty log -------------------------------------------------------------------------------


def test_empty_log_starts_with_a_transaction() -> None:
    first = bootstrap_records(feature_levels(NEWEST, {}), random=CountingRandom())
    found = messages(records_for_empty_log(first, 2, is_transaction_open=False))
    assert found == [
        BeginTransactionRecord(name="Bootstrap records"),
        *messages(first),
        ConfigRecord(4, "", "min.insync.replicas", "2"),
        EndTransactionRecord(),
    ]


def test_open_transaction_is_aborted_first() -> None:
    first = bootstrap_records(feature_levels(NEWEST, {ELR: 0}), random=CountingRandom())
    found = messages(records_for_empty_log(first, 2, is_transaction_open=True))
    assert isinstance(found[0], AbortTransactionRecord)
    assert isinstance(found[1], BeginTransactionRecord)
    assert not any(isinstance(message, ConfigRecord) for message in found)


def test_old_versions_use_no_transaction() -> None:
    old = feature_levels(MetadataVersion.IBP_3_5_IV2, {})
    first = bootstrap_records(old, random=CountingRandom())
    assert records_for_empty_log(first, 1, is_transaction_open=False) == first


# -- SCRAM users as text -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "iterations"),
    [("", 4096), (",iterations=8192", 8192), (',iterations="16384"', 16384)],
)
@pytest.mark.parametrize("mechanism", list(ScramMechanism), ids=str)
def test_scram_user_by_password(mechanism: ScramMechanism, options: str, iterations: int) -> None:
    text = f' {mechanism}=[name="alice",password=pa=ss,salt="{SALT}"{options}] '
    salted = salted_password(mechanism, "pa=ss", b"some salt", iterations)
    user = ScramUser(mechanism, "alice")
    assert parse_scram(text, CountingRandom()) == credential_record(
        user, b"some salt", salted, iterations
    )


def test_scram_user_by_salted_password() -> None:
    salted = base64.b64encode(b"salted").decode().rstrip("=")
    record = parse_scram(
        f"SCRAM-SHA-256=[name=a,saltedpassword={salted},salt={SALT}]", CountingRandom()
    )
    assert record == credential_record(ScramUser(1, "a"), b"some salt", b"salted", 4096)


def test_trailing_commas_are_ignored() -> None:
    assert parse_scram("SCRAM-SHA-256=[name=a,password=b,,]", CountingRandom()).name == "a"


def test_missing_salt_is_generated() -> None:
    rng = CountingRandom()
    text = "SCRAM-SHA-256=[name=a,password=b]"
    assert parse_scram(text, rng).salt != parse_scram(text, rng).salt


@pytest.mark.parametrize(
    "text",
    [
        "hunter2",
        "SCRAM-MD5=[name=a,password=hunter2]",
        "SCRAM-SHA-256=name=a,password=hunter2]",
        "SCRAM-SHA-256=[name=a,password=hunter2",
        "SCRAM-SHA-256=[",
        "SCRAM-SHA-256=[password=hunter2]",
        "SCRAM-SHA-256=[name=,password=hunter2]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,password=]",
        "SCRAM-SHA-256=[name=a,password=x,hunter2]",
        "SCRAM-SHA-256=[name=a,passwordhunter2=x]",
        "SCRAM-SHA-256=[name=a,password=hunter2,iterations=4095]",
        "SCRAM-SHA-256=[name=a,password=hunter2,iterations=16385]",
        "SCRAM-SHA-256=[name=a,password=hunter2,iterations=hunter2]",
        "SCRAM-SHA-256=[name=a,password=hunter2,salt=hunter2!]",
        "SCRAM-SHA-256=[name=a,saltedpassword=hunter2]",
        f"SCRAM-SHA-256=[name=a,saltedpassword=hunter2!,salt={SALT}]",
        f"SCRAM-SHA-256=[name=a,saltedpassword=,salt={SALT}]",
    ],
)
def test_invalid_scram_text_is_rejected_without_repeating_it(text: str) -> None:
    with pytest.raises(BadBootstrap) as caught:
        parse_scram(text, CountingRandom())
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
