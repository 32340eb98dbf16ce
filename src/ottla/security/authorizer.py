"""Whether a principal may carry out an operation on a resource: super users, ACLs, cache, audit.

Decisions are cached per principal, host, operation and resource, and the cache is dropped whenever
the ACLs change, so a cached decision is never older than the image. A node
without ``authorizer.class.name`` has none, and everybody may do everything.

Decisions are recorded in an `AuditTrail`, from which `ottla.node.security.audit_log` writes lines:
denials, and at level DEBUG what is allowed, too.
"""

import logging
from collections.abc import Iterable
from typing import Final, Protocol

from ottla.security.acl import Acl, AclOperation, ResourceType, Subject
from ottla.security.acl_index import AclIndex, Outcome
from ottla.security.audit import AuditTrail

audit = logging.getLogger("ottla.authorizer")

CACHE_MAX: Final = 100_000
"""Decisions kept; a full cache is dropped whole."""
NAME_LENGTH_KEPT_MAX: Final = 256
"""Decisions about longer names are made anew: clients choose names, and one takes up to 128 KiB."""

ANY_NAME: Final = "hardcode"


class Authorizer(Protocol):
    """Decides for one broker or controller."""

    @property
    def is_enabled(self) -> bool:
        """Whether ACLs are in force; if not, ACL requests answer SECURITY_DISABLED."""
        ...

    @property
    def version(self) -> int:
        """A number that changes with every change of decisions; guards caches of callers."""
        ...

    def allows(
        self,
        subject: Subject,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_audited: bool = True,
    ) -> bool:
        """Say whether the subject may carry out the operation on one resource.

        Without ``is_audited`` it is not recorded: for a permission of which another would do as
        well, and for lists that are filtered.
        """
        ...

    def allows_any(
        self, subject: Subject, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Say whether the subject may carry out the operation on some resource of the type."""
        ...


class AclAuthorizer:
    """Kafka's StandardAuthorizer over an index that follows the metadata image.

    Until `load` was called nobody but a super user may do anything: a node that has not read its
    metadata yet cannot know which entries deny.
    """

    is_enabled = True

    def __init__(self, super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._index = AclIndex()
        self._is_loaded = False
        self._decisions: dict[tuple[Subject, int, int, str | None], bool] = {}
        self.version = 0
        self.trail = AuditTrail()

    def load(self, acls: Iterable[Acl]) -> None:
        """Replace all entries, as after a snapshot."""
        self._index = AclIndex(acls)
        self._is_loaded = True
        self._changed()

    def update(self, added: Iterable[Acl], removed: Iterable[Acl]) -> None:
        """Apply the change of one metadata batch."""
        for acl in removed:
            self._index.remove(acl)
        for acl in added:
            self._index.add(acl)
        self._changed()

    def allows(
        self,
        subject: Subject,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_audited: bool = True,
    ) -> bool:
        """Say whether the subject may carry out the operation on one resource."""
        key = (subject, operation, resource_type, name)
        allowed = self._decisions.get(key)
        if allowed is None:
            allowed = self._decide(subject, operation, resource_type, name)
            self._remember(key, allowed)
        if is_audited and (not allowed or audit.isEnabledFor(logging.DEBUG)):
            self.trail.record(subject, operation, resource_type, name, is_allowed=allowed)
        return allowed

    def allows_any(
        self, subject: Subject, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Say whether the subject may carry out the operation on some resource of the type."""
        key = (subject, operation, resource_type, None)
        allowed = self._decisions.get(key)
        if allowed is None:
            # Kafka asks about a name that nobody uses first: super users, and entries for ``*``.
            allowed = self._decide(subject, operation, resource_type, ANY_NAME) or (
                self._is_loaded and self._index.allows_some(subject, operation, resource_type)
            )
            self._remember(key, allowed)
        return allowed

    def _decide(
        self, subject: Subject, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        if self._is_super(subject):
            return True
        return self._is_loaded and self._permits(
            self._index.decide(subject, operation, resource_type, name)
        )

    def _is_super(self, subject: Subject) -> bool:
        return subject.principal in self._super_users

    def _permits(self, outcome: Outcome) -> bool:
        if outcome is Outcome.NO_ENTRY:
            return self._allow_if_no_acl
        return outcome is Outcome.ALLOWED

    def _remember(self, key: tuple[Subject, int, int, str | None], allowed: bool) -> None:
        name = key[-1]
        if name is not None and len(name) > NAME_LENGTH_KEPT_MAX:
            return
        if len(self._decisions) >= CACHE_MAX:
            self._decisions.clear()
        self._decisions[key] = allowed

    def _changed(self) -> None:
        self._decisions.clear()
        self.version += 1
