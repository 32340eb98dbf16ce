"""A topic as a table that DuckDB scans: Arrow record batches, fetched while the query runs.

DuckDB takes the table for an Arrow dataset and asks for the columns that the query uses and for the
rows that its filter keeps. Only those columns are decoded, and only offsets that the filter may
keep are fetched (`pushdown`). The scan yields one record batch at a time and fetches on when
DuckDB asks for the next, so memory is bounded by a fetch and a batch, whatever the topic's size.

Every scan of one query covers the same offsets: those of the snapshot that was taken at its start.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

from ottla.client.blocking.broker_client import BrokerClient
from ottla.client.blocking.range_fetch import DataLost, fetch_batches
from ottla.client.fetched import Chunk
from ottla.client.offset_spec import Range
from ottla.formats.arrow_batches import TYPES, record_batches
from ottla.protocol.types import TopicPartition
from ottla.protocol.uuids import parse_uuid
from ottla.sql.pushdown import Expression, TopicFilter
from ottla.sql.stop_flag import StopFlag

if TYPE_CHECKING:
    from ottla.sql.value_columns import DecodedColumns

# DuckDB asks for the first column where a query needs none (``count(*)``): the cheapest one.
SOURCE_COLUMNS: Final = (
    "partition", "offset", "timestamp", "timestampType", "topic", "key", "value", "headers",
)  # fmt: skip
ROWS: Final = 20_000
# A fetch returns as many bytes as it may, whatever part of them is used: ask for less where a
# filter leaves few offsets. A batch that is larger is returned all the same.
_FETCH_BYTES_MIN: Final = 64 << 10
_RECORD_BYTES: Final = 1 << 10


class Stopped(Exception):
    """The user interrupted the query."""


class ScanStats(msgspec.Struct):
    """What the scans of a query have fetched so far."""

    bytes: int = 0
    records: int = 0
    """Records decoded; the filter may drop some of them."""
    offsets_planned: int = 0
    """Offsets that remain to be fetched after pushdown, when the scans started."""
    offsets_in_range: int = 0
    """Offsets in the tables that are scanned."""


class ScanContext(msgspec.Struct):
    """What the tables of one session share."""

    client: BrokerClient
    committed: bool
    late_ms_max: int | None
    """How late records may be by their timestamps; None: unknown, "before T" is not pushed down."""
    stats: ScanStats
    stop: StopFlag
    note: Callable[[str], None]
    watch: Callable[[ScanStats], None]
    failure: BaseException | None = None
    """The first exception of a scan: DuckDB passes on its text only."""
    is_pushing: bool = True


class _Scanner:
    """What DuckDB expects of a dataset's scanner."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows of one scan."""
        return self._reader


