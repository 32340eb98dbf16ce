"""CreateAcls, DeleteAcls and DescribeAcls: managing the entries, not enforcing them.

An entry names a resource by a literal name or a prefix; a filter may leave any part open. A filter
of pattern type MATCH selects the entries that would apply to a resource of that name: those with
exactly the name, with the wildcard ``*``, and with one of its prefixes (KIP-290). Hosts are
stored in Kafka's spelling of addresses (`canonical_host`), and compared in it.
"""

import enum
from collections.abc import Iterable
from typing import NamedTuple

from ottla.controller.decision import RECORDS_MAX, Decision, Refusal
from ottla.metadata.image import Image
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_security import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from ottla.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.protocol.types import Uuid
from ottla.runtime.host_address import canonical_host
from ottla.runtime.ports import Random
from ottla.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from ottla.security.host_ranges import is_range, parse_range

MATCHES_MAX = 10 * RECORDS_MAX
"""Entries in the reply to one DeleteAcls; an entry that two filters match counts twice."""


class AclFilter(NamedTuple):
    """Selects entries. None, and ANY, leave a part open; ``host`` is a `canonical_host`."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches(self, acl: Acl) -> bool:
        """Return whether an entry is selected."""
        return (
            self._matches_resource(acl)
            and self.principal in (None, acl.principal)
            and (self.host is None or self.host == canonical_host(acl.host))
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (PermissionType.ANY, acl.permission_type)
        )

    def _matches_resource(self, acl: Acl) -> bool:
        if self.resource_type not in (ResourceType.ANY, acl.resource_type):
            return False
        any_pattern = (PatternType.ANY, PatternType.MATCH)
        if self.pattern_type not in (*any_pattern, acl.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == acl.resource_name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.LITERAL:
            return acl.resource_name == WILDCARD
        return self.resource_name.startswith(acl.resource_name)


# -- create --------------------------------------------------------------------------------------


def decide_create_acls(
    image: Image, request: CreateAclsRequest, random: Random
) -> Decision[CreateAclsResponse]:
    """Add entries, each on its own; an entry that already exists is a success without a record."""
    results = []
    new: dict[Acl, None] = {}
    for creation in request.creations:
        acl = _acl(creation)
        refusal = refuse_acl(acl) or refuse_range(acl.host, image.metadata_version())
        if refusal is None:
            new[acl] = None
        results.append(_creation_result(refusal))
    existing = set(image.acls.values())
    records = [acl_record(_new_id(image, random), acl) for acl in new if acl not in existing]
    if len(records) > RECORDS_MAX:
        refusal = Refusal(ErrorCode.POLICY_VIOLATION, f"More than {RECORDS_MAX} ACLs in a request")
        results = [_creation_result(refusal) for _ in results]
        records = []
    return Decision(records, CreateAclsResponse(results=results))


def acl_record(acl_id: Uuid, acl: Acl) -> Versioned:
    """Return the record of a new entry."""
    record = AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
    return Versioned(record, 0)


def _new_id(image: Image, random: Random) -> Uuid:
    while (acl_id := random.uuid()) in image.acls:
        pass
    return acl_id


def _acl(creation: AclCreation) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        canonical_host(creation.host),
        creation.operation,
        creation.permission_type,
    )


def _creation_result(refusal: Refusal | None) -> AclCreationResult:
    if refusal is None:
        return AclCreationResult(error_message=None)
    return AclCreationResult(error_code=refusal.code, error_message=refusal.message)


def refuse_acl(acl: Acl) -> Refusal | None:
    """Return why an entry is invalid, or None."""
    reason = _reason_of_numbers(acl) or _reason_of_names(acl)
    return None if reason is None else Refusal(ErrorCode.INVALID_REQUEST, reason)


def refuse_range(host: str, level: MetadataVersion) -> Refusal | None:
    """Return why a range of addresses cannot be the host of an entry, or None (KIP-1276).

    Older nodes would compare it as if it were one address, so that it never matched.
    """
    if not is_range(host):
        return None
    if not level.is_cidr_acl_host_supported():
        needed = MetadataVersion.IBP_4_4_IV1
        text = f"CIDR-based ACL host patterns require metadata version {needed} or higher."
        return Refusal(ErrorCode.UNSUPPORTED_VERSION, text)
    try:
        parse_range(host)
    except ValueError:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Invalid CIDR notation: {host[:300]}")
    return None


def _reason_of_numbers(acl: Acl) -> str | None:
    if not _is_definite(ResourceType, acl.resource_type):
        return f"invalid resource type of an ACL: {acl.resource_type}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"invalid pattern type of an ACL: {acl.pattern_type}"
    if not _is_definite(AclOperation, acl.operation):
        return f"invalid operation of an ACL: {acl.operation}"
    if acl.permission_type not in (PermissionType.DENY, PermissionType.ALLOW):
        return f"invalid permission type of an ACL: {acl.permission_type}"
    return None


def _is_definite(kind: type[enum.IntEnum], number: int) -> bool:
    return number in kind._value2member_map_ and number != ResourceType.ANY


def _reason_of_names(acl: Acl) -> str | None:
    if not acl.resource_name:
        return "the resource name is empty"
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"a cluster resource must be named {CLUSTER_NAME}"
    if ":" not in acl.principal:
        return f"the principal {acl.principal[:300]!r} has no colon after its type"
    return None


# -- delete --------------------------------------------------------------------------------------


def decide_delete_acls(image: Image, request: DeleteAclsRequest) -> Decision[DeleteAclsResponse]:
    """Remove the entries that filters match; one matched by two filters is removed once."""
    removed: dict[Uuid, None] = {}
    results = []
    entries = _Entries(image)
    matches = 0
    for request_filter in request.filters:
        acl_filter = _filter(request_filter)
        refusal = _refuse_filter(acl_filter)
        if refusal is not None:
            results.append(_refused(refusal))
            continue
        found = entries.matching(acl_filter)
        matches += len(found)
        if matches > MATCHES_MAX:
            break
        removed.update((acl_id, None) for acl_id, _ in found)
        matching = [_matching(acl) for _, acl in found]
        results.append(DeleteAclsFilterResult(error_message=None, matching_acls=matching))
    if len(removed) > RECORDS_MAX or matches > MATCHES_MAX:
        message = f"Cannot remove more than {RECORDS_MAX} ACLs at once"
        refusal = Refusal(ErrorCode.INVALID_REQUEST, message)
        refused = [_refused(refusal)] * len(request.filters)
        return Decision([], DeleteAclsResponse(filter_results=refused))
    records = [Versioned(RemoveAccessControlEntryRecord(acl_id), 0) for acl_id in removed]
    return Decision(records, DeleteAclsResponse(filter_results=results))


def _filter(request_filter: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    host = request_filter.host_filter
    return AclFilter(
        request_filter.resource_type_filter,
        request_filter.resource_name_filter,
        request_filter.pattern_type_filter,
        request_filter.principal_filter,
        None if host is None else canonical_host(host),
        request_filter.operation,
        request_filter.permission_type,
    )


def _refuse_filter(acl_filter: AclFilter) -> Refusal | None:
    for kind, number in (
        (ResourceType, acl_filter.resource_type),
        (PatternType, acl_filter.pattern_type),
        (AclOperation, acl_filter.operation),
        (PermissionType, acl_filter.permission_type),
    ):
        if number not in kind._value2member_map_:
            message = f"{kind.__name__} {number} is unknown"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    return None


class _Entries:
    """The entries of an image, by what filters usually name.

    A request may have thousands of filters: each looks only at the entries with its resource name
    or principal, and equal filters look once.
    """

    def __init__(self, image: Image) -> None:
        self._all = list(image.acls.items())
        self._by_name: dict[str, list[tuple[Uuid, Acl]]] | None = None
        self._by_principal: dict[str, list[tuple[Uuid, Acl]]] = {}
        self._found: dict[AclFilter, list[tuple[Uuid, Acl]]] = {}

    def matching(self, acl_filter: AclFilter) -> list[tuple[Uuid, Acl]]:
        """Return the entries that a filter matches, in the order of their ids."""
        found = self._found.get(acl_filter)
        if found is None:
            candidates = self._candidates(acl_filter)
            found = sorted(entry for entry in candidates if acl_filter.matches(entry[1]))
            self._found[acl_filter] = found
        return found

    def _candidates(self, acl_filter: AclFilter) -> list[tuple[Uuid, Acl]]:
        if not self._found:
            return self._all  # most requests have one filter
        if self._by_name is None:
            self._by_name = {}
            for entry in self._all:
                self._by_name.setdefault(entry[1].resource_name, []).append(entry)
                self._by_principal.setdefault(entry[1].principal, []).append(entry)
        name = acl_filter.resource_name
        if name is not None and acl_filter.pattern_type != PatternType.MATCH:
            return self._by_name.get(name, [])
        if acl_filter.principal is not None:
            return self._by_principal.get(acl_filter.principal, [])
        return self._all


def _refused(refusal: Refusal) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=refusal.code, error_message=refusal.message)


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


# -- no authorizer -------------------------------------------------------------------------------

UNKNOWN = 0
NO_AUTHORIZER = Refusal(ErrorCode.SECURITY_DISABLED, "No authorizer is configured.")


def refuse_create_acls(request: CreateAclsRequest) -> Decision[CreateAclsResponse]:
    """Reject every entry: ACLs that are not enforced would only look like security."""
    results = [_creation_result(NO_AUTHORIZER) for _ in request.creations]
    return Decision([], CreateAclsResponse(results=results))


def refuse_delete_acls(request: DeleteAclsRequest) -> Decision[DeleteAclsResponse]:
    """Reject every filter."""
    results = [_refused(NO_AUTHORIZER) for _ in request.filters]
    return Decision([], DeleteAclsResponse(filter_results=results))


def refuse_describe_acls(request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Reject a filter; one of a type unknown to the client itself is rejected for that."""
    acl_filter = _filter(request)
    kinds = (
        acl_filter.resource_type,
        acl_filter.pattern_type,
        acl_filter.operation,
        acl_filter.permission_type,
    )
    refusal = (_refuse_filter(acl_filter) if UNKNOWN in kinds else None) or NO_AUTHORIZER
    return DescribeAclsResponse(error_code=refusal.code, error_message=refusal.message)


# -- describe ------------------------------------------------------------------------------------


def describe_acls(image: Image, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Return the entries that a filter matches, grouped by resource."""
    acl_filter = _filter(request)
    refusal = _refuse_filter(acl_filter)
    if refusal is not None:
        return DescribeAclsResponse(error_code=refusal.code, error_message=refusal.message)
    acls = (acl for _, acl in _Entries(image).matching(acl_filter))
    return DescribeAclsResponse(error_message=None, resources=_by_resource(acls))


def _by_resource(acls: Iterable[Acl]) -> list[DescribeAclsResource]:
    resources: dict[tuple[int, int, str], list[AclDescription]] = {}
    for acl in acls:
        entry = AclDescription(acl.principal, acl.host, acl.operation, acl.permission_type)
        of = (acl.resource_type, acl.pattern_type, acl.resource_name)
        resources.setdefault(of, []).append(entry)
    return [
        DescribeAclsResource(kind, name, pattern, resources[kind, pattern, name])
        for kind, pattern, name in sorted(resources)
    ]
