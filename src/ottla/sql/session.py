"""Runs SQL over topics with DuckDB: finds the topics of a query, and shows them as views.

    with SqlSession(options, note=print) as session:
        for batch in session.run("select count(*) from orders"):
            ...

Every table name of a query that is the name of a topic becomes a view of that topic; other names
are left to DuckDB (files, common table expressions, its own tables). A query sees the offsets that
were readable when it started.
"""

import difflib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import duckdb
import msgspec
import pyarrow as pa

from ottla.client.blocking.broker_client import BrokerClient
from ottla.client.cluster import Refused
from ottla.client.offset_spec import (
    BEGINNING,
    EARLIEST,
    END,
    LATEST,
    AtOffset,
    AtTime,
    BeforeEnd,
    OffsetSpec,
    Range,
)
from ottla.formats.record_values import BadFormatOption, BadValues
from ottla.formats.registry_client import RegistryFailed
from ottla.formats.sql_names import duckdb_name, duckdb_text
from ottla.protocol.faults import Fault
from ottla.protocol.types import TopicPartition
from ottla.protocol.uuids import uuid_text
from ottla.sql.scan import ScanContext, ScanStats, Stopped, TopicTable
from ottla.sql.stop_flag import StopFlag
from ottla.sql.topics import TopicFormats, TopicSpec
from ottla.sql.used_columns import columns_of
from ottla.sql.value_columns import Part, view_of

_EXPLAIN: Final = "EXPLAIN "
_TABLE_PREFIX: Final = "ottla topic "
_BATCH_ROWS: Final = 10_000
# Operators of a plan in which each row depends on one record only.
_ROW_WISE: Final = frozenset({"PROJECTION", "FILTER", "PYTHON_ARROW_SCAN", "ARROW_SCAN"})


class SqlFailed(Exception):
    """A query that cannot be run, or that failed; the message says why."""


class SqlOptions(msgspec.Struct, frozen=True):
    """What a session reads and how much memory it may use."""

    formats: TopicFormats
    start: OffsetSpec = BEGINNING
    end: OffsetSpec = END
    is_committed_only: bool = True
    bad: BadValues = BadValues.FAIL
    late_ms_max: int | None = None
    memory: str = "1GB"
    is_pushing: bool = True


