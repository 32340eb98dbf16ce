"""Authorization of requests about groups and the topics they read. Without an authorizer all are
allowed.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import msgspec

from ottla.api.security.authorized_operations import GROUP_OPERATIONS
from ottla.api.surface.routes import Caller
from ottla.protocol.faults import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    Fault,
    NotAuthorized,
    NotCoordinator,
    TopicNotAuthorized,
    UnsupportedVersion,
)

_SILENT: Final = (
    NotAuthorized,
    TopicNotAuthorized,
    UnsupportedVersion,
    NotCoordinator,
    CoordinatorLoading,
    CoordinatorNotAvailable,
)
May: TypeAlias = Callable[[Caller, str], bool]
"""Whether a caller is authorized, by the name of the group, topic or transactional id."""


def everybody(caller: Caller, name: str) -> bool:
    """Allow every caller."""
    return True


class GroupAccess(msgspec.Struct, frozen=True):
    """The checks, by Kafka's operations and resource types."""

    read_group: May = everybody
    describe_group: May = everybody
    delete_group: May = everybody
    read_topic: May = everybody
    describe_topic: May = everybody
    describe_transactional_id: May = everybody
    describe_cluster: Callable[[Caller], bool] = lambda caller: True
    cluster_action: Callable[[Caller], bool] = lambda caller: True
    # Changes whenever a decision may have changed; guards the decisions kept for fast paths.
    version: Callable[[], int] = lambda: 0
    # The bits of what a caller may do to a group, where DescribeGroups asks for them (KIP-430).
    group_operations: Callable[[Caller, str], int] = lambda caller, name: GROUP_OPERATIONS

    def check_member(self, caller: Caller, group_id: str, topics: Iterable[str]) -> None:
        """Check that the caller of a heartbeat may read the group and describe its topics.

        Raises:
            NotAuthorized, TopicNotAuthorized
        """
        if not self.read_group(caller, group_id):
            raise NotAuthorized(f"{caller.principal} may not read group {group_id!r}")
        for topic in dict.fromkeys(topics):
            if not self.describe_topic(caller, topic):
                raise TopicNotAuthorized(f"{caller.principal} may not describe {topic!r}")


def message_of(fault: Fault) -> str | None:
    """Return the message of a refused heartbeat or description of a group.

    As in Kafka, a denial has none, and neither has a protocol that is disabled or a coordinator
    that is elsewhere or not ready: clients have texts of their own for these.
    """
    return None if isinstance(fault, _SILENT) else str(fault)


ALLOW_ALL: Final = GroupAccess()
