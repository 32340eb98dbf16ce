"""The metadata log of every controller and broker, compared batch by batch and image by image."""

from collections.abc import Iterator
from pathlib import Path

from tests.mixed.cluster import MixedCluster, run_tool
from tests.nemesis.replicas import batches_in

from ottla.metadata.image import EMPTY, Image
from ottla.metadata.replay import replay_all
from ottla.metadata.snapshot_records import snapshot_records
from ottla.protocol.internal.framing import encode_framed
from ottla.protocol.internal.metadata_cluster import NoOpRecord
from ottla.protocol.internal.metadata_records import decode_metadata_record
from ottla.protocol.records.batch import batches
from ottla.protocol.records.reader import read_records
from ottla.protocol.schema import Message

LOG = "__cluster_metadata-0"
REPLAY = Path(__file__).parents[1] / "conformance" / "MetadataReplay.java"


def log_of(cluster: MixedCluster, node_id: int) -> Path:
    return cluster.data(node_id) / LOG


def snapshots(log: Path) -> list[Path]:
    """Return the complete snapshots of a metadata log, the oldest first."""
    return sorted(log.glob("*.checkpoint"))


def assert_logs_equal(cluster: MixedCluster) -> int:
    """Assert that all nodes have the same committed batches, to the byte; return their number."""
    reply = cluster.quorum()
    assert reply is not None
    committed = int(reply.topics[0].partitions[0].high_watermark)
    logs = {node_id: dict(batches_in(log_of(cluster, node_id))) for node_id in cluster.running}
    first = max(min(each) for each in logs.values())
    # A node may not have fetched the last batches yet.
    end = min(committed, *(max(each) for each in logs.values()))
    parts = {
        node_id: {at: digest for at, digest in each.items() if first <= at < end}
        for node_id, each in logs.items()
    }
    reference = next(iter(parts.values()))
    assert reference
    assert all(part == reference for part in parts.values()), f"logs differ in {first}..{end}"
    return len(reference)


def assert_images_equal(log: Path, upto: int) -> Image:
    """Assert that Kafka and Ottla make the same image of a log; return it.

    It begins with the newest snapshot, whichever kind wrote it.
    """
    messages: list[Message] = []
    lines: list[str] = []
    for value in _committed(log, upto):
        messages.append(decode_metadata_record(value).message)
        lines += [value.hex(), "apply"]
    image = replay_all(EMPTY, messages)
    answer = run_tool(str(REPLAY), stdin="\n".join([*lines, "end"]) + "\n")
    theirs = [bytes.fromhex(line) for line in answer.split() if line != "end"]
    # Ottla's snapshots also note answered requests, in fields that Kafka skips.
    mine = [
        encode_framed(record)
        for record in snapshot_records(image)
        if not isinstance(record.message, NoOpRecord)
    ]
    assert _unordered(mine) == _unordered(theirs)
    return image


def _committed(log: Path, upto: int) -> Iterator[bytes]:
    """Yield the records of a log below an offset, without transactions that were aborted."""
    held: list[bytes] | None = None
    newest = snapshots(log)[-1:]
    begin = 0 if not newest else int(newest[0].name.partition("-")[0])
    for file in (*newest, *sorted(log.glob("*.log"))):
        data, is_snapshot = file.read_bytes(), file in newest
        for position, header in batches(data):
            if header.is_control:
                continue
            if not is_snapshot and not begin <= header.base_offset < header.next_offset <= upto:
                continue
            for record in read_records(data, position):
                assert record.value is not None
                value = bytes(record.value)
                name = type(decode_metadata_record(value).message).__name__
                if name == "BeginTransactionRecord":
                    held = []
                elif name == "EndTransactionRecord":
                    yield from held or ()
                    held = None
                elif name == "AbortTransactionRecord":
                    held = None
                elif held is not None:
                    held.append(value)
                else:
                    yield value


def _unordered(values: list[bytes]) -> list[bytes]:
    """Forget the order of records, and of listeners and features within one."""
    return sorted(bytes(sorted(value)) for value in values)
