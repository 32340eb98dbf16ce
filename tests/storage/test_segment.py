"""One segment: indexing, searching, and bad indexes that never give a wrong result."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_fixtures import NOW, batch_of

from ottla.protocol.faults import CorruptBatch
from ottla.protocol.records.batch import HEADER_BYTES, read_header
from ottla.runtime.ports import File, OpenMode
from ottla.storage.log.files import Kind, LogFiles, State, file_name, parse_name
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.segment import Segment
from ottla.storage.log.segment_tail import RECENT_MAX
from simulation.disk import SimDisk

SPARSE = (Kind.OFFSET_INDEX, Kind.TIME_INDEX)
BASE = 1000
INTERVAL = 200
CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=INTERVAL)


def files() -> LogFiles:
    disk = SimDisk()
    disk.make_dirs("/log")
    return LogFiles(disk, "/log")


def put(segment: Segment, offset: int, *values: bytes, timestamp: int = NOW) -> None:
    batch = batch_of(*values, base_offset=offset, timestamp=timestamp)
    header = read_header(batch)
    segment.write(batch)
    segment.note(header.last_offset, header.max_timestamp, header.size)


def filled(where: LogFiles, count: int = 40, *, step: int = 1) -> Segment:
    """Batches of two records; timestamps grow by ten per batch; sealed and closed."""
    segment = Segment.create(where, BASE, CONFIG, now=NOW)
    for at in range(count):
        put(segment, BASE + at * 2 * step, b"a%04d" % at, b"b", timestamp=NOW + 10 * at)
    segment.seal()
    segment.close()
    return segment


def opened(where: LogFiles) -> Segment:
    return Segment.open(where, BASE, CONFIG, has_txn_index=False)


def overwrite(where: LogFiles, kind: Kind, data: bytes) -> None:
    file = where.disk.open(where.path(BASE, kind), OpenMode.CREATE)
    file.truncate(0)
    file.pwrite(data, 0)
    file.close()


# -- names ------------------------------------------------------------------------------------


def test_names_are_kafkas() -> None:
    assert file_name(1500, Kind.LOG) == "00000000000000001500.log"
    assert file_name(0, Kind.TIME_INDEX, State.SWAP) == "00000000000000000000.timeindex.swap"


@given(st.integers(0, 2**63 - 1), st.sampled_from(Kind), st.sampled_from(State))
def test_file_names_round_trip(offset, kind, state) -> None:
    assert parse_name(file_name(offset, kind, state)) == (offset, kind, state)


@pytest.mark.parametrize(
    "name",
    [
        "leader-epoch-checkpoint",
        "partition.metadata",
        "0.log",
        "00000000000000001500.log.tmp",
        "00000000000000001500.log\n",
        "\u06600000000000000001500.log",
        "99999999999999999999.log",
        "00000000000000001500-0000000001.checkpoint",
    ],
)
def test_other_file_names_are_not_parsed(name) -> None:
    assert parse_name(name) is None


# -- indexing --------------------------------------------------------------------------


def test_batch_is_indexed_when_more_than_the_interval_came_since_the_last_entry() -> None:
    where = files()
    segment = Segment.create(where, BASE, CONFIG, now=NOW)
    size = len(batch_of(b"a0000", b"b"))
    expected, since = [], 0
    for at in range(20):
        if since > INTERVAL:
            expected.append((at * 2 + 1, at * size))
            since = 0
        since += size
        put(segment, BASE + at * 2, b"a%04d" % at, b"b", timestamp=NOW + at)
    segment.seal()
    assert list(segment.offset_index.entries()) == expected
    assert len(expected) > 3
    # Each has a time entry, and sealing adds one more.
    times = [(NOW + (relative - 1) // 2, relative) for relative, _ in expected]
    assert list(segment.time_index.entries()) == [*times, (NOW + 19, 39)]


def test_index_of_a_rebuilt_segment_has_the_same_bytes() -> None:
    where = files()
    filled(where)
    before = {kind: where.disk.read(where.path(BASE, kind)) for kind in SPARSE}
    again = opened(where)
    again.rebuild_indexes()
    assert {k: where.disk.read(where.path(BASE, k)) for k in before} == before


# -- searching ----------------------------------------------------------------------------------


def brute_force(segment: Segment, offset: int) -> int | None:
    return next(
        (f.position for f in segment.batches_from(0) if f.header.last_offset >= offset), None
    )


def check_everything(segment: Segment, upto: int) -> None:
    for offset in range(BASE, upto):
        found = segment.find(offset)
        assert (found and found.position) == brute_force(segment, offset), offset


def test_every_offset_is_found_also_inside_a_batch_and_in_a_gap() -> None:
    where = files()
    filled(where, step=3)
    check_everything(opened(where), BASE + 40 * 6 + 5)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=25), st.integers(-2, 35))
def test_first_batch_with_a_timestamp_is_found_whatever_the_order(stamps, wanted) -> None:
    where = files()
    segment = Segment.create(where, BASE, CONFIG, now=NOW)
    for at, stamp in enumerate(stamps):
        put(segment, BASE + at, b"x" * 60, timestamp=NOW + stamp)
    expected = next((at for at, stamp in enumerate(stamps) if stamp >= wanted), None)
    found = segment.find_timestamp(NOW + wanted, BASE)
    assert (found and found.header.base_offset - BASE) == expected
    assert segment.largest.timestamp == NOW + max(stamps)
    segment.seal()
    segment.close()
    again = opened(where)
    found = again.find_timestamp(NOW + wanted, BASE)
    assert (found and found.header.base_offset - BASE) == expected
    assert again.largest == (NOW + max(stamps), BASE + stamps.index(max(stamps)))


# -- wrong indexes ---------------------------------------------------------

OFFSET_ENTRY, TIME_ENTRY = 8, 12
DAMAGES = {
    "empty": lambda data, entry: b"",
    "short by entries": lambda data, entry: data[: entry * 2],
    "short by bytes": lambda data, entry: data[:-3],
    "long by zeros": lambda data, entry: data + bytes(entry * 3),
    "long by bytes": lambda data, entry: data + b"\1",
    "zeroed": lambda data, entry: bytes(len(data)),
    "all ones": lambda data, entry: b"\xff" * len(data),
    "largest": lambda data, entry: (b"\x7f" + b"\xff" * 3) * (len(data) // 4),
    "backwards": lambda data, entry: b"".join(
        data[at : at + entry] for at in reversed(range(0, len(data), entry))
    ),
    "one entry off": lambda data, entry: data[:entry] + data[: len(data) - entry],
    "middle garbage": lambda data, entry: (
        data[: entry * 3] + b"\x00\x00\x10\x00" * (entry // 4) + data[entry * 4 :]
    ),
    "next one's second field": lambda data, entry: b"".join(
        data[at : at + entry - 4] + (data[at + entry * 2 - 4 : at + entry * 2] or data[-4:])
        for at in range(0, len(data), entry)
    ),
    "positions off by one": lambda data, entry: b"".join(
        data[at : at + entry - 1] + bytes([data[at + entry - 1] ^ 1])
        for at in range(0, len(data), entry)
    ),
}
# These leave an index that is incomplete but not wrong.
HARMLESS_TO_LOOKUPS = {"middle garbage", "one entry off"}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_offset_index_gives_correct_results_and_is_rebuilt(damage) -> None:
    where = files()
    filled(where)
    path = where.path(BASE, Kind.OFFSET_INDEX)
    good = where.disk.read(path)
    assert len(good) >= 6 * OFFSET_ENTRY
    overwrite(where, Kind.OFFSET_INDEX, DAMAGES[damage](good, OFFSET_ENTRY))
    segment = opened(where)
    assert segment.next_offset() == BASE + 80
    check_everything(segment, BASE + 82)
    if damage not in HARMLESS_TO_LOOKUPS:
        assert where.disk.read(path) == good


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_time_index_gives_correct_results(damage) -> None:
    where = files()
    filled(where)
    path = where.path(BASE, Kind.TIME_INDEX)
    good = where.disk.read(path)
    overwrite(where, Kind.TIME_INDEX, DAMAGES[damage](good, TIME_ENTRY))
    segment = opened(where)
    for at in range(41):
        found = segment.find_timestamp(NOW + 10 * at - 5, BASE)
        assert (found and found.header.base_offset) == (BASE + 2 * at if at < 40 else None)
    segment = opened(where)
    assert segment.largest.timestamp == NOW + 390
    assert segment.find(segment.largest.offset).header.last_offset == BASE + 79


@pytest.mark.parametrize("kind", SPARSE)
def test_missing_index_is_rebuilt(kind) -> None:
    where = files()
    filled(where)
    path = where.path(BASE, kind)
    good = where.disk.read(path)
    where.disk.remove(path)
    segment = opened(where)
    assert segment.largest == (NOW + 390, BASE + 79)
    check_everything(segment, BASE + 82)
    assert where.disk.read(path) == good


@given(st.data())
def test_offset_index_of_any_bytes_gives_correct_results(data) -> None:
    where = files()
    filled(where, count=12)
    overwrite(where, Kind.OFFSET_INDEX, data.draw(st.binary(max_size=40)))
    check_everything(opened(where), BASE + 26)


def test_damaged_batch_is_reported_and_not_skipped() -> None:
    where = files()
    filled(where)
    position = opened(where).find(BASE + 41).position
    where.disk.rot(where.path(BASE, Kind.LOG), position + 16)  # the magic byte
    segment = opened(where)
    with pytest.raises(Exception, match="message format") as raised:
        segment.find(BASE + 41)
    assert raised.value.code.name == "UNSUPPORTED_FOR_MESSAGE_FORMAT"
    assert segment.find(BASE + 2).position == brute_force(segment, BASE + 2)


def test_batch_longer_than_the_file_is_rejected_before_it_is_read() -> None:
    where = files()
    filled(where, count=3)
    data = bytearray(where.disk.read(where.path(BASE, Kind.LOG)))
    size = len(data) // 3
    data[2 * size + 8 : 2 * size + 12] = b"\x7f\xff\xff\xff"
    overwrite(where, Kind.LOG, bytes(data))
    segment = opened(where)
    with pytest.raises(CorruptBatch, match="extends past"):
        segment.find(BASE + 5)


# -- truncation, space ------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [BASE, BASE + 1, BASE + 30, BASE + 31, BASE + 79, BASE + 80])
def test_truncation_removes_the_batch_that_holds_the_offset(offset) -> None:
    where = files()
    filled(where)
    segment = opened(where)
    size = segment.size
    cut = segment.truncate_to(offset)
    assert segment.size == size - cut
    kept = [f.header.last_offset for f in segment.batches_from(0)]
    assert kept == [at for at in range(BASE + 1, BASE + 80, 2) if at < offset]
    assert segment.largest.timestamp == (NOW + 10 * (len(kept) - 1) if kept else -1)
    put(segment, offset + 10, b"more", timestamp=NOW)
    check_everything(segment, offset + 12)
    segment.seal()
    check_everything(opened(where), offset + 12)


def test_truncation_is_durable() -> None:
    where = files()
    filled(where)
    where.disk.sync_dir("/log")
    segment = opened(where)
    segment.file.sync()
    segment.truncate_to(BASE + 30)
    assert len(where.disk.durable(segment.path)) == segment.size


def test_reserved_space_is_not_part_of_the_segment_and_released_on_seal() -> None:
    where = files()
    config = LogConfig(segment_bytes=4096, index_interval_bytes=INTERVAL, preallocate=True)
    segment = Segment.create(where, BASE, config, now=NOW)
    put(segment, BASE, b"x")
    assert segment.file.size() == 4096
    assert segment.next_offset() == BASE + 1
    segment.seal()
    assert segment.file.size() == segment.size < 4096


def test_deleted_segment_stays_readable() -> None:
    where = files()
    segment = filled(where)
    file = segment.file
    segment.mark_deleted()
    assert where.disk.list("/log") == ["00000000000000001000.log.deleted"]
    assert len(file.pread(segment.size, 0)) == segment.size
    segment.remove()
    assert where.disk.list("/log") == []


# -- the newest batches --------------------------------------------------------------------------


class CountedReads:
    """A segment's file that counts its reads."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.reads: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def pread(self, size: int, position: int) -> bytes:
        self.reads.append(size)
        return self._file.pread(size, position)


