"""Small files in any file system that Spark knows, through Hadoop's API in Spark's JVM."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.tables.compaction import MergeRows
from ottla.tables.files import Entry, LocalFiles, TableFiles, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkFiles:
    """Reads, writes, lists and renames files; paths are as Spark takes them, with or without a
    scheme.
    """

    def __init__(self, spark: "SparkSession") -> None:
        assert spark._jvm is not None, "a session of this process has a JVM"
        self._jvm: Any = spark._jvm
        self._hadoop = spark._jsc.hadoopConfiguration()

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._hadoop), place

    def exists(self, path: str) -> bool:
        """Return whether there is a file or a directory."""
        system, place = self._at(path)
        return bool(system.exists(place))

    def read(self, path: str) -> str | None:
        """Return the content of a small file; None if there is none."""
        system, place = self._at(path)
        if not system.exists(place):
            return None
        stream = system.open(place)
        try:
            content = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return str(content)

    def write(self, path: str, content: str) -> None:
        """Replace a small file: it has the old content or the new one after a crash."""
        system, place = self._at(path)
        _, beside = self._at(f"{path}.new")
        stream = system.create(beside, True)
        try:
            stream.write(bytearray(content.encode()))
        finally:
            stream.close()
        system.delete(place, False)
        system.rename(beside, place)

    def children(self, path: str) -> list[Entry]:
        """Return the entries of a directory, in the order of their names; none if there is none."""
        system, place = self._at(path)
        if not system.exists(place):
            return []
        return sorted(
            Entry(str(each.getPath().getName()), bool(each.isDirectory()), int(each.getLen()))
            for each in system.listStatus(place)
        )

    def rename(self, path: str, target: str) -> bool:
        """Move a file or directory; False if the target exists or the source does not."""
        system, place = self._at(path)
        _, there = self._at(target)
        return bool(system.rename(place, there))

    def make_directory(self, path: str) -> None:
        """Create a directory and those above it."""
        system, place = self._at(path)
        system.mkdirs(place)

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its content; nothing if there is none."""
        system, place = self._at(path)
        system.delete(place, True)

    def sync(self, path: str) -> None:
        """Do nothing: these file systems make a file durable when it is closed."""


def files_of(spark: "SparkSession", path: str) -> tuple[TableFiles, str]:
    """Return the file system of a path, and the path there."""
    local = local_path(path)
    return (SparkFiles(spark), path) if local is None else (LocalFiles(), local)


def spark_merge(spark: "SparkSession") -> MergeRows:
    """Return the function that merges files of a table: Spark reads and writes them row by row."""

    def merge_rows(sources: Sequence[str], directory: str) -> None:
        rows = spark.read.option("mergeSchema", "true").parquet(*map(_qualified, sources))
        rows.coalesce(1).write.mode("overwrite").parquet(_qualified(directory))

    return merge_rows


def _qualified(path: str) -> str:
    """Return a path of this machine with its scheme: Spark may have another default."""
    local = local_path(path)
    return path if local is None else f"file:{Path(local).absolute()}"
