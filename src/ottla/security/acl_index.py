"""ACL decisions, as Kafka's StandardAuthorizer makes them.

The entries of a resource are those with its exact name, with the wildcard ``*``, and with a prefix
of its name. Among them, those that match principal and host decide:

- an entry that denies the operation, or ALL, wins over everything;
- an entry that allows the operation or ALL allows it, and so does one that implies it:
  READ, WRITE, DELETE and ALTER imply DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS;
- otherwise the operation is denied, except that a resource without any entry follows
  ``allow.everyone.if.no.acl.found``.

A lookup costs one dictionary access per distinct prefix length, whatever the number of entries.

Hosts are compared as addresses, in the spelling of `canonical_host`. The scope of a link-local
address (``fe80::1%eth0``) limits what an entry allows, and never what it denies: the number of an
interface differs between nodes, and a forwarded request carries none. A host in CIDR notation is a
range of addresses (`host_ranges`).
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from ottla.runtime.host_address import canonical_host, without_scope
from ottla.security.acl import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
    Subject,
)
from ottla.security.host_ranges import is_in_range, is_range

# An operation is also allowed by an entry that allows one of these. Denials imply nothing.
IMPLIED_BY: Final[Mapping[AclOperation, frozenset[int]]] = MappingProxyType(
    {
        AclOperation.DESCRIBE: frozenset(
            {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
        ),
        AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
    }
)


class Outcome(enum.Enum):
    """What the entries say. NO_ENTRY: the resource has none at all."""

    ALLOWED = "allowed"
    DENIED = "denied"
    NO_ENTRY = "no entry"


class AclIndex:
    """The entries by resource and principal. Changed in place, by `add` and `remove`.

    Equal entries under several ids count as one each: removing one leaves the others in force.
    """

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        # Literal names, the wildcard among them, and prefixes.
        self._literal: dict[_Resource, _Entries] = {}
        self._prefixed: dict[_Resource, _Entries] = {}
        # How many prefixes of each length there are, per resource type.
        self._lengths: dict[int, dict[int, int]] = {}
        for acl in acls:
            self.add(acl)

    def add(self, acl: Acl) -> None:
        """Add an entry."""
        key = _Resource(acl.resource_type, acl.resource_name)
        if acl.pattern_type == PatternType.PREFIXED:
            if key not in self._prefixed:
                self._count_length(acl, 1)
            entries = self._prefixed.setdefault(key, {})
        else:
            entries = self._literal.setdefault(key, {})
        entries.setdefault(acl.principal, []).append(_with_plain_host(acl))

    def remove(self, acl: Acl) -> None:
        """Remove an entry that was added."""
        key = _Resource(acl.resource_type, acl.resource_name)
        is_prefixed = acl.pattern_type == PatternType.PREFIXED
        by_resource = self._prefixed if is_prefixed else self._literal
        entries = by_resource[key]
        entries[acl.principal].remove(_with_plain_host(acl))
        if not entries[acl.principal]:
            del entries[acl.principal]
        if not entries:
            del by_resource[key]
            if is_prefixed:
                self._count_length(acl, -1)

    def decide(
        self, subject: Subject, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> Outcome:
        """Say whether the subject may carry out the operation on one resource."""
        allowing = IMPLIED_BY.get(operation, frozenset()) | {operation, AclOperation.ALL}
        hosts = _hosts(subject)
        has_entries = is_allowed = False
        for entries in self._entries_of(resource_type, name):
            has_entries = True
            for acl in _about(entries, subject.principal, hosts):
                if acl.permission_type == PermissionType.ALLOW:
                    is_allowed = is_allowed or acl.operation in allowing
                elif acl.operation in (operation, AclOperation.ALL):
                    return Outcome.DENIED
        if is_allowed:
            return Outcome.ALLOWED
        return Outcome.DENIED if has_entries else Outcome.NO_ENTRY

    def allows_some(
        self, subject: Subject, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Say whether an entry allows the operation on some resource and no entry overrules it.

        As in Kafka, implied operations do not count here, and an entry that denies overrules an
        allowed name if it denies that name or a prefix of it.
        """
        allowed, denied = self._patterns(subject, operation, resource_type)
        if any(each.is_everything for each in denied):
            return False
        return any(not any(deny.covers(allow) for deny in denied) for allow in allowed)

    def _entries_of(self, resource_type: int, name: str) -> Iterator["_Entries"]:
        """Yield the entries of each pattern that matches a resource; none of them is empty."""
        if (found := self._literal.get(_Resource(resource_type, name))) is not None:
            yield found
        if name != WILDCARD:
            found = self._literal.get(_Resource(resource_type, WILDCARD))
            if found is not None:
                yield found
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name):
                found = self._prefixed.get(_Resource(resource_type, name[:length]))
                if found is not None:
                    yield found

    def _patterns(
        self, subject: Subject, operation: AclOperation, resource_type: int
    ) -> tuple[list["_Pattern"], list["_Pattern"]]:
        """Return the names that entries about exactly this operation, or ALL, allow and deny."""
        allowed: list[_Pattern] = []
        denied: list[_Pattern] = []
        hosts = _hosts(subject)
        for by_resource in (self._literal, self._prefixed):
            for resource, entries in by_resource.items():
                if resource.type != resource_type:
                    continue
                pattern = _Pattern(resource.name, by_resource is self._prefixed)
                for acl in _about(entries, subject.principal, hosts):
                    if acl.operation in (operation, AclOperation.ALL):
                        is_allow = acl.permission_type == PermissionType.ALLOW
                        (allowed if is_allow else denied).append(pattern)
        return allowed, denied

    def _count_length(self, acl: Acl, change: int) -> None:
        lengths = self._lengths.setdefault(acl.resource_type, {})
        length = len(acl.resource_name)
        lengths[length] = lengths.get(length, 0) + change
        if not lengths[length]:
            del lengths[length]


class _Resource(NamedTuple):
    type: int
    name: str


# The entries of one pattern, by principal.
_Entries = dict[str, list[Acl]]


class _Pattern(NamedTuple):
    """A set of names: one name, every name with a prefix, or (literal ``*``) every name."""

    name: str
    is_prefix: bool

    @property
    def is_everything(self) -> bool:
        return self.name == WILDCARD and not self.is_prefix

    def covers(self, other: "_Pattern") -> bool:
        if self.is_everything:
            return True
        if other.is_everything:
            return False
        if self.is_prefix:
            return other.name.startswith(self.name)
        return not other.is_prefix and other.name == self.name


def _hosts(subject: Subject) -> tuple[str, str, str]:
    """Return the hosts of entries that apply to a subject's address, without its scope last."""
    host = canonical_host(subject.host)
    return WILDCARD, host, without_scope(host)


def _about(entries: _Entries, own: str, hosts: tuple[str, str, str]) -> Iterator[Acl]:
    """Yield the entries that match the subject's own principal, or any, and one of the hosts."""
    for principal in (own, WILDCARD_PRINCIPAL):
        for acl in entries.get(principal, ()):
            if acl.host in hosts or (is_range(acl.host) and is_in_range(acl.host, hosts[2])):
                yield acl


def _with_plain_host(acl: Acl) -> Acl:
    """Return the entry with the host that clients' addresses are compared with."""
    if acl.host == WILDCARD:
        return acl
    host = canonical_host(acl.host)
    if acl.permission_type != PermissionType.ALLOW:
        host = without_scope(host)
    return msgspec.structs.replace(acl, host=host)
