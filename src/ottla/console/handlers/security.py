"""Security: users, access control entries, decisions, and quotas."""

from typing import Final

from ottla.client.admin import Resource, describe_configs
from ottla.client.admin_security import (
    AclFilter,
    create_acls,
    delete_acls,
    list_acls,
    list_quotas,
    list_users,
)
from ottla.client.cluster import Cluster, Refused
from ottla.config.unenforced import ALLOW_EVERYONE, SUPER_USERS
from ottla.console.endpoints import Call, Done, Rejected
from ottla.console.handlers.answers import with_failure
from ottla.operations.acl_explaining import BrokerRules, explain_decision, rules_of
from ottla.operations.rows import Row
from ottla.security.acl import (
    Acl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
    Subject,
)

ROWS_MAX: Final = 2_000
CLUSTER_NAME: Final = "kafka-cluster"
RESOURCES: Final = ("topic", "group", "cluster", "transactional_id", "delegation_token", "user")
OPERATIONS: Final = tuple(
    each.name.lower() for each in AclOperation if each is not AclOperation.ANY
)


async def security(call: Call) -> Row:
    """Return users, entries and quotas, each with why it cannot be shown."""
    users, users_failure = await with_failure(list_users(call.cluster), [])
    acls, acls_failure = await with_failure(list_acls(call.cluster, AclFilter()), [])
    quotas, quotas_failure = await with_failure(list_quotas(call.cluster), [])
    return {
        "users": [
            {
                "name": user.name,
                "mechanisms": [mechanism.name for mechanism in user.iterations],
            }
            for user in users[:ROWS_MAX]
        ],
        "users_failure": users_failure,
        "acls": [acl_row(acl) for acl in sorted(acls, key=_order)[:ROWS_MAX]],
        "acls_failure": acls_failure,
        "quotas": [
            {"entity": dict(quota.entity), "limits": dict(quota.limits)}
            for quota in quotas[:ROWS_MAX]
        ],
        "quotas_failure": quotas_failure,
        "resources": list(RESOURCES),
        "operations": list(OPERATIONS),
        "decision": await _decision(call, acls, acls_failure) if call.text("principal") else None,
        "question": {
            name: call.text(name) for name in ("principal", "operation", "resource", "name", "host")
        },
    }


def _order(acl: Acl) -> tuple[str, int, str, int]:
    return acl.principal, acl.resource_type, acl.resource_name, acl.operation


def acl_row(acl: Acl) -> Row:
    """Return an entry as a row. Pure."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "permission": PermissionType(acl.permission_type).name.lower(),
        "operation": AclOperation(acl.operation).name.lower(),
        "resource": ResourceType(acl.resource_type).name.lower(),
        "name": acl.resource_name,
        "pattern": PatternType(acl.pattern_type).name.lower(),
    }


async def _decision(call: Call, acls: list[Acl], failure: str) -> Row:
    """Return whether a request would be allowed, and why; unknown without the entries."""
    if failure:
        return {"is_allowed": None, "reason": f"cannot be explained: {failure}", "entry": None}
    resource = ResourceType[call.one_of("resource", RESOURCES).upper()]
    operation = AclOperation[call.one_of("operation", OPERATIONS).upper()]
    name = CLUSTER_NAME if resource is ResourceType.CLUSTER else call.text("name")
    subject = Subject(_principal(call), call.text("host") or "127.0.0.1")
    rules = await _rules(call.cluster)
    explanation = explain_decision(acls, subject, operation, (resource, name), rules)
    return {
        "is_allowed": explanation.is_allowed,
        "reason": explanation.reason,
        "entry": None if explanation.entry is None else acl_row(explanation.entry),
    }


async def _rules(cluster: Cluster) -> BrokerRules:
    """Read the settings of a broker that decide beside the entries."""
    keys = (SUPER_USERS, ALLOW_EVERYONE)
    try:
        configs = await describe_configs(cluster, Resource.BROKER, str(min(cluster.nodes)), keys)
    except Refused as refused:
        return BrokerRules(obstacle=str(refused))
    return rules_of({config.name: config.value for config in configs})


def _principal(call: Call) -> str:
    text = call.required("principal")
    return text if ":" in text else f"User:{text}"


def _entry(call: Call) -> Acl:
    """Return the entry that a request names. Raises `Rejected`."""
    resource = ResourceType[call.one_of("resource", RESOURCES).upper()]
    name = CLUSTER_NAME if resource is ResourceType.CLUSTER else call.required("name")
    pattern = PatternType[call.one_of("pattern", ("literal", "prefixed")).upper()]
    operation = AclOperation[call.one_of("operation", OPERATIONS).upper()]
    permission = PermissionType[call.one_of("permission", ("allow", "deny")).upper()]
    return Acl(
        resource_type=resource,
        resource_name=name,
        pattern_type=pattern,
        principal=_principal(call),
        host=call.text("host") or "*",
        operation=operation,
        permission_type=permission,
    )


async def add_acl(call: Call) -> Done:
    """Create an entry."""
    entry = _entry(call)
    await create_acls(call.cluster, [entry])
    return Done(f"The entry of {entry.principal} was created.", "/security#acls")


async def remove_acl(call: Call) -> Done:
    """Delete one entry."""
    entry = _entry(call)
    exact = AclFilter(
        resource_type=ResourceType(entry.resource_type),
        resource_name=entry.resource_name,
        pattern_type=PatternType(entry.pattern_type),
        principal=entry.principal,
        host=entry.host,
        operation=AclOperation(entry.operation),
        permission_type=PermissionType(entry.permission_type),
    )
    deleted = await delete_acls(call.cluster, [exact])
    if not deleted:
        raise Rejected(404, "There is no such entry.")
    return Done(f"The entry of {entry.principal} was deleted.", "/security#acls")
