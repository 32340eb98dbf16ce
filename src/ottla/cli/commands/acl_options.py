"""Translate the options of ``ottla acl``, which are those of ``kafka-acls.sh``, to ACLs. Pure."""

import enum
from collections.abc import Sequence
from itertools import product

import msgspec

from ottla.client.admin_security import AclFilter
from ottla.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)


class BadAclOptions(ValueError):
    """Options are missing or contradict each other; the message says what to change."""


class Pattern(enum.StrEnum):
    """How a resource's name is matched."""

    LITERAL = "literal"
    PREFIXED = "prefixed"
    MATCH = "match"
    ANY = "any"

    @property
    def kind(self) -> PatternType:
        """Kafka's number for it."""
        return PatternType[self.name]


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that the options name."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    delegation_tokens: Sequence[str] = ()
    users: Sequence[str] = ()
    is_cluster: bool = False

    def named(self) -> list[tuple[ResourceType, str]]:
        """Return the type and name of each resource."""
        by_type = {
            ResourceType.TOPIC: self.topics,
            ResourceType.GROUP: self.groups,
            ResourceType.TRANSACTIONAL_ID: self.transactional_ids,
            ResourceType.DELEGATION_TOKEN: self.delegation_tokens,
            ResourceType.USER: self.users,
            ResourceType.CLUSTER: [CLUSTER_NAME] if self.is_cluster else [],
        }
        return [(kind, name) for kind, names in by_type.items() for name in names]


class Entries(msgspec.Struct, frozen=True, kw_only=True):
    """Principals, hosts and operations of the entries."""

    allow_principals: Sequence[str] = ()
    deny_principals: Sequence[str] = ()
    allow_hosts: Sequence[str] = ()
    deny_hosts: Sequence[str] = ()
    operations: Sequence[str] = ()

    def triples(self) -> list[tuple[PermissionType, str, str]]:
        """Return the permission, principal and host of every entry. Raises `BadAclOptions`."""
        found: list[tuple[PermissionType, str, str]] = []
        for permission, principals, hosts in (
            (PermissionType.ALLOW, self.allow_principals, self.allow_hosts),
            (PermissionType.DENY, self.deny_principals, self.deny_hosts),
        ):
            word = permission.name.lower()
            if hosts and not principals:
                raise BadAclOptions(f"--{word}-host needs --{word}-principal")
            for principal in principals:
                check_principal(principal)
            found += [(permission, *each) for each in product(principals, hosts or [WILDCARD])]
        return found


PRODUCER = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
CONSUMER = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ,),
}


def acls_of(
    resources: Resources,
    entries: Entries,
    pattern: Pattern,
    *,
    is_producer: bool = False,
    is_consumer: bool = False,
) -> list[Acl]:
    """Return the entries to create. Raises `BadAclOptions`."""
    named, triples = resources.named(), entries.triples()
    if pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise BadAclOptions(f"an ACL has the pattern literal or prefixed, not {pattern}")
    if not named:
        raise BadAclOptions("name a resource: --topic, --group, --cluster, --transactional-id, ...")
    if not triples:
        raise BadAclOptions("name a principal: --allow-principal or --deny-principal User:NAME")
    if is_consumer and not (resources.topics and resources.groups):
        raise BadAclOptions("--consumer needs --topic and --group")
    if is_producer and not resources.topics:
        raise BadAclOptions("--producer needs --topic")
    asked = [operation_of(each) for each in entries.operations]
    if not asked and not (is_producer or is_consumer):
        raise BadAclOptions("name an operation: --operation read, or --producer or --consumer")
    found: dict[Acl, None] = {}
    for kind, name in named:
        operations = [
            *asked,
            *(PRODUCER.get(kind, ()) if is_producer else ()),
            *(CONSUMER.get(kind, ()) if is_consumer else ()),
        ]
        kept = PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern.kind
        for operation, (permission, principal, host) in product(operations, triples):
            found[Acl(kind, name, kept, principal, host, operation, permission)] = None
    return list(found)


def filters_of(resources: Resources, entries: Entries, pattern: Pattern) -> list[AclFilter]:
    """Return filters for the entries; no options match all entries. Raises `BadAclOptions`."""
    named: list[tuple[ResourceType, str | None]] = [*resources.named()]
    triples: list[tuple[PermissionType, str | None, str | None]] = [
        (permission, principal, host if _has_host(entries, permission) else None)
        for permission, principal, host in entries.triples()
    ]
    operations = [operation_of(each) for each in entries.operations] or [AclOperation.ANY]
    return [
        AclFilter(
            resource_type=kind,
            resource_name=name,
            pattern_type=pattern.kind if name is not None else PatternType.ANY,
            principal=principal,
            host=host,
            operation=operation,
            permission_type=permission,
        )
        for (kind, name), (permission, principal, host), operation in product(
            named or [(ResourceType.ANY, None)],
            triples or [(PermissionType.ANY, None, None)],
            operations,
        )
    ]


def operation_of(text: str) -> AclOperation:
    """Parse an operation in any spelling that Kafka's tools accept. Raises `BadAclOptions`."""
    word = text.strip().lower().replace("-", "").replace("_", "")
    for operation in AclOperation:
        if operation.name.lower().replace("_", "") == word and operation is not AclOperation.ANY:
            return operation
    known = ", ".join(each.name.lower() for each in AclOperation if each is not AclOperation.ANY)
    raise BadAclOptions(f"{text!r} is not an operation; use one of {known}")


def _has_host(entries: Entries, permission: PermissionType) -> bool:
    is_allow = permission is PermissionType.ALLOW
    return bool(entries.allow_hosts if is_allow else entries.deny_hosts)


def check_principal(text: str) -> None:
    """Check that a principal is written TYPE:NAME. Raises `BadAclOptions`."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise BadAclOptions(f"{text!r} must be a principal such as User:alice")
