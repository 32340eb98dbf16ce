"""Reads mixed topics with Spark's own Kafka source and with ours, and compares every row.

    python tests/conformance/spark_equality_driver.py host:port DIRECTORY ROWS

Rows are compared inside Spark: each is hashed with all its columns, and hashes are summed per
topic, partition and thousand offsets, so that a difference names its place. Prints one line of
JSON per case: its name, the rows per topic, and the places that differ (at most `SHOWN`). A stream
is written to parquet in several micro-batches, and the files are compared.
"""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.pipeline.connector import session  # noqa: E402 - needs the path above

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPICS = "mixed,transacted,compacted,expired"
SHOWN = 5
BATCHES = 7
SPAN = 1000
SUMS = (
    "count(*)",
    "sum(cast(hash as decimal(38, 0)))",
    "bit_xor(hash)",
    "min(offset)",
    "max(offset)",
)
# Null and empty differ, also in a header: a hash alone skips nulls.
HEADERS = (
    "transform(headers, h -> concat(coalesce(hex(h.key), 'null'), '=', "
    "coalesce(hex(h.value), 'null')))"
)
HASH = (
    "xxhash64(topic, partition, offset, timestamp, timestampType, key is null, key, "
    f"value is null, value, headers is null, array_join({HEADERS}, ','))"
)
CASES = {
    "committed": {"kafka.isolation.level": "read_committed"},
    "uncommitted": {"kafka.isolation.level": "read_uncommitted"},
}
RUNS = (("batch", "committed"), ("batch", "uncommitted"), ("stream", "committed"))

Sums = dict[tuple[Any, ...], tuple[Any, ...]]


class Comparison:
    """Both sources on one broker."""

    def __init__(self, spark: "SparkSession", bootstrap: str, root: Path, rows: int) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.root = root
        self.rows = rows

    def _options(self, case: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": TOPICS,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            **CASES[case],
        }

    def batch(self, kind: str, case: str) -> "DataFrame":
        return self.spark.read.format(kind).options(**self._options(case)).load()

    def stream(self, kind: str, case: str) -> "DataFrame":
        """Stream everything that is there, in several micro-batches."""
        options = {"maxOffsetsPerTrigger": str(self.rows // BATCHES), "minPartitions": "12"}
        reader = self.spark.readStream.format(kind).options(**self._options(case), **options)
        place = self.root / f"{kind}-{case}"
        writer = reader.load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", f"{place}-checkpoint")
        query = writer.trigger(availableNow=True).start(str(place))
        query.awaitTermination()
        commits = len(list(Path(f"{place}-checkpoint", "commits").glob("[0-9]*")))
        assert commits >= BATCHES - 1, f"{commits} micro-batches"
        return self.spark.read.parquet(str(place))

    def sums(self, frame: "DataFrame") -> Sums:
        """Return count, hashes and offsets per topic, partition and thousand offsets."""
        from pyspark.sql import functions as F

        hashed = frame.selectExpr(
            "topic", "partition", f"offset div {SPAN} span", "offset", f"{HASH} hash"
        )
        summed = hashed.groupBy("topic", "partition", "span").agg(*map(F.expr, SUMS))
        return {tuple(row)[:3]: tuple(row)[3:] for row in summed.collect()}


def compare(theirs: Sums, ours: Sums) -> dict[str, Any]:
    """Return the rows per topic, and the places at which both differ."""
    counts: dict[str, int] = {}
    for (topic, _, _), (count, *_) in theirs.items():
        counts[topic] = counts.get(topic, 0) + count
    places = sorted(theirs.keys() | ours.keys())
    different = [each for each in places if theirs.get(each) != ours.get(each)]
    shown = [[*each, str(theirs.get(each)), str(ours.get(each))] for each in different[:SHOWN]]
    return {"rows": counts, "different": len(different), "shown": shown}


def main() -> None:
    bootstrap, root, rows = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    spark = session(root / "warehouse")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    comparison = Comparison(spark, bootstrap, root, rows)
    for name, case in RUNS:
        read = getattr(comparison, name)
        seconds, sums = {}, {}
        for kind in ("kafka", "ottla"):
            began = time.monotonic()
            sums[kind] = comparison.sums(read(kind, case))
            seconds[kind] = round(time.monotonic() - began, 1)
        found = compare(sums["kafka"], sums["ottla"])
        print(
            "FOUND " + json.dumps({"case": f"{name} {case}", **found, "seconds": seconds}),
            flush=True,
        )
    spark.stop()


if __name__ == "__main__":
    main()