def growing(where: LogFiles, count: int) -> tuple[Segment, CountedReads]:
    segment = Segment.create(where, BASE, CONFIG, now=NOW)
    for at in range(count):
        put(segment, BASE + at * 2, b"a%04d" % at, b"b")
    counted = CountedReads(segment.file)
    segment._file = counted
    return segment, counted


def test_newest_batch_is_found_with_one_read_of_its_header() -> None:
    segment, counted = growing(files(), 60)
    size = segment.size // 60
    found = segment.find(BASE + 2 * 59 + 1)
    assert found is not None
    assert found.position == 59 * size
    assert counted.reads == [HEADER_BYTES]


def test_end_of_a_read_at_a_new_batch_is_found_without_a_read() -> None:
    segment, counted = growing(files(), 60)
    size = segment.size // 60
    assert [segment.position_of(BASE + 2 * at) for at in (45, 59)] == [45 * size, 59 * size]
    assert counted.reads == []


def test_batches_older_than_the_remembered_ones_are_found_in_the_file() -> None:
    segment, counted = growing(files(), 60)
    size = segment.size // 60
    oldest = 60 - RECENT_MAX  # where the one before it ends is forgotten
    assert segment.position_of(BASE + 2 * oldest) == oldest * size
    assert counted.reads
    counted.reads.clear()
    assert segment.position_of(BASE + 2 * oldest + 2) == (oldest + 1) * size
    assert counted.reads == []


