"""Compare copies to remote storage, and reads from it, with the store's bare speed, in one run.

The store is a directory, and an S3 server of another process (moto). Copying a segment computes its
checksum, uploads it and reads it back. Reading is sequential, a fetch of 1 MiB at a time. The
latency of a producer while its broker copies other topics is measured by `copy_latency`.

    python -m benchmarks.tiering
"""

import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

from tests.free_ports import free_ports

from benchmarks import copy_latency
from benchmarks.bare_store import open_bare
from benchmarks.report import Row, render, spread
from ottla.protocol.faults import OffsetOutOfRange, StorageFailed
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset, TopicIdPartition, Uuid
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.event_loop import run as run_loop
from ottla.runtime.ports import ObjectStore
from ottla.runtime.randomness import SystemRandom
from ottla.runtime.trusted_time import TrustedClock
from ottla.runtime.worker import ThreadWorker
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.tiering.metadata_manager import InMemoryMetadata
from ottla.tiering.read_cache import BLOCK_BYTES, BLOCKS_BYTES_MAX, INDEX_BYTES_MAX, ReadCache
from ottla.tiering.remote_log_manager import ManagerPorts, ManagerSettings, RemoteLogManager
from ottla.tiering.remote_reads import RemoteReads
from ottla.tiering.remote_segment import BlockKey, IndexKey, SegmentReads
from ottla.tiering.segment_objects import ObjectKind
from ottla.tiering.segment_store import SegmentStore, StorePorts
from ottla.tiering.store_settings import DIRECTORY, S3, StoreSettings, open_store

AREA = "tiering"
ROUNDS = 5
MIB = 1 << 20
SEGMENT_BYTES = 32 * MIB
SEGMENTS = 4


class BenchReplica:
    """A hosted partition."""

    topic, index, topic_id = "t", 0, Uuid(bytes(range(16)))
    offline: StorageFailed | None = None
    is_leader = True
    leader_epoch = LeaderEpoch(0)

    def __init__(self, log: Log) -> None:
        self.log = log

    def log_trimmed(self) -> None:
        """Nobody waits."""


