"""Admin requests about security: SCRAM users, ACLs, quotas and delegation tokens.

As in `ottla.client.admin`, each function is one request, and one that changes something is sent
once. Passwords do not leave the client: only the salted password is sent.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ottla.client.cluster import Cluster
from ottla.client.failures import check
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from ottla.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.security.acl import Acl, AclOperation, PatternType, PermissionType, ResourceType
from ottla.security.sasl.scram import ScramMechanism, salted_password

ITERATIONS_DEFAULT: Final = 8192
SALT_BYTES: Final = 24
NO_LIMIT: Final = -1
"""A lifetime or period of a delegation token that the broker's settings decide."""


# -- SCRAM users ---------------------------------------------------------------


class ScramUserInfo(msgspec.Struct, frozen=True):
    """A user, and the iterations of each mechanism that has a password."""

    name: str
    iterations: Mapping[ScramMechanism, int]


async def list_users(cluster: Cluster, names: Sequence[str] | None = None) -> list[ScramUserInfo]:
    """Return users with SCRAM passwords, by name; None means all. Raises `Refused`."""
    wanted = None if names is None else [UserName(name) for name in names]
    response = await cluster.send_any(
        DescribeUserScramCredentialsRequest(wanted), DescribeUserScramCredentialsResponse
    )
    check(response.error_code, "users", response.error_message)
    for each in response.results:
        check(each.error_code, f"user {each.user}", each.error_message)
    return [
        ScramUserInfo(
            each.user,
            {ScramMechanism(one.mechanism): one.iterations for one in each.credential_infos},
        )
        for each in sorted(response.results, key=lambda each: each.user)
    ]


async def set_password(
    cluster: Cluster,
    name: str,
    password: str,
    mechanisms: Sequence[ScramMechanism],
    *,
    iterations: int = ITERATIONS_DEFAULT,
) -> None:
    """Set a user's password for some mechanisms, or create the user. Raises `Refused`."""
    for mechanism in mechanisms:  # one request each: a user may be altered once in a request
        salt = cluster.ports.random.bytes(SALT_BYTES)
        salted = salted_password(mechanism, password, salt, iterations)
        change = ScramCredentialUpsertion(name, mechanism, iterations, salt, salted)
        await _alter_users(cluster, AlterUserScramCredentialsRequest(upsertions=[change]))


async def delete_user(cluster: Cluster, name: str, mechanisms: Sequence[ScramMechanism]) -> None:
    """Delete a user's passwords of some mechanisms. Raises `Refused`."""
    for mechanism in mechanisms:
        deletion = ScramCredentialDeletion(name, mechanism)
        await _alter_users(cluster, AlterUserScramCredentialsRequest(deletions=[deletion]))


