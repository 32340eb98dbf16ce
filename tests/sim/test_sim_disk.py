"""What the simulated disk may lose, and what it must keep."""

import errno
import io

import pytest

from ottla.protocol.types import Millis
from ottla.runtime.atomic_file import replace_file
from ottla.runtime.ports import File, OpenMode
from simulation.disk import SimCrash, SimDisk
from simulation.platter import SECTOR_BYTES, Keep

SEEDS = range(60)


def fresh(seed: int = 0) -> SimDisk:
    disk = SimDisk(seed)
    disk.make_dirs("/d")
    return disk


def synced_file(disk: SimDisk, data: bytes, path: str = "/d/a") -> File:
    file = disk.open(path, OpenMode.CREATE)
    file.pwrite(data, 0)
    file.sync()
    disk.sync_dir("/d")
    return file


def after_power_loss(disk: SimDisk, keep: Keep = Keep.SEEDED) -> SimDisk:
    disk.crash(keep)
    disk.restart()
    return disk


@pytest.mark.parametrize("seed", SEEDS)
def test_synced_data_is_never_lost(seed: int) -> None:
    disk = fresh(seed)
    file = synced_file(disk, b"kept" * 500)
    file.pwrite(b"x" * 3000, 2000)
    after_power_loss(disk)
    assert disk.read("/d/a")[:2000] == b"kept" * 500


def test_keep_nothing_drops_all_unsynced_data() -> None:
    disk = fresh()
    file = synced_file(disk, b"old")
    file.pwrite(b"new!", 0)
    assert disk.read("/d/a") == b"new!"
    assert disk.durable("/d/a") == b"old"
    assert after_power_loss(disk, Keep.NOTHING).read("/d/a") == b"old"


def test_unsynced_writes_are_kept_lost_and_torn_over_the_seeds() -> None:
    data = b"".join(bytes([65 + i]) * SECTOR_BYTES for i in range(8))
    outcomes = set()
    for seed in SEEDS:
        disk = fresh(seed)
        synced_file(disk, b"").pwrite(data, 0)
        outcomes.add(after_power_loss(disk).read("/d/a"))
    assert {b"", data} <= outcomes
    torn = outcomes - {b"", data}
    assert len(torn) > 5
    assert any(not t.strip(b"\0") for t in torn), "the length without the data"
    assert any(t[:SECTOR_BYTES] == bytes(SECTOR_BYTES) and t.strip(b"\0") for t in torn), (
        "a later sector without an earlier one"
    )
    for outcome in torn:
        for start in range(0, len(outcome), SECTOR_BYTES):
            sector = outcome[start : start + SECTOR_BYTES]
            assert sector in (data[start : start + SECTOR_BYTES], bytes(SECTOR_BYTES))


def test_unsynced_writes_may_arrive_out_of_order() -> None:
    seen = set()
    for seed in SEEDS:
        disk = fresh(seed)
        file = synced_file(disk, bytes(2 * SECTOR_BYTES))
        file.pwrite(b"1" * SECTOR_BYTES, 0)
        file.pwrite(b"2" * SECTOR_BYTES, SECTOR_BYTES)
        left = after_power_loss(disk).read("/d/a")
        seen.add((left[0] != 0, left[-1] != 0))
    assert seen == {(False, False), (True, False), (False, True), (True, True)}


def test_name_is_durable_only_after_its_directory_is_synced() -> None:
    disk = fresh()
    file = disk.open("/d/a", OpenMode.CREATE)
    file.pwrite(b"data", 0)
    file.sync()
    assert not after_power_loss(disk, Keep.NOTHING).exists("/d/a")
    seen = {after_power_loss(unsynced_name(seed)).exists("/d/a") for seed in SEEDS}
    assert seen == {True, False}


def unsynced_name(seed: int) -> SimDisk:
    disk = fresh(seed)
    disk.open("/d/a", OpenMode.CREATE).close()
    return disk


def test_removed_file_may_reappear_until_the_directory_is_synced() -> None:
    disk = fresh()
    synced_file(disk, b"data").close()
    disk.remove("/d/a")
    assert after_power_loss(disk, Keep.NOTHING).read("/d/a") == b"data"
    disk.remove("/d/a")
    disk.sync_dir("/d")
    assert not after_power_loss(disk, Keep.NOTHING).exists("/d/a")


def test_tree_removed_without_sync_may_reappear_in_parts() -> None:
    disk = fresh()
    disk.make_dirs("/d/sub")
    synced_file(disk, b"1", "/d/sub/x").close()
    disk.sync_dir("/d/sub")
    disk.remove_tree("/d/sub")
    assert not disk.exists("/d/sub")
    assert after_power_loss(disk, Keep.NOTHING).list("/d/sub") == ["x"]


