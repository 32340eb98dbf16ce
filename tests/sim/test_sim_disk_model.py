"""The simulated disk against the kernel: the same calls, the same answers and errors."""

import shutil
import tempfile
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import Disk, OpenMode
from simulation.disk import SimDisk

# Few names, so that calls affect each other: two directories, two names, and one inside a file.
PATHS = st.sampled_from(["", "/a", "/b", "/d", "/d/a", "/d/b", "/a/x"])
SMALL = st.integers(0, 20)
CALLS = st.one_of(
    st.tuples(st.just("open"), PATHS, st.sampled_from(OpenMode)),
    st.tuples(st.just("write"), PATHS, st.binary(max_size=9), SMALL),
    st.tuples(st.just("truncate"), PATHS, SMALL),
    st.tuples(st.just("preallocate"), PATHS, SMALL),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(
        st.sampled_from(
            ["make_dirs", "remove", "remove_tree", "list", "exists", "is_dir", "sync_dir", "read"]
        ),
        PATHS,
    ),
)


def on_file(disk: Disk, path: str, act: Callable[..., object], *args: object) -> object:
    file = disk.open(path, OpenMode.READ_WRITE)
    try:
        act(file, *args)
        return file.pread(100, 0)
    finally:
        file.close()


def call(disk: Disk, root: str, name: str, path: str, *args: object) -> object:
    """Make one call; the answer is its value, or the kind of error."""
    where = root + path
    try:
        match name:
            case "open":
                file = disk.open(where, *args)  # type: ignore[arg-type]
                try:
                    # A directory may be opened for reading, and fails when it is read.
                    return file.pread(100, 0)
                finally:
                    file.close()
            case "write":
                return on_file(disk, where, lambda file: file.pwrite(*args))
            case "truncate" | "preallocate":
                return on_file(disk, where, lambda file: getattr(file, name)(*args))
            case "rename":
                disk.rename(where, f"{root}{args[0]}")
                return None
            case _:
                return getattr(disk, name)(where)
    except OSError as error:
        return type(error).__name__


def is_settled(name: str, path: str, args: tuple[object, ...]) -> bool:
    """Leave out what differs between file systems: the root, and a tree moved into itself."""
    ends = [path, *(end for end in args if isinstance(end, str))]
    if name in ("rename", "remove", "remove_tree", "open") and "" in ends:
        return False
    return name != "rename" or not any(a != b and a.startswith(b) for a in ends for b in ends)


@settings(max_examples=150)
@given(st.lists(CALLS, min_size=3, max_size=25))
def test_simulated_disk_answers_as_the_kernel_does(calls: list[tuple[object, ...]]) -> None:
    root = tempfile.mkdtemp()
    real, simulated = RealDisk(), SimDisk()
    simulated.make_dirs(root)
    try:
        for name, path, *args in calls:
            if is_settled(str(name), str(path), tuple(args)):
                wanted = call(real, root, str(name), str(path), *args)
                got = call(simulated, root, str(name), str(path), *args)
                assert got == wanted, (name, path, args)
    finally:
        shutil.rmtree(root)
