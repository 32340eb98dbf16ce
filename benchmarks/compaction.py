"""Compaction of a log of 100-byte records, compiled and as plain Python.

    python -m benchmarks compaction
    python -m benchmarks.compaction --megabytes 1024

A record is 100 bytes with its framing, 160 of them to a batch of 16 KB, as a producer sends
them. Half of the records in the first half of the log are obsolete; the rest of each batch is
compressed and written again. Both forms are compared by CPU time per record; the plain one runs
over fewer records, because it is slow. The time of a walk over the records without compaction is
shown as well.

Two more rows are on small batches of few keys, as in ``__consumer_offsets``: by runs, and each
alone (`storage/cleaner/batch_run.py`).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time
from unittest.mock import patch

from benchmarks.report import Row, render
from ottla.protocol.records.batch import BatchHeader, read_header
from ottla.protocol.records.reader import Record
from ottla.protocol.records.walker import RECORD_SIZE_MAX, walk_spans
from ottla.protocol.records.writer import build_batch, encode_records, seal_batch
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.storage.cleaner.batch_cleaner import unpack
from ottla.storage.cleaner.batch_run import BatchRun
from ottla.storage.cleaner.compactor import CleaningRound, Memory, dirty_part
from ottla.storage.cleaner.offset_map import IS_COMPILED
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.scan import whole_batches

RECORDS_PER_BATCH = 160
KEY_BYTES = 12
RECORD_BYTES = 100
MEGABYTES = 96
# The plain form runs over fewer records; both are compared per record.
PLAIN_MEGABYTES = 6
# Small batches: how many there are of each number of records, of which every one has a key of 24
# bytes and a value of 24, as an offset has.
SMALL_BATCHES = {1: 60_000, 100: 4_000}
SECRET = bytes(range(16))
SOURCE = Path(__file__).parents[1] / "src"


def template() -> tuple[BatchHeader, bytearray, list[int]]:
    """Return a batch's header, its records, and the position of each key."""
    records = [
        Record(Offset(at), Millis(at), bytes(KEY_BYTES), b"v" * (RECORD_BYTES - KEY_BYTES - 8))
        for at in range(RECORDS_PER_BATCH)
    ]
    region = encode_records(records, 0, 0)
    header = read_header(build_batch(records))
    return header, region, list(walk_spans(region, RECORDS_PER_BATCH).key_starts)


def batches(count: int) -> Iterator[bytearray]:
    """Yield ``count`` batches; keys repeat after half of the log, in another order."""
    header, region, starts = template()
    total = count * RECORDS_PER_BATCH
    for number in range(count):
        for at, start in enumerate(starts):
            position = number * RECORDS_PER_BATCH + at
            # Odd records have new keys; even ones repeat a key of the first half.
            key = position if at % 2 else position % (total // 2)
            region[start : start + KEY_BYTES] = key.to_bytes(KEY_BYTES)
        yield seal_batch(header, region)


def fill(directory: str, megabytes: int) -> Log:
    config = LogConfig(is_compacted=True, segment_bytes=64 << 20, max_message_bytes=1 << 20)
    log = Log.open(RealDisk(), directory, config, clock=SystemClock())
    count = (megabytes << 20) // (RECORDS_PER_BATCH * RECORD_BYTES)
    for batch in batches(count):
        log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now=Millis(1))
    log.roll()
    log.set_high_watermark(log.log_end_offset)
    log.flush()
    return log


def walk(log: Log) -> None:
    """Read the log and find every record's fields."""
    for segment in log.segments:
        for whole in whole_batches(segment.file, 0, segment.size):
            unpack(whole, RECORD_SIZE_MAX)