def test_finished_rename_is_durable_and_interrupted_rename_is_atomic() -> None:
    disk = fresh()
    synced_file(disk, b"new", "/d/a.tmp").close()
    synced_file(disk, b"old", "/d/a").close()
    disk.rename("/d/a.tmp", "/d/a")
    assert after_power_loss(disk, Keep.NOTHING).list("/d") == ["a"]
    assert disk.read("/d/a") == b"new"
    outcomes = set()
    for seed in SEEDS:
        disk = fresh(seed)
        synced_file(disk, b"new", "/d/a.tmp").close()
        synced_file(disk, b"old", "/d/a").close()
        disk.crash_at(2)  # the rename happens, the sync of its directory does not
        with pytest.raises(SimCrash):
            disk.rename("/d/a.tmp", "/d/a")
        after_power_loss(disk)
        outcomes.add((disk.read("/d/a"), *disk.list("/d")))
    assert outcomes == {(b"new", "a"), (b"old", "a", "a.tmp")}


def test_move_between_directories_never_loses_the_file() -> None:
    for seed in SEEDS:
        disk = fresh(seed)
        disk.make_dirs("/e")
        synced_file(disk, b"data").close()
        disk.crash_at(2)
        with pytest.raises(SimCrash):
            disk.rename("/d/a", "/e/b")
        after_power_loss(disk)
        assert sorted(disk.list("/d") + disk.list("/e")) in (["a"], ["b"])


def test_new_directories_are_durable() -> None:
    disk = fresh()
    disk.make_dirs("/x/y/z")
    assert after_power_loss(disk, Keep.NOTHING).is_dir("/x/y/z")


def test_crash_at_counts_changing_operations_only() -> None:
    disk = fresh()
    before = disk.operations
    file = disk.open("/d/a", OpenMode.CREATE)  # 1
    file.pwrite(b"x", 0)  # 2
    file.pread(1, 0)
    disk.list("/d")
    disk.open("/d/a", OpenMode.READ).close()
    file.preallocate(4)  # 3
    file.truncate(1)  # 4
    file.sync()  # 5
    disk.sync_dir("/d")  # 6
    disk.rename("/d/a", "/d/b")  # 7, 8
    disk.make_dirs("/d/s")  # 9, 10
    disk.remove("/d/b")  # 11
    disk.remove_tree("/d/s")  # 12
    assert disk.operations - before == 12


def test_nth_operation_and_all_later_ones_crash_until_restart() -> None:
    disk = fresh()
    disk.crash_at(3)
    file = disk.open("/d/a", OpenMode.CREATE)
    file.pwrite(b"x", 0)
    with pytest.raises(SimCrash):
        file.sync()
    assert disk.durable("/d/a") is None
    for call in (file.sync, file.size, lambda: disk.read("/d/a"), lambda: disk.list("/d")):
        with pytest.raises(SimCrash):
            call()
    disk.crash()
    for call in (file.sync, file.size, lambda: disk.read("/d/a"), lambda: disk.list("/d")):
        with pytest.raises(OSError):
            call()
    disk.restart()
    with pytest.raises(OSError, match="before the crash"):
        file.pread(1, 0)
    file.close()
    disk.open("/d/b", OpenMode.CREATE).pwrite(b"y", 0)
    assert disk.read("/d/b") == b"y"


def test_crashing_write_may_put_any_part_of_its_bytes_into_the_cache() -> None:
    lengths = set()
    for seed in SEEDS:
        disk = fresh(seed)
        file = synced_file(disk, b"")
        disk.crash_at(1)
        with pytest.raises(SimCrash):
            file.pwrite(b"0123456789", 0)
        disk.kill()
        disk.restart()
        left = disk.read("/d/a")
        assert b"0123456789".startswith(left)
        lengths.add(len(left))
    assert {0, 10} < lengths


def test_page_cache_survives_a_killed_process() -> None:
    disk = fresh()
    file = disk.open("/d/a", OpenMode.CREATE)
    file.pwrite(b"unsynced", 0)
    disk.kill()
    with pytest.raises(OSError):
        disk.read("/d/a")
    disk.restart()
    assert disk.read("/d/a") == b"unsynced"
    with pytest.raises(OSError):
        file.sync()
    assert not after_power_loss(disk, Keep.NOTHING).exists("/d/a")


def test_failed_sync_drops_pages_and_a_second_sync_succeeds() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = fresh(seed)
        file = synced_file(disk, b"old")
        file.pwrite(b"new", 0)
        disk.fail("sync")
        with pytest.raises(OSError) as caught:
            file.sync()
        assert caught.value.errno == errno.EIO
        assert file.pread(3, 0) == b"new"
        file.sync()
        outcomes.add(after_power_loss(disk, Keep.EVERYTHING).read("/d/a"))
    assert outcomes == {b"old", b"new"}


