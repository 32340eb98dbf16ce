"""A node with tiered storage in a directory, and a client of it, for tests of the tier."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from one_node import OneNode, settings
from tests.patience import SECONDS_MAX

from ottla.client.admin import NewTopic, create_topic
from ottla.client.cluster import ClientPorts, Cluster
from ottla.client.consumer import ReaderOptions, open_reader
from ottla.client.offsets import list_offsets
from ottla.client.producer import ProducerOptions, open_producer
from ottla.config.loading import Loaded
from ottla.protocol.types import Offset, TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom

T = TopicPartition("t", 0)
TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "4000",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}


def tier_settings(root: Path, *extra: str, metadata: str = "memory") -> Loaded:
    """A combined node whose tier is a directory; tasks run often."""
    lines = [
        "remote.log.storage.system.enable=true",
        "remote.log.storage.manager.class.name=directory",
        f"rsm.config.directory={root / 'tier'}",
        "remote.log.manager.task.interval.ms=50",
        "log.retention.check.interval.ms=50",
        "log.initial.task.delay.ms=0",
        "rlmm.config.remote.log.metadata.topic.replication.factor=1",
        "rlmm.config.remote.log.metadata.topic.num.partitions=3",
        "rlmm.config.snapshot.interval.ms=100",
    ]
    if metadata != "topic":
        lines.append(f"remote.log.metadata.manager.class.name={metadata}")
    return settings(root, *lines, *extra)


def objects(root: Path) -> list[Path]:
    """The files in the tier, sorted."""
    return sorted(path for path in (root / "tier").rglob("*") if path.is_file())


def until(condition: Callable[[], object], seconds: float = SECONDS_MAX) -> None:
    """Wait for a condition on a busy machine."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.02)


def log_of(node: OneNode, topic: str = "t") -> Any:
    partition = node.node.partitions.get(topic, 0)
    assert partition is not None
    return partition.log


def with_client(address: Address, work: Callable[[Cluster], Coroutine[Any, Any, Any]]) -> Any:
    async def run() -> Any:
        ports = ClientPorts(TcpNetwork(), SystemClock(), SystemRandom())
        async with await Cluster.open(ports, [address]) as cluster:
            return await work(cluster)

    return asyncio.run(run())


def create(node: OneNode, configs: dict[str, str] | None = None, topic: str = "t") -> None:
    with_client(
        node.address,
        lambda cluster: create_topic(cluster, NewTopic(topic, 1, 1, configs or TIERED)),
    )


def produce(node: OneNode, first: int, count: int, timestamp: int = 1_700_000_000_000) -> None:
    """Write records whose value has their number, in batches of ten; record n has timestamp + n."""

    async def work(cluster: Cluster) -> None:
        async with open_producer(cluster, ProducerOptions()) as producer:
            for start in range(first, first + count, 10):
                for number in range(start, min(start + 10, first + count)):
                    value = b"%06d" % number + b"x" * 150
                    await producer.send("t", value, partition=0, timestamp=timestamp + number)
                await producer.flush()

    with_client(node.address, work)


def consume(node: OneNode, start: int = 0, *, committed: bool = False) -> list[tuple[int, bytes]]:
    """Read everything from ``start`` on: offsets and values."""

    async def work(cluster: Cluster) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        options = ReaderOptions(is_committed_only=committed, wait_ms_max=100)
        async with open_reader(cluster, {T: Offset(start)}, options) as reader:
            while not reader.is_at_end:
                for fetched in await reader.poll():
                    found += [(each.offset, each.value or b"") for each in fetched.records()]
        return found

    return list(with_client(node.address, work))


def offset_at(node: OneNode, timestamp: int) -> int | None:
    async def work(cluster: Cluster) -> int | None:
        return (await list_offsets(cluster, {T: timestamp}))[T]

    found = with_client(node.address, work)
    return None if found is None else int(found)
