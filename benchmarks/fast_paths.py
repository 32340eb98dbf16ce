"""What the fast paths of small requests save: CPU time of a request with and without, no sockets.

    python -m benchmarks.fast_paths [--rounds N]

Requests enter a `Connection` as bytes from a socket would; logs write to real files. A Produce
carries one record of 100 bytes with acks=1, version 9, over 1 and over 16 connections, without a
producer id and of an idempotent producer. An OffsetCommit, version 9, names 1, 10 or 100
partitions. Rounds with and without the fast path alternate, so that both see the same machine;
printed are the medians and the median of the ratios of neighbouring rounds.
"""

import argparse
import asyncio
from collections.abc import Callable, Iterator
from statistics import median
from time import process_time
from typing import cast

from msgspec.structs import replace

from benchmarks.produce import CALLER, NOW, TOPIC_ID, two_logs
from ottla.api.groups.committed_offsets import OffsetHandlers
from ottla.api.produce.handler import ProduceHandler
from ottla.api.surface.binding import bind_routes, handlers_of
from ottla.api.surface.routes import Route, Routes
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.partition_log import PartitionLog
from ottla.coordinators.runtime import CoordinatorRuntime, RuntimeParts
from ottla.coordinators.shard import ShardSettings
from ottla.metadata.image import EMPTY
from ottla.metadata.replay import replay_all
from ottla.observability.request_meter import RequestMeter
from ottla.observability.topic_events import TopicMeter
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
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import NO_PRODUCER, Producer, build_batch
from ottla.protocol.schema import Message
from ottla.protocol.types import LeaderEpoch, Offset
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import Partition
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandom
from ottla.server.api_versions import ApiVersions
from ottla.server.connection import Connection
from ottla.server.dispatch import Dispatcher
from ottla.server.listener_context import ConnectionLimits, ListenerContext
from ottla.server.request_memory import RequestMemory

VERSION = 9
BURST = 16  # requests between two turns of the event loop
BURSTS = 60
PARTITIONS = 100


