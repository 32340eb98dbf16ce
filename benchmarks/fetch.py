"""The cost of Fetch: a poll without new records, and a reply of one MiB.

The poll is compared with what the codec alone takes to read the same request and write the same
reply; the mebibyte with a bare ``sendfile`` of the same bytes from the same file into the same
kind of connection, which another process empties.
"""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from struct import pack_into
from time import process_time

from benchmarks.report import Row, interleaved, spread
from ottla.api.fetch.handler import FetchHandlers
from ottla.api.fetch.reading import ReadSources
from ottla.api.fetch.sessions import Sessions
from ottla.api.surface.replies import Chunk
from ottla.api.surface.routes import Caller
from ottla.config.generated import TopicConfig
from ottla.metadata.image import Image
from ottla.metadata.topics import DIRECTORY_UNASSIGNED, PartitionRegistration, Topics
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode, encode
from ottla.protocol.frames import Request
from ottla.protocol.messages import fetch
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Millis, NodeId, Offset, TopicPartition, Uuid
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import Partition
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom
from ottla.storage.directory.log_dir import LogDirectory, LogDirPorts, format_directory
from ottla.storage.log.log_config import LogConfig

VERSION = 17
TOPIC_ID = Uuid(bytes(range(16)))
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
MEBIBYTE = 1 << 20
POLLS = 2000
MEBIBYTES = 200
PARTITIONS = 20
ROUNDS = 9
# A poll has few bytes; most of its time finds the partitions, their offsets and new records.
POLL_TARGET = 0.08
SEND_TARGET = 0.7
DRAIN = """
import socket, sys
taken = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
room = bytearray(1 << 20)
while taken.recv_into(room):
    pass
"""
EPOCH_AT = 17  # of the session epoch in a request of version 15 on
CALLER = Caller("User:ANONYMOUS", "bench", Address("127.0.0.1", 1), "PLAINTEXT")
LEADS = PartitionRegistration((0,), (0,), 0, 0, 0, (DIRECTORY_UNASSIGNED,))


class Alone:
    """The dependencies of partitions with one replica."""

    node_id = NodeId(0)
    broker_epoch = 1
    lag_ms_max = 30_000
    clock = SystemClock()

    def is_alive(self, broker: int) -> bool:
        """Not used here."""
        return True

    def is_eligible(self, broker: int, broker_epoch: int | None) -> bool:
        """Not used here."""
        return True

    def is_online(self, broker: int, directory: object) -> bool:
        """Not used here."""
        return True

    def propose(self, partition: object, proposal: object) -> None:
        """There is no ISR to change."""
        raise AssertionError

    def suspect(self, partition: object, offset: Offset) -> None:
        """Check nothing."""

    def storage_failed(self, directory: object, reason: str) -> None:
        """Fail the benchmark."""
        raise AssertionError(reason)


class Broker:
    """Partitions of one topic on a real disk, and the handler that reads them."""

    def __init__(self, folder: str) -> None:
        ports = LogDirPorts(RealDisk(), SystemClock(), SystemRandom())
        format_directory(ports, folder, node_id=NodeId(0), cluster_id=CLUSTER)
        self.directory = LogDirectory.open(ports, folder, node_id=NodeId(0), cluster_id=CLUSTER)
        self.directory.open_all(lambda _: LogConfig())
        topics = Topics().with_topic("t", TOPIC_ID)
        for index in range(PARTITIONS):
            topics = topics.with_partition(topics.by_id[TOPIC_ID], index, LEADS)
        self.image = Image(topics=topics)
        self.partitions = Partitions(lambda: self.image)
        for index in range(PARTITIONS):
            self._host(index)
        ids = iter(range(1, 1 << 20))
        sources = ReadSources(self.partitions, lambda: self.image)
        sessions = Sessions(100, lambda: next(ids))
        self.handlers = FetchHandlers(sources, sessions, ports.clock, 1 << 26)

    def _host(self, index: int) -> None:
        name = TopicPartition("t", index)
        config = LogConfig(max_message_bytes=4 * MEBIBYTE)
        log = self.directory.create_log(name, TOPIC_ID, config).log
        partition = Partition(name, TOPIC_ID, self.directory, log, TopicConfig(), Alone())
        self.partitions.add(partition)
        partition.apply(LEADS)
        record = Record(Offset(0), Millis(0), b"key", bytes(MEBIBYTE if index == 0 else 10))
        partition.append(build_batch([record]), now=Millis(0))

    def ask(self, body: memoryview) -> list[Chunk]:
        """Pass a request to the handler, which answers immediately."""
        reply = self.handlers.on_fetch(CALLER, Request(ApiKey.FETCH, VERSION, 1, "b", body), body)
        assert isinstance(reply, list)
        return reply


def request_of(
    indexes: range, offset: int, *, session_id: int = 0, session_epoch: int = -1
) -> bytearray:
    """Return a request for partitions, from one offset."""
    parts = [
        fetch.FetchPartition(partition=each, fetch_offset=offset, partition_max_bytes=4 * MEBIBYTE)
        for each in indexes
    ]
    topics = [fetch.FetchTopic(topic_id=TOPIC_ID, partitions=parts)] if parts else []
    request = fetch.FetchRequest(
        topics=topics, min_bytes=1, session_id=session_id, session_epoch=session_epoch
    )
    return bytearray(encode(request, VERSION))


