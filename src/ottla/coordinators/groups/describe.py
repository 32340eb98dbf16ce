"""ListGroups and DescribeGroups, from the committed view; classic groups are shown live."""

from collections.abc import Iterable

from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicState
from ottla.coordinators.groups.machine import GroupsView
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.protocol.messages.list_groups import ListedGroup

# From this version on a missing group is an error (KIP-1043); before it was "Dead".
_NOT_FOUND_FROM = 6


def list_groups(view: GroupsView, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
    """Return the groups in one of the states and of one of the types; an empty filter means all.

    Filters ignore case, as in Kafka (KIP-518, KIP-848).
    """
    wanted_states = {state.lower() for state in states}
    wanted_types = {kind.lower() for kind in types}
    found: list[ListedGroup] = []
    for group_id in sorted(view.groups):
        group = view.groups[group_id]
        state, kind = group.state_name(), group.type.value
        if wanted_states and state.lower() not in wanted_states:
            continue
        if wanted_types and kind not in wanted_types:
            continue
        found.append(ListedGroup(group_id, group.protocol_type(), state, kind))
    return found


def describe_group(view: GroupsView, group_id: str, version: int) -> DescribedGroup:
    """Describe a classic group; one that is missing or of another kind is dead."""
    group = view.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        dead = DescribedGroup(group_id=group_id, group_state=ClassicState.DEAD.value)
        if version >= _NOT_FOUND_FROM:
            dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            dead.error_message = f"Group {group_id} not found."
        return dead
    is_stable = group.state is ClassicState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name(),
        protocol_type=group.protocol_type(),
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.metadata(group.protocol or "") if is_stable else b"",
                each.assignment,
            )
            for each in group.members.values()
        ],
    )
