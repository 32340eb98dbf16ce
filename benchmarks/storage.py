"""The overhead of a log over its files: small and large appends, and opening many logs.

Each reference does the same with the same kind of files, without a log: `pwrite` of the same bytes
after their CRC; open, read 4 KiB and close of every file that a clean start may read.
"""

import tempfile
from collections.abc import Callable

from benchmarks.report import Row, interleaved, spread
from ottla.protocol.records.crc import crc32c
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import OpenMode
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_evidence import LogCheckpoint

EPOCH = LeaderEpoch(1)
NOW = Millis(1_700_000_000_000)
LARGE_BYTES, LARGE_COUNT = 1 << 20, 64
SMALL_COUNT = 20_000
PARTITIONS, SEGMENTS = 1000, 3
ROUNDS = 7
DISK, CLOCK = RealDisk(), SystemClock()
CLEAN = LogCheckpoint(is_clean=True)


def batch_of(size: int) -> bytearray:
    """Return a batch with one record of ``size`` bytes."""
    return build_batch([Record(Offset(0), NOW, b"key", bytes(size))])


def appending(
    folder: str, batch: bytearray, count: int, *, preallocate: bool
) -> Callable[[], None]:
    """Append a batch ``count`` times to a log that stays open from round to round."""
    config = LogConfig(max_message_bytes=2 * LARGE_BYTES, preallocate=preallocate)
    log = Log.open(DISK, f"{folder}/ours-{preallocate}-{len(batch)}", config, clock=CLOCK)
    unassigned = bytes(8)

    def work() -> None:
        for _ in range(count):
            batch[:8] = unassigned  # as a producer sends it
            log.append_as_leader(batch, leader_epoch=EPOCH, now=NOW)

    return work


def writing(folder: str, name: str, batch: bytearray, count: int) -> Callable[[], None]:
    """Check the CRC of the same bytes and write them, and nothing else.

    Uses a new file, as the log does: pages that were written before are written faster.
    """
    file = DISK.open(f"{folder}/bare-{name}", OpenMode.CREATE_NEW)
    end = 0

    def work() -> None:
        nonlocal end
        for _ in range(count):
            crc32c(batch, 21, len(batch))
            file.pwrite(batch, end)
            end += len(batch)

    return work


def append_rows(folder: str) -> list[Row]:
    """Compare appends with bare writes."""
    rows = []
    large, small = batch_of(LARGE_BYTES), batch_of(100)
    for preallocate in (False, True):
        bare = writing(folder, f"large-{preallocate}", large, LARGE_COUNT)
        ours = appending(folder, large, LARGE_COUNT, preallocate=preallocate)
        mine, other, ratios = interleaved(ours, bare, ROUNDS)
        how = "preallocated" if preallocate else "as Kafka's default"
        rows.append(
            Row(
                "storage",
                f"append of 1 MB batches, {how} ({spread(ratios)})",
                f"{LARGE_COUNT * LARGE_BYTES / mine / 1e6:.0f} MB/s",
                f"CRC and pwrite: {LARGE_COUNT * LARGE_BYTES / other / 1e6:.0f} MB/s",
                sorted(ratios)[len(ratios) // 2],
                "at least 0.80",
                sorted(ratios)[len(ratios) // 2] >= 0.8,
            )
        )
    ours = appending(folder, small, SMALL_COUNT, preallocate=False)
    mine, other, _ = interleaved(ours, writing(folder, "small", small, SMALL_COUNT), ROUNDS)
    added = (mine - other) / SMALL_COUNT * 1e6
    rows.append(
        Row(
            "storage",
            "what a log adds to a small append, in us",
            f"{mine / SMALL_COUNT * 1e6:.1f} us",
            f"CRC and pwrite: {other / SMALL_COUNT * 1e6:.1f} us",
            added,
            "at most 15",
            added <= 15,
        )
    )
    return rows


def make_logs(folder: str) -> list[str]:
    """Create logs of three segments and close them cleanly; return their directories."""
    paths = [f"{folder}/topic-{at}" for at in range(PARTITIONS)]
    config = LogConfig(max_message_bytes=2 * LARGE_BYTES)
    batch = batch_of(3000)
    for path in paths:
        log = Log.open(DISK, path, config, clock=CLOCK)
        for segment in range(SEGMENTS):
            for _ in range(4):
                batch[:8] = bytes(8)
                log.append_as_leader(batch, leader_epoch=EPOCH, now=NOW)
            if segment < SEGMENTS - 1:
                log.roll()
        log.close()
    return paths


def open_row(folder: str) -> Row:
    """Compare a clean start with reading the beginning of the same files."""
    paths = make_logs(folder)
    files = [f"{path}/{name}" for path in paths for name in DISK.list(path)]

    def start() -> None:
        config = LogConfig()
        logs = [Log.open(DISK, path, config, clock=CLOCK, checkpoint=CLEAN) for path in paths]
        for log in logs:
            assert log.log_end_offset == 4 * SEGMENTS
            for segment in log.segments:
                segment.close()

    def read() -> None:
        for path in files:
            file = DISK.open(path, OpenMode.READ)
            file.pread(4096, 0)
            file.close()

    mine, other, ratios = interleaved(start, read, ROUNDS)
    ratio = sorted(1 / each for each in ratios)[len(ratios) // 2]
    return Row(
        "storage",
        f"clean start of {PARTITIONS:,} partitions of {SEGMENTS} segments",
        f"{mine * 1000:.0f} ms",
        f"open, read 4 KiB, close of {len(files):,} files: {other * 1000:.0f} ms",
        ratio,
        "at most 4.00",
        ratio <= 4,
    )


def run() -> list[Row]:
    """Measure everything, after first writes that touch fresh pages."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        writing(folder, "warm", batch_of(LARGE_BYTES), LARGE_COUNT)()
        return [*append_rows(folder), open_row(folder)]
