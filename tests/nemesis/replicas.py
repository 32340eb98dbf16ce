"""The contents of each replica on disk at the end, batch by batch."""

import hashlib
from pathlib import Path

from tests.nemesis.load import title
from tests.nemesis.recorder import now

from ottla.protocol.records.batch import HEADER_BYTES, read_header
from ottla.testing import Cluster
from ottla.testing.history.events import Replica


def batches_in(directory: Path) -> list[tuple[int, str]]:
    """Return the base offset and a digest of all bytes of each batch of a partition's log."""
    found = []
    for segment in sorted(directory.glob("*.log")):
        data, at = segment.read_bytes(), 0
        while at + HEADER_BYTES <= len(data):
            header = read_header(data, at)
            if at + header.size > len(data):
                break
            digest = hashlib.sha256(data[at : at + header.size]).hexdigest()
            found.append((header.base_offset, digest))
            at += header.size
    return found


def _holding(cluster: Cluster, node_id: int, name: str) -> list[Path]:
    """Return the directory in which a node has a partition, or None."""
    places = [directory / name for directory in cluster.directories(node_id)]
    return [place for place in places if place.exists()]


def dump(cluster: Cluster, topic: str, ends: dict[int, int]) -> list[Replica]:
    """Return the contents of all replicas; ``ends`` are the high watermarks, which all have
    reached.
    """
    events = []
    for index, end in ends.items():
        where = title(topic, index)
        for node_id in cluster.node_ids:
            for directory in _holding(cluster, node_id, where):
                events.append(
                    Replica(
                        time=now(),
                        process=f"disk-{node_id}",
                        partition=where,
                        node=node_id,
                        high_watermark=end,
                        batches=tuple(batches_in(directory)),
                    )
                )
    return events
