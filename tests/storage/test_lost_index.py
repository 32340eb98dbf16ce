"""An index that is damaged under a running log never stops the log: it is built again when used."""

from collections.abc import Callable

import pytest
from log_fixtures import NOW, SMALL, append, fill, open_log, reopen, values

from ottla.protocol.types import Millis, Offset
from ottla.storage.log.log import Log
from simulation.disk import SimDisk

COUNT = 18
STEP_MS = 1000
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "removed": lambda data: None,
    "emptied": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2 + 1],
    "garbage": lambda data: bytes(range(len(data))),
    "negative": lambda data: bytes(byte ^ 0xF0 for byte in data),
    "longer": lambda data: data + bytes(range(13)),
}


def read_all(log: Log, written: list[bytes]) -> None:
    assert values(log) == written


def find_timestamps(log: Log, written: list[bytes]) -> None:
    for at in range(COUNT):
        found = log.offset_for_timestamp(Millis(NOW + at * STEP_MS))
        assert found is not None
        assert found.offset == at


def find_max(log: Log, written: list[bytes]) -> None:
    found = log.max_timestamp()
    assert found is not None
    assert found.offset == COUNT - 1


def append_more(log: Log, written: list[bytes]) -> None:
    for at in range(9):
        append(log, b"more-%06d" % at, timestamp=NOW + (COUNT + at) * STEP_MS)
        written.append(b"more-%06d" % at)


def truncate(log: Log, written: list[bytes]) -> None:
    log.truncate_to(Offset(COUNT - 1))
    del written[COUNT - 1 :]


def truncate_sealed(log: Log, written: list[bytes]) -> None:
    log.truncate_to(Offset(5))
    del written[5:]


def roll(log: Log, written: list[bytes]) -> None:
    log.roll(Offset(COUNT))


def flush(log: Log, written: list[bytes]) -> None:
    log.flush()


def delete_first(log: Log, written: list[bytes]) -> None:
    second = log.segments[2].base_offset
    log.set_high_watermark(log.log_end_offset)
    log.advance_log_start(second)
    log.delete_segments([segment.base_offset for segment in log.segments[:2]])
    del written[:second]


OPERATIONS = (
    read_all,
    find_timestamps,
    find_max,
    append_more,
    truncate,
    truncate_sealed,
    roll,
    flush,
    delete_first,
)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("place", ["sealed", "active"])
def test_log_goes_on_with_an_index_that_is_damaged_under_it(
    place: str, kind: str, damage: str, operation: Callable[[Log, list[bytes]], None]
) -> None:
    disk = SimDisk()
    log = open_log(disk)
    written = fill(log, COUNT, timestamp_step=STEP_MS)
    log.close()
    log = reopen(disk, is_clean=True)
    read_all(log, written)
    find_timestamps(log, written)
    number = 1 if place == "sealed" else -1
    path = log.segments[number].path.removesuffix(".log") + kind
    disk.damage(path, DAMAGES[damage](disk.read(path)))

    operation(log, written)
    read_all(log, written)
    log.max_timestamp()
    log.flush()
    assert not log.is_failed
    log.close()
    read_all(reopen(disk, SMALL, is_clean=True), written)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("number", [1, -1])
def test_segment_knows_its_end_and_largest_timestamp_with_a_damaged_index(
    number: int, kind: str, damage: str
) -> None:
    disk = SimDisk()
    log = open_log(disk)
    fill(log, COUNT, timestamp_step=STEP_MS)
    log.close()
    segment = reopen(disk, is_clean=True).segments[number]
    end, largest = segment.next_offset(), segment.largest
    path = segment.path.removesuffix(".log") + kind
    disk.damage(path, DAMAGES[damage](disk.read(path)))
    assert segment.next_offset() == end
    assert segment.find_timestamp(largest.timestamp, segment.base_offset) is not None
    assert segment.find(Offset(end - 1)) is not None


def test_repaired_segment_has_no_bytes_after_its_end() -> None:
    """Its file was overwritten with a longer one while the log was open."""
    disk = SimDisk()
    log = open_log(disk)
    fill(log, COUNT)
    segment = log.segments[1]
    data = disk.read(segment.path)
    disk.damage(segment.path, data[::-1] + data)
    log.patch(segment, 0, data)
    assert disk.read(segment.path) == data
