"""A parquet table written by a stream, and the checkpoint of the stream."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


class Table:
    """A parquet table written by a stream, with its checkpoint."""

    def __init__(self, spark: "SparkSession", root: Path) -> None:
        self._spark = spark
        self.rows = root / "rows"
        self.checkpoint = root / "checkpoint"

    def stream(self, options: dict[str, str], **trigger: Any) -> "StreamingQuery":
        """Start or resume the stream."""
        frame = self._spark.readStream.format("ottla").options(**options).load()
        writer = frame.selectExpr("cast(value as string) value", "partition", "offset").writeStream
        writer = writer.format("parquet").option("path", str(self.rows))
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self, options: dict[str, str]) -> list[Any]:
        """Run until all available records are read; return the progress of each batch."""
        query = self.stream(options)
        assert query.awaitTermination(120), "the query did not end"
        assert query.exception() is None
        return query.recentProgress

    @property
    def values(self) -> list[str]:
        rows = self._spark.read.parquet(str(self.rows)).collect()
        return [each["value"] for each in sorted(rows, key=lambda row: row[1:])]

    def batches(self, log: str) -> list[int]:
        """The batches in the offset log or the commit log."""
        found = (self.checkpoint / log).glob("[0-9]*")
        return sorted(int(each.name) for each in found)
