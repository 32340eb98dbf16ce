"""A real Spark cluster of processes on this machine: one master, two workers, from the wheel."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

WAIT_S = 120.0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def _process(name: str, *words: str, log: Path) -> Iterator[Path]:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
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
def run_standalone(directory: Path, workers: int = 2) -> Iterator[str]:
    """Run a cluster; give its master's address once every worker has registered."""
    port = _free_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        master = running.enter_context(
            _process(
                "master.Master",
                *("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(_free_port())),
                log=directory / "master.log",
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
                        str(_free_port()),
                        "--work-dir",
                        str(directory / f"w{number}"),
                    ),
                    address,
                    log=directory / f"worker-{number}.log",
                )
            )
        _wait_for("Registering worker", master, workers)
        yield address
