"""Times scans on the cores of this process: ``scaling_driver host:port DIRECTORY THREADS ROUNDS``.

Prints the median of the seconds, and the peak memory of the largest Python worker in MB.
"""

import json
import statistics
import sys
from pathlib import Path
from time import perf_counter

from benchmarks.pipeline.comparison import nowhere
from benchmarks.pipeline.connector import Usage, session


def scan(bootstrap: str, root: Path, threads: int, rounds: int) -> tuple[float, float]:
    """Return the seconds of a scan and the peak of the largest worker in MB."""
    spark = session(root / "warehouse", threads)
    try:
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
        rows = reader.option("subscribe", "scan").option("includeHeaders", "true").load()
        times = []
        for _ in range(rounds + 1):
            began = perf_counter()
            nowhere(rows)
            times.append(perf_counter() - began)
        return statistics.median(times[1:]), Usage(spark).peak_mb()
    finally:
        spark.stop()


if __name__ == "__main__":
    at, place, threads, rounds = sys.argv[1:]
    print(json.dumps(scan(at, Path(place), int(threads), int(rounds))))
