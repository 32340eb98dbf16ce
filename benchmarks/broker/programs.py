"""The C programs of the benchmark: compiled if older than their source, then run."""

import json
import resource
import shutil
import subprocess
from pathlib import Path

from benchmarks.broker.brokers import CLIENT_CORE, ROOT, Missing, pinned

HERE = Path(__file__).parent
BUILT = ROOT / "build" / "bench"
LIBRARIES = {
    "rdload": ["-lrdkafka", "-lpthread"],
    "requests": [],
    "bare_server": [],
    "bare_broker": [],
    "compute": [],
    "pipelined": ["-lssl", "-lcrypto"],
}
SECONDS_MAX = 400


def program(name: str) -> str:
    """Return the path of a program. Raises Missing."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise Missing("there is no C compiler")
    source, target = HERE / f"{name}.c", BUILT / name
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        BUILT.mkdir(parents=True, exist_ok=True)
        command = [compiler, "-O2", "-o", str(target), str(source), *LIBRARIES[name]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"{name}.c does not compile (librdkafka-dev?): {done.stderr[:300]}")
    return str(target)


def measure(name: str, *arguments: object) -> dict[str, float]:
    """Run a client program on the clients' core; return its output, with its CPU time as "cpu".

    Raises:
        RuntimeError: it failed.
    """
    command = [*pinned(CLIENT_CORE), program(name), *map(str, arguments)]
    before = _children_seconds()
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} {arguments}: {done.stderr[-1000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return {"cpu": _children_seconds() - before, **found}


def _children_seconds() -> float:
    """Return the CPU time of the children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
