"""Topics to tables of parquet, Delta and Iceberg, against the same tables from parquet files.

Each format has a part of its own and a process of its own (`tables_driver`): Delta and Iceberg need
an environment with a Spark that they are built for, which is made once in ``build/environments``.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.spark_environments import Unavailable, environment_python, requirements_of

from benchmarks.broker.brokers import Missing
from benchmarks.pipeline.comparison import Effort
from benchmarks.pipeline.connector import own_environment, require_java
from benchmarks.pipeline.decoding import AREA, value
from benchmarks.pipeline.one_node import create_topics, fill_topic, one_node
from benchmarks.pipeline.queries import record
from benchmarks.report import Row, spread

UPSERTS_PER_RECORD = 20
"""One upsert for so many records of the append."""
KEYS = 20_000
TARGET = 0.85
LIMIT_S = 600


def table_rows(format: str, effort: Effort) -> Iterator[Row]:
    """Yield the row of appends and, except for parquet, of upserts. Raises Missing."""
    require_java()
    python = _python(format)
    upserts = effort.records // UPSERTS_PER_RECORD
    with one_node() as (bootstrap, root):
        create_topics(bootstrap, {"append": 2, "upsert": 2})
        fill_topic(bootstrap, "append", effort.records, lambda n: (b"key-%08d" % n, value(n)))
        fill_topic(bootstrap, "upsert", upserts, _change)
        found = _measure(python, format, bootstrap, root, effort.rounds)
    yield _append_row(format, found, effort.records)
    if "upsert" in found:
        yield _upsert_row(format, found, upserts)


def _python(format: str) -> Path:
    if format == "parquet":
        return Path(sys.executable)
    try:
        return environment_python(format, requirements_of(format))
    except Unavailable as error:
        raise Missing(str(error)) from error


def _change(number: int) -> tuple[bytes, bytes]:
    """Return a record whose key is one of `KEYS`; a key stays in one partition."""
    place = number * 7919 % KEYS // 2 * 2 + number % 2
    return b"%d" % place, record(number)[1]


def _measure(
    python: Path, format: str, bootstrap: str, root: Path, rounds: int
) -> dict[str, list[float]]:
    """Return the seconds of each round, by what was done; progress is printed on stderr."""
    driver = Path(__file__).with_name("tables_driver.py")
    done = subprocess.run(
        [str(python), str(driver), format, bootstrap, str(root), str(rounds)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=own_environment(),
    )
    if done.returncode:
        raise RuntimeError(f"{format}: the driver failed with {done.returncode}, see above")
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _append_row(format: str, found: dict[str, list[float]], records: int) -> Row:
    ours, theirs = found["topic"], found["parquet"]
    ratios = [other / mine for mine, other in zip(ours, theirs, strict=True)]
    ratio = statistics.median(ratios)
    mine, other = (records / statistics.median(each) / 1e6 for each in (ours, theirs))
    return Row(
        AREA,
        f"topic to {format}, 7 columns, zstd",
        f"{mine:.2f} M/s",
        f"parquet to {format} {other:.2f} M/s ({spread(ratios)})",
        ratio,
        f"at least {TARGET}",
        ratio >= TARGET,
    )


def _upsert_row(format: str, found: dict[str, list[float]], upserts: int) -> Row:
    ours, theirs = found["upsert"], found["merge"]
    ratios = [other / mine for mine, other in zip(ours, theirs, strict=True)]
    mine, other = (upserts / statistics.median(each) for each in (ours, theirs))
    return Row(
        AREA,
        f"upserts of JSON into {format}, {KEYS:,} keys, a job from start to end",
        f"{mine:,.0f} upserts/s, {upserts:,} in {statistics.median(ours):.1f} s",
        f"MERGE of the parsed rows in parquet {other:,.0f}/s ({spread(ratios)})",
        statistics.median(ratios),
        "reported",
        True,
    )
