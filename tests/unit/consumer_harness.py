"""A shard of groups with topics to read, and members that use the consumer protocol."""

from typing import Any

from classic_harness import SETTINGS, Harness
from controller_images import image_of
from coordinator_harness import FakeClock, FakeLog

from ottla.coordinators.groups.consumer.context import ConsumerContext
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.heartbeat import (
    Heartbeat,
    check_heartbeat,
    decide_consumer_heartbeat,
)
from ottla.coordinators.groups.consumer.kind import ConsumerKind
from ottla.coordinators.groups.consumer.settings import ConsumerSettings
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.pending_replies import RecordedReply
from ottla.coordinators.shard import Shard, ShardSettings
from ottla.metadata.image import Image
from ottla.protocol.codec import encode
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.internal.metadata_topics import PartitionRecord, TopicRecord
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
)
from ottla.protocol.types import LeaderEpoch, Uuid

CONSUMER_SETTINGS = ConsumerSettings(
    session_timeout_ms=45_000, heartbeat_interval_ms=5000, max_size=4
)
REBALANCE_MS = 30_000


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"\x00"))


def image_with(**counts: int) -> Image:
    """An image with topics of the given partition counts, each on broker 1."""
    records: list[Any] = []
    for name, count in counts.items():
        records.append(TopicRecord(name, topic_id(name)))
        records += [
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id(name),
                replicas=[1],
                isr=[1],
                leader=1,
                directories=[Uuid(bytes(15) + b"\x01")],
            )
            for index in range(count)
        ]
    return image_of(*records)


def subscribed(*topics: str, owned: dict[str, list[int]] | None = None, version: int = 3) -> bytes:
    """The subscription that a classic consumer sends when it joins."""
    message = ConsumerProtocolSubscription(
        list(topics),
        owned_partitions=[
            SubscriptionTopicPartition(name, numbers) for name, numbers in (owned or {}).items()
        ],
    )
    return version.to_bytes(2, "big") + encode(message, version)


class ConsumerHarness(Harness):
    """One shard with consumer groups. Topics are those of ``image``, which tests may replace."""

    def __init__(
        self,
        log: FakeLog | None = None,
        settings: GroupSettings = SETTINGS,
        clock: FakeClock | None = None,
        consumer: ConsumerSettings = CONSUMER_SETTINGS,
        image: Image | None = None,
    ) -> None:
        self.log = log or FakeLog()
        self.clock = clock or FakeClock()
        self.consumer = consumer
        self.image = image or image_with(t=4, u=2)
        self.context = ConsumerContext(consumer, lambda: self.image)
        kind = ConsumerKind(self.context)
        self.machine = GroupMachine(settings, kinds=(kind,), classic_members=kind)
        self.ids = 0
        self.futures: list[RecordedReply] = []
        self.hidden: set[str] = set()
        self.shard = Shard(
            "__consumer_offsets-0",
            LeaderEpoch(1),
            self.log,
            self.machine,
            ShardSettings(self.clock, decode_group_record, load_bytes=500),
        )
        while not self.shard.load_step():
            pass

    def reload(self) -> "ConsumerHarness":
        """Another leadership over the same log."""
        self.shard.close()
        settings = self.machine.settings
        return ConsumerHarness(self.log, settings, self.clock, self.consumer, self.image)

    # -- requests ------------------------------------------------------------

    def send(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> RecordedReply:
        check_heartbeat(request, version, self.consumer.assignors)
        beat = Heartbeat(
            request, "client", "/1.2.3.4", "fresh", lambda topic: topic not in self.hidden
        )
        return self.submit(lambda m, now, _: decide_consumer_heartbeat(self.context, m, beat, now))

    def beat(
        self,
        member_id: str,
        epoch: int,
        owned: dict[str, list[int]] | None = None,
        group: str = "g",
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; a fault is raised."""
        partitions = None
        if owned is not None:
            partitions = [
                RequestTopicPartitions(topic_id(name), list(numbers))
                for name, numbers in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group, member_id, epoch, topic_partitions=partitions, **fields
        )
        future = self.send(request)
        if future.fault is not None:
            raise future.fault
        reply = future.reply
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        return reply

    def enter(
        self, member_id: str, *topics: str, group: str = "g", **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """Join a group as a consumer of topics, of ``t`` if none is named."""
        names = list(topics) or (None if "subscribed_topic_regex" in fields else ["t"])
        fields.setdefault("subscribed_topic_names", names)
        fields.setdefault("rebalance_timeout_ms", REBALANCE_MS)
        return self.beat(member_id, 0, {}, group, **fields)

    # -- state ---------------------------------------------------------------

    def consumers(self, group: str = "g") -> ConsumerGroup:
        found = self.machine.groups[group]
        assert isinstance(found, ConsumerGroup)
        return found

    def assigned(self, member_id: str) -> dict[str, list[int]]:
        """The partitions that a member may read, by topic name."""
        partitions = self.consumers().members[member_id].assigned
        return {_name(each): sorted(partitions[each]) for each in sorted(partitions)}

    def settle(self, owned: dict[str, dict[str, list[int]]], rounds: int = 6) -> None:
        """Let members send heartbeats, revoking as asked, until nothing changes."""
        for _ in range(rounds):
            for member_id in sorted(self.consumers().members):
                epoch = self.consumers().members[member_id].epoch
                reply = self.beat(member_id, epoch, owned.get(member_id, {}))
                if reply.assignment is not None:
                    owned[member_id] = named(reply)


def named(reply: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]]:
    """The assignment of a reply, by topic name."""
    assert reply.assignment is not None
    return {_name(each.topic_id): each.partitions for each in reply.assignment.topic_partitions}


def _name(identifier: Uuid) -> str:
    return identifier.rstrip(b"\x00").decode()


__all__ = ["ConsumerHarness", "image_with", "named", "subscribed", "topic_id"]
