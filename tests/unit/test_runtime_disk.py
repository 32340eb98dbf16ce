"""The real disk, and the contract of the port on the real and the simulated disk."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from ottla.runtime import system_calls
from ottla.runtime.atomic_file import read_file, replace_file
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import Disk, OpenMode
from simulation.disk import SimDisk


@pytest.fixture(params=["real", "sim"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param == "real":
        return RealDisk(), str(tmp_path)
    disk = SimDisk()
    disk.make_dirs("/data")
    return disk, "/data"


def test_written_bytes_are_read_back_by_position(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", OpenMode.CREATE_NEW)
    file.pwrite(b"hello", 0)
    file.pwrite(memoryview(b"xyz"), 8)
    assert file.size() == 11
    assert file.pread(100, 0) == b"hello\0\0\0xyz"
    assert file.pread(3, 9) == b"yz"
    assert file.pread(3, 11) == b"" == file.pread(3, 1 << 40)
    assert file.path == f"{root}/a"
    file.sync()
    file.close()
    file.close()
    assert disk.read(f"{root}/a") == b"hello\0\0\0xyz"
    assert disk.size(f"{root}/a") == 11


def test_huge_read_length_allocates_only_the_file_size(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", OpenMode.CREATE)
    file.pwrite(b"abc", 0)
    assert file.pread(1 << 45, 1) == b"bc"
    assert file.pread(1 << 45, 9) == b""
    file.close()


def test_many_buffers_are_written_in_order(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", OpenMode.CREATE)
    parts = [bytes([i % 256]) * (i % 5) for i in range(3000)]
    file.pwritev(parts, 7)
    file.pwritev([], 0)
    assert file.pread(1 << 20, 7) == b"".join(parts)
    file.close()


@pytest.mark.parametrize("step", [1, 7, 4096])
def test_short_writes_are_continued(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_pwrite = os.pwrite

    def short_pwrite(fd: int, data: bytes | memoryview, position: int) -> int:
        return real_pwrite(fd, memoryview(data).cast("B")[:step], position)

    def short_pwritev(fd: int, buffers: Sequence[bytes], position: int) -> int:
        return real_pwrite(fd, b"".join(buffers)[:step], position)

    monkeypatch.setattr(system_calls, "pwrite", short_pwrite)
    monkeypatch.setattr(system_calls, "pwritev", short_pwritev)
    file = RealDisk().open(str(tmp_path / "a"), OpenMode.CREATE)
    parts = [b"ab", b"", b"cdefghij", bytes(range(256)) * 3, b"end"]
    file.pwritev(parts, 0)
    file.pwrite(b"0123456789", 10)
    whole = b"".join(parts)
    assert file.pread(10_000, 0) == whole[:10] + b"0123456789" + whole[20:]
    file.close()


def test_large_writes_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_pwrite, sizes = os.pwrite, []

    def noted(fd: int, data: bytes | memoryview, position: int) -> int:
        sizes.append(len(data))
        return real_pwrite(fd, data, position)

    monkeypatch.setattr(system_calls, "pwrite", noted)
    file = RealDisk().open(str(tmp_path / "a"), OpenMode.CREATE)
    data = os.urandom(600_000)
    file.pwrite(b"small", 0)
    file.pwrite(data, 5)
    assert file.pread(1_000_000, 0) == b"small" + data
    assert sizes == [5, 262_144, 262_144, 75_712]
    file.close()


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_pread = os.pread
    file = RealDisk().open(str(tmp_path / "a"), OpenMode.CREATE)
    file.pwrite(b"0123456789", 0)
    monkeypatch.setattr(system_calls, "pread", lambda fd, n, at: real_pread(fd, min(n, 3), at))
    assert file.pread(8, 1) == b"12345678"
    assert file.pread(80, 1) == b"123456789"
    file.close()


def test_write_without_progress_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk().open(str(tmp_path / "a"), OpenMode.CREATE)
    monkeypatch.setattr(system_calls, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="nothing"):
        file.pwrite(b"x", 0)
    file.close()


def test_open_modes(place: tuple[Disk, str]) -> None:
    disk, root = place
    for mode in (OpenMode.READ, OpenMode.READ_WRITE):
        with pytest.raises(FileNotFoundError):
            disk.open(f"{root}/a", mode)
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/missing/a", OpenMode.CREATE)
    disk.open(f"{root}/a", OpenMode.CREATE_NEW).close()
    with pytest.raises(FileExistsError):
        disk.open(f"{root}/a", OpenMode.CREATE_NEW)
    disk.open(f"{root}/a", OpenMode.CREATE).close()
    file = disk.open(f"{root}/a", OpenMode.READ)
    with pytest.raises(OSError) as caught:
        file.pwrite(b"x", 0)
    assert caught.value.errno == errno.EBADF
    file.close()
    with pytest.raises(OSError):
        file.pread(1, 0)


def test_preallocate_and_truncate(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", OpenMode.CREATE)
    file.pwrite(b"abc", 0)
    file.preallocate(4096)
    assert file.size() == 4096
    assert file.pread(10, 0) == b"abc" + bytes(7)
    file.preallocate(10)
    assert file.size() == 4096, "preallocate never shrinks"
    file.truncate(2)
    assert file.pread(10, 0) == b"ab"
    file.truncate(4)
    assert file.pread(10, 0) == b"ab\0\0"
    file.close()


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_preallocate_falls_back_to_truncate(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_calls, "allocate", _raises(code))
    file = RealDisk().open(str(tmp_path / "a"), OpenMode.CREATE)
    file.preallocate(100)
    assert file.size() == 100
    monkeypatch.setattr(system_calls, "allocate", _raises(errno.ENOSPC))
    with pytest.raises(OSError) as caught:
        file.preallocate(200)
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 100
    file.close()


def _raises(code: int) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return call


def test_directories(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.make_dirs(f"{root}/x/y/z")
    disk.make_dirs(f"{root}/x/y/z")
    assert disk.is_dir(f"{root}/x/y")
    assert not disk.is_dir(f"{root}/nothing")
    for name in ("b", "a", "c"):
        disk.open(f"{root}/x/{name}", OpenMode.CREATE).close()
    assert disk.list(f"{root}/x") == ["a", "b", "c", "y"]
    with pytest.raises(NotADirectoryError):
        disk.make_dirs(f"{root}/x/a")
    assert not disk.exists(f"{root}/x/a/deeper")
    disk.remove(f"{root}/x/a")
    with pytest.raises(FileNotFoundError):
        disk.remove(f"{root}/x/a")
    disk.remove_tree(f"{root}/x")
    assert not disk.exists(f"{root}/x")
    with pytest.raises(FileNotFoundError):
        disk.remove_tree(f"{root}/x")
    with pytest.raises(FileNotFoundError):
        disk.list(f"{root}/x")
    with pytest.raises(FileNotFoundError):
        disk.sync_dir(f"{root}/x")


def test_rename_replaces_a_file_and_never_a_full_directory(place: tuple[Disk, str]) -> None:
    disk, root = place
    replace_file(disk, f"{root}/a", b"new")
    replace_file(disk, f"{root}/b", b"old")
    disk.make_dirs(f"{root}/d")
    replace_file(disk, f"{root}/d/inside", b"")
    disk.rename(f"{root}/a", f"{root}/b")
    assert (disk.exists(f"{root}/a"), disk.read(f"{root}/b")) == (False, b"new")
    disk.rename(f"{root}/b", f"{root}/d/b")
    assert disk.list(f"{root}/d") == ["b", "inside"]
    disk.make_dirs(f"{root}/e")
    with pytest.raises(IsADirectoryError):
        disk.rename(f"{root}/d/b", f"{root}/e")
    with pytest.raises(OSError) as caught:
        disk.rename(f"{root}/e", f"{root}/d")
    assert caught.value.errno == errno.ENOTEMPTY
    disk.rename(f"{root}/d", f"{root}/e")
    assert disk.list(f"{root}/e") == ["b", "inside"]
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{root}/gone", f"{root}/b")


def test_path_is_locked_once(place: tuple[Disk, str]) -> None:
    disk, root = place
    lock = disk.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{root}/.lock")
    lock.release()
    lock.release()
    disk.lock(f"{root}/.lock").release()
    assert disk.exists(f"{root}/.lock")


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_lock_excludes_other_processes_by_either_kind_of_lock(call: str, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    attempt = (
        f"import fcntl,sys;f=open(sys.argv[1],'r+');fcntl.{call}(f,fcntl.LOCK_EX|fcntl.LOCK_NB)"
    )
    lock = RealDisk().lock(path)
    command = [sys.executable, "-c", attempt, path]
    assert b"BlockingIOError" in subprocess.run(command, capture_output=True, check=False).stderr
    lock.release()
    subprocess.run(command, check=True)


def test_free_bytes_modified_and_missing_files(place: tuple[Disk, str]) -> None:
    disk, root = place
    assert disk.free_bytes(root) > 1 << 20
    replace_file(disk, f"{root}/a", b"1")
    assert disk.modified(f"{root}/a") >= 0
    for call in (disk.size, disk.modified, disk.read):
        with pytest.raises(FileNotFoundError):
            call(f"{root}/missing")
    assert read_file(disk, f"{root}/missing") is None


class Calls:
    """Records the order of the system calls that provide durability."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        for module, name in ((system_calls, "sync_data"), (os, "replace"), (os, "mkdir")):
            self._watch(monkeypatch, module, name)
        real_fsync = os.fsync

        def fsync(fd: int) -> None:
            self.seen.append("fsync " + os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
            real_fsync(fd)

        monkeypatch.setattr(os, "fsync", fsync)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> None:
        real = getattr(module, name)

        def call(*args: object) -> object:
            self.seen.append(name)
            return real(*args)

        monkeypatch.setattr(module, name, call)


def test_replacing_syncs_contents_then_renames_then_syncs_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    replace_file(RealDisk(), str(tmp_path / "a"), b"data")
    assert calls.seen == ["sync_data", "replace", f"fsync {tmp_path.name}"]
    assert sorted(os.listdir(tmp_path)) == ["a"]


def test_rename_between_directories_syncs_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    disk.make_dirs(str(tmp_path / "from"))
    disk.make_dirs(str(tmp_path / "to"))
    replace_file(disk, str(tmp_path / "from/a"), b"data")
    calls = Calls(monkeypatch)
    disk.rename(str(tmp_path / "from/a"), str(tmp_path / "to/a"))
    assert calls.seen == ["replace", "fsync to", "fsync from"]


def test_new_directories_are_durable_from_the_top_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    RealDisk().make_dirs(str(tmp_path / "x/y"))
    assert calls.seen == ["mkdir", f"fsync {tmp_path.name}", "mkdir", "fsync x"]


def test_descriptors_are_not_inherited(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "a"), OpenMode.CREATE)
    assert not os.get_inheritable(file.fileno())
    file.close()
    assert file.fileno() == -1


def test_replacing_truncates_a_longer_leftover(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/a.tmp", OpenMode.CREATE)
    file.pwrite(b"a long leftover of a crash", 0)
    file.close()
    replace_file(disk, f"{root}/a", b"short")
    assert disk.read(f"{root}/a") == b"short"