async def _alter_users(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    response = await cluster.send_any(request, AlterUserScramCredentialsResponse, may_repeat=False)
    for each in response.results:
        check(each.error_code, f"user {each.user}", each.error_message)


# -- ACLs ----------------------------------------------------------------------


class AclFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which ACLs are meant; None and ANY match every value."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: PermissionType = PermissionType.ANY


async def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> None:
    """Create ACLs. Raises `Refused`."""
    creations = [AclCreation(*msgspec.structs.astuple(acl)) for acl in acls]
    response = await cluster.send_any(
        CreateAclsRequest(creations), CreateAclsResponse, may_repeat=False
    )
    for acl, result in zip(acls, response.results, strict=True):
        subject = f"{acl.principal} on {acl.resource_name}"
        check(result.error_code, subject, result.error_message)


async def list_acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    """Return the ACLs that a filter matches. Raises `Refused`."""
    request = DescribeAclsRequest(*msgspec.structs.astuple(wanted))
    response = await cluster.send_any(request, DescribeAclsResponse)
    check(response.error_code, "ACLs", response.error_message)
    return [
        Acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    ]


async def delete_acls(cluster: Cluster, wanted: Sequence[AclFilter]) -> list[Acl]:
    """Delete the ACLs that filters match, and return them. Raises `Refused`."""
    filters = [DeleteAclsFilter(*msgspec.structs.astuple(each)) for each in wanted]
    response = await cluster.send_any(
        DeleteAclsRequest(filters), DeleteAclsResponse, may_repeat=False
    )
    found: list[Acl] = []
    for result in response.filter_results:
        check(result.error_code, "ACLs", result.error_message)
        for acl in result.matching_acls:
            check(acl.error_code, acl.resource_name, acl.error_message)
            found.append(
                Acl(
                    acl.resource_type,
                    acl.resource_name,
                    acl.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                )
            )
    return found


# -- quotas --------------------------------------------------------------------

Entity = Mapping[str, str | None]
"""The parts of a quota entity by type (user, client-id, ip); None is the default of that type."""


class Quota(msgspec.Struct, frozen=True):
    """The limits of one entity."""

    entity: Entity
    limits: Mapping[str, float]


async def list_quotas(cluster: Cluster) -> list[Quota]:
    """Return all quotas. Raises `Refused`."""
    response = await cluster.send_any(DescribeClientQuotasRequest(), DescribeClientQuotasResponse)
    check(response.error_code, "quotas", response.error_message)
    return [
        Quota(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries or ()
    ]


async def alter_quota(cluster: Cluster, entity: Entity, limits: Mapping[str, float | None]) -> None:
    """Set limits of one entity; None removes a limit. Raises `Refused`."""
    parts = [RequestEntityData(kind, name) for kind, name in entity.items()]
    operations = [OpData(key, value or 0.0, value is None) for key, value in limits.items()]
    response = await cluster.send_any(
        AlterClientQuotasRequest([RequestEntryData(parts, operations)]),
        AlterClientQuotasResponse,
        may_repeat=False,
    )
    for entry in response.entries:
        check(entry.error_code, "quota", entry.error_message)


# -- delegation tokens -----------------------------------------------------------


async def create_token(
    cluster: Cluster,
    *,
    owner: tuple[str, str] | None = None,
    renewers: Sequence[tuple[str, str]] = (),
    lifetime_ms_max: int = NO_LIMIT,
) -> CreateDelegationTokenResponse:
    """Create a token of this user, or of ``owner`` (type and name). Raises `Refused`."""
    request = CreateDelegationTokenRequest(
        owner[0] if owner else None,
        owner[1] if owner else None,
        [CreatableRenewers(*each) for each in renewers],
        lifetime_ms_max,
    )
    response = await cluster.send_any(request, CreateDelegationTokenResponse, may_repeat=False)
    subject = "delegation token" if owner is None else f"delegation token of {':'.join(owner)}"
    check(response.error_code, subject)
    return response


async def renew_token(cluster: Cluster, hmac: bytes, period_ms: int = NO_LIMIT) -> int:
    """Renew a token; return when it expires, in ms since 1970. Raises `Refused`."""
    response = await cluster.send_any(
        RenewDelegationTokenRequest(hmac, period_ms), RenewDelegationTokenResponse, may_repeat=False
    )
    check(response.error_code, "delegation token")
    return response.expiry_timestamp_ms


async def expire_token(cluster: Cluster, hmac: bytes, period_ms: int = NO_LIMIT) -> int:
    """Let a token expire after a period; a negative one: at once. Raises `Refused`."""
    response = await cluster.send_any(
        ExpireDelegationTokenRequest(hmac, period_ms),
        ExpireDelegationTokenResponse,
        may_repeat=False,
    )
    check(response.error_code, "delegation token")
    return response.expiry_timestamp_ms


async def list_tokens(
    cluster: Cluster, owners: Sequence[tuple[str, str]] | None = None
) -> list[DescribedDelegationToken]:
    """Return the tokens that this user may see; None: of all owners. Raises `Refused`."""
    wanted = None
    if owners is not None:
        wanted = [DescribeDelegationTokenOwner(*each) for each in owners]
    response = await cluster.send_any(
        DescribeDelegationTokenRequest(wanted), DescribeDelegationTokenResponse
    )
    check(response.error_code, "delegation tokens")
    return response.tokens