def bytes_of(chunks: list[Chunk]) -> bytes:
    """Return a reply without records as it is on the wire."""
    return b"".join(bytes(each) for each in chunks if isinstance(each, bytes | bytearray))


def polling(broker: Broker, count: int) -> tuple[Callable[[], None], bytearray, bytes]:
    """Return polls of a session that find nothing new, one such request, and its reply."""
    first = broker.ask(memoryview(request_of(range(count), 1, session_epoch=0)))
    session = decode(fetch.FetchResponse, VERSION, bytes_of(first)).session_id
    body = request_of(range(0), 0, session_id=session, session_epoch=1)
    view, epoch = memoryview(body), 1

    def work() -> None:
        nonlocal epoch
        for _ in range(POLLS):
            pack_into(">i", body, EPOCH_AT, epoch)
            broker.ask(view)
            epoch += 1

    pack_into(">i", body, EPOCH_AT, epoch)
    epoch += 1
    return work, body, bytes_of(broker.ask(view))


def through_codec(request: bytearray, reply: bytes) -> Callable[[], None]:
    """Return work that only decodes the request and encodes the reply."""
    view, message = memoryview(request), decode(fetch.FetchResponse, VERSION, reply)

    def work() -> None:
        for _ in range(POLLS):
            decode(fetch.FetchRequest, VERSION, view)
            encode(message, VERSION)

    return work


@contextmanager
def drained() -> Iterator[socket.socket]:
    """Yield a connection whose other end is read by another process."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        with subprocess.Popen([sys.executable, "-c", DRAIN, str(port)]) as drain:
            ours, _ = door.accept()
            with ours:
                yield ours
            drain.wait()


def send_file(out: socket.socket, source: int, position: int, length: int) -> None:
    """Send a piece of a file, all of it."""
    while length:
        sent = os.sendfile(out.fileno(), source, position, length)
        position, length = position + sent, length - sent


def fetching(broker: Broker, out: socket.socket) -> Callable[[], None]:
    """Return fetches of one mebibyte each, their replies sent."""
    view = memoryview(request_of(range(1), 0, session_epoch=-1))

    def work() -> None:
        for _ in range(MEBIBYTES):
            head, records, tail = broker.ask(view)
            assert isinstance(head, bytearray)
            assert isinstance(tail, bytearray)
            assert not isinstance(records, bytes | bytearray | memoryview)
            out.sendall(head, socket.MSG_MORE)
            send_file(out, records.file.fileno(), records.position, records.length)
            out.sendall(tail)

    return work


def sending(broker: Broker, out: socket.socket) -> Callable[[], None]:
    """Return the same bytes sent without a fetch."""
    (records,) = (each for each in broker.ask(memoryview(request_of(range(1), 0)))[1:2])
    assert not isinstance(records, bytes | bytearray | memoryview)
    source, length = records.file.fileno(), records.length

    def work() -> None:
        for _ in range(MEBIBYTES):
            send_file(out, source, records.position, length)

    return work


def cpu_interleaved(
    ours: Callable[[], None], theirs: Callable[[], None]
) -> tuple[float, float, list[float]]:
    """Like `interleaved`, but by CPU time: wall time includes the other process."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for work, times in zip((ours, theirs), taken, strict=True):
            began = process_time()
            work()
            times.append(process_time() - began)
    ratios = [other / own for own, other in zip(*taken, strict=True)]
    return median(taken[0]), median(taken[1]), ratios


def poll_row(broker: Broker, count: int) -> Row:
    """Compare polls of a session with ``count`` partitions."""
    work, request, reply = polling(broker, count)
    ours, theirs, ratios = interleaved(work, through_codec(request, reply), ROUNDS)
    return Row(
        "fetch",
        f"a poll of {count} partition{'s' * (count > 1)} that finds nothing",
        f"{ours / POLLS * 1e6:.1f} us ({spread(ratios)})",
        f"{theirs / POLLS * 1e6:.1f} us in the codec alone",
        theirs / ours,
        f"at least {POLL_TARGET}" if count == 1 else "for orientation",
        count > 1 or theirs / ours >= POLL_TARGET,
    )


def run() -> list[Row]:
    """Measure all of the area."""
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(folder)
        rows = [poll_row(broker, 1), poll_row(broker, PARTITIONS)]
        with drained() as out, drained() as other:
            ours, theirs, ratios = cpu_interleaved(fetching(broker, out), sending(broker, other))
        rows.append(
            Row(
                "fetch",
                "1 MiB fetched and sent",
                f"{ours / MEBIBYTES * 1e6:.0f} us of CPU ({spread(ratios)})",
                f"{theirs / MEBIBYTES * 1e6:.0f} us of bare sendfile",
                theirs / ours,
                f"at least {SEND_TARGET}",
                theirs / ours >= SEND_TARGET,
            )
        )
        return rows
