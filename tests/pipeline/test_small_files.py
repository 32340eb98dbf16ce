"""Merging of small files: a crash at any step neither loses nor duplicates rows."""

import contextlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.tables import compaction
from ottla.tables.compaction import SMALL_BYTES, Compaction, DataFile, choose
from ottla.tables.files import LocalFiles


class Crash(Exception):
    pass


def merge_rows(sources, directory):
    """Merge as Spark does, without it."""
    tables = [pq.ParquetFile(each).read() for each in sources]
    Path(directory).mkdir(exist_ok=True)
    merged = pa.concat_tables(tables, promote_options="default")
    pq.write_table(merged, f"{directory}/part-0.parquet")


def compact(table, before, files_min, merge=merge_rows):
    return Compaction(LocalFiles(), str(table), merge).compact(before, files_min)


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


def add(table, batch, day=0, name="part-0.parquet", **columns):
    where = table / f"day={day}" / f"ottla_batch={batch}"
    where.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": [batch], **columns}), where / name)


def test_merged_files_are_merged_again_only_with_files_of_their_level(tmp_path):
    written = []

    def counted(sources, directory):
        merge_rows(sources, directory)
        written.append(len(sources))

    for batch in range(27):
        add(tmp_path, batch, **({"new": ["x"]} if batch > 13 else {}))
        compact(tmp_path, before=batch + 1, files_min=3, merge=counted)
    assert rows(tmp_path) == list(range(27))
    assert len(list(tmp_path.glob("**/*.parquet"))) == 1
    assert written == [3] * 13, "each row is written once per level"


def test_files_merged_by_earlier_versions_have_a_level(tmp_path):
    for batch in range(3):
        add(tmp_path, batch, name=f"merged-64-abc{batch}.parquet")
    for batch in range(3, 5):
        add(tmp_path, batch)
    assert compact(tmp_path, before=9, files_min=4) == 0
    assert compact(tmp_path, before=9, files_min=3) == 2
    assert rows(tmp_path) == list(range(5))


def test_large_files_are_not_merged_and_a_merge_has_a_limit(monkeypatch):
    small = [DataFile(f"ottla_batch={each}/part.parquet", 10) for each in range(5)]
    large = [DataFile(f"ottla_batch={each}/part.parquet", SMALL_BYTES) for each in range(5)]
    assert choose([*large, *small], 5) == small
    assert choose([*large, *small[1:]], 5) == []
    monkeypatch.setattr(compaction, "MERGE_BYTES_MAX", 35)
    assert choose(small, 5) == small[:3]
    monkeypatch.setattr(compaction, "MERGE_BYTES_MAX", 5)
    assert choose(small, 5) == small[:2]


def test_merge_that_an_earlier_version_planned_is_finished(tmp_path):
    fill(tmp_path, 2, days=1)
    sources = [f"day=0/ottla_batch={each}/part-0.parquet" for each in range(2)]
    merge_rows([str(tmp_path / each) for each in sources], str(tmp_path / "day=0" / "_m"))
    (tmp_path / "day=0/_m/part-0.parquet").rename(tmp_path / "day=0/_merged.parquet")
    plan = {"partition": "day=0", "sources": sources, "target": "day=0/ottla_batch=1"}
    (tmp_path / "_ottla").mkdir()
    (tmp_path / "_ottla/compaction.json").write_text(json.dumps(plan))
    assert compact(tmp_path, before=9, files_min=9) == 1
    assert rows(tmp_path) == [0, 1]
    assert len(list(tmp_path.glob("day=0/ottla_batch=1/*.parquet"))) == 1


@pytest.mark.parametrize("method", ["rename", "delete", "make_directory", "write", "sync"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("count", range(1, 8))
def test_crash_at_any_step_neither_loses_nor_duplicates_rows(
    tmp_path, monkeypatch, method, when, count
):
    expected = fill(tmp_path, 4, days=1)
    left = count
    whole = getattr(LocalFiles, method)

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
        patched.setattr(LocalFiles, method, step)
        with contextlib.suppress(Crash):
            compact(tmp_path, before=4, files_min=4)
    compact(tmp_path, before=4, files_min=4)
    assert rows(tmp_path) == expected
    assert len(list(tmp_path.glob("day=0/**/*.parquet"))) == 1
    assert not (tmp_path / compaction._PLAN).exists()
