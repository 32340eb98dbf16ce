"""Replies to describe requests for groups with epochs."""

from collections.abc import Callable
from typing import TypeVar

from ottla.coordinators.groups.kind import Group
from ottla.protocol.errors import ErrorCode

DescribedT = TypeVar("DescribedT")


def describe_not_found(
    described: Callable[..., DescribedT], kind: str, group_id: str, group: Group | None
) -> DescribedT:
    """Return the reply for a group that is missing or of another kind than ``kind``."""
    why = "not found" if group is None else f"is not a {kind} group"
    return described(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {why}.",
        group_id=group_id,
    )
