"""Spark with its own Kafka connector beside ours, and the CPU time of its processes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.broker.brokers import ROOT, TICKS, Missing
from ottla.spark.spark_home import use_installed_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = ROOT / "build" / "spark-connector"
POM = Path(__file__).parent / "connector.xml"


def own_environment() -> dict[str, str]:
    """Return the environment of a process with a Spark of its own: without that of `session`."""
    aside = ("SPARK_HOME", "PYSPARK_PYTHON")
    return {name: value for name, value in os.environ.items() if name not in aside}


def require_java() -> None:
    """Raises Missing unless there is Java."""
    if shutil.which("java") is None:
        raise Missing("java is not installed")


def fetch_connector() -> list[Path]:
    """Return the connector's jars, downloaded once. Raises Missing."""
    require_java()
    if not list(JARS.glob("spark-sql-kafka-*.jar")):
        if shutil.which("mvn") is None:
            raise Missing("mvn is not installed, and Spark's Kafka connector is not there")
        command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
        if subprocess.run([*command, f"-DoutputDirectory={JARS}"], check=False).returncode:
            raise Missing("Maven could not fetch Spark's Kafka connector")
    return sorted(JARS.glob("*.jar"))


def session(warehouse: Path, threads: int = 2) -> "SparkSession":
    """Start Spark in a child process. Raises Missing."""
    jars = fetch_connector()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    use_installed_pyspark(warehouse.parent / "spark-home")
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(f"local[{threads}]")
        .appName("ottla-benchmarks")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


class Usage:
    """CPU seconds of the child processes, Java's and Python's separately."""

    def __init__(self, spark: "SparkSession") -> None:
        self._java = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]

    def now(self) -> tuple[float, float]:
        """Return the CPU seconds of Java and of its Python processes, including ended ones."""
        parents: dict[int, int] = {}
        used: dict[int, float] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            process = int(path.parent.name)
            parents[process] = int(fields[1])
            used[process] = sum(map(int, fields[11:15])) / TICKS
        python = sum(each for process, each in used.items() if self._is_below(process, parents))
        return used[self._java], python

    def peak_mb(self) -> float:
        """Return the largest resident memory that a living Python process of Java ever had."""
        parents: dict[int, int] = {}
        peaks: dict[int, float] = {}
        for path in Path("/proc").glob("[0-9]*/status"):
            try:
                lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
            except (OSError, ValueError):
                continue  # it has ended meanwhile
            process = int(path.parent.name)
            parents[process] = int(lines["PPid"])
            peaks[process] = int(lines.get("VmHWM", "0 kB").split()[0]) / 1024
        return max(peak for process, peak in peaks.items() if self._is_below(process, parents))

    def _is_below(self, process: int, parents: dict[int, int]) -> bool:
        while process in parents:
            process = parents[process]
            if process == self._java:
                return True
        return False