class SqlSession:
    """One DuckDB instance in memory, with views of the topics that its queries name."""

    def __init__(
        self,
        client: BrokerClient,
        options: SqlOptions,
        note: Callable[[str], None],
        watch: Callable[[ScanStats], None] = lambda stats: None,
    ) -> None:
        self._client = client
        self._options = options
        self._note = note
        self._spill = tempfile.TemporaryDirectory(prefix="ottla-sql-")
        self._db = duckdb.connect(":memory:")
        self._stop = StopFlag()
        self._scan = ScanContext(
            client=client,
            committed=options.is_committed_only,
            late_ms_max=options.late_ms_max,
            stats=ScanStats(),
            stop=self._stop,
            note=note,
            watch=watch,
            is_pushing=options.is_pushing,
        )
        self._tables: dict[str, TopicTable] = {}
        self._parts: dict[str, tuple[Part, Part]] = {}
        self._configure()

    def _configure(self) -> None:
        settings = {
            "memory_limit": self._options.memory,
            "temp_directory": self._spill.name,
            "TimeZone": "UTC",
        }
        for name, value in settings.items():
            try:
                self._db.execute(f"SET {name} = {duckdb_text(value)}")
            except duckdb.Error as error:
                raise SqlFailed(f"{name} {value!r}: {_first_line(error)}") from error
        # Without this, a table name could mean a Python variable of ours.
        self._db.execute("SET python_enable_replacements = false")
        self._db.execute("SET enable_progress_bar = false")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(duckdb.Error):
            self._db.close()
        self._stop.close()
        self._spill.cleanup()

    @property
    def stats(self) -> ScanStats:
        """What has been fetched."""
        return self._scan.stats

    @property
    def stopping(self) -> StopFlag:
        """Set by `stop`."""
        return self._stop

    def stop(self) -> None:
        """End the running query. May be called by a signal handler."""
        self._stop.set()
        self._db.interrupt()

    # -- queries ---------------------------------------------------------------

    def run(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the result of a query over the offsets that are readable now.

        Raises:
            SqlFailed: the query is wrong, or failed. Stopped: the user interrupted it.
        """
        prepared = self.prepare(query)
        return self.execute(prepared)

    def prepare(self, query: str) -> str:
        """Create the views of a query and take a snapshot; return the query to execute.

        Raises:
            SqlFailed: the query cannot be parsed, or a topic cannot be read. NoBroker, LoginFailed:
                the cluster cannot be reached.
        """
        query = self._parsable(query)
        tree = self._tree(query)
        names, used = tables_of(tree), columns_of(tree)
        try:
            self._define(names, used)
            self.take_snapshot()
            try:
                self._bind(query)
            except duckdb.Error:
                if used is None:
                    raise
                self._define(names, None)  # so that the message knows all columns
                self._bind(query)
        except duckdb.Error as error:
            raise self._explained(error, names) from error
        except (Fault, Refused, BadFormatOption, RegistryFailed) as error:
            raise SqlFailed(str(error) or type(error).__name__) from error
        return query

    def _bind(self, query: str) -> None:
        """Check a query without running it."""
        if _is_select(query):
            self._db.execute(f"{_EXPLAIN}{query}")

    def execute(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the result of a prepared query over the current snapshot. Raises as `run`."""
        self._scan.failure = None
        try:
            result = self._db.sql(query)
            if result is not None:
                yield from _batches(result.to_arrow_reader(_BATCH_ROWS))
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if self._stop.is_set():
                raise Stopped from error
            cause = self._scan.failure
            if cause is not None:
                raise SqlFailed(str(cause) or type(cause).__name__) from cause
            raise SqlFailed(_message(error)) from error

    def is_row_wise(self, query: str) -> bool:
        """Return whether each record of one topic gives a row, or none, by itself."""
        text = self._db.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()[0][1]
        names, pending = [], list(json.loads(text))
        while pending:
            node = pending.pop()
            names.append(node["name"].strip())
            pending += node["children"]
        return sum("SCAN" in each for each in names) == 1 and _ROW_WISE.issuperset(names)

    def _parsable(self, query: str) -> str:
        """Return the query, with the column ``offset`` in quotes where that makes it valid."""
        try:
            statements = self._db.extract_statements(query)
        except duckdb.Error as error:
            changed = quote_offset(query)
            try:
                statements = self._db.extract_statements(changed)
            except duckdb.Error:
                raise SqlFailed(_message(error)) from error
            query = changed
        if len(statements) != 1:
            raise SqlFailed(f"one statement at a time, not {len(statements)}")
        return query.strip().rstrip(";")

    def _tree(self, query: str) -> dict[str, object]:
        """Return DuckDB's syntax tree of a query."""
        inner = re.sub(r"(?i)^\s*explain\s+(analyze\s+)?", "", query)
        copied = re.match(r"(?is)^\s*copy\s*\((.*)\)\s*to\s", inner)
        inner = copied[1] if copied else inner
        found = self._db.execute("SELECT json_serialize_sql(?::VARCHAR)", [inner]).fetchall()
        tree: dict[str, object] = json.loads(found[0][0])
        return tree

    # -- topics ----------------------------------------------------------------

    def _define(self, names: Sequence[tuple[str, str]], used: frozenset[str] | None) -> None:
        """Create a view for each name that is a topic, with the fields in ``used``; None: all."""
        wanted = {".".join(filter(None, each)): each for each in names}
        known = self._client.topics(None) if wanted else {}
        for topic, (schema, name) in wanted.items():
            found = topic if topic in known else _alike(topic, known)
            if found is None:
                continue
            if found not in self._tables:
                if known[found].is_internal:
                    self._note(
                        f"{found} is an internal topic: its records are in a format of Kafka"
                    )
                self._add(found)
            if schema:
                self._db.execute(f"CREATE SCHEMA IF NOT EXISTS {duckdb_name(schema)}")
            view = f"{duckdb_name(schema)}.{duckdb_name(name)}" if schema else duckdb_name(name)
            key, value = (each.with_fields(used) for each in self._parts[found])
            body = view_of(f"{_TABLE_PREFIX}{found}", found, key, value, self._options.bad)
            self._db.execute(f"CREATE OR REPLACE VIEW {view} AS {body}")

    def _add(self, topic: str) -> None:
        """Register the table of a topic, and find out how its records are read."""
        sampled = TopicTable(self._scan)
        sampled.ranges = self._ranges(topic)
        spec: TopicSpec = self._options.formats.of(topic, sampled, self._db, self._note)
        table = TopicTable(self._scan, spec.decoders)
        self._db.register(f"{_TABLE_PREFIX}{topic}", table)
        self._tables[topic], self._parts[topic] = table, (spec.key, spec.value)

    def _explained(self, error: duckdb.Error, names: Sequence[tuple[str, str]]) -> SqlFailed:
        """Say which topic does not exist, where that is the reason."""
        text = _message(error)
        if isinstance(error, duckdb.CatalogException) and "does not exist" in text:
            for schema, name in names:
                topic = f"{schema}.{name}" if schema else name
                if topic not in self._tables and topic in text:
                    known = self._client.topics(None)
                    near = difflib.get_close_matches(topic, [*known], n=1)
                    hint = f"; did you mean {near[0]!r}?" if near else _known(known)
                    return SqlFailed(f"there is no topic {topic!r}{hint}")
        return SqlFailed(text)

    # -- offsets ---------------------------------------------------------------

    def take_snapshot(self, *, since_last: bool = False) -> bool:
        """Let queries see the offsets readable now; return whether there are new ones.

        ``since_last``: they see only those after the last snapshot.
        """
        is_new = False
        for topic, table in self._tables.items():
            before = {each.partition: each.end for each in table.ranges}
            ranges = self._ranges(topic)
            if since_last:
                ranges = tuple(
                    msgspec.structs.replace(
                        each, start=min(before.get(each.partition, each.start), each.end)
                    )
                    for each in ranges
                )
            is_new = is_new or any(each.end > before.get(each.partition, -1) for each in ranges)
            table.ranges = ranges
        return is_new

    def _ranges(self, topic: str) -> tuple[Range, ...]:
        info = self._client.topic(topic)
        partitions = [TopicPartition(topic, each) for each in info.partitions]
        committed = self._options.is_committed_only

        def query(timestamp: int) -> dict[TopicPartition, int]:
            return self._client.list_offsets(
                dict.fromkeys(partitions, timestamp), committed=committed
            )

        earliest, latest = query(EARLIEST), query(LATEST)
        starts = _resolved(self._options.start, earliest, latest, query)
        ends = _resolved(self._options.end, earliest, latest, query)
        topic_id = uuid_text(info.topic_id)
        return tuple(
            Range(each, starts[each], max(starts[each], ends[each]), topic_id)
            for each in partitions
        )


def _resolved(
    spec: OffsetSpec,
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    query: Callable[[int], dict[TopicPartition, int]],
) -> dict[TopicPartition, int]:
    """Return an offset for each partition, within the readable ones."""
    match spec:
        case AtOffset(offset):
            found = dict.fromkeys(latest, offset)
        case BeforeEnd(count):
            found = {each: end - count for each, end in latest.items()}
        case AtTime(timestamp) if timestamp == EARLIEST:
            found = dict(earliest)
        case AtTime(timestamp) if timestamp == LATEST:
            found = dict(latest)
        case AtTime(timestamp):
            answers = query(timestamp)
            found = {each: answers[each] if answers[each] >= 0 else latest[each] for each in latest}
    return {
        each: min(max(offset, earliest[each]), max(latest[each], earliest[each]))
        for each, offset in found.items()
    }


def _alike(topic: str, known: Mapping[str, object]) -> str | None:
    """Return the one topic with this name in other case: SQL folds case."""
    found = [each for each in known if each.lower() == topic.lower()]
    return found[0] if len(found) == 1 else None


def _known(known: Mapping[str, Any]) -> str:
    names = sorted(each for each, info in known.items() if not info.is_internal)
    if not names:
        return "; the cluster has no topics that this user may describe"
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"; topics are {', '.join(names[:8])}{more}"


# -- text of queries ------------------------------------------------------------------


def tables_of(tree: object) -> list[tuple[str, str]]:
    """Return schema and name of the tables in DuckDB's syntax tree, without repetition."""
    found: dict[tuple[str, str], None] = {}
    defined: set[str] = set()
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Mapping):
            if node.get("type") == "BASE_TABLE":
                above = [node.get("catalog_name") or "", node.get("schema_name") or ""]
                found[".".join(filter(None, above)), node["table_name"]] = None
            if isinstance(expressions := node.get("cte_map"), Mapping):
                defined |= {each["key"] for each in expressions["map"]}
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return [each for each in found if each[0] or each[1] not in defined]


