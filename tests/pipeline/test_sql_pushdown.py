"""Which offsets a filter leaves to fetch: never fewer than those of the rows that it keeps."""

import datetime
import json

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.formats.arrow_batches import TYPES
from ottla.sql.pushdown import TIME_MAX_MS, TopicFilter
from ottla.sql.scan import SOURCE_COLUMNS
from ottla.sql.session import quote_offset, tables_of
from ottla.sql.used_columns import columns_of

SCHEMA = pa.schema([pa.field(each, TYPES[each]) for each in SOURCE_COLUMNS])
SECOND = 1_000_000
BEGAN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def at(second: int) -> datetime.datetime:
    return BEGAN + datetime.timedelta(seconds=second)


def ms(second: int) -> int:
    return int(at(second).timestamp() * 1000)


class Recorder(ds.Dataset):
    """A dataset that keeps the filter DuckDB passes to it."""

    def __init__(self) -> None:
        self.filter = None

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def scanner(self, columns: list[str] | None = None, filter: object = None, **_: object):
        self.filter = filter
        return self

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(SCHEMA, [])


@pytest.fixture(scope="module")
def db():
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def pushed(db: duckdb.DuckDBPyConnection, where: str) -> object:
    table = Recorder()
    db.register("t", table)
    db.sql(f"SELECT * FROM t WHERE {where}").fetchall()
    return table.filter


def rule(db: duckdb.DuckDBPyConnection, where: str, partition: int = 0) -> TopicFilter:
    return TopicFilter(pushed(db, where), SCHEMA, "orders", partition)


@pytest.mark.parametrize(
    ("where", "ranges"),
    [
        ('"offset" >= 100', [(100, 1000)]),
        ('"offset" > 100', [(101, 1000)]),
        ('"offset" < 100', [(0, 100)]),
        ('"offset" <= 100', [(0, 101)]),
        ('"offset" = 100', [(100, 101)]),
        ('"offset" BETWEEN 10 AND 20', [(10, 21)]),
        ('"offset" >= 10 AND key = \'a\' AND "offset" < 20', [(10, 20)]),
        ('"offset" IN (7, 9)', [(7, 10)]),
        ('"offset" < 10 OR "offset" >= 20', [(0, 1000)]),
        ('"offset" >= 1000', []),
        ('"offset" < 0', []),
        ("partition = 1", []),
        ("partition IN (0, 2)", [(0, 1000)]),
        ("topic = 'other'", []),
        ("topic = 'orders' AND partition = 0", [(0, 1000)]),
        ('(partition = 0 AND "offset" < 5) OR (partition = 1 AND "offset" < 500)', [(0, 5)]),
        ("key = 'a'", [(0, 1000)]),
        ('"offset" % 2 = 0', [(0, 1000)]),
    ],
)
def test_offset_filter_narrows_ranges(db, where: str, ranges: list[tuple[int, int]]) -> None:
    filter_ = pushed(db, where)
    if filter_ is None:  # DuckDB kept it to itself
        assert ranges == [(0, 1000)]
        return
    found = TopicFilter(filter_, SCHEMA, "orders", 0)
    assert (found.offset_ranges(0, 1000) if found.may_match else []) == ranges


def test_distant_offsets_leave_a_gap(db) -> None:
    ranges = rule(db, '"offset" IN (5, 9000000)').offset_ranges(0, 10_000_000)
    assert len(ranges) == 2
    assert ranges[0][0] == 5
    assert ranges[1][1] == 9_000_001
    assert sum(end - start for start, end in ranges) < 1_000_000


def test_timestamp_filter_gives_a_start_and_an_end(db) -> None:
    found = rule(db, f"timestamp >= '{at(10)}' AND timestamp < '{at(20)}' AND key IS NOT NULL")
    assert (found.time_start(), found.time_end()) == (ms(10), ms(20))


def test_timestamp_between_milliseconds_starts_at_the_earlier_one(db) -> None:
    found = rule(db, "timestamp > '2026-01-01 00:00:00.0005+00'")
    assert found.time_start() == ms(0)


@pytest.mark.parametrize("where", ["key = 'a'", "timestamp != '2026-01-01'", '"offset" > 3'])
def test_filter_without_a_bound_gives_no_times(db, where: str) -> None:
    found = rule(db, where)
    assert (found.time_start(), found.time_end()) == (0, None)


def test_timestamps_of_an_or_give_the_earliest_start(db) -> None:
    found = rule(db, f"timestamp = '{at(50)}' OR timestamp = '{at(10)}'")
    assert found.time_start() == ms(10)


# -- any filter: rows that it keeps lie within the ranges ----------------------------------

OPERATORS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
OFFSETS = st.integers(-2, 70_000)