def measure(megabytes: int) -> dict[str, float]:
    """Return CPU nanoseconds per record of a bare walk and of a whole compaction."""
    directory = tempfile.mkdtemp()
    try:
        log = fill(f"{directory}/t-0", megabytes)
        records = log.log_end_offset
        began = process_time()
        walk(log)
        walked = process_time() - began
        dirty = dirty_part(log, None, Millis(1))
        cleaning = CleaningRound(RealDisk(), log, dirty, Memory(512 << 20, SECRET), Millis(1))
        began, began_wall = process_time(), perf_counter()
        for _ in cleaning.run():
            pass
        cleaned, wall = process_time() - began, perf_counter() - began_wall
        stats = cleaning.result.stats
        assert stats.records_read == records
        log.close()
    finally:
        shutil.rmtree(directory)
    return {
        "kept": stats.records_written / records,
        "walk_ns": walked / records * 1e9,
        "round_ns": cleaned / records * 1e9,
        "seconds": wall,
        "is_compiled": IS_COMPILED,
    }


def fill_small(directory: str, records: int, count: int) -> Log:
    """Return a log of ``count`` batches of so many records, all with the same keys."""
    config = LogConfig(is_compacted=True, segment_bytes=100 << 20)
    log = Log.open(RealDisk(), directory, config, clock=SystemClock())
    pairs = [Record(Offset(at), Millis(0), at.to_bytes(24), b"v" * 24) for at in range(records)]
    batch = build_batch(pairs)
    for _ in range(count):
        log.append_as_leader(batch[:], leader_epoch=LeaderEpoch(0), now=Millis(1))
    log.roll()
    log.set_high_watermark(log.log_end_offset)
    return log


def measure_small(records: int, count: int) -> tuple[float, float]:
    """Return the CPU microseconds of a batch, and the longest step in milliseconds."""
    with tempfile.TemporaryDirectory() as directory:
        log = fill_small(f"{directory}/t-0", records, count)
        dirty = dirty_part(log, None, Millis(1))
        cleaning = CleaningRound(RealDisk(), log, dirty, Memory(128 << 20, SECRET), Millis(1))
        began, longest, last = process_time(), 0.0, perf_counter()
        for _ in cleaning.run():
            longest, last = max(longest, perf_counter() - last), perf_counter()
        used = process_time() - began
        assert cleaning.result.stats.batches_removed == count - 1
        log.close()
    return used / count * 1e6, longest * 1e3


def small_rows() -> Iterator[Row]:
    """Yield a row per size of small batches."""
    for records, count in SMALL_BATCHES.items():
        ours, longest = measure_small(records, count)
        with patch.object(BatchRun, "read", return_value=False):
            alone, _ = measure_small(records, count // 4)
        yield Row(
            "compaction",
            f"compact batches of {records} record{'s' if records > 1 else ''}, all but one removed",
            f"{ours:.2f} us/batch, longest step {longest:.1f} ms",
            f"each batch alone, {alone:.2f} us/batch",
            alone / ours,
            ">= 3" if records == 1 else ">= 1",
            alone / ours >= (3 if records == 1 else 1),
        )


def measure_plain(megabytes: int) -> dict[str, float]:
    """Measure in a process without compiled modules."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(SOURCE, f"{copy}/src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        shutil.copytree(Path(__file__).parent, f"{copy}/src/benchmarks")
        command = [sys.executable, "-m", "benchmarks.compaction", "--json", str(megabytes)]
        environment = {**os.environ, "PYTHONPATH": f"{copy}/src"}
        output = subprocess.run(
            command, cwd=copy, env=environment, check=True, capture_output=True, text=True
        ).stdout
    plain: dict[str, float] = json.loads(output)
    assert not plain["is_compiled"]
    return plain


def run(megabytes: int = MEGABYTES) -> list[Row]:
    ours = measure(megabytes)
    plain = measure_plain(PLAIN_MEGABYTES)
    ratio = plain["round_ns"] / ours["round_ns"]
    rate = megabytes / ours["seconds"]
    return [
        Row(
            "compaction",
            f"compact {megabytes} MB of 100 B records, {ours['kept']:.0%} kept",
            f"{ours['round_ns']:.0f} ns/record, {rate:.0f} MB/s",
            f"the same in plain Python, {plain['round_ns']:.0f} ns/record "
            f"(its bare walk {plain['walk_ns']:.0f})",
            ratio,
            ">= 10",
            ratio >= 10,
        ),
        *small_rows(),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    parser.add_argument("--json", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.json:
        print(json.dumps(measure(arguments.json)))
    else:
        print(render(run(arguments.megabytes)))
