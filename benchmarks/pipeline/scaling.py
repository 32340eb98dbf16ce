"""A scan on one core and on two, and the memory of Spark's Python workers.

The broker, Spark and its workers share the cores: on one core, all of them are bound to it. Spark
runs in a process of its own (`scaling_driver`): a JVM keeps the cores that it was started on.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.broker.brokers import ROOT, Missing
from benchmarks.pipeline.comparison import Effort
from benchmarks.pipeline.connector import own_environment
from benchmarks.pipeline.decoding import AREA, value
from benchmarks.pipeline.one_node import create_topics, fill_topic, one_node
from benchmarks.report import Row

SHARE = 2
"""The scans read this part of the records of other scans."""
SCALING_TARGET = 1.5
MEMORY_MB_TARGET = 256
LIMIT_S = 300


def scaling_rows(effort: Effort) -> Iterator[Row]:
    """Yield the ratio of two cores to one, and the largest Python worker. Raises Missing."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise Missing("this machine has one core")
    records = effort.records // SHARE
    rates, peaks = {}, {}
    for count in (1, 2):
        with _bound_to(cores[:count]), one_node() as (bootstrap, root):
            create_topics(bootstrap, {"scan": 2})
            fill_topic(bootstrap, "scan", records, lambda n: (b"key-%08d" % n, value(n)))
            taken, peaks[count] = _measure(bootstrap, root, count, effort.rounds)
            rates[count] = records / taken / 1e6
    ratio = rates[2] / rates[1]
    yield Row(
        AREA,
        "scan to nowhere on two cores, broker included, 8 columns, zstd",
        f"{rates[2]:.2f} M/s",
        f"on one core {rates[1]:.2f} M/s",
        ratio,
        f"at least {SCALING_TARGET}",
        ratio >= SCALING_TARGET,
    )
    peak = max(peaks.values())
    yield Row(
        AREA,
        "peak memory of a Python worker in a scan, 8 columns, zstd",
        f"{peak:.0f} MB",
        f"{MEMORY_MB_TARGET} MB allowed",
        peak / MEMORY_MB_TARGET,
        "at most 1.0",
        peak <= MEMORY_MB_TARGET,
    )


@contextmanager
def _bound_to(cores: list[int]) -> Iterator[None]:
    """Bind this process, and those that it starts meanwhile, to some cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _measure(bootstrap: str, root: Path, threads: int, rounds: int) -> tuple[float, float]:
    """Return the seconds of a scan and the peak of the largest worker in MB."""
    command = [sys.executable, "-m", "benchmarks.pipeline.scaling_driver"]
    done = subprocess.run(
        [*command, bootstrap, str(root), str(threads), str(rounds)],
        stdout=subprocess.PIPE,
        timeout=LIMIT_S,
        check=True,
        cwd=ROOT,
        env=own_environment(),
    )
    taken, peak = json.loads(done.stdout.splitlines()[-1])
    print(f"scaling: {threads} of 2 cores: {taken:.1f} s a scan", file=sys.stderr)
    return taken, peak
