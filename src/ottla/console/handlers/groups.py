"""Groups of all kinds: members, lag, why they wait, resets."""

from typing import Final

from ottla.client.admin_groups import (
    SHARE,
    GroupListing,
    commit_offsets,
    committed_offsets,
    delete_groups,
    find_group,
    list_groups,
)
from ottla.client.admin_share import alter_share_offsets, share_offsets
from ottla.client.cluster import Cluster
from ottla.console.endpoints import Call, Done, Rejected, Result
from ottla.console.handlers.answers import or_else
from ottla.console.handlers.messages import parse_moment
from ottla.console.handlers.topics import confirm, list_query
from ottla.console.paging import select
from ottla.console.segments import path_of
from ottla.operations.group_describing import described, listed
from ottla.operations.group_explaining import explained
from ottla.operations.reset_plan import (
    BadReset,
    PlannedOffset,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    parse_topics,
)
from ottla.operations.resetting import Resetting, plan_of
from ottla.operations.rows import Row
from ottla.protocol.types import TopicPartition

TARGETS: Final = ("earliest", "latest", "offset", "time", "shift")


async def groups(call: Call) -> Row:
    """Return a page of the list of groups."""
    groups = await list_groups(call.cluster)
    kind = call.text("type")
    shown = [group for group in groups if kind in ("", group.type)]
    page, paging = select(
        shown,
        list_query(call),
        lambda group: group.group_id,
        {
            "group": lambda group: group.group_id,
            "type": lambda group: group.type,
            "state": lambda group: group.state,
        },
    )
    return {"groups": [listed(group) for group in page], "paging": paging, "type": kind}


async def group(call: Call) -> Row:
    """Return one group: members, assignment, lag, and what it waits for."""
    name = call.names["group"]
    row = await described(call.cluster, name)
    notes: list[str] = []
    explanation = await or_else(explained(call.cluster, name, notes.append), {"sentences": []})
    return {**row, "sentences": explanation["sentences"], "targets": list(TARGETS)}


async def explain(call: Call) -> Row:
    """Return why a group waits, from the history of its coordinator."""
    notes: list[str] = []
    row = await explained(call.cluster, call.names["group"], notes.append)
    return {**row, "notes": notes}


async def reset(call: Call) -> Result:
    """Return the new offsets of a group; with ``execute``, commit them."""
    name = call.names["group"]
    group = await find_group(call.cluster, name)
    current = await _current(call.cluster, group)
    planned = await _planned(call, name, current)
    fields = {key: call.text(key) for key in ("to", "value", "topics")}
    if not call.flag("execute"):
        return {"group": name, "fields": fields, "planned": [planned_row(row) for row in planned]}
    if group.state not in ("Empty", "Dead"):
        raise Rejected(409, f"{name} is {group.state}; stop its members first.")
    offsets = {row.place: row.new for row in planned}
    if group.type == SHARE:
        refusals = await alter_share_offsets(call.cluster, name, offsets)
    else:
        refusals = await commit_offsets(call.cluster, name, offsets)
    for refused in refusals.values():
        if refused is not None:
            raise refused
    return Done(f"{len(offsets)} offsets of {name} were set.", path_of("/groups", name))


async def _current(cluster: Cluster, group: GroupListing) -> dict[TopicPartition, int]:
    if group.type == SHARE:
        shared = await share_offsets(cluster, group.group_id)
        return {place: row.start for place, row in shared.items() if row.start is not None}
    return dict(await committed_offsets(cluster, group.group_id))


async def _planned(
    call: Call, name: str, current: dict[TopicPartition, int]
) -> list[PlannedOffset]:
    try:
        topics = parse_topics(call.text("topics").split())
        resetting = Resetting(name, target_of(call), topics, not topics)
        return await plan_of(call.cluster, resetting, current)
    except BadReset as error:
        raise Rejected(400, str(error)) from error


def target_of(call: Call) -> Target:
    """Return the target of a reset. Raises `Rejected`."""
    match call.one_of("to", TARGETS):
        case "earliest":
            return ToEarliest()
        case "latest":
            return ToLatest()
        case "offset":
            return ToOffset(call.number("value", 0))
        case "time":
            return ToTime(parse_moment(call.required("value")))
        case _:
            return ShiftBy(call.number("value", 0, low=-(2**62), high=2**62))


def planned_row(row: PlannedOffset) -> Row:
    """Return a planned offset as a row."""
    return {
        "topic": row.place.topic,
        "partition": row.place.partition,
        "current": row.current,
        "new": row.new,
        "note": row.note,
    }


async def delete(call: Call) -> Done:
    """Delete a group, whose name was typed."""
    name = call.names["group"]
    confirm(call, name)
    for refused in (await delete_groups(call.cluster, [name])).values():
        if refused is not None:
            raise refused
    return Done(f"Group {name} was deleted.", "/groups")