class TieredPart:
    """A log whose sealed segments are no longer on the disk, as far as reads can tell."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.local_log_start_offset = log.segments[-1].base_offset

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


def _log(root: Path) -> Log:
    """Return a log of `SEGMENTS` sealed segments, with batches of 64 KiB that do not compress."""
    config = LogConfig(segment_bytes=SEGMENT_BYTES, is_tiered=True, retention_ms=-1)
    log = Log.open(RealDisk(), str(root / "t-0"), config, clock=SystemClock())
    value = SystemRandom().bytes(64 * 1024)
    while len(log.segments) <= SEGMENTS:
        batch = bytearray(build_batch([Record(Offset(0), Millis(1000), None, value)]))
        log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now=Millis(5))
    log.set_high_watermark(log.log_end_offset)
    return log


async def _copy(log: Log, objects: ObjectStore, metadata: InMemoryMetadata) -> SegmentStore:
    """Copy all sealed segments, as a broker does."""
    ports = StorePorts(objects, RealDisk(), ThreadWorker("tier"), SystemRandom())
    store = SegmentStore(ports, f"copy-{SystemRandom().below(1 << 30)}")
    replica = BenchReplica(log)
    clock = TrustedClock.of(SystemClock())
    manager_ports = ManagerPorts(clock, SystemRandom(), lambda: [replica])
    settings = ManagerSettings(NodeId(1), interval_ms=10)
    manager = RemoteLogManager(settings, manager_ports, store, metadata)
    service = asyncio.ensure_future(manager.run(lambda: None))
    while manager.counts.copied_segments < SEGMENTS:  # noqa: ASYNC110 - no one event
        await asyncio.sleep(0.001)
    service.cancel()
    await asyncio.wait([service])
    return store


async def _upload(log: Log, objects: ObjectStore, metadata: InMemoryMetadata) -> None:
    """Upload the same files, one after the other, and nothing else."""
    for segment in log.segments[:-1]:
        await objects.put_file(f"bare/{segment.base_offset}", segment.path)


# A broker has one of each. A full cache takes the memory of a new block from an old one.
BLOCKS: ReadCache[BlockKey] = ReadCache(BLOCKS_BYTES_MAX)
INDEXES: ReadCache[IndexKey] = ReadCache(INDEX_BYTES_MAX)
READER = ThreadWorker("tier-read")


async def _read_tier(log: Log, store: SegmentStore, metadata: InMemoryMetadata) -> None:
    reads = SegmentReads(store, BLOCKS, INDEXES, READER)
    remote = RemoteReads(metadata, reads, SystemClock())
    service = asyncio.ensure_future(remote.run(lambda: None))
    await asyncio.sleep(0)
    offset, replica = Offset(0), BenchReplica(cast(Log, TieredPart(log)))
    with contextlib.suppress(OffsetOutOfRange):
        while True:
            found = await remote.fetch(replica, offset, MIB, is_committed=False)
            # All batches have one record and the same size.
            offset = Offset(offset + len(found.data) // read_header(found.data).size)
    service.cancel()
    await asyncio.wait([service])


async def _read_bare(bare: ObjectStore, store: SegmentStore, metadata: InMemoryMetadata) -> None:
    """Read the same objects by ranged GETs of a block each, one after the other, as ``bytes``."""
    at = TopicIdPartition(BenchReplica.topic_id, 0)
    for segment in metadata.cache(at).all():
        key = store.key(segment, ObjectKind.LOG)
        for start in range(0, store.size(segment, ObjectKind.LOG), BLOCK_BYTES):
            length = min(BLOCK_BYTES, store.size(segment, ObjectKind.LOG) - start)
            bytes(await bare.get_range(key, start, length))


async def _timed(work: Coroutine[Any, Any, Any]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def _against_store(log: Log, settings: StoreSettings, label: str) -> list[Row]:
    """Return the rows of one store; speeds in MB/s."""
    size = sum(each.size for each in log.segments[:-1]) / 1e6
    copies: list[float] = []
    uploads: list[float] = []
    reads: list[float] = []
    gets: list[float] = []
    objects, bare = open_store(settings), open_bare(settings)  # a broker opens its store once
    for turn in range(ROUNDS + 1):
        log.remote_end = Offset(0)
        metadata = InMemoryMetadata()
        upload = await _timed(_upload(log, bare, metadata))
        began = time.perf_counter()
        store = await _copy(log, objects, metadata)
        copy = time.perf_counter() - began
        get = await _timed(_read_bare(bare, store, metadata))
        read = await _timed(_read_tier(log, store, metadata))
        if turn:  # the first one warms up
            for taken, found in ((uploads, upload), (copies, copy), (gets, get), (reads, read)):
                taken.append(size / found)
    return [
        _row(f"copy segments of {SEGMENT_BYTES // MIB} MiB to {label}", copies, uploads, "upload"),
        _row(f"read sequentially from {label}", reads, gets, "ranged GETs"),
    ]


def _row(what: str, ours: list[float], bare: list[float], name: str) -> Row:
    ratios = [mine / theirs for mine, theirs in zip(ours, bare, strict=True)]
    ratio = statistics.median(ratios)
    return Row(
        AREA,
        what,
        f"{statistics.median(ours):.0f} MB/s",
        f"bare {name}, {statistics.median(bare):.0f} MB/s ({spread(ratios)})",
        ratio,
        ">= 0.5",
        ratio >= 0.5,
    )


@contextlib.contextmanager
def _s3_server() -> Iterator[StoreSettings]:
    """Run moto's S3 server in a process of its own, with a bucket."""
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                made = urllib.request.Request(f"{endpoint}/bench", method="PUT")
                urllib.request.urlopen(made, timeout=5).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        keys = {"access_key_id": "a", "secret_access_key": "b"}
        options = {"region": "us-east-1", "endpoint": endpoint, **keys}
        yield StoreSettings(S3, "bench", "", options, allow_http=True)
    finally:
        server.kill()
        server.wait(30)


def run() -> list[Row]:
    """Measure everything."""
    with tempfile.TemporaryDirectory(prefix="ottla-tier-") as temporary:
        root = Path(temporary)
        log = _log(root)
        place = StoreSettings(DIRECTORY, str(root / "objects"))
        rows = run_loop(_against_store(log, place, "a directory"))
        with _s3_server() as server:
            rows += run_loop(_against_store(log, server, "an S3 server"))
    return rows + copy_latency.run()


if __name__ == "__main__":
    print(render(run()))
