"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets (KIP-932)."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from ottla.api.groups.group_access import ALLOW_ALL, GroupAccess
from ottla.api.surface.routes import Caller
from ottla.coordinators.groups.errors import InvalidGroupId
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.service import ShareGroups
from ottla.coordinators.share_state.state import ShareKey
from ottla.metadata.image import Image
from ottla.metadata.topics import Topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, NotAuthorized
from ottla.protocol.messages import alter_share_group_offsets as altering
from ottla.protocol.messages import delete_share_group_offsets as deleting
from ottla.protocol.messages import describe_share_group_offsets as describing
from ottla.protocol.types import TopicIdPartition

NO_LAG = -1


class PartitionEnds(Protocol):
    """Returns high watermarks of partitions on any leader."""

    async def ends(self, topic: Topic, indexes: Iterable[int]) -> Mapping[int, int]:
        """Return the high watermarks; unknown ones are left out."""
        ...


class ShareOffsetHandlers(msgspec.Struct, frozen=True):
    """The handlers of one broker. The lag is known where the leader returns its end."""

    shares: ShareGroups
    ends: PartitionEnds
    image: Callable[[], Image]
    access: GroupAccess = ALLOW_ALL

    # -- describe ------------------------------------------------------------------

    async def on_describe(
        self, caller: Caller, request: describing.DescribeShareGroupOffsetsRequest, version: int
    ) -> describing.DescribeShareGroupOffsetsResponse:
        """DescribeShareGroupOffsets."""
        groups = [await self._described(caller, each) for each in request.groups]
        return describing.DescribeShareGroupOffsetsResponse(groups=groups)

    async def _described(
        self, caller: Caller, asked: describing.DescribeShareGroupOffsetsRequestGroup
    ) -> describing.DescribeShareGroupOffsetsResponseGroup:
        reply = describing.DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
        if not self.access.describe_group(caller, asked.group_id):
            reply.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return reply
        try:
            if not asked.group_id:
                raise InvalidGroupId("The group id must not be empty.")
            group = self.shares.group(asked.group_id)
        except Fault as fault:
            reply.error_code, reply.error_message = fault.code, str(fault)
            return reply
        # A group that does not exist has no offsets, which is not an error.
        everything = () if group is None else _all_of(group, self.image())
        wanted = everything if asked.topics is None else asked.topics
        hidden = {
            name
            for name in dict.fromkeys(each.topic_name for each in wanted)
            if not self.access.describe_topic(caller, name)
        }
        seen = _once(each for each in wanted if each.topic_name not in hidden)
        reply.topics = [await self._topic(asked.group_id, each) for each in seen]
        if asked.topics is not None:  # otherwise the client named none, and learns of none
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            reply.topics += [
                _without_offsets(each, refused)
                for each in asked.topics
                if each.topic_name in hidden
            ]
        return reply

    async def _topic(
        self, group_id: str, asked: describing.DescribeShareGroupOffsetsRequestTopic
    ) -> describing.DescribeShareGroupOffsetsResponseTopic:
        """Describe one topic; one that does not exist has no offsets, which is not an error."""
        topic = self.image().topics.named(asked.topic_name)
        if topic is None:
            return _without_offsets(asked, ErrorCode.NONE)
        ends = await self.ends.ends(topic, asked.partitions)
        found = await asyncio.gather(
            *(
                self._partition(ShareKey(group_id, topic.id, index), ends.get(index))
                for index in asked.partitions
            )
        )
        return describing.DescribeShareGroupOffsetsResponseTopic(topic.name, topic.id, list(found))

    async def _partition(
        self, key: ShareKey, end: int | None
    ) -> describing.DescribeShareGroupOffsetsResponsePartition:
        found = await self.shares.summary(key)
        row = describing.DescribeShareGroupOffsetsResponsePartition(
            partition_index=key.partition, error_code=found.code, start_offset=-1
        )
        if found.code is ErrorCode.NONE:
            state = found.state
            row.start_offset, row.leader_epoch = state.start_offset, state.leader_epoch
            row.lag = lag_of(end, state.start_offset, state.delivery_complete_count)
        return row

    # -- alter ---------------------------------------------------------------------

    async def on_alter(
        self, caller: Caller, request: altering.AlterShareGroupOffsetsRequest, version: int
    ) -> altering.AlterShareGroupOffsetsResponse:
        """AlterShareGroupOffsets; a group with members is rejected."""
        image = self.image()
        starts: dict[TopicIdPartition, int] = {}
        for topic in request.topics:
            known = image.topics.named(topic.topic_name)
            if known is not None and self.access.read_topic(caller, topic.topic_name):
                for each in topic.partitions:
                    if each.partition_index in known.partitions:
                        place = TopicIdPartition(known.id, each.partition_index)
                        starts[place] = each.start_offset
        try:
            if not self.access.read_group(caller, request.group_id):
                raise NotAuthorized(f"{caller.principal} may not change {request.group_id!r}")
            codes = await self.shares.alter(request.group_id, starts)
        except Fault as fault:
            return altering.AlterShareGroupOffsetsResponse(
                error_code=fault.code, error_message=str(fault)
            )
        return altering.AlterShareGroupOffsetsResponse(
            responses=[self._altered(caller, image, each, codes) for each in _by_topic(request)]
        )

    def _altered(
        self,
        caller: Caller,
        image: Image,
        topic: altering.AlterShareGroupOffsetsRequestTopic,
        codes: dict[TopicIdPartition, ErrorCode],
    ) -> altering.AlterShareGroupOffsetsResponseTopic:
        refused = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not self.access.read_topic(caller, topic.topic_name):
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        reply = altering.AlterShareGroupOffsetsResponseTopic(topic.topic_name)
        known = image.topics.named(topic.topic_name)
        if known is not None:
            reply.topic_id = known.id
        for each in topic.partitions:
            code = codes.get(TopicIdPartition(reply.topic_id, each.partition_index), refused)
            row = altering.AlterShareGroupOffsetsResponsePartition(each.partition_index, code)
            row.error_message = _message(code)
            reply.partitions.append(row)
        return reply

    # -- delete --------------------------------------------------------------------

    async def on_delete(
        self, caller: Caller, request: deleting.DeleteShareGroupOffsetsRequest, version: int
    ) -> deleting.DeleteShareGroupOffsetsResponse:
        """DeleteShareGroupOffsets; a group with members is rejected."""
        image = self.image()
        names = list(dict.fromkeys(topic.topic_name for topic in request.topics))
        allowed = (name for name in names if self.access.read_topic(caller, name))
        known = [topic for name in allowed if (topic := image.topics.named(name)) is not None]
        try:
            if not self.access.delete_group(caller, request.group_id):
                raise NotAuthorized(f"{caller.principal} may not change {request.group_id!r}")
            codes = await self.shares.delete(request.group_id, [topic.id for topic in known])
        except Fault as fault:
            return deleting.DeleteShareGroupOffsetsResponse(
                error_code=fault.code, error_message=str(fault)
            )
        ids = {topic.name: topic.id for topic in known}
        reply = deleting.DeleteShareGroupOffsetsResponse()
        for name in names:
            row = deleting.DeleteShareGroupOffsetsResponseTopic(name)
            if name in ids:
                row.error_code = codes[ids[name]]
                if row.error_code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    row.topic_id = ids[name]
            else:
                may = self.access.read_topic(caller, name)
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                row.error_code = unknown if may else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            row.error_message = _message(ErrorCode(row.error_code))
            reply.responses.append(row)
        return reply


