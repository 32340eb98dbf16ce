"""A real Spark cluster of processes on this machine: one master, two workers, from the wheel.

`run_connect_server` adds a server of Spark Connect whose queries run on the cluster.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.free_ports import free_ports

_LINK = "import sys, pathlib, ottla.spark.spark_home as h; h.link_home(pathlib.Path(sys.argv[1]))"
WAIT_S = 240.0
# The processes run for seconds only: optimizing compilers and collectors do not pay off.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


def _home(directory: Path, python: str) -> Path:
    """Return a home of the Spark that a Python has."""
    home = directory / "spark-home"
    subprocess.run([python, "-c", _LINK, str(home)], check=True, timeout=WAIT_S)
    return home


@contextmanager
def _process(name: str, *words: str, log: Path, python: str) -> Iterator[Path]:
    home = _home(log.parent, python)
    environment = {
        **os.environ,
        "JAVA_TOOL_OPTIONS": JAVA_OPTIONS,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
        "SPARK_NO_DAEMONIZE": "1",
    }
    with log.open("wb") as out:
        running = subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    try:
        yield log
    finally:
        running.terminate()
        running.wait(30)


def _wait_for(pattern: str, log: Path, count: int = 1) -> None:
    deadline = time.monotonic() + WAIT_S
    while len(re.findall(pattern, log.read_text(errors="replace"))) < count:
        assert time.monotonic() < deadline, f"no {pattern!r} in {log.read_text()[-2000:]}"
        time.sleep(0.1)


@contextmanager
def run_standalone(
    directory: Path, workers: int = 2, python: str = sys.executable
) -> Iterator[str]:
    """Run a cluster; yield its master's address after all workers have registered.

    ``python`` has the Spark to run.
    """
    port = free_ports(1)[0]
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        master = running.enter_context(
            _process(
                "master.Master",
                *(
                    "--host",
                    "127.0.0.1",
                    "--port",
                    str(port),
                    "--webui-port",
                    str(free_ports(1)[0]),
                ),
                log=directory / "master.log",
                python=python,
            )
        )
        _wait_for("Starting Spark master", master)
        for number in range(workers):
            running.enter_context(
                _process(
                    "worker.Worker",
                    *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g"),
                    *(
                        "--webui-port",
                        str(free_ports(1)[0]),
                        "--work-dir",
                        str(directory / f"w{number}"),
                    ),
                    address,
                    log=directory / f"worker-{number}.log",
                    python=python,
                )
            )
        _wait_for("Registering worker", master, workers)
        yield address


@contextmanager
def run_connect_server(
    directory: Path, master: str, settings: dict[str, str], python: str = sys.executable
) -> Iterator[str]:
    """Run a server of Spark Connect on a cluster; yield its address."""
    port = free_ports(1)[0]
    chosen = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        **settings,
    }
    words = [f"--conf={key}={value}" for key, value in chosen.items()]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with _process(
        "SparkSubmit",
        *("--class", server, "--master", master, *words, "spark-internal"),
        log=directory / "connect.log",
        python=python,
    ) as log:
        _wait_for("Spark Connect server started", log)
        yield f"sc://127.0.0.1:{port}"


def executors(directory: Path) -> list[int]:
    """Return the executor processes of a cluster."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            place, words = (process / "cwd").readlink(), (process / "cmdline").read_bytes()
        except OSError:
            continue  # the process has ended
        if directory in place.parents and b"CoarseGrainedExecutorBackend" in words:
            found.append(int(process.name))
    return sorted(found)


def kill_executor(directory: Path) -> None:
    """Kill one executor; its worker starts another."""
    os.kill(executors(directory)[0], signal.SIGKILL)


def executors_started(directory: Path) -> int:
    """Return the number of executors started so far."""
    return len(list(directory.glob("w*/app-*/[0-9]*")))
