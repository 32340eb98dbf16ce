"""Spark's read limits, or stand-ins for a Spark that has none.

Spark 4.2 passes a limit and the start of the next micro-batch to a Python stream. Spark 4.1 has
neither: it calls ``latestOffset()`` without arguments, and an AvailableNow query reads everything
up to one call. `HAS_READ_LIMITS` says which one this is; `stream_reader` has a class for each.
"""

from typing import TYPE_CHECKING

__all__ = [
    "HAS_READ_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
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
else:
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

        ReadMinRows = ReadMaxRows = ReadMaxBytes = ReadLimit

        class SupportsTriggerAvailableNow:
            """Stands in for Spark's mixin."""
