"""Asks the node's authorizer about the sender of a request.

One `Access` serves all listeners of a node. Without an authorizer it allows everything, and hands
out the constant `everybody`, by which fast paths know that there is nothing to look up.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ottla.api.groups.group_access import GroupAccess, May, everybody
from ottla.api.security.access_decisions import ProduceAccess
from ottla.api.security.authorized_operations import OPERATIONS, bit_of
from ottla.api.surface.routes import Caller
from ottla.api.surface.row import Check
from ottla.api.transactions.transaction_access import TransactionAccess, anybody
from ottla.metadata.configs import ConfigResourceType
from ottla.protocol.errors import ErrorCode
from ottla.security.acl import CLUSTER_NAME, AclOperation, ResourceType, Subject

# Loaded where one is configured.
if TYPE_CHECKING:
    from ottla.security.authorizer import Authorizer

MayOnCluster = Callable[[Caller], bool]

_CLUSTER: Final = ResourceType.CLUSTER
_REFUSED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


class Access:
    """The decisions of one authorizer about callers."""

    def __init__(self, authorizer: "Authorizer | None" = None) -> None:
        self._authorizer = authorizer

    @property
    def is_enabled(self) -> bool:
        """Whether ACLs are enforced; if not, everything is allowed."""
        return self._authorizer is not None and self._authorizer.is_enabled

    def version(self) -> int:
        """Return a number that changes with every change of the decisions."""
        return 0 if self._authorizer is None else self._authorizer.version

    def allows(
        self,
        caller: Caller,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_audited: bool = True,
    ) -> bool:
        """Say whether the caller may carry out the operation on one resource."""
        return self._authorizer is None or self._authorizer.allows(
            Subject(caller.principal, caller.peer.host),
            operation,
            resource_type,
            name,
            is_audited=is_audited,
        )

    def allows_any(
        self, caller: Caller, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Say whether the caller may carry out the operation on some resource of the type."""
        return self._authorizer is None or self._authorizer.allows_any(
            Subject(caller.principal, caller.peer.host), operation, resource_type
        )

    def passes(self, caller: Caller, checks: Iterable[Check]) -> bool:
        """Say whether the caller passes checks on the cluster."""
        for check in checks:
            *others, last = (permission.operation for permission in check.permissions)
            if not (
                any(
                    self.allows(caller, each, _CLUSTER, CLUSTER_NAME, is_audited=False)
                    for each in others
                )
                or self.allows(caller, last, _CLUSTER, CLUSTER_NAME)
            ):
                return False
        return True

    # -- for the hooks of handlers ------------------------------------------------

    def may(
        self, operation: AclOperation, resource_type: ResourceType, *, is_audited: bool = True
    ) -> May:
        """Return the decision about one operation, by caller and name."""
        if not self.is_enabled:
            return everybody

        def decide(caller: Caller, name: str) -> bool:
            return self.allows(caller, operation, resource_type, name, is_audited=is_audited)

        return decide

    def may_on_cluster(self, operation: AclOperation, *, is_audited: bool = True) -> MayOnCluster:
        """Return the decision about one operation on the cluster, by caller."""
        if not self.is_enabled:
            return anybody

        def decide(caller: Caller) -> bool:
            return self.allows(caller, operation, _CLUSTER, CLUSTER_NAME, is_audited=is_audited)

        return decide

    def may_create_topic(self, caller: Caller, name: str) -> bool:
        """Say whether the caller may create a topic: by the cluster, or by the topic."""
        create = AclOperation.CREATE
        return self.allows(caller, create, _CLUSTER, CLUSTER_NAME, is_audited=False) or self.allows(
            caller, create, ResourceType.TOPIC, name
        )

    def may_compare_epochs(self, caller: Caller, topic: str) -> bool:
        """Say whether the caller may ask for the ends of leader epochs: nodes and readers may."""
        return self.allows(
            caller, AclOperation.CLUSTER_ACTION, _CLUSTER, CLUSTER_NAME, is_audited=False
        ) or self.allows(caller, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)

    def may_init_producer(self, caller: Caller) -> bool:
        """Say whether the caller may get a producer id without a transactional id."""
        return self.allows_any(caller, AclOperation.WRITE, ResourceType.TOPIC) or self.allows(
            caller, AclOperation.IDEMPOTENT_WRITE, _CLUSTER, CLUSTER_NAME
        )

    def refuse_configs(
        self, caller: Caller, operation: AclOperation, kind: int, name: str
    ) -> ErrorCode | None:
        """Return the error of a caller that may not see or change a resource's configuration."""
        match kind:
            case ConfigResourceType.TOPIC:
                resource_type = ResourceType.TOPIC
            case ConfigResourceType.GROUP:
                resource_type = ResourceType.GROUP
            case _:
                resource_type, name = _CLUSTER, CLUSTER_NAME
        if self.allows(caller, operation, resource_type, name):
            return None
        return _REFUSED[resource_type]

    def operations(self, caller: Caller, resource_type: ResourceType, name: str) -> int:
        """Return the operations that the caller may carry out on a resource, as bits (KIP-430)."""
        return sum(
            bit_of(operation)
            for operation in OPERATIONS[resource_type]
            if self.allows(caller, operation, resource_type, name, is_audited=False)
        )

    # -- for families of handlers -------------------------------------------------

    def of_groups(self) -> GroupAccess:
        """Return the decisions about groups and the topics they read."""
        group, topic = ResourceType.GROUP, ResourceType.TOPIC
        return GroupAccess(
            read_group=self.may(AclOperation.READ, group),
            describe_group=self.may(AclOperation.DESCRIBE, group),
            delete_group=self.may(AclOperation.DELETE, group),
            read_topic=self.may(AclOperation.READ, topic),
            describe_topic=self.may(AclOperation.DESCRIBE, topic),
            describe_transactional_id=self.may(
                AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID
            ),
            describe_cluster=self.may_on_cluster(AclOperation.DESCRIBE, is_audited=False),
            cluster_action=self.may_on_cluster(AclOperation.CLUSTER_ACTION),
            version=self.version,
            group_operations=lambda caller, name: self.operations(caller, group, name),
        )

    def of_transactions(self) -> TransactionAccess:
        """Return the decisions about transactional ids."""
        transactional_id = ResourceType.TRANSACTIONAL_ID
        return TransactionAccess(
            write_transactional_id=self.may(AclOperation.WRITE, transactional_id),
            describe_transactional_id=self.may(AclOperation.DESCRIBE, transactional_id),
            write_topic=self.may(AclOperation.WRITE, ResourceType.TOPIC),
            describe_topic=self.may(AclOperation.DESCRIBE, ResourceType.TOPIC, is_audited=False),
            read_topic=self.may(AclOperation.READ, ResourceType.TOPIC),
            read_group=self.may(AclOperation.READ, ResourceType.GROUP),
            cluster_action=self.may_on_cluster(AclOperation.CLUSTER_ACTION),
            alter_cluster=self.may_on_cluster(AclOperation.ALTER, is_audited=False),
            init_producer=self.may_init_producer,
        )

    def of_produce(self) -> ProduceAccess:
        """Return the decisions of Produce."""
        return ProduceAccess(
            self.may(AclOperation.WRITE, ResourceType.TOPIC),
            self.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
            self.version,
        )


OPEN: Final = Access()
"""Allows everything: a node without ``authorizer.class.name``."""