def test_offset_after_the_last_batch_has_no_batch() -> None:
    segment, _ = growing(files(), 3)
    assert segment.find(BASE + 6) is None
    assert segment.position_of(BASE + 6) == segment.size


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 40), st.integers(0, 2)),
            st.tuples(st.just("truncate"), st.integers(0, 120), st.just(0)),
            st.tuples(st.just("undo"), st.integers(1, 3), st.just(0)),
            st.tuples(st.just("rebuild"), st.just(0), st.just(0)),
            st.tuples(st.just("repair"), st.just(0), st.just(0)),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_newest_batches_are_found_where_the_file_has_them(
    steps: list[tuple[str, int, int]],
) -> None:
    where = files()
    segment = Segment.create(where, BASE, CONFIG, now=NOW)
    end = BASE
    for what, amount, gap in steps:
        if what == "append":
            for at in range(amount):
                values = [b"x" * (at % 7)] * (1 + (amount + at) % 4)
                put(segment, end + gap, *values)
                end += gap + len(values)
        elif what == "truncate":
            segment.truncate_to(BASE + amount)
            end = segment.next_offset()
        elif what == "undo":  # a write that failed after some of its batches were noted
            before = segment.size
            for at in range(amount):
                put(segment, end + 2 * at, b"never", b"acknowledged")
            segment.size = before
            segment.drop_unnoted()
            segment.rebuild_indexes()
        elif what == "rebuild":
            segment.rebuild_indexes()
        else:
            segment.recheck_indexes()
        on_disk = opened(where)
        for offset in range(BASE, end + 3):
            expected = on_disk.find(offset)
            assert segment.find(offset) == expected, offset
            at = on_disk.size if expected is None else expected.position
            assert segment.position_of(offset) == at, offset


