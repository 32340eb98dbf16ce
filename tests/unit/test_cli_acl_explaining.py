"""`ottla acl check` names the entry or the default that decides."""

import pytest

from ottla.cli.acl_explaining import explain_decision
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
    found = explain_decision(acls, BOB, operation, TOPIC)
    assert (found.is_allowed, found.entry) == (is_allowed, deciding)
    assert says in found.reason
