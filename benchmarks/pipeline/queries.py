"""One aggregation over a topic: ``ottla sql``, Spark, and kcat piped into DuckDB.

Each is timed as a user would wait for it: ``ottla sql`` and kcat from the start of the command,
Spark in a session that has run the query before.
"""

import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.broker.brokers import Missing
from benchmarks.pipeline.comparison import Effort, turns
from benchmarks.pipeline.connector import session
from benchmarks.pipeline.decoding import AREA, WORDS
from benchmarks.pipeline.one_node import create_topics, fill_topic, one_node
from benchmarks.report import Row, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = 100_000
"""Records of the smaller topic: what is measured there is how fast a command starts."""
SPARK_TARGET, KCAT_TARGET = 1.0, 1.0
QUERY = "select what, count(*) n, sum(amount) total from {topic} group by what order by what"
DUCKDB = (
    'import duckdb; print(duckdb.sql("select what, count(*) n, sum(amount) total from '
    "read_json('/dev/stdin', format='newline_delimited', "
    "columns={id: 'BIGINT', what: 'VARCHAR', amount: 'BIGINT'}) group by what\").fetchall())"
)


def record(number: int) -> tuple[bytes, bytes]:
    """Return a key and an order in JSON."""
    text = b'{"id":%d,"what":"%s","who":"user-%d","amount":%d}'
    order = (number, WORDS[number % 8], number * 7919 % 100_000, number * 31 % 9973)
    return b"key-%08d" % number, text % order


def query_rows(effort: Effort) -> Iterator[Row]:
    """Yield a row for Spark and one for kcat, of a small and of a large topic. Raises Missing."""
    if shutil.which("kcat") is None or find_spec("duckdb") is None:
        raise Missing("kcat or duckdb is not installed")
    topics = {"small": SMALL, "large": effort.records}
    with one_node() as (bootstrap, root):
        create_topics(bootstrap, dict.fromkeys(topics, 2))
        for topic, records in topics.items():
            fill_topic(bootstrap, topic, records, record)
        spark = session(root / "warehouse")
        try:
            for topic, records in topics.items():
                works = (
                    sql(bootstrap, topic),
                    in_spark(spark, bootstrap, topic),
                    with_kcat(bootstrap, topic, root),
                )
                yield from _rows(topic, records, *turns(works, effort.rounds))
        finally:
            spark.stop()


def _rows(
    topic: str, records: int, ours: list[float], sparks: list[float], kcats: list[float]
) -> Iterator[Row]:
    for name, theirs, target in (
        ("Spark", sparks, SPARK_TARGET),
        ("kcat piped into DuckDB", kcats, KCAT_TARGET),
    ):
        ratios = [other / mine for mine, other in zip(ours, theirs, strict=True)]
        ratio = statistics.median(ratios)
        yield Row(
            AREA,
            f"ottla sql, count and sum by a JSON field, {topic} topic, against {name}",
            f"{statistics.median(ours):.2f} s, {records:,} records",
            f"{statistics.median(theirs):.2f} s ({spread(ratios)})",
            ratio,
            f"at least {target}",
            ratio >= target,
        )


def sql(bootstrap: str, topic: str) -> Callable[[], None]:
    """Return the query as a command of ours."""
    command = [sys.executable, "-m", "ottla.cli.main", "sql", QUERY.format(topic=topic)]
    return lambda: _run([*command, "--bootstrap", bootstrap, "-o", "json"])


def in_spark(spark: "SparkSession", bootstrap: str, topic: str) -> Callable[[], None]:
    """Return the query in a session of Spark."""
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.option("subscribe", topic).schema("value binary").load()
    parsed = "from_json(cast(value as string), 'what string, amount bigint') as it"
    rows.selectExpr(parsed).select("it.*").createOrReplaceTempView(topic)

    def work() -> None:
        assert len(spark.sql(QUERY.format(topic=topic)).collect()) == len(WORDS)

    return work


def with_kcat(bootstrap: str, topic: str, root: Path) -> Callable[[], None]:
    """Return the query as a pipe."""
    script = root / "query.py"
    script.write_text(DUCKDB)
    pipe = f"kcat -q -b {bootstrap} -C -t {topic} -o beginning -e | {sys.executable} {script}"
    return lambda: _run(["bash", "-c", pipe])


def _run(command: list[str]) -> None:
    began = perf_counter()
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode or WORDS[0] not in done.stdout:
        after = perf_counter() - began
        raise RuntimeError(f"{command[0]} failed after {after:.1f} s: {done.stderr[-500:]!r}")
