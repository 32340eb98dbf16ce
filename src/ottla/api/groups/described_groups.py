"""Describes consumer, share and streams groups, as committed, to authorized clients.

Checked in Kafka's order: may the caller describe the group, is its id valid, does it exist, may the
caller describe every topic it reads. An error is for one group, not for the others.
"""

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

from ottla.api.groups.group_access import GroupAccess, message_of
from ottla.api.surface.routes import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault


class Described(Protocol):
    """The fields that the replies for every kind of group have."""

    error_code: int
    authorized_operations: int


class Asked(Protocol):
    """The fields that the requests for every kind of group have."""

    group_ids: list[str]
    include_authorized_operations: bool


Group = TypeVar("Group", bound=Described)


class Describing(msgspec.Struct, Generic[Group], frozen=True):
    """Describes groups of one kind. ``hidden`` is the error message for hidden topics."""

    refused: Callable[[int, str | None, str], Group]
    find: Callable[[str], Group]
    topics_of: Callable[[Group], Iterable[str]]
    hidden: str = "The group has described topic(s) that the client is not authorized to describe."

    def answer(self, access: GroupAccess, caller: Caller, request: Asked) -> list[Group]:
        """Return a description or an error for every requested group."""
        groups = [self._one(access, caller, group_id) for group_id in request.group_ids]
        if request.include_authorized_operations:
            for group_id, group in zip(request.group_ids, groups, strict=True):
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = access.group_operations(caller, group_id)
        return groups

    def _one(self, access: GroupAccess, caller: Caller, group_id: str) -> Group:
        if not access.describe_group(caller, group_id):
            return self.refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, None, group_id)
        if not group_id:
            return self.refused(ErrorCode.INVALID_GROUP_ID, None, group_id)
        try:
            found = self.find(group_id)
        except Fault as fault:
            return self.refused(fault.code, message_of(fault), group_id)
        if all(access.describe_topic(caller, t) for t in dict.fromkeys(self.topics_of(found))):
            return found
        return self.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, self.hidden, group_id)
