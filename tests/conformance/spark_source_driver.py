"""Spark's own Kafka source and ours with the same options on one broker; prints where they differ.

    python tests/conformance/spark_source_driver.py host:port DIRECTORY

``cases.json`` in the directory has the options, by a name for each case. Run as a process of its
own, because the connector's jar has to be there when a session starts.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.pipeline.connector import session  # noqa: E402 - needs the path above

PLACE = ("topic", "partition", "offset")


def main() -> None:
    bootstrap, directory = sys.argv[1], Path(sys.argv[2])
    cases = json.loads((directory / "cases.json").read_text())
    spark = session(directory / "warehouse")

    def rows(kind: str, options: dict[str, str]) -> list[str]:
        reader = spark.read.format(kind).option("kafka.bootstrap.servers", bootstrap)
        frame = reader.options(**options).load()
        return [str(row) for row in frame.orderBy(*PLACE).collect()]

    for name, options in cases.items():
        theirs, ours = rows("kafka", options), rows("ottla", options)
        is_alike = theirs == ours
        print("FOUND " + json.dumps([name, is_alike, len(theirs)]), flush=True)
        if not is_alike:
            print(f"{name}\ntheirs {theirs[:5]}\nours   {ours[:5]}", file=sys.stderr)
    spark.stop()


if __name__ == "__main__":
    main()
