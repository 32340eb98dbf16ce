"""Files that are renamed and deleted while they are open, as Windows needs it."""

import os
from pathlib import Path

import pytest

from ottla.runtime.movable_files import MovableFiles

NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL


@pytest.fixture
def files() -> MovableFiles:
    return MovableFiles()


def test_open_file_is_written_under_its_new_name(files: MovableFiles, tmp_path: Path) -> None:
    file = files.open(f"{tmp_path}/a", NEW)
    file.pwrite(b"first", 0)
    files.replace(f"{tmp_path}/a", f"{tmp_path}/b")
    file.pwrite(b" and more", 5)
    assert (tmp_path / "b").read_bytes() == b"first and more" == file.pread(100, 0)
    assert file.path == f"{tmp_path}/b"
    file.close()


def test_open_files_follow_their_directory(files: MovableFiles, tmp_path: Path) -> None:
    (tmp_path / "topic-0").mkdir()
    (tmp_path / "topic-01").mkdir()
    file, other = (
        files.open(f"{tmp_path}/{folder}/log", NEW) for folder in ("topic-0", "topic-01")
    )
    files.replace(f"{tmp_path}/topic-0", f"{tmp_path}/topic-0.delete")
    file.pwrite(b"x", 0)
    assert (tmp_path / "topic-0.delete/log").read_bytes() == b"x"
    assert other.path == f"{tmp_path}/topic-01/log"
    file.close()
    other.close()


def test_file_that_is_deleted_while_open_can_be_read_until_it_is_closed(
    files: MovableFiles, tmp_path: Path
) -> None:
    first, second = files.open(f"{tmp_path}/a", NEW), files.open(f"{tmp_path}/a", os.O_RDONLY)
    first.pwrite(b"data", 0)
    files.remove(f"{tmp_path}/a")
    assert not (tmp_path / "a").exists()
    assert all(name.endswith(".deleted") for name in os.listdir(tmp_path))
    assert second.pread(4, 0) == b"data"
    second.close()
    first.close()
    assert os.listdir(tmp_path) == []


def test_open_target_of_a_rename_keeps_its_contents(files: MovableFiles, tmp_path: Path) -> None:
    old, new = files.open(f"{tmp_path}/a", NEW), files.open(f"{tmp_path}/a.swap", NEW)
    old.pwrite(b"old", 0)
    new.pwrite(b"new", 0)
    files.replace(f"{tmp_path}/a.swap", f"{tmp_path}/a")
    assert (old.pread(3, 0), new.pread(3, 0)) == (b"old", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    old.close()
    new.close()
    assert os.listdir(tmp_path) == ["a"]


def test_failed_rename_leaves_the_file_open(files: MovableFiles, tmp_path: Path) -> None:
    file = files.open(f"{tmp_path}/a", NEW)
    with pytest.raises(FileNotFoundError):
        files.replace(f"{tmp_path}/a", f"{tmp_path}/missing/a")
    file.pwrite(b"x", 0)
    assert (tmp_path / "a").read_bytes() == b"x"
    file.close()


def test_files_of_a_directory_are_closed_before_it_is_removed(
    files: MovableFiles, tmp_path: Path
) -> None:
    (tmp_path / "d").mkdir()
    file = files.open(f"{tmp_path}/d/a", NEW)
    files.close_below(f"{tmp_path}/d")
    assert file.fileno() == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread(1, 0)
