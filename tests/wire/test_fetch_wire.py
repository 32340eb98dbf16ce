"""Fetch and ListOffsets against a running node: real sockets, real files, real clients."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from loopback import PlainClient, wait_until
from tests.patience import SECONDS_MAX

from ottla.client.connection import Connection
from ottla.config.loading import Loaded, load
from ottla.node.directories.format_plan import FormatOptions, Quorum, plan_format
from ottla.node.directories.formatting import format_node
from ottla.node.handle import Node, start_node
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import fetch
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.records.batch import batches
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Millis, Offset, Uuid
from ottla.replication.partition import Partition
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
SOON_MS = 20_000


def settings(root: Path) -> Loaded:
    return load(
        "process.roles=broker,controller\nnode.id=1\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:1\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"log.dirs={root / 'data'}\n"
        "controller.quorum.election.timeout.ms=1000\nbroker.heartbeat.interval.ms=200\n"
        "broker.session.timeout.ms=9000\n"
    )


class FetchNode:
    """A node with topics, and a connection to it."""

    def __init__(self, node: Node, connection: Connection) -> None:
        self.node = node
        self.connection = connection
        self.ids: dict[str, Uuid] = {}

    @property
    def address(self) -> Address:
        assert self.node.listen_addr is not None
        return self.node.listen_addr

    async def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        settings = [CreatableTopicConfig(key.replace("_", "."), configs[key]) for key in configs]
        topic = CreatableTopic(name, partitions, 1, [], settings)
        reply: Any = await self.send(CreateTopicsRequest([topic], 10_000))
        assert reply.topics[0].error_code == 0, reply.topics[0]
        self.ids[name] = reply.topics[0].topic_id

    def partition(self, topic: str, index: int = 0) -> Partition:
        replica_manager = self.node._parts.broker.replica_manager
        assert replica_manager is not None
        return replica_manager.partitions.find(topic, index)

    async def send(self, request: Any, version: int | None = None) -> Any:
        return await self.connection.send(request, version=version, timeout_ms=SOON_MS)

    async def get(self, request: fetch.FetchRequest, version: int = 17) -> fetch.FetchResponse:
        reply = await self.send(request, version)
        assert isinstance(reply, fetch.FetchResponse)
        return reply

    def want(self, topic: str, offset: int = 0, index: int = 0, **more: Any) -> fetch.FetchRequest:
        part = fetch.FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        known = self.ids.get(topic, Uuid(bytes(16)))
        more = {"max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": 0} | more
        return fetch.FetchRequest(topics=[fetch.FetchTopic(topic, known, [part])], **more)


@asynccontextmanager
async def fetch_node(root: Path) -> AsyncIterator[FetchNode]:
    loaded = settings(root)
    random = SystemRandom()
    options = FormatOptions(cluster_id=CLUSTER, quorum=Quorum(is_standalone=True))
    plan = plan_format(loaded, options, random)
    format_node(RealDisk(), random, SystemClock().now(), plan)
    node = await start_node(loaded, start_s_max=60)
    try:
        async with asyncio.timeout(SECONDS_MAX):
            await node.wait_image(lambda image: image.cluster.is_unfenced(node.node_id))
            assert node.listen_addr is not None
            connection = await Connection.open(TcpNetwork(), node.listen_addr, client_id="test")
            try:
                yield FetchNode(node, connection)
            finally:
                await connection.close()
    finally:
        await node.shutdown()


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


def append(partition: Partition, *values: bytes) -> None:
    records = [Record(Offset(at), Millis(1000 + at), b"k", v) for at, v in enumerate(values)]
    partition.append(build_batch(records), now=Millis(1000))


def records_in(reply: fetch.FetchResponse) -> list[Record]:
    found: list[Record] = []
    for topic in reply.responses:
        for row in topic.partitions:
            assert row.error_code == 0, ErrorCode(row.error_code)
            data = bytes(row.records or b"")
            for start, header in batches(data):
                found += read_records(data[start : start + header.size])
    return found


@asynchronous
async def test_every_offset_is_fetched_in_every_version(tmp_path: Path) -> None:
    async with fetch_node(tmp_path) as here:
        await here.create("orders")
        for size in (1, 4, 2):
            append(here.partition("orders"), *(b"%d" % size for _ in range(size)))
        for version in range(4, 19):
            for offset in range(7):
                found = records_in(await here.get(here.want("orders", offset), version))
                assert found[0].offset <= offset
                assert [each.offset for each in found if each.offset >= offset] == list(
                    range(offset, 7)
                )


@asynchronous
async def test_long_poll_is_completed_by_an_append(tmp_path: Path) -> None:
    async with fetch_node(tmp_path) as here:
        await here.create("orders", 2)
        waiting = asyncio.ensure_future(here.get(here.want("orders", max_wait_ms=SOON_MS)))
        # What is asked for later on the same connection is answered behind it.
        later = asyncio.ensure_future(here.get(here.want("orders", index=1)))
        partition = here.partition("orders")
        await wait_until(lambda: len(partition._wakers) == 1)
        assert not waiting.done() and not later.done()
        append(partition, b"news")
        assert [each.value for each in records_in(await waiting)] == [b"news"]
        assert records_in(await later) == []


@asynchronous
async def test_disconnected_client_leaves_no_waiting_fetch(tmp_path: Path) -> None:
    async with fetch_node(tmp_path) as here:
        await here.create("orders")
        other = await Connection.open(TcpNetwork(), here.address, client_id="other")
        request = here.want("orders", max_wait_ms=SOON_MS)
        waiting = asyncio.ensure_future(other.send(request, version=17, timeout_ms=SOON_MS))
        partition = here.partition("orders")
        await wait_until(lambda: len(partition._wakers) == 1)
        await other.close()
        with pytest.raises(ConnectionError):
            await waiting
        await wait_until(lambda: len(partition._wakers) == 0)


@asynchronous
async def test_response_slice_survives_the_deletion_of_its_topic(tmp_path: Path) -> None:
    """A client that reads slowly gets what it was promised, whatever is deleted meanwhile."""
    async with fetch_node(tmp_path) as here:
        await here.create("orders")
        partition = here.partition("orders")
        for _ in range(40):
            append(partition, b"x" * 500_000)
        slow = await PlainClient.to(here.address, receive_buffer=4096)
        request = here.want("orders", max_bytes=1 << 25)
        request.topics[0].partitions[0].partition_max_bytes = 1 << 25
        await slow.send(request_frame(RequestHeader(ApiKey.FETCH, 12, 1, "slow"), request))
        length = int.from_bytes(await slow.exactly(4), "big")
        gone: Any = await here.send(
            DeleteTopicsRequest(topics=[DeleteTopicState("orders")], timeout_ms=SOON_MS)
        )
        assert gone.responses[0].error_code == 0
        row = (await here.get(here.want("orders"), 12)).responses[0].partitions[0]
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        body = await slow.exactly(length)
        slow.close()
        assert body.count(b"x" * 500_000) == 40


@asynchronous
async def test_list_offsets_finds_offsets_by_timestamp(tmp_path: Path) -> None:
    async with fetch_node(tmp_path) as here:
        await here.create("orders")
        append(here.partition("orders"), b"a", b"b", b"c")
        for version in range(1, 12):
            asked = [ListOffsetsPartition(0, -1, timestamp) for timestamp in (1001,)]
            request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("orders", asked)])
            reply: Any = await here.send(request, version)
            (row,) = reply.topics[0].partitions
            assert (row.error_code, row.offset, row.timestamp) == (0, 1, 1001)


@asynchronous
async def test_describe_log_dirs_returns_directories(tmp_path: Path) -> None:
    async with fetch_node(tmp_path) as here:
        await here.create("orders", 2)
        append(here.partition("orders", 1), b"a")
        for version in range(1, 5):
            reply: Any = await here.send(DescribeLogDirsRequest(topics=None), version)
            (result,) = reply.results
            assert (result.error_code, result.log_dir) == (0, str(tmp_path / "data"))
            (topic,) = result.topics
            sizes = {row.partition_index: row.partition_size for row in topic.partitions}
            assert sizes[0] == 0 < sizes[1]
        assert 0 < result.usable_bytes <= result.total_bytes


def in_a_thread(work: Callable[[], None]) -> "asyncio.Future[None]":
    """Run what blocks beside the node; the future has its outcome."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            loop.call_soon_threadsafe(done.set_exception, error)
        else:
            loop.call_soon_threadsafe(done.set_result, None)

    threading.Thread(target=run, daemon=True).start()
    return done


@asynchronous
async def test_librdkafka_reads_existing_and_new_records(tmp_path: Path) -> None:
    async with fetch_node(tmp_path) as here:
        await here.create("orders", 2)
        count = 2000
        for at in range(count):
            append(here.partition("orders", at % 2), b"%d" % at)
        seen: list[bytes] = []
        loop = asyncio.get_running_loop()

        def consume() -> None:
            consumer = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": str(here.address),
                    "group.id": "none",
                    "enable.auto.commit": False,
                }
            )
            start = confluent_kafka.OFFSET_BEGINNING
            consumer.assign(
                [confluent_kafka.TopicPartition("orders", each, start) for each in (0, 1)]
            )
            while len(seen) < count + 1:
                message = consumer.poll(10)
                assert message is not None, f"nothing after {len(seen)}"
                assert message.error() is None, message.error()
                seen.append(message.value())
                if len(seen) == count:
                    loop.call_soon_threadsafe(append, here.partition("orders"), b"last")
            consumer.close()

        await in_a_thread(consume)
        assert sorted(seen) == sorted([b"last", *(b"%d" % at for at in range(count))])