def test_batch_after_a_truncation_is_not_sought_among_the_newest_of_before() -> None:
    segment, _ = growing(files(), 5)
    size = segment.size // 5
    segment.truncate_to(BASE + 4)
    assert segment.position_of(BASE + 7) == segment.size
    put(segment, BASE + 4, *[b"a"] * 20)
    put(segment, BASE + 24, b"b")
    assert segment.position_of(BASE + 7) == 2 * size


def test_older_batches_are_not_taken_for_the_newest_after_a_truncation() -> None:
    segment, _ = growing(files(), 5)
    size = segment.size // 5
    segment.truncate_to(BASE + 8)
    put(segment, BASE + 8, b"a")
    assert segment.position_of(BASE + 2) == size


def test_newest_batch_whose_stored_offset_has_changed_is_not_returned() -> None:
    segment, _ = growing(files(), 3)
    size = segment.size // 3
    segment.file.pwrite(bytes(8), 2 * size)
    assert segment.find(BASE + 5) is None


def test_rewritten_bytes_are_not_taken_for_the_batch_that_was_there() -> None:
    where = files()
    segment, _ = growing(where, 3)
    size = segment.size // 3
    disk = where.disk
    assert isinstance(disk, SimDisk)
    disk.rot(segment.path, 2 * size + 8)  # the length
    with pytest.raises(CorruptBatch):
        segment.find(BASE + 5)
