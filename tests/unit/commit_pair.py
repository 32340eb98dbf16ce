"""Two brokers that get the same commits: one with the fast path, one without."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from controller_images import image_of
from msgspec.structs import replace
from partition_fixtures import TOPIC_ID, Machine, registration
from produce_pair import Transport, frozen_scheduler, receive

from ottla.api.groups.classic_groups import GroupHandlers
from ottla.api.groups.committed_offsets import OffsetHandlers
from ottla.api.groups.group_access import ALLOW_ALL, GroupAccess
from ottla.api.surface.binding import bind_routes, handlers_of
from ottla.api.surface.routes import Caller, Routes
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.offsets.committed import offsets_in
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.partition_log import PartitionLog
from ottla.coordinators.runtime import CoordinatorRuntime, RuntimeParts
from ottla.coordinators.shard import ShardSettings
from ottla.metadata.image import Image
from ottla.observability.request_meter import RequestMeter
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.internal.metadata_topics import PartitionRecord, TopicRecord
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import LeaderEpoch, TopicPartition, Uuid
from ottla.runtime.ports import Address
from ottla.server.api_versions import ApiVersions
from ottla.server.connection import Connection
from ottla.server.dispatch import Dispatcher
from ottla.server.listener_context import ConnectionLimits, ListenerContext
from ottla.server.request_memory import RequestMemory
from ottla.storage.log.log_config import LogConfig
from simulation.random import SimRandom

OFFSETS = TopicPartition("__consumer_offsets", 0)
OTHER_ID = Uuid(b"another topic id")
PARTITIONS = 200
IDS = {"orders": TOPIC_ID, "ünï": OTHER_ID}


def _image(partitions: int) -> Image:
    return image_of(
        *(TopicRecord(name=name, topic_id=topic_id) for name, topic_id in IDS.items()),
        *(
            PartitionRecord(partition_id=at, topic_id=topic_id, replicas=[0], isr=[0], leader=0)
            for topic_id in IDS.values()
            for at in range(partitions)
        ),
    )


IMAGE = _image(PARTITIONS)
WIDER = _image(PARTITIONS + 1)
NONE = image_of()


@dataclass
class Broker:
    """Coordinates all groups on one partition; with or without the fast path."""

    has_fast_path: bool
    log_config: LogConfig = field(default_factory=LogConfig)
    replicas: tuple[int, ...] = (0,)
    linger_ms: int = -1
    settings: GroupSettings = field(default_factory=GroupSettings)
    taken: int = 0
    image: Image = IMAGE
    access: GroupAccess = ALLOW_ALL

    def __post_init__(self) -> None:
        self.machine = Machine()
        self.partition = self.machine.host(OFFSETS, log_config=self.log_config)
        self.partition.apply(registration(replicas=self.replicas))
        self.runtime = CoordinatorRuntime[GroupMachine](
            RuntimeParts(
                "groups",
                OFFSETS.topic,
                lambda index: PartitionLog(self.partition) if self.partition.is_leader else None,
                lambda index: GroupMachine(self.settings),
                ShardSettings(self.machine.clock, decode_group_record, linger_ms=self.linger_ms),
            )
        )
        self.runtime.on_led(OFFSETS.topic, 0, LeaderEpoch(0))
        self.load()
        groups = GroupCoordinator(self.runtime, self.settings, SimRandom(1))
        handlers = handlers_of(
            offsets=OffsetHandlers(groups, lambda: self.image, self.access),
            classic_groups=GroupHandlers(groups),
        )
        served = bind_routes(Listener.BROKER, handlers)
        commits = next(route for route in served if route.api_key is ApiKey.OFFSET_COMMIT)
        others = [route for route in served if route is not commits]
        assert commits.fast_path is not None
        self.fast_path = commits.fast_path
        commits = replace(commits, fast_path=self._serve if self.has_fast_path else None)
        routes = Routes(Listener.BROKER, (commits, *others))
        self.requests = RequestMeter()
        self.context = ListenerContext(
            Dispatcher("CLIENT", routes, ApiVersions(routes), self.requests),
            RequestMemory(),
            ConnectionLimits(frame_bytes_max=200_000),
            self.machine.clock,
            self.requests,
            asyncio.get_running_loop(),
            scheduler=frozen_scheduler(),
        )
        self.transport = Transport()
        self.connection = Connection(self.context, Address("127.0.0.1", 1), lambda *_: None)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def load(self) -> None:
        while self.runtime.is_loading():
            self.runtime._load_some()

    def _serve(
        self, caller: Caller, client: bytes, data: bytearray, start: int, end: int
    ) -> bytearray | None:
        reply = self.fast_path(caller, client, data, start, end)
        self.taken += reply is not None
        return reply

    def receive(self, data: bytes, step: int = 1 << 20) -> None:
        receive(self.connection, self.transport, data, step)

    def state(self, machine: GroupMachine) -> dict[str, object]:
        """What a machine holds that its log says."""
        return {
            "committed": {
                group: dict(offsets) for group, offsets in machine.offsets.committed.items()
            },
            "groups": sorted(machine.groups),
        }

    def reloaded(self) -> dict[str, object]:
        """What a fresh machine holds that has read the log."""
        fresh = CoordinatorRuntime[GroupMachine](
            RuntimeParts(
                "again",
                OFFSETS.topic,
                lambda index: PartitionLog(self.partition),
                lambda index: GroupMachine(self.settings),
                ShardSettings(self.machine.clock, decode_group_record),
            )
        )
        fresh.on_led(OFFSETS.topic, 0, LeaderEpoch(0))
        while fresh.is_loading():
            fresh._load_some()
        return self.state(fresh.shard(0).machine)

    def outcome(self) -> dict[str, object]:
        """Everything that can be observed of the requests served."""
        log = self.partition.log
        replies: dict[str, object] = {
            "replies": bytes(self.transport.written),
            "closed": self.transport.is_closed,
            "log": [(each.base_offset, each.file.pread(each.size, 0)) for each in log.segments],
            "high watermark": log.high_watermark,
            "requests": [
                (family.name, [each.value for each in family.samples if each.suffix != "_sum"])
                for family in self.requests.collect()
            ][:2],
            "failed": self.machine.fake_host.failed,
        }
        for _, shard in self.runtime.active():
            state = self.state(shard.machine)
            assert state == self.reloaded(), "the state is what the log amounts to"
            committed: Any = shard.committed()
            replies["state"] = state
            replies["view"] = {
                group: dict(offsets_in(committed.offsets, group)) for group in committed.offsets
            }
            replies["due"] = dict(shard._timers._due)
        return replies


def frame(message: Message, version: int, number: int = 1, client: str | None = "c") -> bytes:
    """A request, with its length."""
    key = ApiKey(message.SCHEMA.api_key or 0)
    return bytes(request_frame(RequestHeader(key, version, number, client), message))


def topic_of(
    *partitions: OffsetCommitRequestPartition, name: str = "orders"
) -> OffsetCommitRequestTopic:
    """A topic with its id, of which each version takes what it has."""
    return OffsetCommitRequestTopic(name, IDS.get(name, Uuid(b"an id of nothing")), [*partitions])


def offset(
    index: int = 0, value: int = 5, epoch: int = -1, metadata: str | None = ""
) -> OffsetCommitRequestPartition:
    """One partition's offset."""
    return OffsetCommitRequestPartition(index, value, epoch, metadata)


def commit(
    *topics: OffsetCommitRequestTopic,
    version: int = 9,
    number: int = 1,
    client: str | None = "c",
    **more: Any,
) -> bytes:
    """A commit to group ``g`` by nobody's member, unless it says otherwise."""
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, **more}
    request = OffsetCommitRequest(topics=list(topics) or [topic_of(offset())], **fields)
    return frame(request, version, number, client)
