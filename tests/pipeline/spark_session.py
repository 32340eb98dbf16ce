"""Starts the Spark session of the pipeline tests."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.spark.spark_home import use_installed_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKER = b"pyspark.daemon\0pyspark.worker\0"
JAVA_MIN = 17


def java_missing() -> str | None:
    """Return why Spark cannot start, and a remedy; None if it can."""
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
    if java is None:
        return f"Spark needs Java {JAVA_MIN} or newer: apt-get install openjdk-17-jre-headless"
    done = subprocess.run([java, "-version"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"{java} does not run: {done.stderr[:200]}"


def build_session(warehouse: Path, threads: int = 2) -> "SparkSession":
    """Start a session without a UI."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    use_installed_pyspark(warehouse.parent / f"{warehouse.name}-home")
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(f"local[{threads}]")
        .appName("ottla-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.metricsEnabled", "false")
        .config("spark.log.level", "ERROR")
        # Python processes start slowly on a busy machine.
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )


def kill_workers(spark: "SparkSession") -> int:
    """Kill the Python worker processes of a session; return their number."""
    java = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if (stat.parent / "cmdline").read_bytes().endswith(WORKER):
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # the process has ended
    # Java starts a daemon, which forks the workers.
    workers = [each for each, parent in parents.items() if parents.get(parent) == java]
    for each in workers:
        os.kill(each, signal.SIGKILL)
    return len(workers)