@st.composite
def comparisons(draw) -> str:
    kind = draw(st.sampled_from(["offset", "offset in", "partition", "timestamp", "key", "null"]))
    match kind:
        case "offset":
            return f'"offset" {draw(OPERATORS)} {draw(OFFSETS)}'
        case "offset in":
            return f'"offset" IN ({", ".join(map(str, draw(st.lists(OFFSETS, min_size=1))))})'
        case "partition":
            return f"partition {draw(OPERATORS)} {draw(st.integers(0, 2))}"
        case "timestamp":
            return f"timestamp {draw(OPERATORS)} '{at(draw(st.integers(-1, 30)))}'"
        case "key":
            return f"key {draw(OPERATORS)} '{draw(st.sampled_from('abc'))}'"
        case _:
            return draw(st.sampled_from(["key IS NULL", "key IS NOT NULL", '"offset" IS NOT NULL']))


FILTERS = st.recursive(
    comparisons(),
    lambda inner: st.builds(
        lambda word, parts: "(" + f" {word} ".join(parts) + ")",
        st.sampled_from(["AND", "OR"]),
        st.lists(inner, min_size=2, max_size=3),
    ),
    max_leaves=6,
)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.one_of(st.integers(0, 40), st.integers(0, 65_000)),
        st.integers(0, 30),
        st.sampled_from([None, b"a", b"b"]),
    ),
    min_size=1,
    max_size=12,
)


@given(where=FILTERS, rows=ROWS)
@example(where='"offset" IN (0, 65000)', rows=[(0, 0, 0, None), (0, 65_000, 0, None)])
def test_ranges_contain_every_row_that_the_filter_keeps(db, where: str, rows: list) -> None:
    filter_ = pushed(db, where)
    if filter_ is None:
        return
    records = pa.RecordBatch.from_pylist(
        [
            {"topic": "orders", "partition": p, "offset": o, "timestamp": at(t), "key": k}
            for p, o, t, k in rows
        ],
        SCHEMA,
    )
    for kept in records.filter(filter_).to_pylist():
        found = TopicFilter(filter_, SCHEMA, "orders", kept["partition"])
        time = int(kept["timestamp"].timestamp() * 1000)
        assert found.may_match
        assert any(a <= kept["offset"] < b for a, b in found.offset_ranges(0, 65_001))
        assert found.time_start() <= time
        assert time < (found.time_end() or TIME_MAX_MS)


# -- text of queries -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select offset from t", 'select "offset" from t'),
        ("select offset from t limit 5 offset 3", 'select "offset" from t limit 5 offset 3'),
        ("select Offset+1 from t", 'select "offset"+1 from t'),
        ("select 'offset' from t", "select 'offset' from t"),
        ('select "offset" from t', 'select "offset" from t'),
        ("select 1 -- offset", "select 1 -- offset"),
    ],
)
def test_bare_offset_is_quoted_unless_it_is_a_clause(query: str, expected: str) -> None:
    assert quote_offset(query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select What, sum(o.Amount) n from orders o group by 1 order by n", "amount n o what"),
        ("select a from x join y using (id) where b between 1 and c", "a b c id"),
        ("select max(a) filter (where b > 0) over (partition by c order by d) from x", "a b c d"),
        ("select case when a in (1, b) then c::int else list_transform(d, e -> e + f) end from x",
         "a b c d e f"),
        ("select id from (select a id from x union all select b from y) where exists "
         "(select 1 from z where z.c = id)", "a b c id z"),
        ("select count(*) from x", ""),
        ("select place.city from x limit 3", "city place"),
        ("select * from x", None),
        ("from x", None),
        ("select x.* from x", None),
        ("select columns('a.*') from x", None),
        ("with y as (select * from x) select a from y", None),
        ("select o from orders o", None),
        ("select orders from orders", None),
        ("select unnest(ORDERS) from orders", None),
        ("select #1 from x", None),
        ("select a from x o(a, b)", None),
        ("select a from x natural join y", None),
        ("select a from x positional join y", None),
        ("describe x", None),
        ("summarize x", None),
        ("pivot x on a using sum(b)", None),
        ("create table y as select a from x", None),
    ],
)  # fmt: skip
def test_columns_of_a_query_are_those_that_it_names_unless_it_may_use_others(
    db, query: str, expected: str | None
) -> None:
    tree = json.loads(db.execute("select json_serialize_sql(?)", [query]).fetchall()[0][0])
    found = columns_of(tree)
    assert (None if found is None else " ".join(sorted(found))) == expected


def test_tables_of_a_query_are_found_without_its_own_expressions(db) -> None:
    query = (
        'with x as (select * from orders) select * from x join shop.items i using (k), "a-b" '
        "where z in (select z from deep)"
    )
    tree = json.loads(db.execute("select json_serialize_sql(?)", [query]).fetchall()[0][0])
    assert sorted(tables_of(tree)) == [
        ("", "a-b"),
        ("", "deep"),
        ("", "orders"),
        ("shop", "items"),
    ]
