"""Spark's read limits, or stand-ins for a Spark that has none.

Spark 4.2 passes a limit and the start of the next micro-batch to a Python stream. Spark 4.1 has
neither: it calls ``latestOffset()`` without arguments, and an AvailableNow query reads everything
up to one call. `HAS_READ_LIMITS` says which one this is; `source.StreamReader` handles both.

`RowsWithPartitions` is a private class of Spark whose instances pass rows together with a partition
(`prefetch`). `HAS_PREFETCH` says whether this Spark has it.
"""

from typing import TYPE_CHECKING

__all__ = [
    "HAS_PREFETCH",
    "HAS_READ_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "RowsWithPartitions",
    "SupportsTriggerAvailableNow",
]

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_READ_LIMITS: bool
    HAS_PREFETCH: bool

    class RowsWithPartitions:
        """Spark's class, of which only the name matters."""
else:
    try:
        from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as RowsWithPartitions

        HAS_PREFETCH = hasattr(RowsWithPartitions, "getCache")
    except ImportError:
        HAS_PREFETCH = False

        class RowsWithPartitions:
            """Stands in for Spark's class; nothing checks for it."""

    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )

        HAS_READ_LIMITS = True
    except ImportError:  # Spark 4.1
        HAS_READ_LIMITS = False

        class ReadLimit:
            """Stands in for Spark's class; nothing passes it."""

            def __init__(self, value: int = 0) -> None:
                self.value = value

        class ReadAllAvailable(ReadLimit):
            """No limit."""

        class ReadMinRows(ReadLimit):
            """At least this many rows."""

        class ReadMaxRows(ReadLimit):
            """At most this many rows."""

        class ReadMaxBytes(ReadLimit):
            """At most this many bytes."""

        class SupportsTriggerAvailableNow:
            """Stands in for Spark's mixin."""
