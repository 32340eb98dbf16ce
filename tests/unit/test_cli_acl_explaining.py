"""`ottla acl check` names the entry or the default that decides."""

import pytest

from ottla.operations.acl_explaining import BrokerRules, explain_decision, rules_of
from ottla.security.acl import (
    Acl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
    Subject,
)

BOB = Subject("User:bob", "10.0.0.1")
TOPIC = (ResourceType.TOPIC, "orders")


def entry(
    name: str = "orders",
    principal: str = "User:bob",
    operation: AclOperation = AclOperation.WRITE,
    permission: PermissionType = PermissionType.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, principal, host, operation, permission)


ALLOW = entry()
PREFIX = entry("ord", pattern=PatternType.PREFIXED)
DENY_ALL = entry("*", "User:*", AclOperation.ALL, PermissionType.DENY)
OTHER = entry(principal="User:carol")


@pytest.mark.parametrize(
    ("acls", "operation", "is_allowed", "deciding", "says"),
    [
        ([], AclOperation.WRITE, False, None, "allow.everyone.if.no.acl.found"),
        ([OTHER], AclOperation.WRITE, False, None, "none of them allows it"),
        ([OTHER, ALLOW], AclOperation.WRITE, True, ALLOW, "an entry allows it"),
        ([PREFIX], AclOperation.WRITE, True, PREFIX, "an entry allows it"),
        ([ALLOW, DENY_ALL], AclOperation.WRITE, False, DENY_ALL, "an entry denies it"),
        ([ALLOW], AclOperation.DESCRIBE, True, ALLOW, "write implies describe"),
        ([ALLOW], AclOperation.READ, False, None, "none of them allows it"),
        ([entry(host="10.0.0.2")], AclOperation.WRITE, False, None, "none of them allows it"),
    ],
)
def test_decision_names_what_decides(
    acls: list[Acl],
    operation: AclOperation,
    is_allowed: bool,
    deciding: Acl | None,
    says: str,
) -> None:
    found = explain_decision(acls, BOB, operation, TOPIC, rules_of({}))
    assert (found.is_allowed, found.entry) == (is_allowed, deciding)
    assert says in found.reason


def test_super_user_is_allowed_in_spite_of_a_deny() -> None:
    rules = rules_of({"super.users": "User:admin; User:bob"})
    found = explain_decision([DENY_ALL], BOB, AclOperation.WRITE, TOPIC, rules)
    assert found.is_allowed and "super.users" in found.reason


@pytest.mark.parametrize(("setting", "is_allowed"), [("true", True), ("false", False), ("", False)])
def test_default_is_explained_where_a_resource_has_no_entry(setting: str, is_allowed: bool) -> None:
    rules = rules_of({"allow.everyone.if.no.acl.found": setting})
    found = explain_decision([], BOB, AclOperation.WRITE, TOPIC, rules)
    assert found.is_allowed is is_allowed
    assert f"allow.everyone.if.no.acl.found is {str(is_allowed).lower()}" in found.reason
    assert "cannot be read" not in found.reason


def test_settings_that_cannot_be_read_are_named() -> None:
    rules = BrokerRules(obstacle="it is hidden")
    found = explain_decision([], BOB, AclOperation.WRITE, TOPIC, rules)
    assert found.is_allowed is None
    assert "allow.everyone.if.no.acl.found, which then decides, cannot be read" in found.reason
    assert found.reason.endswith("super.users cannot be read: it is hidden")
    allowed = explain_decision([ALLOW], BOB, AclOperation.WRITE, TOPIC, rules)
    assert allowed.is_allowed and "super.users" not in allowed.reason