class TopicTable(ds.Dataset):  # type: ignore[misc] # pyarrow has no types
    """The records of a topic between the offsets in ``ranges``."""

    def __init__(self, context: ScanContext, decoders: Sequence["DecodedColumns"] = ()) -> None:
        # Dataset's own constructor makes nothing: a dataset is what its methods return.
        self._context = context
        self._decoders = tuple(decoders)
        fields = [pa.field(each, TYPES[each]) for each in SOURCE_COLUMNS]
        for decoder in decoders:
            fields += list(decoder.columns)
        self._schema = pa.schema(fields)
        self.ranges: tuple[Range, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def sample(self, ranges: Sequence[Range], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield columns of some records, without counting what is fetched for it."""
        context = msgspec.structs.replace(
            self._context, stats=ScanStats(), watch=lambda stats: None
        )
        table = TopicTable(context)
        table.ranges = tuple(ranges)
        yield from table.scanner(columns).to_reader()

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Expression = None,
        **_: object,
    ) -> _Scanner:
        """Return a scan of some columns and rows."""
        names = self._schema.names if columns is None else list(columns)
        schema = pa.schema([self._schema.field(each) for each in names])
        rows = self._guarded(self._rows(names, filter))
        return _Scanner(pa.RecordBatchReader.from_batches(schema, rows))

    def _guarded(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from rows
        except GeneratorExit:
            raise
        except BaseException as error:
            self._context.failure = self._context.failure or error
            raise

    def _rows(self, names: list[str], filter_: Expression) -> Iterator[pa.RecordBatch]:
        used = {*names}
        if filter_ is not None:
            text = str(filter_)  # names in it; a word of a value does no harm
            used |= {each for each in self._schema.names if _is_word_of(each, text)}
        planned = self._planned(filter_)
        stats = self._context.stats
        stats.offsets_in_range += sum(each.size for each in self.ranges)
        stats.offsets_planned += sum(each.size for each in planned)
        for each in planned:
            for batch in self._read(each, used):
                stats.records += batch.num_rows
                self._context.watch(stats)
                kept = batch if filter_ is None else batch.filter(filter_)
                if kept.num_rows:
                    yield kept.select(names)

    # -- which offsets ---------------------------------------------------------

    def _planned(self, filter_: Expression) -> list[Range]:
        """Return the ranges to fetch: all offsets that the filter may keep."""
        if filter_ is None or not self._context.is_pushing:
            return list(self.ranges)
        found: list[Range] = []
        starts: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        late = self._context.late_ms_max
        for whole in self.ranges:
            at = whole.partition
            rule = TopicFilter(filter_, self._schema, at.topic, at.partition)
            parts = rule.offset_ranges(whole.start, whole.end) if rule.may_match else []
            if parts and (time := rule.time_start()):
                starts[at] = time
            if parts and late is not None and (time_end := rule.time_end()) is not None:
                ends[at] = time_end + late
            found += [msgspec.structs.replace(whole, start=a, end=b) for a, b in parts]
        return self._within_times(found, starts, ends)

    def _within_times(
        self,
        ranges: list[Range],
        starts: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
    ) -> list[Range]:
        client, committed = self._context.client, self._context.committed
        first = client.list_offsets(starts, committed=committed) if starts else {}
        last = client.list_offsets(ends, committed=committed) if ends else {}
        found = []
        for each in ranges:
            start, end = each.start, each.end
            answer = first.get(each.partition)
            if answer is not None:  # -1: no record is that new
                start = end if answer < 0 else max(start, answer)
            if (answer := last.get(each.partition, -1)) >= 0:
                end = min(end, answer)
            if start < end:
                found.append(msgspec.structs.replace(each, start=start, end=end))
        return found

    # -- their records ---------------------------------------------------------

    def _read(self, whole: Range, used: set[str]) -> Iterator[pa.RecordBatch]:
        """Yield a range's records with the columns in ``used``, and maybe others."""
        decoders = [each for each in self._decoders if used & {*each.columns.names}]
        source: set[str] = used & {*SOURCE_COLUMNS}
        for decoder in decoders:
            source |= decoder.needs
        columns = tuple(each for each in SOURCE_COLUMNS if each in source)
        chunks = self._chunks(whole)
        for batch in record_batches(chunks, whole.partition, columns, whole.start, whole.end, ROWS):
            yield self._with_decoded(batch, decoders, whole.partition, used) if decoders else batch

    def _with_decoded(
        self,
        batch: pa.RecordBatch,
        decoders: Sequence["DecodedColumns"],
        at: TopicPartition,
        used: set[str],
    ) -> pa.RecordBatch:
        arrays, fields = list(batch.columns), list(batch.schema)
        for decoder in decoders:
            arrays += decoder.decode(batch, at, used)
            fields += [each for each in decoder.columns if each.name in used]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _chunks(self, whole: Range) -> Iterator[Chunk]:
        """Yield raw batches; records that retention deletes meanwhile are reported and left out."""
        context, start = self._context, whole.start
        topic_id = parse_uuid(whole.topic_id) if whole.topic_id else None
        while start < whole.end:
            try:
                for chunk in fetch_batches(
                    context.client,
                    whole.partition,
                    start,
                    whole.end,
                    committed=context.committed,
                    topic_id=topic_id,
                    bytes_max=max(_FETCH_BYTES_MIN, whole.size * _RECORD_BYTES),
                ):
                    if context.stop.is_set():
                        raise Stopped
                    context.stats.bytes += len(chunk.data)
                    yield chunk
            except DataLost as error:
                start = min(error.log_start, whole.end)
                context.note(f"{error}: deleted while the query was running")
                continue
            return


def _is_word_of(name: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