class Transport:
    """Discards replies."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def set_write_buffer_limits(self, high: int) -> None:
        """Ignore them: nothing is buffered."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        """Discard it."""

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        raise AssertionError("a request was rejected")

    abort = close

    def pause_reading(self) -> None:
        """Go on: a burst is short."""

    resume_reading = pause_reading


class Line:
    """One connection."""

    def __init__(self, context: ListenerContext) -> None:
        self.transport = Transport()
        self.connection = Connection(context, CALLER.peer, lambda *_: None)
        self.connection.connection_made(cast("asyncio.Transport", self.transport))

    def send(self, frame: bytes) -> None:
        self.connection.get_buffer(-1)[: len(frame)] = frame
        self.connection.buffer_updated(len(frame))


def context_of(routes: Routes) -> ListenerContext:
    """Return a listener that serves ``routes`` on the running event loop."""
    requests = RequestMeter()
    return ListenerContext(
        Dispatcher("CLIENT", routes, ApiVersions(routes), requests),
        RequestMemory(),
        ConnectionLimits(frame_bytes_max=1 << 20),
        SystemClock(),
        requests,
        asyncio.get_running_loop(),
    )


class Load:
    """Sends the frames of ``frames`` in turn over some connections to one route."""

    def __init__(self, route: Route, connections: int, frames: Iterator[bytes]) -> None:
        context = context_of(Routes(Listener.BROKER, (route,)))
        self.lines = [Line(context) for _ in range(connections)]
        self.frames = frames

    async def run(self) -> float:
        """Return the CPU seconds of one request."""
        frames = [next(self.frames) for _ in range(BURST * BURSTS)]
        at, spent = 0, 0.0
        for _ in range(BURSTS):
            began = process_time()
            for number in range(BURST):
                self.lines[number % len(self.lines)].send(frames[at])
                at += 1
                if len(self.lines) == 1:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
            spent += process_time() - began
        await asyncio.sleep(0.01)  # for requests that waited for their turn
        return spent / len(frames)


def frame_of(key: ApiKey, message: Message) -> bytes:
    return bytes(request_frame(RequestHeader(key, VERSION, 1, "bench"), message))


def produce_frames(producer_id: int | None) -> Iterator[bytes]:
    """Yield Produce requests, with rising sequence numbers where there is a producer."""
    value = SystemRandom().bytes(100)
    sequence = 0
    while True:
        producer = NO_PRODUCER if producer_id is None else Producer(producer_id, 0, sequence)
        batch = build_batch([Record(Offset(0), NOW, None, value)], producer=producer)
        sequence += 1
        data = [PartitionProduceData(0, bytes(batch))]
        topics = [TopicProduceData("bench", TOPIC_ID, data)]
        yield frame_of(ApiKey.PRODUCE, ProduceRequest(None, 1, 30_000, topics))


def commit_frames(count: int) -> Iterator[bytes]:
    """Yield commits of so many partitions."""
    partitions = [OffsetCommitRequestPartition(index, 5, -1, "") for index in range(count)]
    topics = [OffsetCommitRequestTopic("bench", TOPIC_ID, partitions)]
    request = OffsetCommitRequest("group", -1, topics=topics)
    frame = frame_of(ApiKey.OFFSET_COMMIT, request)
    while True:
        yield frame


def produce_route(partition: Partition) -> Route:
    partitions = Partitions(lambda: EMPTY)
    partitions.add(partition)
    handler = ProduceHandler(partitions, lambda: EMPTY, SystemClock(), events=TopicMeter())
    (route,) = bind_routes(Listener.BROKER, handlers_of(produce=handler))
    return route


def commit_route(partition: Partition) -> Route:
    image = replay_all(
        EMPTY,
        [
            TopicRecord(name="bench", topic_id=TOPIC_ID),
            *(
                PartitionRecord(
                    partition_id=index, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1
                )
                for index in range(PARTITIONS)
            ),
        ],
    )
    runtime = CoordinatorRuntime[GroupMachine](
        RuntimeParts(
            "groups",
            "__consumer_offsets",
            lambda index: PartitionLog(partition),
            lambda index: GroupMachine(GroupSettings()),
            ShardSettings(SystemClock(), decode_group_record),
        )
    )
    runtime.on_led("__consumer_offsets", 0, LeaderEpoch(0))
    while runtime.is_loading():
        runtime._load_some()
    groups = GroupCoordinator(runtime, GroupSettings(), SystemRandom())
    offsets = OffsetHandlers(groups, lambda: image)
    routes = bind_routes(Listener.BROKER, handlers_of(offsets=offsets))
    return next(each for each in routes if each.api_key is ApiKey.OFFSET_COMMIT)


Case = tuple[str, Callable[[Partition], Route], int, Callable[[], Iterator[bytes]]]
CASES: tuple[Case, ...] = (
    ("Produce, 1 connection", produce_route, 1, lambda: produce_frames(None)),
    ("Produce, 16 connections", produce_route, 16, lambda: produce_frames(None)),
    ("idempotent Produce, 1 connection", produce_route, 1, lambda: produce_frames(7)),
    ("idempotent Produce, 16 connections", produce_route, 16, lambda: produce_frames(7)),
    ("commit of 1 partition", commit_route, 1, lambda: commit_frames(1)),
    ("commit of 10 partitions", commit_route, 1, lambda: commit_frames(10)),
    ("commit of 100 partitions", commit_route, 1, lambda: commit_frames(100)),
)


async def compare(case: Case, rounds: int) -> None:
    """Print what one case costs with its fast path and without."""
    what, make_route, connections, frames = case
    with two_logs() as (fast_log, _), two_logs() as (general_log, _):
        fast = Load(make_route(fast_log), connections, frames())
        general_route = replace(make_route(general_log), fast_path=None)
        general = Load(general_route, connections, frames())
        await fast.run()
        await general.run()
        pairs = [(await fast.run(), await general.run()) for _ in range(rounds)]
    with_it, without = (median(each) * 1e6 for each in zip(*pairs, strict=True))
    ratio = median(slow / quick for quick, slow in pairs)
    print(f"{what:36} {with_it:7.1f} us, general {without:7.1f} us, ratio {ratio:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    for case in CASES:
        asyncio.run(compare(case, rounds))


if __name__ == "__main__":
    main()
