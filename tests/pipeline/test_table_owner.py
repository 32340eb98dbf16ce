"""The owner of a parquet table: no run overwrites rows of another query, or of a later run."""

import json

import pytest

from ottla.tables.files import BatchDirectories, LocalFiles
from ottla.tables.owner import NotOwner, Progress, TableOwner, check_newest, read_progress


def add_batch(table, number, partition="day=1"):
    place = table / partition / f"ottla_batch={number}"
    place.mkdir(parents=True)
    (place / "part-0.parquet").write_text("rows")


@pytest.fixture
def table(tmp_path):
    place = tmp_path / "table"
    place.mkdir()
    return place


@pytest.fixture
def owner(table):
    """Return the owner as a new run sees it."""
    return lambda: TableOwner(LocalFiles(), str(table))


def write(owner, table, query, batch, *, take_over=False, has_begun=False):
    """Run one micro-batch of a query; return its number in the table."""
    run = owner()
    run.check(Progress(query if batch else None, batch, has_begun), take_over=take_over)
    number = run.enter(query, batch)
    if not (table / "day=1" / f"ottla_batch={number}").exists():
        add_batch(table, number)
    return number


def test_query_continues_and_replays_its_own_table(owner, table):
    assert [write(owner, table, "a", batch) for batch in range(3)] == [0, 1, 2]
    run = owner()
    run.check(Progress("a", 2, has_begun=True))
    assert run.enter("a", 2) == 2
    assert run.enter("a", 3) == 3


@pytest.mark.parametrize("second", [Progress(), Progress("b", 1), Progress("b", 50)])
def test_second_query_is_rejected(owner, table, second):
    write(owner, table, "a", 0)
    with pytest.raises(NotOwner, match=r"is written by query a.*--take-over"):
        owner().check(second)


def test_lost_checkpoint_is_rejected_or_takes_over_behind_the_rows(owner, table):
    for batch in range(3):
        write(owner, table, "a", batch)
    with pytest.raises(NotOwner, match="a new checkpoint"):
        owner().check(Progress())
    first = write(owner, table, "b", 0, take_over=True)
    assert first > 2
    assert write(owner, table, "b", 1) == first + 1
    with pytest.raises(NotOwner, match="query b"):
        owner().check(Progress("a", 3))


def test_running_query_stops_when_its_table_is_taken_over(owner, table):
    running = owner()
    running.check(Progress())
    assert running.enter("a", 0) == 0
    write(owner, table, "b", 0, take_over=True)
    with pytest.raises(NotOwner, match="is written by query b"):
        running.enter("a", 1)


def test_taking_over_an_own_table_changes_nothing(owner, table):
    write(owner, table, "a", 0)
    assert write(owner, table, "a", 1, take_over=True) == 1


def test_of_two_queries_that_start_at_once_not_both_write(owner):
    one, other = owner(), owner()
    one.check(Progress())
    other.check(Progress())
    assert one.enter("a", 0) == 0
    with pytest.raises(NotOwner, match="is written by query a"):
        other.enter("b", 0)
    assert one.enter("a", 1) == 1


def test_claims_written_at_the_same_moment_reject_at_least_one(owner, table, monkeypatch):
    one, other = owner(), owner()
    one.check(Progress())
    other.check(Progress())
    whole, entered = LocalFiles.write, []

    def both(files, path, content):
        whole(files, path, content)
        monkeypatch.setattr(LocalFiles, "write", whole)
        with pytest.raises(NotOwner):
            entered.append(other.enter("b", 0))

    monkeypatch.setattr(LocalFiles, "write", both)
    entered.append(one.enter("a", 0))
    assert entered == [0]


@pytest.mark.parametrize(
    ("progress", "is_accepted"),
    [
        (Progress(), False),
        (Progress("a", 5), False),
        (Progress("a", 7), False),
        (Progress("a", 7, has_begun=True), True),
        (Progress("a", 8), True),
        (Progress("a", 20), True),
    ],
)
def test_table_without_claims_belongs_to_a_checkpoint_that_came_as_far(
    owner, table, progress, is_accepted
):
    """A table of an earlier version, whose last micro-batch is 7."""
    for number in (3, 7):
        add_batch(table, number)
    if is_accepted:
        run = owner()
        run.check(progress)
        assert run.enter("a", progress.batch) == progress.batch
    else:
        with pytest.raises(NotOwner, match="has rows of another query"):
            owner().check(progress)


def test_old_copy_of_a_checkpoint_is_rejected(owner, table):
    for batch in range(4):
        write(owner, table, "a", batch)
    for stale in (Progress("a", 2), Progress("a", 3), Progress("a", 2, has_begun=True)):
        with pytest.raises(NotOwner, match="it is an old copy"):
            owner().check(stale)
    owner().check(Progress("a", 3, has_begun=True))
    owner().check(Progress("a", 4))


def test_newest_micro_batch_that_is_unknown_is_accepted():
    check_newest(None, Progress("a", 0), "t")


def test_progress_is_read_from_a_checkpoint(tmp_path):
    files = LocalFiles()
    assert read_progress(files, str(tmp_path)) == Progress()
    (tmp_path / "metadata").write_text(json.dumps({"id": "abc"}))
    assert read_progress(files, str(tmp_path)) == Progress("abc", 0, False)
    for name in ("offsets/0", "offsets/1", "commits/0", "commits/.0.crc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("v1")
    assert read_progress(files, str(tmp_path)) == Progress("abc", 1, True)
    (tmp_path / "commits/1").write_text("v1")
    assert read_progress(files, f"{tmp_path}/") == Progress("abc", 2, False)


def test_micro_batch_is_removed_from_every_partition(table):
    add_batch(table, 7, "day=1")
    add_batch(table, 7, "day=2")
    add_batch(table, 8, "day=2")
    add_batch(table, 7, "_merged")
    directories = BatchDirectories(LocalFiles(), str(table))
    directories.remove(7)
    assert list(directories.partitions()) == [("day=2/", [8])]
    assert (table / "_merged" / "ottla_batch=7").exists()
