"""A member of a consumer group (KIP-848): partitions are assigned to it, offsets committed.

    consumer = GroupConsumer(cluster, Subscription("readers", topics=("orders",)))
    try:
        for fetched in await consumer.poll():
            ...
        await consumer.commit()
    finally:
        await consumer.leave()

`poll` sends the heartbeats, so it must be called more often than the session times out (45 s by
default). A member that is fenced joins again, and reads from the committed offsets.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

import msgspec

from ottla.client.admin_groups import Member, commit_offsets, committed_offsets
from ottla.client.cluster import Cluster, Refused
from ottla.client.consumer import Reader, ReaderOptions, open_reader
from ottla.client.coordinators import (
    COORDINATOR_MOVED_OR_LOADING,
    CoordinatorType,
    ask_coordinator,
)
from ottla.client.fetched import Fetched
from ottla.client.offset_spec import BEGINNING, OffsetSpec
from ottla.client.offsets import resolve
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from ottla.protocol.types import NodeId, Offset, TopicPartition, Uuid
from ottla.protocol.uuids import uuid_text

LEAVING: Final = -1
JOINING: Final = 0
REBALANCE_MS: Final = 60_000
_FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
_IDLE_WAITS: Final = 3


class Subscription(msgspec.Struct, frozen=True):
    """What a member reads: topics by name, or all that match ``regex`` (in RE2's syntax).

    ``start`` is where partitions without a committed offset begin.
    """

    group_id: str
    topics: tuple[str, ...] = ()
    regex: str | None = None
    start: OffsetSpec = BEGINNING


class GroupConsumer:
    """A member of a group. It joins at the first `poll`."""

    def __init__(
        self, cluster: Cluster, subscription: Subscription, options: ReaderOptions | None = None
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._options = options or ReaderOptions()
        self._member = Member(uuid_text(cluster.ports.random.uuid()), JOINING)
        self._due = 0
        self._owned: dict[TopicPartition, Uuid] = {}
        self._waits = 0
        self._reader: Reader | None = None
        self._stack = AsyncExitStack()
        self._committed: dict[TopicPartition, Offset] = {}

    @property
    def assigned(self) -> Sequence[TopicPartition]:
        """The partitions of this member."""
        return tuple(self._owned)

    @property
    def is_at_end(self) -> bool:
        """Whether the group has settled, and every partition was read up to its end."""
        has_settled = self._member.epoch > 0 and self._waits >= _IDLE_WAITS
        return self._reader.is_at_end if self._reader is not None else has_settled

    async def poll(self) -> list[Fetched]:
        """Return the next records; empty if there are none yet. Errors as `Reader.poll`."""
        if self._cluster.ports.clock.monotonic() >= self._due:
            await self._beat()
        if self._reader is None:
            self._waits += 1
            await self._cluster.pause(1)
            return []
        return await self._reader.poll()

    async def commit(self) -> None:
        """Commit the position of every partition that has moved. Raises `Refused`."""
        if self._reader is None:
            return
        moved = {
            partition: offset
            for partition, offset in self._reader.positions.items()
            if self._committed.get(partition) != offset
        }
        if moved:
            done = await commit_offsets(
                self._cluster, self._subscription.group_id, moved, self._member
            )
            for refused in done.values():
                if refused is not None:
                    raise refused
            self._committed |= moved

    def stop_at(self, partition: TopicPartition, offset: Offset) -> None:
        """Continue, and commit, at an offset before records that were fetched and not used."""
        if self._reader is not None and partition in self._owned:
            self._reader.seek(partition, offset)

    async def leave(self) -> None:
        """Leave the group; its other members get the partitions."""
        await self._stack.aclose()
        self._reader = None
        if self._member.epoch > 0:
            self._member = Member(self._member.member_id, LEAVING)
            await self._send()

    # -- heartbeats --------------------------------------------------------------

    async def _beat(self) -> None:
        response = await self._send()
        if response.error_code in _FENCED:
            self._member = Member(self._member.member_id, JOINING)
            await self._assign({})
            return
        if response.error_code != ErrorCode.NONE:
            raise Refused(response.error_code, self._subscription.group_id, response.error_message)
        self._member = Member(response.member_id or self._member.member_id, response.member_epoch)
        self._due = self._cluster.ports.clock.monotonic() + response.heartbeat_interval_ms
        if response.assignment is not None:
            names = await self._names()
            wanted = {
                TopicPartition(names[topic.topic_id], partition): topic.topic_id
                for topic in response.assignment.topic_partitions
                if topic.topic_id in names
                for partition in topic.partitions
            }
            await self._assign(wanted)
            self._due = 0  # the next heartbeat confirms what this member owns

    async def _send(self) -> ConsumerGroupHeartbeatResponse:
        request, group_id = self._request(), self._subscription.group_id

        async def ask(node_id: NodeId) -> ConsumerGroupHeartbeatResponse:
            found = await self._cluster.send_to(node_id, request, ConsumerGroupHeartbeatResponse)
            if found.error_code in COORDINATOR_MOVED_OR_LOADING:
                raise Refused(found.error_code, group_id)
            return found

        return await ask_coordinator(self._cluster, CoordinatorType.GROUP, group_id, ask)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        wanted = self._subscription
        owned: dict[Uuid, RequestTopicPartitions] = {}
        for partition, topic_id in self._owned.items():
            of_topic = owned.setdefault(topic_id, RequestTopicPartitions(topic_id))
            of_topic.partitions.append(partition.partition)
        return ConsumerGroupHeartbeatRequest(
            group_id=wanted.group_id,
            member_id=self._member.member_id,
            member_epoch=self._member.epoch,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=list(wanted.topics) if wanted.regex is None else [],
            subscribed_topic_regex=wanted.regex,
            topic_partitions=list(owned.values()),
        )

    async def _names(self) -> dict[Uuid, str]:
        response = await self._cluster.metadata(None)
        return {each.topic_id: each.name for each in response.topics if each.name is not None}

    # -- partitions ----------------------------------------------------------------

    async def _assign(self, wanted: dict[TopicPartition, Uuid]) -> None:
        """Read other partitions; positions of those that are kept stay as they are."""
        kept = {} if self._reader is None else self._reader.positions
        if self._reader is not None and self._member.epoch > 0:
            await self.commit()
        await self._stack.aclose()
        self._reader, self._owned, self._waits = None, wanted, 0
        if not wanted:
            return
        positions = {each: offset for each, offset in kept.items() if each in wanted}
        missing = [each for each in wanted if each not in positions]
        if missing:
            committed = await committed_offsets(self._cluster, self._subscription.group_id)
            positions |= {each: committed[each] for each in missing if each in committed}
            self._committed |= {each: committed[each] for each in missing if each in committed}
            specs = {each: self._subscription.start for each in missing if each not in committed}
            positions |= await resolve(
                self._cluster, specs, is_committed_only=self._options.is_committed_only
            )
        self._reader = await self._stack.enter_async_context(
            open_reader(self._cluster, positions, self._options)
        )