def test_faults_are_planned_by_kind_count_path_and_error() -> None:
    disk = fresh()
    file = disk.open("/d/a.index", OpenMode.CREATE)
    other = disk.open("/d/a.log", OpenMode.CREATE)
    disk.fail("write", after=1, error=errno.EROFS, path_contains=".index", times=2)
    other.pwrite(b"x", 0)
    file.pwrite(b"x", 0)
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            file.pwrite(b"x", 0)
        assert caught.value.errno == errno.EROFS
        other.pwrite(b"x", 0)
    file.pwrite(b"x", 0)
    disk.fail("open", error=errno.EMFILE)
    with pytest.raises(OSError):
        disk.open("/d/a.log", OpenMode.READ)
    disk.fail("create", error=errno.ENOSPC)
    disk.open("/d/a.log", OpenMode.CREATE)
    with pytest.raises(OSError):
        disk.open("/d/b", OpenMode.CREATE)
    assert not disk.exists("/d/b")
    for kind, call in [
        ("read", lambda: file.pread(1, 0)),
        ("truncate", lambda: file.truncate(0)),
        ("sync_dir", lambda: disk.sync_dir("/d")),
        ("rename", lambda: disk.rename("/d/a.log", "/d/c")),
        ("remove", lambda: disk.remove("/d/a.log")),
    ]:
        disk.fail(kind)
        with pytest.raises(OSError):
            call()
    disk.fail("read")
    disk.heal()
    assert disk.list("/d") == ["a.index", "a.log"]
    assert file.pread(1, 0) == b"x"


def test_full_disk_writes_what_fits_and_raises() -> None:
    disk = fresh()
    file = synced_file(disk, b"12345")
    disk.limit(8)
    assert disk.free_bytes("/d") == 3
    file.pwrite(b"abc", 0)
    with pytest.raises(OSError) as caught:
        file.pwrite(b"ABCDEFG", 4)
    assert caught.value.errno == errno.ENOSPC
    assert file.pread(99, 0) == b"abc4ABCD"
    with pytest.raises(OSError):
        file.preallocate(9)
    disk.limit(None)
    file.pwrite(b"ABCDEFG", 4)
    assert file.size() == 11


def test_false_sync_succeeds_without_durability() -> None:
    disk = fresh()
    disk.lie("sync", ".log")
    synced_file(disk, b"gone", "/d/a.log")
    synced_file(disk, b"there", "/d/b")
    after_power_loss(disk, Keep.NOTHING)
    assert (disk.read("/d/a.log"), disk.read("/d/b")) == (b"", b"there")
    disk.lie("sync_dir")
    synced_file(disk, b"", "/d/c")
    assert not after_power_loss(disk, Keep.NOTHING).exists("/d/c")


def test_rot_flips_one_bit_permanently() -> None:
    disk = fresh()
    synced_file(disk, bytes(100))
    where = disk.rot("/d/a")
    for _ in range(2):
        changed = [(i, b) for i, b in enumerate(disk.read("/d/a")) if b]
        assert [i for i, _ in changed] == [where]
        assert changed[0][1].bit_count() == 1
        after_power_loss(disk, Keep.NOTHING)
    assert disk.rot("/d/a", 7) == 7


def test_locks_are_released_with_the_process() -> None:
    disk = fresh()
    disk.lock("/d/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/d/.lock")
    disk.kill()
    disk.restart()
    lock = disk.lock("/d/.lock")
    lock.release()


def test_replaced_file_is_old_or_new_after_a_crash_at_any_operation() -> None:
    count = fresh_pair(0).operations
    disk = fresh_pair(0)
    replace_file(disk, "/d/a", b"new" * 400)
    count = disk.operations - count
    assert count == 6
    seen = set()
    for seed in SEEDS:
        for point in range(1, count + 1):
            disk = fresh_pair(seed)
            disk.crash_at(point)
            with pytest.raises(SimCrash):
                replace_file(disk, "/d/a", b"new" * 400)
            seen.add(after_power_loss(disk).read("/d/a"))
    assert seen == {b"old", b"new" * 400}


def fresh_pair(seed: int) -> SimDisk:
    disk = fresh(seed)
    synced_file(disk, b"old").close()
    return disk


def test_same_seed_gives_same_contents_and_journal_has_every_operation() -> None:
    def run(seed: int) -> tuple[list[tuple[str, str, str]], bytes]:
        received: list[tuple[str, str, str]] = []
        disk = SimDisk(seed, journal=lambda *entry: received.append(entry))
        disk.make_dirs("/d")
        file = synced_file(disk, b"old" * 1000)
        for i in range(20):
            file.pwrite(bytes([i]) * 1000, 700 * i)
        after_power_loss(disk)
        return received, disk.read("/d/a")

    assert run(5) == run(5)
    assert len({run(seed)[1] for seed in range(10)}) > 3
    assert [kind for kind, _, _ in run(1)[0]][:4] == ["mkdir", "sync_dir", "create", "write"]


def test_simulated_file_has_no_descriptor_and_paths_are_absolute() -> None:
    disk = fresh()
    with pytest.raises(io.UnsupportedOperation):
        synced_file(disk, b"").fileno()
    with pytest.raises(ValueError):
        disk.open("relative", OpenMode.CREATE)


def test_modified_uses_the_given_clock() -> None:
    class Clock:
        def now(self) -> Millis:
            return Millis(1234)

        monotonic = now

    disk = SimDisk(clock=Clock())
    disk.make_dirs("/d")
    synced_file(disk, b"x")
    assert disk.modified("/d/a") == 1234
