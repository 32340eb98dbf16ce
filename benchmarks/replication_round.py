"""Where the time of a replicated record goes: a leader and a follower in one process, over TCP.

    python -m benchmarks.replication_round [--records N] [--pace PER_S]

Printed are medians in microseconds:

    follower   from the response in the follower's receive buffer to its next request: parse it,
               append, decide and encode the request
    replicated from that request in the leader's receive buffer until the high watermark has passed
               the record
    leader     from there until the follower's fetch waits again
    CPU        of both, from the append to the end of the wait, system calls included

At a pace of 200 a second the processor's caches are cold, as they are in a broker with little load;
between two records, memory is read to the same end.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import cast

from benchmarks.fast_paths import context_of
from benchmarks.fetch import Alone
from benchmarks.produce import CLUSTER, NOW, TOPIC_ID, batch_of
from ottla.api.fetch.handler import FetchHandlers
from ottla.api.fetch.reading import ReadSources
from ottla.api.fetch.sessions import Sessions
from ottla.api.surface.binding import bind_routes, handlers_of
from ottla.api.surface.routes import Routes
from ottla.client import connection as client
from ottla.config.generated import TopicConfig
from ottla.metadata.image import Image
from ottla.metadata.topics import DIRECTORY_UNASSIGNED, PartitionRegistration, Topics
from ottla.observability.topic_events import TopicMeter
from ottla.protocol.api_keys import Listener
from ottla.protocol.faults import Fault
from ottla.protocol.types import NodeId, Offset, TopicPartition
from ottla.replication.fetching.fetcher_loop import Fetchers
from ottla.replication.host import Host, HostPorts, HostSettings
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import Partition
from ottla.replication.partition_host import PartitionHost
from ottla.runtime.clock import SystemClock
from ottla.runtime.collector import settle
from ottla.runtime.disk import RealDisk
from ottla.runtime.event_loop import new_event_loop
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address, Committer
from ottla.runtime.randomness import SystemRandom
from ottla.server.connection import Connection
from ottla.server.listener_context import ListenerContext
from ottla.storage.directory.log_dir import (
    LogDirectory,
    LogDirPorts,
    format_directory,
    open_directories,
)
from ottla.storage.log.log_config import LogConfig

LEADER, FOLLOWER = NodeId(0), NodeId(1)
REPLICAS = PartitionRegistration(
    (LEADER, FOLLOWER), (LEADER, FOLLOWER), LEADER, 0, 0, (DIRECTORY_UNASSIGNED,) * 2
)
NAME = TopicPartition("bench", 0)
COLD_BYTES = 8 << 20


def _no_committer(path: str) -> Committer:
    raise AssertionError("nothing is synced here")


def _open(folder: Path, node_id: NodeId) -> tuple[LogDirPorts, LogDirectory]:
    ports = LogDirPorts(RealDisk(), SystemClock(), SystemRandom())
    format_directory(ports, str(folder), node_id=node_id, cluster_id=CLUSTER)
    (directory,) = open_directories(ports, [str(folder)], node_id=node_id).online
    directory.open_all(lambda _: LogConfig())
    return ports, directory


def _partition(directory: LogDirectory, host: PartitionHost) -> Partition:
    log = directory.create_log(NAME, TOPIC_ID, LogConfig()).log
    partition = Partition(NAME, TOPIC_ID, directory, log, TopicConfig(), host)
    partition.apply(REPLICAS)
    return partition


class Times:
    """When the steps of the round in progress happened."""

    def __init__(self) -> None:
        self.received = self.requested = self.answered = self.ended = self.arrived = 0.0

    def install(self) -> None:
        """Wrap the functions at which a step begins or ends."""
        stream, frame, served = (
            client._Stream.buffer_updated,
            cast("Callable[..., bytearray]", vars(client)["request_frame"]),
            Connection.buffer_updated,
        )

        def receive(self_: client._Stream, nbytes: int) -> None:
            self.received = perf_counter()
            stream(self_, nbytes)

        def request(*args: object) -> bytearray:
            made = frame(*args)
            self.requested = perf_counter()
            return made

        def serve(self_: Connection, nbytes: int) -> None:
            self.arrived = perf_counter()
            served(self_, nbytes)
            self.ended = perf_counter()

        client._Stream.buffer_updated = receive  # type: ignore[method-assign,assignment]
        vars(client)["request_frame"] = request
        Connection.buffer_updated = serve  # type: ignore[method-assign,assignment]


def _context(led: Partition, image: Image) -> ListenerContext:
    partitions = Partitions(lambda: image)
    partitions.add(led)
    ids = iter(range(1, 1 << 20))
    sources = ReadSources(partitions, lambda: image)
    sessions = Sessions(100, lambda: next(ids))
    handler = FetchHandlers(sources, sessions, SystemClock(), 1 << 26, TopicMeter())
    routes = bind_routes(Listener.BROKER, handlers_of(fetch=handler))
    return context_of(Routes(Listener.BROKER, routes))


async def measure(folder: Path, records: int, pace: float) -> list[tuple[float, ...]]:
    """Return the times of every record."""
    topics = Topics().with_topic("bench", TOPIC_ID)
    image = Image(topics=topics.with_partition(topics.by_id[TOPIC_ID], 0, REPLICAS))
    led = _partition(_open(folder / "leader", LEADER)[1], Alone())
    context = _context(led, image)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Connection(context, Address("127.0.0.1", 1), lambda *_: None), "127.0.0.1", 0
    )
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])

    async def dial(broker: int) -> client.Connection:
        return await client.Connection.open(TcpNetwork(), address, client_id="broker-1-fetcher")

    ports, directory = _open(folder / "follower", FOLLOWER)
    host_ports = HostPorts(ports.clock, ports.disk, ports.random, _no_committer)
    host = Host(HostSettings(node_id=FOLLOWER, static={}), [directory], host_ports, lambda: 1)
    fetchers = Fetchers(host, dial)
    fetchers.follow(_partition(directory, host))
    times, found, cold = Times(), [], bytearray(COLD_BYTES)
    times.install()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(fetchers.run(lambda: None))
        while led.followers[FOLLOWER].log_end < 0:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)
        settle()
        for _ in range(records):
            if pace:
                await asyncio.sleep(1 / pace)
                cold.count(1)
            found.append(await _one(led, times))
        running.cancel()
    server.close()
    return found[len(found) // 10 :]


async def _one(led: Partition, times: Times) -> tuple[float, ...]:
    replicated: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def done(fault: Fault | None) -> None:
        assert fault is None
        replicated.set_result(perf_counter())

    batch = batch_of(1, 100)
    began = process_time()
    led.append(batch, now=NOW)
    led.when_replicated(Offset(led.log.log_end_offset), done)
    at = await replicated
    spent = process_time() - began
    received, requested, arrived, ended = (
        times.received, times.requested, times.arrived, times.ended
    )  # fmt: skip
    return requested - received, at - arrived, ended - at, spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--pace", type=float, default=0.0)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        found = runner.run(measure(Path(folder), given.records, given.pace))
    names = ("follower", "replicated", "leader", "CPU")
    for name, values in zip(names, zip(*found, strict=True), strict=True):
        print(f"{name:12} {median(values) * 1e6:7.1f} us")


if __name__ == "__main__":
    main()
