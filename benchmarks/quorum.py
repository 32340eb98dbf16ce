"""The metadata quorum: changes, failover, many partitions, a snapshot.

    python -m benchmarks quorum

Controllers and a broker are processes of their own, as ``ottla server`` runs them, on one
machine: its cores are shared by all voters, the broker and the clients. A change is durable on
a majority and applied before it is acknowledged, so its reference is what a bare loop of 1 KiB
appends, each synced, reaches on the same disk; changes that come together share a sync.

The snapshot is written by a whole node in this process; a task on its event loop that should run
every few milliseconds records how long it had to wait.
"""

import asyncio
import gc
import os
import statistics
import tempfile
from itertools import cycle
from pathlib import Path
from time import perf_counter

from benchmarks.nodes import CLUSTER_ID, Cluster, NodeProcess, cluster
from benchmarks.report import Row, render
from ottla.client.connection import Connection
from ottla.config.loading import Loaded, load
from ottla.node.directories.format_plan import FormatOptions, Quorum, plan_format
from ottla.node.directories.formatting import format_node
from ottla.node.handle import Node, start_node
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.network import TcpNetwork
from ottla.runtime.randomness import SystemRandom

SYNC_BYTES, SYNC_S = 1024, 1.0
CLIENTS = 16
CHANGES_S = 3.0
WARM_S = 0.5
# Kafka's defaults, except for the fetch timeout, after which a crash is noticed.
ELECTION_MS, FETCH_MS = 1000, 600
KILLS = 5
RETRY_S = 0.01
TIMEOUTS_MAX = 2.0
TOPICS, PARTITIONS = 10, 1000
SNAPSHOT_PARTITIONS = 100_000
SNAPSHOTS = 3
TICK_S = 0.005
PAUSE_MS_MAX = 50.0
ANSWER_MS = 60_000
TOPIC_RESOURCE, SET = 2, 0
SETTINGS = (
    f"controller.quorum.election.timeout.ms={ELECTION_MS}",
    f"controller.quorum.fetch.timeout.ms={FETCH_MS}",
    "controller.quorum.election.backoff.max.ms=200",
)


