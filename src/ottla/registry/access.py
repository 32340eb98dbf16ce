"""Who may do what with which subject, by the cluster's own ACLs.

A subject is a resource of type TOPIC with the name ``_schemas:SUBJECT``, which no topic can have.
An ACL may name a prefix of it. Settings and modes of the registry, or of a context, belong to the
cluster.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from ottla.registry.http_call import Identity
from ottla.registry.rules.errors import Rejection
from ottla.registry.rules.records import TOPIC
from ottla.registry.rules.subjects import parse_subject
from ottla.security.acl import CLUSTER_NAME, AclOperation, ResourceType, Subject

PREFIX: Final = f"{TOPIC}:"


def resource_name(subject: str) -> str:
    """Return the name of a subject's resource."""
    return PREFIX + subject


class Decides(msgspec.Struct, frozen=True):
    """Asks the authorizer; ``allows`` is None where everybody may do everything."""

    allows: Callable[[Subject, AclOperation, ResourceType, str, bool], bool] | None = None

    def may(
        self, identity: Identity, operation: AclOperation, subject: str, *, is_audited: bool = True
    ) -> bool:
        """Say whether a client may carry out an operation on a subject."""
        return self._asks(identity, operation, ResourceType.TOPIC, resource_name(subject),
                          is_audited=is_audited)  # fmt: skip

    def check(self, identity: Identity, operation: AclOperation, subject: str) -> None:
        """Raise a Rejection unless a client may carry out an operation on a subject."""
        if not self.may(identity, operation, subject):
            raise _denied(operation, f"Subject: {subject}")

    def check_settings(
        self, identity: Identity, operation: AclOperation, subject: str | None
    ) -> None:
        """Raise a Rejection unless a client may see or change settings; None: the registry's."""
        if subject is not None and parse_subject(subject).subject:
            self.check(identity, operation, subject)
        elif not self._asks(identity, operation, ResourceType.CLUSTER, CLUSTER_NAME):
            raise _denied(operation, "the schema registry")

    def _asks(
        self,
        identity: Identity,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_audited: bool = True,
    ) -> bool:
        if self.allows is None:
            return True
        who = Subject(identity.principal, identity.host)
        return self.allows(who, operation, resource_type, name, is_audited)


def _denied(operation: AclOperation, resource: str) -> Rejection:
    name = operation.name.replace("_", " ").title().replace(" ", "")
    return Rejection(40301, f"User is denied operation {name} on {resource}")
