"""Merging of small files: a crash at any step neither loses nor duplicates rows."""

import contextlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.pipeline import small_files
from ottla.pipeline.small_files import compact


class Crash(Exception):
    pass


def fill(table: Path, batches: int, days: int = 2) -> list[int]:
    expected = []
    for batch in range(batches):
        for day in range(days):
            where = table / f"day={day}" / f"ottla_batch={batch}"
            where.mkdir(parents=True)
            number = batch * days + day
            pq.write_table(pa.table({"n": [number]}), where / "part-0.parquet")
            expected.append(number)
    return expected


def rows(table: Path) -> list[int]:
    """Return the rows a reader sees, without names that begin with _."""
    found = []
    for file in table.glob("**/*.parquet"):
        if not any(part.startswith("_") for part in file.relative_to(table).parts):
            with pq.ParquetFile(file) as opened:
                found += opened.read().column("n").to_pylist()
    return sorted(found)


def test_many_files_are_merged_except_the_newest_batch(tmp_path):
    expected = fill(tmp_path, 6)
    assert compact(tmp_path, before=5, files_min=4) == 8
    assert rows(tmp_path) == expected
    assert sorted(each.name for each in tmp_path.glob("day=0/*")) == [
        "ottla_batch=4",
        "ottla_batch=5",
    ]
    assert compact(tmp_path, before=5, files_min=4) == 0


def test_few_files_are_not_merged(tmp_path):
    expected = fill(tmp_path, 3)
    assert compact(tmp_path, before=3, files_min=4) == 0
    assert rows(tmp_path) == expected
    assert len(list(tmp_path.glob("day=0/*"))) == 3


def test_merge_includes_previously_merged_files(tmp_path):
    fill(tmp_path, 4, days=1)
    compact(tmp_path, before=4, files_min=2)
    for batch in (4, 5):
        where = tmp_path / "day=0" / f"ottla_batch={batch}"
        where.mkdir()
        pq.write_table(pa.table({"n": [batch], "new": ["x"]}), where / "part-0.parquet")
    compact(tmp_path, before=6, files_min=2)
    assert rows(tmp_path) == list(range(6))
    assert len(list(tmp_path.glob("**/*.parquet"))) == 1


@pytest.mark.parametrize("method", ["replace", "unlink", "mkdir", "write_bytes"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("count", range(1, 6))
def test_crash_at_any_step_neither_loses_nor_duplicates_rows(
    tmp_path, monkeypatch, method, when, count
):
    expected = fill(tmp_path, 4, days=1)
    left = count
    whole = getattr(Path, method)

    def step(self, *args, **named):
        nonlocal left
        left -= 1
        if left == 0 and when == "before":
            raise Crash
        found = whole(self, *args, **named)
        if left == 0:
            raise Crash
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Path, method, step)
        with contextlib.suppress(Crash):
            compact(tmp_path, before=4, files_min=2)
    compact(tmp_path, before=4, files_min=2)
    assert rows(tmp_path) == expected
    assert len(list(tmp_path.glob("day=0/**/*.parquet"))) == 1
    assert not (tmp_path / small_files._PLAN).exists()
