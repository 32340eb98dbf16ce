"""A driver process to be killed: ``killed_driver_process.py DIRECTORY`` runs two streams.

One writes a topic to a table, in small micro-batches; the other copies a topic, exactly once.
``streams.json`` of the directory has their options. All tasks of the copy but the first wait until
the file ``open`` exists, so that the driver can be killed when one task is committed and the others
are not.
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

GATE_S = 240.0


def copy_stream(spark: "SparkSession", root: Path) -> "StreamingQuery":
    """Start or resume the copy until all available records are read."""
    options = json.loads((root / "streams.json").read_text())
    gate = str(root / "open")

    def gated(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        deadline = time.monotonic() + GATE_S
        while context.partitionId() and not Path(gate).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield from batches

    frame = spark.readStream.format("ottla").options(**options["source"]).load()
    frame = frame.selectExpr("cast(value as string) value").mapInArrow(gated, "value string")
    writer = frame.writeStream.format("ottla").options(**options["sink"])
    writer = writer.option("checkpointLocation", str(root / "copy-checkpoint"))
    return writer.trigger(availableNow=True).start()


def main() -> None:
    from source_table import Table
    from spark_session import build_session

    root = Path(sys.argv[1])
    # The waiting tasks of the copy leave a thread to the table.
    spark = build_session(root / "warehouse", threads=4)
    options = json.loads((root / "streams.json").read_text())
    Table(spark, root).stream(options["table"], processingTime="100 milliseconds")
    copy_stream(spark, root)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
