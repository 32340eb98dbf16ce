"""The files of a parquet table, on this machine or in any file system that Spark knows.

A table written by a stream has a directory per micro-batch in each of its partitions::

    orders/day=2026-11-16/ottla_batch=7/part-00000-….parquet
    orders/_ottla/…                                            hidden: what this package remembers

Paths are strings with ``/``; those of `LocalFiles` are of this machine, those of `SparkFiles` are
as Spark takes them.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.tables.job import BATCH_COLUMN

if TYPE_CHECKING:
    from ottla.tables.hadoop_files import SparkFiles

BATCH_PREFIX: Final = f"{BATCH_COLUMN}="
HIDDEN: Final = "_ottla"
"""The directory of a table that readers skip."""
_DEPTH_MAX: Final = 16


class Entry(NamedTuple):
    """An entry of a directory; ``size`` in bytes."""

    name: str
    is_directory: bool
    size: int


class LocalFiles:
    """The file system of this machine."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file or a directory."""
        return Path(path).exists()

    def read(self, path: str) -> str | None:
        """Return the content of a small file; None if there is none."""
        try:
            return Path(path).read_text()
        except FileNotFoundError:
            return None

    def write(self, path: str, content: str) -> None:
        """Replace a small file: it has the old content or the new one after a crash."""
        beside = Path(f"{path}.new")
        beside.write_text(content)
        self.sync(str(beside))
        beside.replace(path)

    def children(self, path: str) -> list[Entry]:
        """Return the entries of a directory, in the order of their names; none if there is none."""
        try:
            with os.scandir(path) as entries:
                found = [Entry(each.name, each.is_dir(), each.stat().st_size) for each in entries]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(found)

    def rename(self, path: str, target: str) -> bool:
        """Move a file or directory; False if the target exists or the source does not."""
        if Path(target).exists() or not Path(path).exists():
            return False
        Path(path).replace(target)
        return True

    def make_directory(self, path: str) -> None:
        """Create a directory and those above it."""
        Path(path).mkdir(parents=True, exist_ok=True)

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its content; nothing if there is none."""
        if Path(path).is_dir():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)

    def sync(self, path: str) -> None:
        """Make a file durable that was written by another program."""
        with Path(path).open("rb") as opened:
            os.fsync(opened.fileno())


TableFiles: TypeAlias = "LocalFiles | SparkFiles"


def local_path(path: str) -> str | None:
    """Return a path of this machine; None for a path of another file system."""
    if path.startswith("file:"):
        return path.removeprefix("file:").replace("//", "", 1)
    return None if "://" in path else path


class BatchDirectories:
    """The directories of micro-batches of a table. Names are relative to the table."""

    def __init__(self, files: TableFiles, table: str) -> None:
        self._files = files
        self._table = table.rstrip("/")

    def partitions(self) -> Iterator[tuple[str, list[int]]]:
        """Yield every partition with micro-batches, with a slash, and their numbers in order."""
        yield from self._partitions("", 0)

    def newest(self) -> int | None:
        """Return the highest number in the table; None if it has no micro-batch."""
        return max((numbers[-1] for _, numbers in self.partitions()), default=None)

    def remove(self, number: int) -> None:
        """Delete a micro-batch from all partitions."""
        for partition, numbers in list(self.partitions()):
            if number in numbers:
                self._files.delete(self.at(f"{partition}{BATCH_PREFIX}{number}"))

    def at(self, name: str) -> str:
        """Return the path of a name."""
        return f"{self._table}/{name}".rstrip("/")

    def _partitions(self, above: str, depth: int) -> Iterator[tuple[str, list[int]]]:
        numbers = []
        for name, is_directory, _ in self._files.children(self.at(above)):
            if not is_directory or name.startswith(("_", ".")):
                continue
            if name.startswith(BATCH_PREFIX):
                number = name.removeprefix(BATCH_PREFIX)
                numbers += [int(number)] if number.isdigit() else []
            elif depth < _DEPTH_MAX:
                yield from self._partitions(f"{above}{name}/", depth + 1)
        if numbers:
            yield above, sorted(numbers)
