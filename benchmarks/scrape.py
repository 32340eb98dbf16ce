"""A scrape of /metrics on a broker with thousands of partitions and groups.

The time of a scrape, and how long it holds up other requests: a client sends the smallest request
again and again, once while nothing else happens and once while the broker is scraped.
"""

import asyncio
import statistics
import tempfile
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

from tests.free_ports import free_ports

from benchmarks.idle import MAYBE_MADE, MEMORY, combined, wait_brokers
from benchmarks.nodes import NodeProcess
from benchmarks.report import Row, render
from ottla.client.connection import Connection
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

TOPICS = 100
PARTITIONS_PER_TOPIC = 100
GROUPS = 1_000
PARTITIONS_PER_GROUP = 10
SCRAPES = 10
SCRAPE_MS_MAX = 250.0
HELD_MS_MAX = 20.0
WAIT_S_MAX = 180.0
OFFSETS_VERSION = 8  # topics by name


async def fill(node: NodeProcess) -> None:
    """Create the topics, and let each group commit offsets of some partitions."""
    connection = await node.connect()
    try:
        for number in range(TOPICS):
            topic = CreatableTopic(f"topic-{number:03}", PARTITIONS_PER_TOPIC, 1)
            made = await connection.send(CreateTopicsRequest([topic], 60_000), timeout_ms=60_000)
            assert isinstance(made, CreateTopicsResponse)
            assert made.topics[0].error_code in MAYBE_MADE, made
        # A coordinator exists once its topic does, which the first of these requests creates.
        await connection.send(FindCoordinatorRequest(coordinator_keys=["group-0000"]))
        for number in range(GROUPS):
            await commit(connection, f"group-{number:04}", f"topic-{number % TOPICS:03}")
    finally:
        await connection.close()


async def commit(connection: Connection, group: str, topic: str) -> None:
    """Commit offset 0 of some partitions; wait while the coordinator is still loading."""
    partitions = [OffsetCommitRequestPartition(index, 0) for index in range(PARTITIONS_PER_GROUP)]
    request = OffsetCommitRequest(
        group, topics=[OffsetCommitRequestTopic(topic, partitions=partitions)]
    )
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            reply = await connection.send(request, version=OFFSETS_VERSION)
            assert isinstance(reply, OffsetCommitResponse)
            if reply.topics[0].partitions[0].error_code == ErrorCode.NONE:
                return
            await asyncio.sleep(0.05)


def scrape(port: int) -> tuple[float, bytes]:
    """Return the milliseconds of one scrape, and the page."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
        page = bytes(reply.read())
    return (time.perf_counter() - began) * 1000, page


async def wait_shown(port: int) -> int:
    """Wait until every partition and group is on the page; return its number of lines."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            _, page = await asyncio.to_thread(scrape, port)
            partitions = page.count(b"\nkafka_log_log_size{")
            if partitions >= TOPICS * PARTITIONS_PER_TOPIC and (
                page.count(b"\nkafka_consumergroup_lag{") >= GROUPS * PARTITIONS_PER_GROUP
            ):
                return page.count(b"\n")
            await asyncio.sleep(1)


async def longest_ping_ms(connection: Connection, until: asyncio.Event) -> float:
    """Return the longest of many round trips."""
    longest = 0.0
    while not until.is_set():
        began = time.perf_counter()
        await connection.send(ApiVersionsRequest("bench", "1"))
        longest = max(longest, (time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.001)
    return longest


async def measure(node: NodeProcess, port: int) -> tuple[list[float], float, float]:
    """Return the times of scrapes, and the longest round trips without and with them."""
    connection = await node.connect()
    try:
        found = []
        times: list[float] = []
        for is_scraped in (False, True):
            over = asyncio.Event()
            pinging = asyncio.create_task(longest_ping_ms(connection, over))
            if is_scraped:
                for _ in range(SCRAPES):
                    times.append((await asyncio.to_thread(scrape, port))[0])
            else:
                await asyncio.sleep(3)
            over.set()
            found.append(await pinging)
    finally:
        await connection.close()
    return times, found[0], found[1]


async def run_on(folder: Path) -> list[Row]:
    """Run a node, fill it and measure."""
    (port,) = free_ports(1)
    (node,) = combined(folder, 1)
    node = replace(
        node,
        settings=f"{node.settings}\nottla.metrics.listener=127.0.0.1:{port}\n"
        "offsets.topic.replication.factor=1\noffsets.topic.num.partitions=10\n"
        "ottla.consumer.lag.interval.ms=5000\n",
    )
    node.format()
    node.start()
    try:
        await wait_brokers(node, 1)
        for _ in range(5):
            try:
                await fill(node)
                break
            except (OSError, Fault):  # a busy machine
                await asyncio.sleep(1)
        lines = await wait_shown(port)
        times, quiet_ms, scraped_ms = await measure(node, port)
    finally:
        node.kill()
    middle, held_ms = statistics.median(times), max(scraped_ms - quiet_ms, 0.0)
    what = f"{TOPICS * PARTITIONS_PER_TOPIC:,} partitions, {GROUPS:,} groups, {lines:,} lines"
    return [
        Row(
            "scrape",
            what,
            f"{middle:.0f} ms ({min(times):.0f} to {max(times):.0f})",
            f"{SCRAPE_MS_MAX:.0f} ms allowed",
            middle / SCRAPE_MS_MAX,
            "<= 1.0",
            middle <= SCRAPE_MS_MAX,
        ),
        Row(
            "scrape",
            "longest round trip of another client meanwhile",
            f"{scraped_ms:.1f} ms (without scrapes {quiet_ms:.1f} ms)",
            f"{HELD_MS_MAX:.0f} ms longer allowed",
            held_ms / HELD_MS_MAX,
            "<= 1.0",
            held_ms <= HELD_MS_MAX,
        ),
    ]


def run() -> list[Row]:
    """Measure on a file system in memory: creating partitions is no part of it."""
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=where) as folder:
        return asyncio.run(run_on(Path(folder)))


if __name__ == "__main__":
    print(render(run()))
