"""What the options of `ottla acl` stand for."""

import pytest

from ottla.cli.commands.acl_options import (
    BadAclOptions,
    Entries,
    Pattern,
    Resources,
    acls_of,
    filters_of,
    operation_of,
)
from ottla.security.acl import Acl, AclOperation, PatternType, PermissionType, ResourceType

ALICE = Entries(allow_principals=["User:alice"], operations=["Read", "describe-configs"])


def test_every_combination_becomes_an_entry() -> None:
    resources = Resources(topics=["a", "b"], is_cluster=True)
    entries = Entries(
        allow_principals=["User:alice"],
        deny_principals=["User:bob"],
        deny_hosts=["10.0.0.1"],
        operations=["alter"],
    )
    found = acls_of(resources, entries, Pattern.PREFIXED)
    allow = ("User:alice", "*", AclOperation.ALTER, PermissionType.ALLOW)
    deny = ("User:bob", "10.0.0.1", AclOperation.ALTER, PermissionType.DENY)
    named = [
        (ResourceType.TOPIC, "a", PatternType.PREFIXED),
        (ResourceType.TOPIC, "b", PatternType.PREFIXED),
        (ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL),
    ]
    assert found == [Acl(*each, *rest) for each in named for rest in (allow, deny)]


def test_producer_and_consumer_stand_for_what_they_need() -> None:
    resources = Resources(topics=["t"], groups=["g"])
    entries = Entries(allow_principals=["User:a"])
    found = acls_of(resources, entries, Pattern.LITERAL, is_producer=True, is_consumer=True)
    pairs = [
        (ResourceType(each.resource_type).name, AclOperation(each.operation).name) for each in found
    ]
    assert pairs == [
        ("TOPIC", "WRITE"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "CREATE"),
        ("TOPIC", "READ"),
        ("GROUP", "READ"),
    ]


@pytest.mark.parametrize(
    ("resources", "entries", "pattern", "word"),
    [
        (Resources(), ALICE, Pattern.LITERAL, "name a resource"),
        (Resources(topics=["t"]), Entries(operations=["read"]), Pattern.LITERAL, "principal"),
        (Resources(topics=["t"]), ALICE, Pattern.MATCH, "literal or prefixed"),
        (
            Resources(topics=["t"]),
            Entries(allow_principals=["User:a"]),
            Pattern.LITERAL,
            "name an operation",
        ),
        (
            Resources(topics=["t"]),
            Entries(allow_principals=["alice"], operations=["read"]),
            Pattern.LITERAL,
            "User:alice",
        ),
        (
            Resources(topics=["t"]),
            Entries(deny_hosts=["h"], operations=["read"]),
            Pattern.LITERAL,
            "--deny-principal",
        ),
    ],
)
def test_incomplete_options_are_refused(
    resources: Resources, entries: Entries, pattern: Pattern, word: str
) -> None:
    with pytest.raises(BadAclOptions, match=word):
        acls_of(resources, entries, pattern)


def test_filters_match_any_host_unless_one_is_given() -> None:
    first, second = filters_of(Resources(topics=["t"]), ALICE, Pattern.LITERAL)
    assert (first.operation, second.operation) == (
        AclOperation.READ,
        AclOperation.DESCRIBE_CONFIGS,
    )
    assert first.host is None and first.principal == "User:alice"
    (everything,) = filters_of(Resources(), Entries(), Pattern.LITERAL)
    assert everything.pattern_type is PatternType.ANY and everything.resource_name is None


def test_operations_have_all_spellings_of_kafkas_tools() -> None:
    for text in ("ClusterAction", "cluster_action", "CLUSTER-ACTION"):
        assert operation_of(text) is AclOperation.CLUSTER_ACTION
    with pytest.raises(BadAclOptions):
        operation_of("any")
