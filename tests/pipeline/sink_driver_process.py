"""A driver process to be killed: ``sink_driver_process.py DIRECTORY`` copies a topic, exactly once.

``copy.json`` of the directory has the options of source and sink. All tasks of the micro-batch but
the first wait until the file ``open`` exists, so that the driver can be killed when one task is
committed and the others are not.
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
    options = json.loads((root / "copy.json").read_text())
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
    writer = writer.option("checkpointLocation", str(root / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def main() -> None:
    from spark_session import build_session

    root = Path(sys.argv[1])
    copy_stream(build_session(root / "warehouse"), root).awaitTermination()


if __name__ == "__main__":
    main()
