"""Objects in a directory: durable before they are visible, past the page cache, never in part."""

import asyncio
import errno
import fcntl
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType

import google_crc32c
import pytest

from ottla.runtime import directory_objects, system_calls
from ottla.runtime.directory_objects import INCOMING, PIECE_BYTES, STALE_S, DirectoryObjects
from ottla.runtime.ports import NewObject

SIZES = (0, 1, 4095, 4096, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES + 4096)


def module_of(call: str) -> ModuleType:
    """Return the module through which the store makes a system call."""
    return system_calls if call == "pwrite" else os


def run(scenario: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "segment").write_bytes(b"records")
    return tmp_path / "segment"


def objects_in(root: Path) -> list[Path]:
    return [each for each in root.rglob("*") if INCOMING not in each.parts]


def test_object_is_synced_with_the_directories_above_it(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment is deleted on the broker's disk once it is stored: it must survive a power cut."""
    root, synced = tmp_path / "objects", set[int]()
    monkeypatch.setattr(os, "fsync", lambda opened: synced.add(os.fstat(opened).st_ino))
    store = DirectoryObjects(str(root))

    async def scenario() -> None:
        await store.put("small/0", b"x")
        await store.put_file("topic/partition/1", str(source))

    run(scenario())
    made = [root, *objects_in(root)]
    assert len(made) == 6
    assert synced >= {each.stat().st_ino for each in made}


def test_directory_removed_by_somebody_else_is_synced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, synced = tmp_path / "objects", set[int]()
    store = DirectoryObjects(str(root))
    run(store.put("topic/0", b"x"))
    (root / "topic" / "0").unlink()
    (root / "topic").rmdir()
    monkeypatch.setattr(os, "fsync", lambda opened: synced.add(os.fstat(opened).st_ino))
    run(store.put("topic/0", b"x"))
    assert root.stat().st_ino in synced


def test_object_is_synced_before_it_gets_its_name(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    rename, fsync = os.rename, os.fsync

    def renamed(before: Path, after: Path) -> None:
        steps.append("replace")
        rename(before, after)

    def synced(opened: int) -> None:
        is_directory = os.path.isdir(f"/proc/self/fd/{opened}")
        steps.append("sync directory" if is_directory else "sync file")
        fsync(opened)

    store = DirectoryObjects(str(tmp_path / "objects"))
    run(store.put("topic/0", b"x"))
    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr(os, "fsync", synced)
    run(store.put_file("topic/1", str(source)))
    assert steps == ["sync file", "replace", "sync directory"]


def group_of(source: Path, directories: tuple[str, ...] = ("a/0", "b/0")) -> list[NewObject]:
    """Return two objects for each directory: the contents of a file, and other ones."""
    files = [NewObject(f"{each}/file", path=str(source)) for each in directories]
    return [*files, *(NewObject(f"{each}/contents", b"x" * 9) for each in directories)]


def test_group_is_synced_and_named_in_as_few_steps_as_one_object(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round of syncs costs a commit of the file system's journal, whatever its length is."""
    steps: list[tuple[str, str]] = []
    rename, fsync = os.rename, os.fsync

    def renamed(before: Path, after: Path) -> None:
        steps.append(("replace", before.name))
        rename(before, after)

    def synced(opened: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{opened}"))
        steps.append(("sync directory" if path.is_dir() else "sync file", path.name))
        fsync(opened)

    store = DirectoryObjects(str(tmp_path / "objects"))
    run(store.put_group(group_of(source)))
    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr(os, "fsync", synced)
    run(store.put_group(group_of(source)))
    kinds = ["sync file"] * 4 + ["replace"] * 4 + ["sync directory"] * 2
    assert [kind for kind, _ in steps] == kinds
    assert {name for _, name in steps[:4]} == {name for _, name in steps[4:8]}
    assert len({name for _, name in steps[:4]}) == 4


def test_all_files_of_a_group_are_written_before_the_first_is_synced(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are allocated when pages are written: each file would need a commit of its own."""
    steps: list[tuple[str, int]] = []
    monkeypatch.setattr(os, "fsync", lambda opened: steps.append(("sync", opened)))
    monkeypatch.setattr(
        directory_objects,
        "_sync_file_range",
        lambda opened, flags: steps.append(("wait" if flags & 4 else "write", opened)),
    )
    run(DirectoryObjects(str(tmp_path / "objects")).put_group(group_of(source)))
    assert [step for step, _ in steps[:12]] == ["write"] * 4 + ["wait"] * 4 + ["sync"] * 4
    files = [opened for _, opened in steps[:4]]
    assert [opened for _, opened in steps[:12]] == files * 3


def test_dirty_pages_are_written_by_the_kernel(tmp_path: Path) -> None:
    """The call by ctypes is right; its failure would cost time only, and go unnoticed."""
    with open(tmp_path / "file", "wb") as file:
        file.write(bytes(9000))
        file.flush()
        assert directory_objects._sync_file_range(file.fileno(), 7)
    assert not directory_objects._sync_file_range(10**6, 7)


class Crash(Exception):
    """The process ends here: nothing that it does afterwards has an effect."""


def crash_before(step: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let every call that changes the directory fail from the ``step``-th on; return the calls."""
    calls: list[str] = []

    def watched(name: str) -> Callable[..., object]:
        real: Callable[..., object] = getattr(module_of(name), name)

        def call(*arguments: object, **options: object) -> object:
            if len(calls) == step:
                raise Crash
            calls.append(name)
            return real(*arguments, **options)

        return call

    for name in ("pwrite", "fsync", "replace", "unlink", "makedirs"):
        monkeypatch.setattr(module_of(name), name, watched(name))
    return calls


def test_crash_at_any_step_of_a_group_leaves_whole_objects_and_files_that_are_removed(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = group_of(source)
    wanted = {each.key: each.data or source.read_bytes() for each in group}
    step, left, calls = 0, set[int](), list[str]()
    while True:
        root = tmp_path / str(step)
        store = DirectoryObjects(str(root))
        with monkeypatch.context() as patched:
            calls = crash_before(step, patched)
            try:
                run(store.put_group(group))
                break
            except Crash:
                pass
        stored = {path for path in objects_in(root) if path.is_file()}
        left.add(len(stored))
        for path in stored:
            assert path.read_bytes() == wanted[str(path.relative_to(root))]
            assert calls.count("fsync") >= len(group), "named before all were synced"
        for path in root.glob(f"{INCOMING}/*"):
            os.utime(path, (0, 0))
        run(DirectoryObjects(str(root)).put_group(group))  # the next attempt
        assert {str(path.relative_to(root)) for path in objects_in(root) if path.is_file()} == {
            *wanted
        }
        assert list((root / INCOMING).iterdir()) == []
        step += 1
    assert left == {0, 1, 2, 3, 4}
    assert step > 18


def test_failed_group_leaves_no_incomplete_file(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, rename = tmp_path / "objects", os.rename

    def fail_second(before: Path, after: Path) -> None:
        if after.parent.parent.name == "b":
            raise OSError(errno.ENOSPC, "no space")
        rename(before, after)

    monkeypatch.setattr(os, "replace", fail_second)
    with pytest.raises(OSError, match="no space"):
        run(DirectoryObjects(str(root)).put_group(group_of(source)))
    assert list((root / INCOMING).iterdir()) == []


@pytest.mark.parametrize("failing", ["fsync", "pwrite", "replace"])
def test_failed_put_leaves_no_object_and_no_file(
    failing: str, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "objects"
    store = DirectoryObjects(str(root))
    run(store.put("topic/0", b"old"))

    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(module_of(failing), failing, fail)
        with pytest.raises(OSError, match="no space"):
            run(store.put_file("topic/0", str(source)))
    assert (root / "topic" / "0").read_bytes() == b"old"
    assert list((root / INCOMING).iterdir()) == []


def test_brokers_that_share_a_directory_never_write_to_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process ids repeat on other machines, and every container's may be 1."""
    used: list[set[str]] = []
    rename = os.rename

    def renamed(before: Path, after: Path) -> None:
        used[-1].add(before.name)
        rename(before, after)

    monkeypatch.setattr(os, "replace", renamed)
    for broker in range(2):
        used.append(set())
        run(DirectoryObjects(str(tmp_path)).put(f"t/{broker}", b"x"))
    assert used[0] and used[0].isdisjoint(used[1])


def test_write_past_the_page_cache_that_is_refused_goes_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems accept the flag and refuse the write."""
    contents = os.urandom(PIECE_BYTES + 9)
    (tmp_path / "segment").write_bytes(contents)
    pwrite, refused = os.pwrite, list[int]()

    def write(file: int, data: memoryview, position: int) -> int:
        if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT:
            refused.append(position)
            raise OSError(errno.EINVAL, "not aligned")
        return pwrite(file, data, position)

    monkeypatch.setattr(system_calls, "pwrite", write)
    store = DirectoryObjects(str(tmp_path / "objects"))
    run(store.put_file("t/0", str(tmp_path / "segment")))
    assert (tmp_path / "objects" / "t" / "0").read_bytes() == contents
    assert len(refused) <= 1, "tried once"


def test_read_past_the_page_cache_that_is_refused_goes_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = os.urandom(5000)
    (tmp_path / "0").write_bytes(contents)
    preadv = os.preadv

    def read(file: int, buffers: list[memoryview], position: int) -> int:
        if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "not aligned")
        return preadv(file, buffers, position)

    monkeypatch.setattr(system_calls, "preadv", read)

    async def scenario() -> None:
        store = DirectoryObjects(str(tmp_path), is_cached=False)
        assert await store.crc_of_range("0", 0, 5000, 0) == google_crc32c.value(contents)

    run(scenario())


@pytest.mark.parametrize("is_cached", [True, False])
def test_checksum_is_of_what_is_on_the_disk_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_cached: bool
) -> None:
    (tmp_path / "0").write_bytes(bytes(2 * PIECE_BYTES))
    preadv, direct = os.preadv, list[bool]()

    def read(file: int, buffers: list[memoryview], position: int) -> int:
        direct.append(bool(fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT))
        return preadv(file, buffers, position)

    monkeypatch.setattr(system_calls, "preadv", read)
    store = DirectoryObjects(str(tmp_path), is_cached=is_cached)
    asyncio.run(store.crc_of_range("0", 0, 2 * PIECE_BYTES, 0))
    assert set(direct) == {not is_cached}


def test_range_is_returned_in_writable_memory(tmp_path: Path) -> None:
    """Checksums of read-only memory are computed over a copy of it."""
    (tmp_path / "0").write_bytes(b"batches")

    async def scenario() -> None:
        found = await DirectoryObjects(str(tmp_path)).get_range("0", 0, 7)
        assert not memoryview(found).readonly

    run(scenario())


def without_direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_calls, "set_direct", lambda file, is_on: False)


def as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system of the test decides."""


@pytest.mark.parametrize("kernel", [as_it_is, without_direct])
@pytest.mark.parametrize("is_cached", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_file_of_any_size_is_stored_and_read_whole(
    size: int,
    is_cached: bool,
    kernel: Callable[[pytest.MonkeyPatch], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel(monkeypatch)
    contents = os.urandom(size)
    (tmp_path / "segment").write_bytes(contents)
    store = DirectoryObjects(str(tmp_path / "objects"), is_cached=is_cached)

    async def scenario() -> None:
        await store.put_file("t/0", str(tmp_path / "segment"))
        assert (await store.head("t/0")).size == size
        assert await store.get_range("t/0", 0, size + 9) == contents
        assert await store.get_range("t/0", 1, 5000) == contents[1:5001]
        crc = await store.crc_of_range("t/0", 0, size // 2, 0)
        crc = await store.crc_of_range("t/0", size // 2, size - size // 2, crc)
        assert crc == google_crc32c.value(contents)
        assert await store.crc_of_range("t/0", 0, size, 0) == crc
        with pytest.raises(OSError, match=f"{size} bytes instead of {size + 1} from 0"):
            await store.crc_of_range("t/0", 0, size + 1, 0)
        assert await store.get_range("t/0", 4096, PIECE_BYTES) == contents[4096:][:PIECE_BYTES]

    run(scenario())


def test_buffered_copy_is_flushed_before_much_is_left_to_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_direct(monkeypatch)
    flushed: list[int] = []
    monkeypatch.setattr(
        system_calls, "sync_data", lambda file: flushed.append(os.fstat(file).st_size)
    )
    (tmp_path / "segment").write_bytes(bytes(9 << 20))
    store = DirectoryObjects(str(tmp_path / "objects"))
    run(store.put_file("t/0", str(tmp_path / "segment")))
    assert flushed == [4 << 20, 8 << 20]


def test_incomplete_files_are_not_listed_and_stale_ones_are_removed(tmp_path: Path) -> None:
    root = tmp_path / "objects"
    store = DirectoryObjects(str(root))
    (root / INCOMING).mkdir()
    for name in ("7-0", "8-0"):
        (root / INCOMING / name).write_bytes(b"part")
    long_ago = time.time() - STALE_S - 60
    os.utime(root / INCOMING / "7-0", (long_ago, long_ago))

    async def scenario() -> None:
        assert [each.key async for each in store.list("")] == []
        await store.put("t/0", b"x")
        assert [each.key async for each in store.list("")] == ["t/0"]

    run(scenario())
    assert [each.name for each in (root / INCOMING).iterdir()] == ["8-0"]


def test_reader_makes_no_directory_in_a_store(tmp_path: Path) -> None:
    store = DirectoryObjects(str(tmp_path))
    (tmp_path / "a").write_bytes(b"x")

    async def scenario() -> None:
        assert await store.get_range("a", 0, 9) == b"x"
        assert [each.key async for each in store.list("")] == ["a"]

    run(scenario())
    assert os.listdir(tmp_path) == ["a"]