def quote_offset(query: str) -> str:
    """Put the keyword ``offset`` in quotes wherever it does not begin an OFFSET clause."""
    tokens = duckdb.tokenize(query)
    starts = [at for at, _ in tokens] + [len(query)]
    parts, position = [], 0
    for index, (at, _) in enumerate(tokens):
        if query[at : starts[index + 1]].strip().lower() != "offset":
            continue
        following = query[starts[index + 1] :][:1]
        if following.isdigit() or following in ("?", "$"):
            continue
        parts += [query[position:at], '"offset"']
        position = at + len("offset")
    return "".join([*parts, query[position:]])


def _is_select(query: str) -> bool:
    return re.match(r"(?i)\s*(select|with|from|values)\b", query) is not None


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([], reader.schema)  # the columns of a result without rows
    yield from reader


def _message(error: BaseException) -> str:
    """Return DuckDB's message without the name of its class, with the position in the query."""
    text = str(error).strip()
    text = re.sub(r"^(Invalid Input|Binder|Catalog|Parser|Conversion) Error: ", "", text)
    if f"LINE 1: {_EXPLAIN}" in text:  # our word, not the user's; the last line marks the place
        head, _, mark = text.replace(f"LINE 1: {_EXPLAIN}", "LINE 1: ").rpartition("\n")
        text = f"{head}\n{mark.removeprefix(' ' * len(_EXPLAIN))}"
    return re.sub(r"\n{2,}", "\n", text)


def _first_line(error: BaseException) -> str:
    return _message(error).split("\n", 1)[0]
