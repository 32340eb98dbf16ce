"""Explain a decision of the ACLs: which entry, or which default. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from ottla.config.unenforced import ALLOW_EVERYONE, SUPER_USERS
from ottla.security.acl import Acl, AclOperation, PermissionType, ResourceType, Subject
from ottla.security.acl_index import IMPLIED_BY, AclIndex, Outcome


class Explanation(msgspec.Struct, frozen=True):
    """A decision. ``entry`` is the one that decides; None: a default.

    ``is_allowed`` is None if a setting decides that cannot be read.
    """

    is_allowed: bool | None
    reason: str
    entry: Acl | None = None


class BrokerRules(msgspec.Struct, frozen=True):
    """What decides beside the entries: settings of a broker, each None if it cannot be read."""

    super_users: frozenset[str] | None = None
    allows_without_entry: bool | None = None
    obstacle: str = ""
    """Why a setting cannot be read."""


def rules_of(values: Mapping[str, str | None]) -> BrokerRules:
    """Return the rules by the settings of a broker; a hidden one is None, an unset one absent."""
    users, allow = values.get(SUPER_USERS, ""), values.get(ALLOW_EVERYONE, "")
    return BrokerRules(
        None if users is None else frozenset(each.strip() for each in users.split(";")),
        None if allow is None else allow.strip().lower() == "true",
        "the broker hides its value, as Kafka does",
    )


def explain_decision(
    acls: Sequence[Acl],
    subject: Subject,
    operation: AclOperation,
    resource: tuple[ResourceType, str],
    rules: BrokerRules,
) -> Explanation:
    """Return the decision that a broker makes, and the entry or the setting that makes it."""
    if rules.super_users is not None and subject.principal in rules.super_users:
        return Explanation(True, "the principal is in super.users of the brokers")
    found = _by_entries(acls, subject, operation, resource, rules)
    if found.is_allowed or rules.super_users is not None:
        return found
    caveat = f"; super users may do everything, and super.users cannot be read: {rules.obstacle}"
    return msgspec.structs.replace(found, reason=found.reason + caveat)


def _without_entry(rules: BrokerRules) -> Explanation:
    """Return the decision about a resource without entries."""
    if rules.allows_without_entry is None:
        return Explanation(
            None,
            "the resource has no entry; allow.everyone.if.no.acl.found, which then decides, cannot "
            f"be read: {rules.obstacle}",
        )
    setting = "true" if rules.allows_without_entry else "false (the default)"
    return Explanation(
        rules.allows_without_entry,
        f"the resource has no entry, and allow.everyone.if.no.acl.found is {setting}",
    )


def _by_entries(
    acls: Sequence[Acl],
    subject: Subject,
    operation: AclOperation,
    resource: tuple[ResourceType, str],
    rules: BrokerRules,
) -> Explanation:
    outcome = AclIndex(acls).decide(subject, operation, *resource)
    if outcome is Outcome.NO_ENTRY:
        return _without_entry(rules)
    is_allowed = outcome is Outcome.ALLOWED
    deciding = (acl for acl in acls if _decides(acl, subject, operation, resource, outcome))
    entry = next(deciding, None)
    if entry is None:
        return Explanation(
            False,
            "the resource has entries, and none of them allows it to this principal and host",
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
