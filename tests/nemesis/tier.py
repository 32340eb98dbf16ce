"""Tiered storage under faults: the settings of nodes and topic, and an audit of the store."""

import asyncio
import time
from pathlib import Path

from ottla.client.cluster import ClientOptions, ClientPorts, Cluster, NoBroker, Refused
from ottla.client.connection import Options
from ottla.config.addresses import parse_host_port
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom
from ottla.runtime.worker import InlineWorker
from ottla.tiering.segment_metadata import SegmentMetadata, SegmentState
from ottla.tiering.segment_store import SegmentStore, StorePorts
from ottla.tiering.store_settings import DIRECTORY, StoreSettings, open_store
from ottla.tiering.verification import find_orphans, read_metadata, verify_segments

SETTLED_S_MAX = 60.0
TOPIC_CONFIG = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "8000",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}
"""Segments of a few seconds; only the active one and what is not copied yet stays on disk."""


def node_config(store: Path) -> dict[str, object]:
    """Return the settings of all nodes, with their tier in a directory."""
    return {
        "remote.log.storage.system.enable": True,
        "remote.log.storage.manager.class.name": DIRECTORY,
        "rsm.config.directory": str(store),
        "remote.log.manager.task.interval.ms": 500,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 3,
        "rlmm.config.snapshot.interval.ms": 1000,
    }


def audit(store: Path, bootstrap: str, connection: Options) -> list[str]:
    """Wait until no copy or deletion is in progress; return what is missing, changed or orphaned.

    The same as ``ottla tier verify``. That nothing was copied at all is a finding, too.
    """
    deadline = time.monotonic() + SETTLED_S_MAX
    while found := asyncio.run(_audit(store, bootstrap, connection)):
        if time.monotonic() > deadline:
            break
        time.sleep(1)
    return found


def _is_given_up(metadata: SegmentMetadata) -> bool:
    """Say whether a broker crashed while it copied a segment, and the next leader gave up the copy.

    Its metadata stays for ten minutes, because the first broker may still be storing objects; what
    is there then is deleted.
    """
    return metadata.state is SegmentState.DELETE_SEGMENT_STARTED and metadata.custom is None


async def _audit(store: Path, bootstrap: str, connection: Options) -> list[str]:
    ports = ClientPorts(TcpNetwork(), SystemClock(), SystemRandom())
    places = [parse_host_port(each) for each in bootstrap.split(",")]
    addresses = [Address(each.host, each.port) for each in places]
    options = ClientOptions(connection=connection)
    try:
        async with await Cluster.open(ports, addresses, options) as cluster:
            caches = await read_metadata(cluster)
    except (OSError, NoBroker, Refused) as error:
        return [f"tier: the metadata cannot be read: {error}"]
    segments = [each for cache in caches.values() for each in cache.all()]
    objects = open_store(StoreSettings(DIRECTORY, str(store)))
    kept = SegmentStore(StorePorts(objects, RealDisk(), InlineWorker(), SystemRandom()))
    found = [f"tier: {each.segment_id} is {each.state.name}" for each in segments
             if each.state is not SegmentState.COPY_SEGMENT_FINISHED
             and not _is_given_up(each)]  # fmt: skip
    async for _, finding in verify_segments(kept, segments):
        found += [] if finding is None else [f"tier: {finding.key}: {finding.problem}"]
    orphans = await find_orphans(objects, "", segments)
    found += [f"tier: {each.key}: {each.problem}" for each in orphans]
    is_copied = any(each.state is SegmentState.COPY_SEGMENT_FINISHED for each in segments)
    return found or ([] if is_copied else ["tier: no segment was copied"])
