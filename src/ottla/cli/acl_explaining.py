"""Explain a decision of the ACLs: which entry, or which default. Pure."""

from collections.abc import Sequence

import msgspec

from ottla.security.acl import Acl, AclOperation, PermissionType, ResourceType, Subject
from ottla.security.acl_index import IMPLIED_BY, AclIndex, Outcome


class Explanation(msgspec.Struct, frozen=True):
    """A decision. ``entry`` is the one that decides; None: a default."""

    is_allowed: bool
    reason: str
    entry: Acl | None = None


def explain_decision(
    acls: Sequence[Acl],
    subject: Subject,
    operation: AclOperation,
    resource: tuple[ResourceType, str],
) -> Explanation:
    """Return the decision that a broker makes by these entries, and the entry that makes it.

    Super users, and ``allow.everyone.if.no.acl.found``, are settings of the brokers.
    """
    outcome = AclIndex(acls).decide(subject, operation, *resource)
    if outcome is Outcome.NO_ENTRY:
        return Explanation(
            False,
            "the resource has no entry; brokers allow it only with "
            "allow.everyone.if.no.acl.found=true, or to super users",
        )
    is_allowed = outcome is Outcome.ALLOWED
    deciding = (acl for acl in acls if _decides(acl, subject, operation, resource, outcome))
    entry = next(deciding, None)
    if entry is None:
        return Explanation(
            False,
            "the resource has entries, and none of them allows it to this principal and host; "
            "super users of the brokers may do everything",
        )
    if not is_allowed:
        return Explanation(False, "an entry denies it; a deny overrides every allow", entry)
    implied = "" if entry.operation in (operation, AclOperation.ALL) else _implied(entry, operation)
    return Explanation(True, f"an entry allows it{implied}", entry)


def _decides(
    acl: Acl,
    subject: Subject,
    operation: AclOperation,
    resource: tuple[ResourceType, str],
    outcome: Outcome,
) -> bool:
    """Say whether an entry alone leads to the same outcome by its own permission."""
    is_deny = acl.permission_type == PermissionType.DENY
    if is_deny != (outcome is Outcome.DENIED):
        return False
    if is_deny and acl.operation not in (operation, AclOperation.ALL):
        return False
    # An allow in place of a deny: the index matches name, principal and host.
    probe = msgspec.structs.replace(acl, permission_type=PermissionType.ALLOW)
    return AclIndex([probe]).decide(subject, operation, *resource) is Outcome.ALLOWED


def _implied(entry: Acl, operation: AclOperation) -> str:
    assert entry.operation in IMPLIED_BY[operation]
    return f": {AclOperation(entry.operation).name.lower()} implies {operation.name.lower()}"