def _message(code: ErrorCode) -> str | None:
    """Return the message beside an error code; clients of Kafka get one."""
    return None if code is ErrorCode.NONE else code.name


def _without_offsets(
    asked: describing.DescribeShareGroupOffsetsRequestTopic, code: ErrorCode
) -> describing.DescribeShareGroupOffsetsResponseTopic:
    """Return a topic whose partitions have no offsets, with the same code each."""
    rows = [
        describing.DescribeShareGroupOffsetsResponsePartition(
            index, start_offset=-1, lag=NO_LAG, error_code=code, error_message=_message(code)
        )
        for index in asked.partitions
    ]
    return describing.DescribeShareGroupOffsetsResponseTopic(asked.topic_name, partitions=rows)


def lag_of(end: int | None, start: int, finished: int) -> int:
    """Return how many records are not finished yet, if start, end and finished count are known."""
    if end is None or start < 0 or finished < 0:
        return NO_LAG
    return max(0, end - start - finished)


def _once(
    topics: Iterable[describing.DescribeShareGroupOffsetsRequestTopic],
) -> list[describing.DescribeShareGroupOffsetsRequestTopic]:
    """Return each topic and each of its partitions once, in the order of the request."""
    found: dict[str, dict[int, None]] = {}
    for topic in topics:
        found.setdefault(topic.topic_name, {}).update(dict.fromkeys(topic.partitions))
    return [
        describing.DescribeShareGroupOffsetsRequestTopic(name, list(indexes))
        for name, indexes in found.items()
    ]


def _by_topic(
    request: altering.AlterShareGroupOffsetsRequest,
) -> list[altering.AlterShareGroupOffsetsRequestTopic]:
    """Return each topic once, with all of its requested partitions."""
    found: dict[str, altering.AlterShareGroupOffsetsRequestTopic] = {}
    for topic in request.topics:
        name = topic.topic_name
        row = found.setdefault(name, altering.AlterShareGroupOffsetsRequestTopic(name, []))
        row.partitions.extend(topic.partitions)
    return list(found.values())


def _all_of(
    group: ShareGroup, image: Image
) -> Iterable[describing.DescribeShareGroupOffsetsRequestTopic]:
    """Return a request for all partitions that a group has state of."""
    found: dict[str, list[int]] = {}
    for topic_id, index in sorted(group.initialized):
        topic = image.topics.by_id.get(topic_id)
        if topic is not None:
            found.setdefault(topic.name, []).append(index)
    return [
        describing.DescribeShareGroupOffsetsRequestTopic(name, indexes)
        for name, indexes in found.items()
    ]