def syncs_per_second(folder: Path) -> float:
    """Append 1 KiB and sync it, repeatedly."""
    file = os.open(folder / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    data = bytes(SYNC_BYTES)
    count, began = 0, perf_counter()
    while (took := perf_counter() - began) < SYNC_S:
        os.write(file, data)
        os.fdatasync(file)
        count += 1
    os.close(file)
    return count / took


# -- changes -------------------------------------------------------------------


async def create_topics(connection: Connection, topics: list[CreatableTopic]) -> None:
    """Create topics, and check the result."""
    request = CreateTopicsRequest(topics, ANSWER_MS)
    response = await connection.send(request, timeout_ms=ANSWER_MS)
    assert isinstance(response, CreateTopicsResponse)
    assert not any(topic.error_code for topic in response.topics), response.topics


async def change_for(connection: Connection, prefix: str, duration_s: float) -> int:
    """Create one topic after the other; return the number of acknowledged ones."""
    count, end = 0, perf_counter() + duration_s
    while perf_counter() < end:
        await create_topics(connection, [CreatableTopic(f"{prefix}-{count}", 1, 1)])
        count += 1
    return count


async def changes_per_second(leader: NodeProcess) -> float:
    """Change metadata with many clients concurrently."""
    connections = [await leader.connect() for _ in range(CLIENTS)]

    async def all_for(prefix: str, duration_s: float) -> float:
        began = perf_counter()
        counts = await asyncio.gather(
            *(change_for(each, f"{prefix}-{i}", duration_s) for i, each in enumerate(connections))
        )
        return sum(counts) / (perf_counter() - began)

    await all_for("warm", WARM_S)
    rate = await all_for("topic", CHANGES_S)
    for connection in connections:
        await connection.close()
    return rate


async def changes(folder: Path, running: Cluster) -> tuple[Row, float]:
    """Compare changes with bare syncs before and after; also return the changes per second."""
    leader = await running.leader()
    before = syncs_per_second(folder)
    rate = await changes_per_second(leader)
    bare = (before + syncs_per_second(folder)) / 2
    voters = len(running.controllers)
    row = Row(
        "quorum",
        f"topics created, {voters} voter{'s' if voters > 1 else ''}, {CLIENTS} in flight",
        f"{rate:,.0f} per s",
        f"bare 1 KiB append + fdatasync, {bare:,.0f} per s",
        rate / bare,
        "reported",
        True,
    )
    return row, rate


# -- failover ------------------------------------------------------------------


async def change_topic(node: NodeProcess, value: int) -> bool:
    """Change a setting of a topic; return whether this node acknowledged it."""
    config = AlterableConfig("retention.ms", SET, str(value))
    resource = AlterConfigsResource(TOPIC_RESOURCE, "warm-0-0", [config])
    try:
        response = await node.ask(IncrementalAlterConfigsRequest([resource]))
    except (OSError, Fault):
        return False
    assert isinstance(response, IncrementalAlterConfigsResponse)
    return all(each.error_code == ErrorCode.NONE for each in response.responses)


async def fail_over(running: Cluster, number: int) -> float:
    """Kill the leader; return the seconds until another node acknowledged a change."""
    leader = await running.leader()
    others = [node for node in running.controllers if node is not leader]
    began = perf_counter()
    leader.kill()
    for node in cycle(others):
        if await change_topic(node, 1_000_000 + number):
            break
        await asyncio.sleep(RETRY_S)
    took = perf_counter() - began
    leader.start()
    return took


async def fail_overs(running: Cluster) -> Row:
    """Measure several failovers; the median counts.

    Two voters that time out in the same moment may split the votes; as in Kafka the election is
    then repeated one to two timeouts later. The slowest failover shows this.
    """
    took = [await fail_over(running, number) for number in range(KILLS)]
    median_s = statistics.median(took)
    ratio = median_s / (ELECTION_MS / 1000)
    return Row(
        "quorum",
        f"kill -9 of the leader of 3 to the next acknowledged change, {KILLS} times",
        f"{median_s:.2f} s (slowest {max(took):.2f} s)",
        f"election timeout {ELECTION_MS} ms, fetch timeout {FETCH_MS} ms",
        ratio,
        f"<= {TIMEOUTS_MAX}",
        ratio <= TIMEOUTS_MAX,
    )


# -- many partitions -----------------------------------------------------------


def many_topics(prefix: str) -> list[CreatableTopic]:
    """Return topics that together have 10,000 partitions."""
    return [CreatableTopic(f"{prefix}-{number}", PARTITIONS, 1) for number in range(TOPICS)]


async def creation(running: Cluster, one_by_one: float) -> Row:
    """Create many partitions with one request; the reference is one request each."""
    leader = await running.leader()
    connection = await leader.connect()
    began = perf_counter()
    await create_topics(connection, many_topics("many"))
    took = perf_counter() - began
    await connection.close()
    return Row(
        "quorum",
        f"{TOPICS * PARTITIONS:,} partitions created by one request, 1 voter",
        f"{took:.2f} s",
        f"one by one, {CLIENTS} in flight, {TOPICS * PARTITIONS / one_by_one:.0f} s",
        TOPICS * PARTITIONS / one_by_one / took,
        "reported",
        True,
    )


# -- a snapshot ----------------------------------------------------------------


def combined(folder: Path) -> Loaded:
    """Return the settings of a formatted node that is broker and only voter."""
    loaded = load(
        "process.roles=broker,controller\nnode.id=1\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:1\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"log.dirs={folder / 'combined'}\n"
    )
    options = FormatOptions(cluster_id=CLUSTER_ID, quorum=Quorum(is_standalone=True))
    random = SystemRandom()
    plan = plan_format(loaded, options, random)
    format_node(RealDisk(), random, SystemClock().now(), plan)
    return loaded


async def snapshot_pause(node: Node, connection: Connection, number: int) -> tuple[float, float]:
    """Write one snapshot; return the longest gap between two ticks and its duration, in ms."""
    await create_topics(connection, [CreatableTopic(f"news-{number}", 1, 1)])
    before = node.snapshot_written
    longest_s = 0.0
    node.request_snapshot()
    began = last = perf_counter()
    while node.snapshot_written == before:
        await asyncio.sleep(TICK_S)
        now = perf_counter()
        longest_s = max(longest_s, now - last)
        last = now
    return longest_s * 1000, (last - began) * 1000


async def snapshots(folder: Path) -> Row:
    """Measure the pauses of a node with many partitions; the median of the rounds counts."""
    node = await start_node(combined(folder))
    try:
        await node.wait_image(lambda image: image.cluster.is_unfenced(node.node_id))
        assert node.listen_addr is not None
        connection = await Connection.open(TcpNetwork(), node.listen_addr, client_id="bench")
        for number in range(SNAPSHOT_PARTITIONS // TOPICS // PARTITIONS):
            await create_topics(connection, many_topics(f"t{number}"))
        rounds = [await snapshot_pause(node, connection, number) for number in range(SNAPSHOTS)]
        await connection.close()
    finally:
        await node.shutdown()
    pause_ms, took_ms = sorted(rounds)[SNAPSHOTS // 2]
    return Row(
        "quorum",
        f"longest wait for the loop while {SNAPSHOT_PARTITIONS:,} partitions are snapshotted",
        f"{pause_ms:.1f} ms of {took_ms:.0f} ms ({', '.join(f'{p:.0f}' for p, _ in rounds)})",
        f"{PAUSE_MS_MAX:.0f} ms allowed, a tick every {TICK_S * 1000:.0f} ms",
        pause_ms / PAUSE_MS_MAX,
        "<= 1.0",
        pause_ms <= PAUSE_MS_MAX,
    )


# -- all -----------------------------------------------------------------------


async def measure(folder: Path) -> list[Row]:
    """Measure one after the other, with nothing else running."""
    async with cluster(folder / "one", 1, SETTINGS) as one:
        with_one, rate = await changes(folder, one)
        many = await creation(one, rate)
    async with cluster(folder / "three", 3, SETTINGS) as three:
        with_three, _ = await changes(folder, three)
        deaths = await fail_overs(three)
    gc.collect()
    return [with_one, with_three, deaths, many, await snapshots(folder)]


def run() -> list[Row]:
    """Measure all of the area."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        return asyncio.run(measure(Path(folder)))


if __name__ == "__main__":
    print(render(run()))
