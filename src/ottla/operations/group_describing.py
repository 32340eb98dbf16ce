"""Group descriptions for ``ottla group`` and ``ottla share``."""

from collections.abc import Mapping

from ottla.client.admin_groups import (
    SHARE,
    STREAMS,
    GroupDescription,
    GroupListing,
    committed_offsets,
    describe_group,
)
from ottla.client.admin_share import share_offsets
from ottla.client.cluster import Cluster
from ottla.client.group_members import GroupMember
from ottla.client.offset_spec import LATEST
from ottla.client.offsets import list_offsets
from ottla.operations.rows import Plain, Row
from ottla.protocol.types import TopicPartition


def listed(group: GroupListing) -> Row:
    """Return a group as a row of a list."""
    return {
        "group": group.group_id,
        "type": group.type or None,
        "protocol": group.protocol or None,
        "state": group.state,
        "coordinator": group.coordinator,
    }


async def described(cluster: Cluster, group_id: str) -> Row:
    """Return a group's description: its state, members and offsets."""
    group = await describe_group(cluster, group_id)
    if group.type == SHARE:
        offsets = await _shared(cluster, group)
    else:
        offsets = await _committed(cluster, group)
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "coordinator": group.coordinator,
        "assignor": group.assignor or None,
        "epoch": group.epoch,
        "lag": _sum(offsets),
        "members": [member_row(each) for each in group.members],
        "offsets": offsets,
    }


def member_row(member: GroupMember) -> Row:
    """Return a member as a row."""
    row: dict[str, Plain] = {
        "member": member.member_id,
        "client": member.client_id,
        "host": member.host,
        "instance": member.instance_id,
        "epoch": member.epoch,
        "topics": list(member.subscription),
        "assigned": {name: list(numbers) for name, numbers in member.assigned.items()},
    }
    if member.target is not None and not member.is_settled:
        row["target"] = {name: list(numbers) for name, numbers in member.target.items()}
    return row


async def _committed(cluster: Cluster, group: GroupDescription) -> list[Row]:
    """Return committed and assigned partitions with their lag."""
    committed = await committed_offsets(cluster, group.group_id)
    readers = {} if group.type == STREAMS else _readers(group)
    places = sorted({*committed, *readers})
    ends = await list_offsets(cluster, dict.fromkeys(places, LATEST))
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "committed": committed.get(place),
            "end": ends[place],
            "lag": _lag(committed.get(place), ends[place]),
            "member": readers.get(place),
        }
        for place in places
    ]


def _readers(group: GroupDescription) -> Mapping[TopicPartition, str]:
    return {
        TopicPartition(topic, number): member.member_id
        for member in group.members
        for topic, numbers in member.assigned.items()
        for number in numbers
    }


def _lag(committed: int | None, end: int | None) -> int | None:
    return None if committed is None or end is None else max(0, end - committed)


async def _shared(cluster: Cluster, group: GroupDescription) -> list[Row]:
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "start": each.start,
            "lag": each.lag,
        }
        for place, each in (await share_offsets(cluster, group.group_id)).items()
    ]


def _sum(offsets: list[Row]) -> int | None:
    """Return the total lag of the partitions whose lag is known."""
    known = [lag for each in offsets if isinstance(lag := each["lag"], int)]
    return sum(known) if known else None
