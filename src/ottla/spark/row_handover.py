"""Passes rows to Spark together with a partition, by a private interface of Spark.

After ``partitions``, Spark's runner asks a reader for rows if it is an instance of the private
class `_SimpleStreamReaderWrapper`. It never asks such a reader for the latest offsets, which are
part of a query's progress. So `offer_rows` makes a reader an instance for that one question.
`HAS_PREFETCH` says whether this Spark has the class.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader

__all__ = ["HAS_PREFETCH", "offer_rows"]

if TYPE_CHECKING:
    HAS_PREFETCH: bool

    class RowsWithPartitions:
        """Spark's class, of which only the name matters."""
else:
    try:
        from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as RowsWithPartitions

        HAS_PREFETCH = hasattr(RowsWithPartitions, "getCache")
    except ImportError:
        HAS_PREFETCH = False


def offer_rows(reader: DataSourceStreamReader, batches: Iterable[pa.RecordBatch]) -> None:
    """Let Spark take ``batches`` instead of reading the one partition that it plans now."""
    reader._rows_offered = batches  # type: ignore[attr-defined]
    reader.__class__ = _offering(type(reader))


@cache
def _offering(kind: type[DataSourceStreamReader]) -> type[DataSourceStreamReader]:
    """Return the class of readers of ``kind`` while they offer rows."""

    def take_rows(
        reader: DataSourceStreamReader, start: dict[str, object], end: dict[str, object]
    ) -> Iterator[pa.RecordBatch]:
        reader.__class__ = kind
        batches: Iterator[pa.RecordBatch] = iter(reader._rows_offered)  # type: ignore[attr-defined]
        del reader._rows_offered  # type: ignore[attr-defined]
        return batches

    return type(f"{kind.__name__}WithRows", (kind, RowsWithPartitions), {"getCache": take_rows})
