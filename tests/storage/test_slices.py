"""A slice stays readable, whatever happens to its segment."""

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from log_fixtures import HandClock, fill

from ottla.runtime.disk import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.read import Slice

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def open_here(root: Path, clock: HandClock) -> Log:
    directory = root / "orders-0"
    directory.mkdir()
    return Log.open(RealDisk(), str(directory), SMALL, clock=clock)


def delete_and_purge(log: Log, clock: HandClock) -> None:
    log.set_high_watermark(log.log_end_offset)
    log.delete_segments([log.segments[0].base_offset])
    clock.pass_ms(SMALL.file_delete_delay_ms + 1)
    assert log.purge_deleted() == 1


def close(log: Log, clock: HandClock) -> None:
    log.close()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("end", [delete_and_purge, close])
def test_slice_outlives_its_segment(tmp_path: Path, end: Callable[[Log, HandClock], None]) -> None:
    gc.collect()
    before = open_descriptors()
    clock = HandClock()
    log = open_here(tmp_path, clock)
    fill(log, 10)
    found: Slice | None = log.read(0, 1 << 20, upto=log.log_end_offset)
    assert found is not None
    expected = found.file.pread(found.length, found.position)
    end(log, clock)
    assert found.file.pread(found.length, found.position) == expected
    assert os.fstat(found.file.fileno()).st_size >= found.length
    log.close()
    found = None
    assert open_descriptors() == before, "and its descriptor goes with it"
