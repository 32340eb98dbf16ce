"""A shard of groups with topics to read, and members that use the streams protocol."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from classic_harness import SETTINGS, Harness
from controller_images import image_of
from coordinator_harness import FakeClock, FakeLog

from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.streams.context import StreamsContext
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.heartbeat import (
    StreamsHeartbeat,
    check_streams_heartbeat,
    decide_streams_heartbeat,
)
from ottla.coordinators.groups.streams.kind import StreamsKind
from ottla.coordinators.groups.streams.member import StreamsMember
from ottla.coordinators.groups.streams.reply import StreamsHeartbeatResult
from ottla.coordinators.groups.streams.settings import StreamsSettings
from ottla.coordinators.groups.streams.topology import InternalTopic
from ottla.coordinators.pending_replies import RecordedReply
from ottla.coordinators.shard import Shard, ShardSettings
from ottla.metadata.image import Image
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.internal.metadata_topics import PartitionRecord, TopicRecord
from ottla.protocol.messages.streams_group_describe import TaskIds
from ottla.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    RequestTaskIds,
    ResponseTaskIds,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TopicInfo,
    Topology,
)
from ottla.protocol.types import LeaderEpoch, Uuid

STREAMS_SETTINGS = StreamsSettings(max_size=4, initial_rebalance_delay_ms=0)
REBALANCE_MS = 30_000

Tasks = dict[str, list[int]]

SUMS = Topology(0, [Subtopology("0", ["t"], [], [TopicInfo("g-sums-changelog")])]).subtopologies


def sums(epoch: int = 0) -> Topology:
    """An application with one stateful subtopology that reads ``t``."""
    return Topology(epoch, SUMS)


def counting() -> Topology:
    """A word count: words of ``t`` by a repartition topic to counts."""
    return Topology(
        0,
        [
            Subtopology("0", ["t"], repartition_sink_topics=["g-words-repartition"]),
            Subtopology(
                "1",
                state_changelog_topics=[TopicInfo("g-counts-changelog")],
                repartition_source_topics=[TopicInfo("g-words-repartition")],
                copartition_groups=[CopartitionGroup(repartition_source_topics=[0])],
            ),
        ],
    )


def image_with_topics(counts: dict[str, int], *more: Any) -> Image:
    """An image with topics of the given partition counts, and other records."""
    records: list[Any] = []
    for name, count in counts.items():
        topic_id = Uuid(blake2b(name.encode(), digest_size=16).digest())
        records.append(TopicRecord(name, topic_id))
        records += [
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[1],
                isr=[1],
                leader=1,
                directories=[Uuid(bytes(15) + b"\x01")],
            )
            for index in range(count)
        ]
    return image_of(*records, *more)


def image_of_sums(count: int = 4, *more: Any) -> Image:
    """All topics that `sums` needs."""
    return image_with_topics({"t": count, "g-sums-changelog": count}, *more)


class StreamsHarness(Harness):
    """One shard with streams groups. Topics are those of ``image``, which tests may replace."""

    def __init__(
        self,
        log: FakeLog | None = None,
        settings: GroupSettings = SETTINGS,
        clock: FakeClock | None = None,
        streams: StreamsSettings = STREAMS_SETTINGS,
        image: Image | None = None,
    ) -> None:
        self.log = log or FakeLog()
        self.clock = clock or FakeClock()
        self.streams = streams
        self.image = image or image_of_sums()
        self.context = StreamsContext(streams, lambda: self.image)
        self.machine = GroupMachine(settings, kinds=(StreamsKind(self.context),))
        self.ids = 0
        self.futures: list[RecordedReply] = []
        self.missing: tuple[InternalTopic, ...] = ()
        self.shard = Shard(
            "__consumer_offsets-0",
            LeaderEpoch(1),
            self.log,
            self.machine,
            ShardSettings(self.clock, decode_group_record, load_bytes=500),
        )
        while not self.shard.load_step():
            pass

    def reload(self) -> "StreamsHarness":
        """Another leadership over the same log."""
        self.shard.close()
        settings = self.machine.settings
        return StreamsHarness(self.log, settings, self.clock, self.streams, self.image)

    # -- requests ------------------------------------------------------------

    def send(self, request: StreamsGroupHeartbeatRequest) -> RecordedReply:
        check_streams_heartbeat(request)
        beat = StreamsHeartbeat(request, "client", "/1.2.3.4")
        return self.submit(lambda m, now, _: decide_streams_heartbeat(self.context, m, beat))

    def beat(
        self,
        member_id: str,
        epoch: int,
        active: Tasks | None = None,
        standby: Tasks | None = None,
        **fields: Any,
    ) -> StreamsGroupHeartbeatResponse:
        """Send a heartbeat; a fault is raised. All task fields are set if active ones are."""
        if active is not None:
            fields["active_tasks"] = _listed(active)
            fields["standby_tasks"] = _listed(standby or {})
            fields["warmup_tasks"] = []
        group = fields.pop("group", "g")
        future = self.send(StreamsGroupHeartbeatRequest(group, member_id, epoch, **fields))
        if future.fault is not None:
            raise future.fault
        assert isinstance(future.reply, StreamsHeartbeatResult)
        self.missing = future.reply.missing
        return future.reply.response

    def enter(
        self, member_id: str, process: str | None = None, **fields: Any
    ) -> StreamsGroupHeartbeatResponse:
        """Join a group with `sums`, each member in a process of its own unless one is named."""
        fields.setdefault("topology", sums())
        fields.setdefault("rebalance_timeout_ms", REBALANCE_MS)
        return self.beat(member_id, 0, {}, process_id=process or f"p-{member_id}", **fields)

    # -- state ---------------------------------------------------------------

    def app(self, group: str = "g") -> StreamsGroup:
        found = self.machine.groups[group]
        assert isinstance(found, StreamsGroup)
        return found

    def member(self, member_id: str) -> StreamsMember:
        return self.app().members[member_id]

    def active(self, member_id: str) -> list[int]:
        """The numbers of the active tasks that a member may run."""
        return sorted(partition for _, partition in self.member(member_id).assigned.active)

    def standby(self, member_id: str) -> list[int]:
        return sorted(partition for _, partition in self.member(member_id).assigned.standby)

    def settle(self, rounds: int = 8) -> None:
        """Let members send heartbeats, running exactly their tasks, until nothing changes."""
        for _ in range(rounds):
            for member_id in sorted(self.app().members):
                member = self.member(member_id)
                self.beat(
                    member_id,
                    member.epoch,
                    _named(member.assigned.active),
                    _named(member.assigned.standby),
                )


def _listed(tasks: Tasks) -> list[RequestTaskIds]:
    return [RequestTaskIds(name, numbers) for name, numbers in tasks.items()]


def _named(tasks: frozenset[tuple[str, int]]) -> Tasks:
    found: Tasks = {}
    for name, number in sorted(tasks):
        found.setdefault(name, []).append(number)
    return found


def tasks_of(listed: Iterable[ResponseTaskIds | TaskIds] | None) -> Tasks | None:
    """The tasks of a reply."""
    return None if listed is None else {each.subtopology_id: each.partitions for each in listed}


def statuses(reply: StreamsGroupHeartbeatResponse) -> list[int]:
    """The status codes of a reply."""
    assert reply.status is not None
    return [each.status_code for each in reply.status]
