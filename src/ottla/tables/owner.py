"""Which query writes a table, and under which numbers.

A micro-batch has a number in its query: two queries have the same ones. The files of a parquet
table are named by that number, so a table belongs to one query, by a file in it::

    _ottla/queries/<id of the query>.json     {"base": 0}

The id is in the checkpoint (``metadata``); a lost or another checkpoint has another one. A second
query is rejected, before it reads or writes anything. A claim needs no file system that creates
files exclusively: a query writes its own and then looks for others, so of two that start at the
same moment at least one is rejected.

A query that takes a table over, because the checkpoint of the other is lost, gets a ``base``:
micro-batch n is in the directory ``ottla_batch=<base + n>``. No old file is replaced.

A table without claims is new, or was written by an earlier version, which had none. It belongs to
a checkpoint that has come at least as far as the table: one that would not replace a file of it.

A checkpoint can also be an old copy. It then repeats numbers with other rows, which overwrites or
skips the wrong ones, so a micro-batch that the table has, but the checkpoint has not begun, is an
error for every format.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from ottla.tables.files import HIDDEN, BatchDirectories, TableFiles
from ottla.tables.job import BadJob

TAKE_OVER_GAP: Final = 1_000_000
"""Between the last number of a table and the first of a query that takes it over.

The other query may still be writing a micro-batch; those before it may have been empty.
"""
_QUERIES: Final = f"{HIDDEN}/queries"


class NotOwner(BadJob):
    """A table belongs to another query, or the checkpoint is not the newest one of its query."""


class Progress(msgspec.Struct, frozen=True):
    """The state of a checkpoint: its query, the next micro-batch, and whether that has begun."""

    query: str | None = None
    batch: int = 0
    has_begun: bool = False


class _Claim(msgspec.Struct):
    base: int = 0


def read_progress(files: TableFiles, checkpoint: str) -> Progress:
    """Return the state of a checkpoint, which may not exist yet."""
    root = checkpoint.rstrip("/")
    text = files.read(f"{root}/metadata")
    query = None if text is None else str(msgspec.json.decode(text.encode())["id"])
    batch = max(_numbers(files, f"{root}/commits"), default=-1) + 1
    return Progress(query, batch, batch in _numbers(files, f"{root}/offsets"))


def _numbers(files: TableFiles, directory: str) -> Iterator[int]:
    return (int(each.name) for each in files.children(directory) if each.name.isdigit())


def check_newest(newest: int | None, progress: Progress, table: str) -> None:
    """Check that a table has no micro-batch that its query has not begun.

    ``newest`` is the last one in the table, if that can be told.

    Raises:
        NotOwner: the checkpoint is an old copy.
    """
    if newest is None or newest < progress.batch:
        return
    if newest == progress.batch and progress.has_begun:
        return
    raise NotOwner(
        f"table {table} has micro-batch {newest} of this query, and the checkpoint is at "
        f"{progress.batch}: it is an old copy. Restore the newest checkpoint, or delete it and "
        "continue with source.startingOffsets behind the rows of the table"
    )


class TableOwner:
    """The claims of one parquet table."""

    def __init__(self, files: TableFiles, table: str) -> None:
        self._files = files
        self._table = table.rstrip("/")
        self._directories = BatchDirectories(files, table)
        self._base: int | None = None
        self._claimed: str | None = None

    def check(self, progress: Progress, *, take_over: bool = False) -> None:
        """Check before a run that its query may write the table.

        Raises:
            NotOwner: the table belongs to another query, or the checkpoint is an old copy.
        """
        claims = self._claims()
        if take_over and progress.query not in claims:
            self._take_over(claims)
            return
        others = claims.keys() - {progress.query}
        if others:
            raise self._rejected(min(others), progress.query)
        newest = self._directories.newest()
        if progress.query in claims:
            self._base = claims[progress.query].base
            own = None if newest is None or newest < self._base else newest - self._base
            check_newest(own, progress, self._table)
            return
        try:
            check_newest(newest, progress, self._table)
        except NotOwner:
            raise self._rejected(None, progress.query) from None
        self._base = 0

    def _take_over(self, claims: Mapping[str, _Claim]) -> None:
        """Remove the claims of other queries; later numbers than any of theirs follow."""
        for query in claims:
            self._files.delete(self._path(query))
        newest = self._directories.newest()
        self._base = 0 if newest is None else newest + TAKE_OVER_GAP

    def enter(self, query: str, batch: int) -> int:
        """Return the number of a micro-batch in the table; the first of a run claims the table.

        Raises:
            NotOwner: the table belongs to another query, or was taken over by one.
        """
        assert self._base is not None, "the table was checked before"
        if self._claimed is None and query not in self._claims():
            self._files.make_directory(f"{self._table}/{_QUERIES}")
            claim = msgspec.json.encode(_Claim(self._base)).decode()
            self._files.write(self._path(query), claim)
            others = self._claims().keys() - {query}
            if others:
                self._files.delete(self._path(query))
                raise self._rejected(min(others), query)
        self._claimed = query
        if query not in self._claims():
            raise self._rejected(min(self._claims(), default=None), query)
        return self._base + batch

    def remove(self, number: int) -> None:
        """Delete what an earlier attempt of a micro-batch has written."""
        self._directories.remove(number)

    def _claims(self) -> dict[str, _Claim]:
        found = {}
        for name, _, _ in self._files.children(f"{self._table}/{_QUERIES}"):
            text = self._files.read(f"{self._table}/{_QUERIES}/{name}")
            if name.endswith(".json") and text is not None:
                query = name.removesuffix(".json")
                found[query] = msgspec.json.decode(text.encode(), type=_Claim)
        return found

    def _path(self, query: str) -> str:
        return f"{self._table}/{_QUERIES}/{query}.json"

    def _rejected(self, owner: str | None, query: str | None) -> NotOwner:
        written = "has rows of another query" if owner is None else f"is written by query {owner}"
        mine = "a new checkpoint" if query is None else f"the checkpoint of query {query}"
        return NotOwner(
            f"table {self._table} {written}, and this run has {mine}: a parquet table is written "
            "by one query. Use the checkpoint that it was written with, or another table.path. If "
            "that checkpoint is lost, stop all jobs of the table, set source.startingOffsets "
            "behind the rows of the table, and run once with --take-over"
        )
