"""Spark's own Kafka connector against one broker: reads, streams and writes; prints what it saw.

    python tests/conformance/spark_connector_driver.py host:port DIRECTORY

Run as a process of its own, because the connector's jar has to be there when a session starts.
"""

import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.pipeline.connector import session  # noqa: E402 - needs the path above

WAIT_S = 120.0
ROWS = 10
"""Records in the topic ``plain``."""


def main() -> None:
    bootstrap, directory = sys.argv[1], Path(sys.argv[2])
    spark = session(directory / "warehouse")

    def reading(**options):
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**options).load()

    def values(frame):
        rows = frame.selectExpr("cast(value as string) v").collect()
        return sorted((each["v"] for each in rows), key=str)

    found = {
        "batch": values(reading(subscribe="plain")),
        "pattern": values(reading(subscribePattern="pla.*")),
        "range": values(
            reading(
                subscribe="plain",
                startingOffsets='{"plain":{"0":2,"1":-2}}',
                endingOffsets='{"plain":{"0":4,"1":1}}',
            )
        ),
        "timestamps": values(
            reading(subscribe="stamped", startingTimestamp="2000", endingTimestamp="4000")
        ),
        "committed": values(
            reading(subscribe="transacted", **{"kafka.isolation.level": "read_committed"})
        ),
        "uncommitted": values(
            reading(subscribe="transacted", **{"kafka.isolation.level": "read_uncommitted"})
        ),
        "headers": [
            [[each["key"], bytes(each["value"]).decode()] for each in row["headers"]]
            for row in reading(subscribe="headed", includeHeaders="true").collect()
        ],
        "splits": reading(subscribe="plain", minPartitions="5").rdd.getNumPartitions(),
    }
    rows = spark.sql("select cast(id as string) key, concat('w', id) value from range(20)")
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", "written").save()
    found["written"] = values(reading(subscribe="written"))

    def stream() -> None:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        frame = reader.options(
            subscribe="plain", startingOffsets="earliest", maxOffsetsPerTrigger="3"
        ).load()
        writing = frame.selectExpr("key", "value").writeStream.format("kafka")
        writing = writing.option("kafka.bootstrap.servers", bootstrap).option("topic", "streamed")
        writing = writing.option("checkpointLocation", str(directory / "checkpoint"))
        writing.trigger(availableNow=True).start().awaitTermination()

    stream()
    stream()
    found["streamed"] = values(reading(subscribe="streamed"))

    def real_time(source: str) -> list[str] | str:
        """Return what a stream in real-time mode wrote, or why Spark refused it."""
        reader = spark.readStream.format(source).option("kafka.bootstrap.servers", bootstrap)
        frame = reader.options(subscribe="plain", startingOffsets="earliest").load()
        writing = frame.selectExpr("key", "value").writeStream.format("kafka").outputMode("update")
        writing = writing.option("kafka.bootstrap.servers", bootstrap).option("topic", "at-once")
        writing = writing.option("checkpointLocation", str(directory / f"real-time-{source}"))
        query = writing.trigger(realTime="5 seconds").start()
        deadline = time.monotonic() + WAIT_S
        while query.isActive and time.monotonic() < deadline:
            if len(written := values(reading(subscribe="at-once"))) >= ROWS:
                query.stop()
                return written
            time.sleep(0.5)
        return str(query.exception()).partition("]")[0].strip("[")

    found["real time, ottla"] = real_time("ottla")
    found["real time, kafka"] = real_time("kafka")
    print("FOUND " + json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
