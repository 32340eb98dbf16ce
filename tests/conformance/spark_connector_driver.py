"""Spark's own Kafka connector against one broker: reads, streams and writes; prints what it saw.

    python tests/conformance/spark_connector_driver.py host:port DIRECTORY

Run as a process of its own, because the connector's jar has to be there when a session starts.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.pipeline.connector import session  # noqa: E402 - needs the path above


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
    print("FOUND " + json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
