"""Write a few records to a log on disk and read them back, without a node.

    python examples/first_log.py [directory]

The directory is an ordinary Kafka log directory; Apache Kafka's own tools can read it.
"""

import sys
from pathlib import Path

from ottla.protocol.records.batch import Compression, batches
from ottla.protocol.records.reader import Header, Record, read_records
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import LeaderEpoch, NodeId, Offset, TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.randomness import SystemRandom
from ottla.storage.directory.log_dir import LogDirectory, LogDirPorts, format_directory
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig

PARTITION = TopicPartition("greetings", 0)
WORDS = ("good morning", "good day", "good evening", "good night")


def open_log(ports: LogDirPorts, path: str) -> tuple[LogDirectory, Log]:
    """Open the directory and its log; format and create them on first use."""
    if not ports.disk.exists(f"{path}/meta.properties"):
        format_directory(ports, path, node_id=NodeId(1), cluster_id="an-example")
    directory = LogDirectory.open(ports, path, node_id=NodeId(1), cluster_id=None)
    directory.open_all(lambda _: LogConfig())
    if PARTITION not in directory.logs:
        directory.create_log(PARTITION, ports.random.uuid(), LogConfig())
    return directory, directory.logs[PARTITION].log


def write(ports: LogDirPorts, log: Log) -> None:
    """Append one batch, and print its offsets once it is durable."""
    now = ports.clock.now()
    records = [
        Record(Offset(i), now, b"key-%d" % i, word.encode(), (Header("lang", b"en"),))
        for i, word in enumerate(WORDS)
    ]
    batch = build_batch(records, compression=Compression.ZSTD)
    appended = log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now=now)
    log.flush()
    log.set_high_watermark(log.log_end_offset)
    print(f"wrote offsets {appended.first_offset} to {appended.last_offset}, {len(batch)} bytes")


def read(log: Log) -> None:
    """Read the last ten records, batch by batch."""
    offset = Offset(max(log.log_start_offset, log.log_end_offset - 10))
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20, upto=log.high_watermark)
        data = piece.file.pread(piece.length, piece.position)
        for position, header in batches(data):
            for record in read_records(data, position):
                if record.offset >= offset:
                    print(f"{record.offset:>6}  {record.key!r:12}  {record.value!r}")
            offset = header.next_offset


def main() -> None:
    """Write and read in the given directory."""
    path = str(Path(sys.argv[1] if len(sys.argv) > 1 else "ottla-data").absolute())
    ports = LogDirPorts(RealDisk(), SystemClock(), SystemRandom())
    directory, log = open_log(ports, path)
    try:
        write(ports, log)
        read(log)
    finally:
        directory.close()
    print(f"the log is in {log.directory}")


if __name__ == "__main__":
    main()
